"""Names and strings of generated C: identifiers, literals and comments that no model name can break."""

from __future__ import annotations

import re

# Prefixes with which <prefix>_create or <prefix>_destroy is a function of libc, or of our own runtime.
_TAKEN = re.compile(r"(pthread|posix|sem|timer|thrd|mtx|cnd|tss|halotile)(_|$)")
_LONGEST = 100  # file names have an end


def identifier(name: str) -> str:
    """A C identifier for a model's name: ``my-model.v2`` -> ``my_model_v2``, ``3d`` -> ``model_3d``."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", name)[:_LONGEST].strip("_")
    if not text:
        return "model"
    return f"model_{text}" if text[0].isdigit() or _TAKEN.match(text) else text


def literal(text: str) -> str:
    """A C89 string literal of the UTF-8 bytes; octal escapes keep trigraphs and foreign letters out of the source."""
    plain = set(range(0x20, 0x7F)) - set(b'"\\?')
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'


def comment(text: str) -> str:
    """``text`` made fit for the inside of a comment: printable ASCII that neither opens nor closes one."""
    clean = re.sub(r"[^\x20-\x7e]|[\\?]", "_", text)
    return clean.replace("/*", "/ *").replace("*/", "* /")

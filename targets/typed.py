"""Plain data of a file as a type, or an error that names the file and the field; the facts of a target first of all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from ..errors import HalotileError
from .convert import Mismatch, convert
from .fitted import checked_constants
from .plain import Json
from .target import Target

LARGEST = (1 << 63) - 1
UNTOLD = ("native", "source", "notes", "weights_stay", "in_halves", "half_growth")  # no facts about the machine
_LIMITS = {"vector_registers": (8, 64), "fma_ports": (1, 16), "fma_latency": (1, 100), "far_bytes": (1, 1 << 20),
           "l1_bytes": (1 << 10, 1 << 40), "l2_bytes": (1 << 10, 1 << 40), "l3_bytes": (0, 1 << 40), "cores": (1, 1024),
           "scratchpad_bytes": (0, 1 << 40), "bandwidth": (0, LARGEST), "hertz": (0, LARGEST),
           "transfer_seconds": (0, 1e3)}  # fmt: skip
_CHOICES = {"vector_bits": (64, 128, 256, 512, 1024, 2048), "line_bytes": (16, 32, 64, 128, 256),
            "memory_kind": ("cache", "scratchpad")}  # fmt: skip
_FORMS = {"triple": r"\w+(-\w+)*", "cpu": r"[\w.+-]+", "glibc": r"(\d+\.\d+)?", "features": r"[+-][\w.+-]+"}
_WRITTEN = {"triple": "architecture-system-abi, such as aarch64-linux-gnu", "cpu": "LLVM's name, such as cortex-a76",
            "glibc": "two numbers, such as 2.31", "features": "+name or -name, such as +dotprod"}  # fmt: skip


def typed(data: Any, kind: Any, where: str, error: type[HalotileError], within: str = "") -> Any:
    """``data``, as JSON or TOML has it, as ``kind`` (:func:`.convert.convert`).

    ``where`` names the file, ``within`` the field that ``data`` is in. Raises ``error`` that names the field which has
    another type.
    """
    try:
        return convert(data, kind)
    except UnicodeEncodeError as wrong:
        raise error(f"{where}: it holds half a character, {wrong.object[wrong.start : wrong.end]!r}") from None
    except Mismatch as wrong:
        field = f"{within}{wrong.field}".lstrip(".")
        raise error(": ".join(filter(None, (where, field, wrong.reason)))) from None


def typed_target(
    facts: object, where: str, error: type[HalotileError], within: str = "target", **more: tuple[str, ...] | str
) -> Target:
    """The target that has these facts; ``more`` are fields that no file states. Raises ``error`` naming the fact."""
    if isinstance(facts, Mapping):
        known = {f.name for f in fields(Target)} - set(UNTOLD) - set(more)
        unknown = sorted(str(key) for key in facts if key not in known)
        if unknown:
            raise error(f"{where}: unknown fact {unknown[0]!r} of a target (known: {', '.join(sorted(known))})")
        if why := checked_constants(facts.get("fitted")):
            raise error(f"{where}: {within}.fitted{why}")
        facts = {**facts, **more}
    target: Target = typed(facts, Target, where, error, within)
    for name in (*_LIMITS, *_CHOICES, *_FORMS):
        value = getattr(target, name)
        if why := _objection(name, value):
            raise error(f"{where}: {within}.{name}: {value!r} {why}")
    if (target.memory_kind == "scratchpad") != bool(target.scratchpad_bytes):
        raise error(f"{where}: {within}.scratchpad_bytes: {target.scratchpad_bytes} of a {target.memory_kind}")
    return target


def target_facts(target: Target) -> Json:
    """A target as a manifest has it: the facts of the machine, and constants that are its own."""
    facts = {key: value for key, value in asdict(target).items() if key not in UNTOLD}
    own = target.fitted.changed()
    return {**facts, "fitted": own} if own else {key: value for key, value in facts.items() if key != "fitted"}


def _objection(name: str, value: Any) -> str:
    """What is wrong with a fact of the right type; nothing where nothing is."""
    low, high = _LIMITS.get(name, (None, None))
    if low is not None and not low <= value <= high:
        return f"is not from {low} to {high}"
    if name in _CHOICES and value not in _CHOICES[name]:
        return f"is none of {', '.join(map(str, _CHOICES[name]))}"
    texts = value if isinstance(value, tuple) else (value,)
    if name in _FORMS and not all(re.fullmatch(_FORMS[name], text, re.ASCII) for text in texts):
        return f"is not written so: {_WRITTEN[name]}"
    return ""

"""What was linked is examined before it is called done: on the board it is too late.

    machine and class; weights; libraries needed; the newest glibc symbol; text relocations; exported names
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ToolchainError
from ...targets.target import Target
from .elf import ElfFacts, read_elf, version_key
from .toolchain import machine_of

if TYPE_CHECKING:
    from ...targets.plain import Json

# The C library and its parts, by the names of glibc and musl, and the dynamic linker.
_LIBRARIES = re.compile(
    r"(lib(c|m|pthread)\.so(\.6|\.0)?|libc\.musl-\w+\.so\.1|ld-linux[\w-]*\.so\.\d|ld-musl-\w+\.so\.1)"
)
_ADVICE = "choose another --cc"


def examine_shared(path: Path, target: Target, functions: Collection[str], weights: int = 0) -> Json:
    """Facts of a shared library for the manifest; ToolchainError when the board could not load it."""
    facts = read_elf(path)
    _right_machine(path, facts, target)
    _whole(path, weights)
    foreign = [name for name in facts.needed if not _LIBRARIES.fullmatch(name)]
    if foreign:
        raise ToolchainError(f"{path.name} would need {', '.join(foreign)}, which a board may lack; {_ADVICE}")
    _old_enough(path, facts, target)
    if facts.text_relocations:
        raise ToolchainError(f"{path.name} has text relocations, which many systems refuse; choose another --cc")
    more, less = sorted(facts.exports - set(functions)), sorted(set(functions) - facts.exports)
    if more or less:
        wrong = f"exports {', '.join(more)}" if more else f"lacks {', '.join(less)}"
        raise ToolchainError(f"{path.name} {wrong}: the linker did not keep to the list of exports; {_ADVICE}")
    return _data(facts)


def examine_program(path: Path, target: Target, weights: int = 0) -> Json:
    """Facts of a static program; ToolchainError when it needs anything at all."""
    facts = read_elf(path)
    _right_machine(path, facts, target)
    _whole(path, weights)
    if facts.needed or facts.interpreter:
        wanted = ", ".join(facts.needed) or facts.interpreter
        raise ToolchainError(f"{path.name} is not static: it needs {wanted}; choose another --cc")
    return _data(facts)


def _right_machine(path: Path, facts: ElfFacts, target: Target) -> None:
    machine = machine_of(target.triple)
    if (facts.machine, facts.wide) != (machine, target.bits == 64):
        found = f"{64 if facts.wide else 32}-bit {facts.machine}"
        raise ToolchainError(
            f"{path.name} came out for {found}, {target.id} is {target.bits}-bit {machine}; {_ADVICE}"
        )


def _whole(path: Path, weights: int) -> None:
    """A linker that takes unreferenced sections out must not have taken weights."""
    size = path.stat().st_size
    if size < weights:
        raise ToolchainError(f"{path.name} has {size} bytes and lost some of its {weights} bytes of weights; {_ADVICE}")


def _old_enough(path: Path, facts: ElfFacts, target: Target) -> None:
    needs = facts.highest("GLIBC")
    if target.glibc and needs and version_key(needs) > version_key(target.glibc):
        raise ToolchainError(
            f"{path.name} needs glibc {needs}, {target.id} has {target.glibc}: `pip install ziglang` "
            "links for it, --static needs none, and --glibc states a newer one"
        )


def _data(facts: ElfFacts) -> Json:
    return {
        "machine": facts.machine,
        "bits": 64 if facts.wide else 32,
        "needs": list(facts.needed),
        "glibc": facts.highest("GLIBC") or None,
        "code_bytes": facts.code_bytes,
    }

"""Libraries for other systems than Linux are examined before they are done: format, exports, imports, weights."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ToolchainError
from ...targets.target import Target
from .elsewhere import ALLOCATE, INITIALISE
from .macho import read_macho
from .pe import read_pe
from .wasm import read_wasm

if TYPE_CHECKING:
    from ...targets.plain import Json

# the C library of Windows 10 and newer, and the system
_WINDOWS = re.compile(r"(KERNEL32|ntdll|ucrtbase|msvcrt|api-ms-win-crt-[\w-]+)\.dll", re.I)
_MACOS = "/usr/lib/libSystem.B.dylib"


def examine_elsewhere(path: Path, target: Target, functions: Collection[str], weights: int = 0) -> Json:
    """Facts of a library for the manifest; ToolchainError when nothing could load it."""
    return {"wasm": _wasm, "windows": _windows, "macos": _macos}[target.system](path, set(functions), weights)


def _windows(path: Path, functions: set[str], weights: int) -> Json:
    facts = read_pe(path)
    _kind(path, facts.library, facts.machine, "x86_64")
    foreign = [name for name in facts.needed if not _WINDOWS.fullmatch(name)]
    if foreign:
        raise ToolchainError(f"{path.name} would need {', '.join(foreign)}, which Windows lacks")
    _exports(path, facts.exports, functions)
    _whole(path, weights)
    return {"machine": facts.machine, "bits": 64, "needs": list(facts.needed), "code_bytes": facts.code_bytes}


def _macos(path: Path, functions: set[str], weights: int) -> Json:
    facts = read_macho(path)
    _kind(path, facts.library, facts.machine, "aarch64")
    if set(facts.needed) - {_MACOS}:
        raise ToolchainError(f"{path.name} would need {', '.join(facts.needed)}, of which macOS has {_MACOS} alone")
    if not facts.signed:
        raise ToolchainError(f"{path.name} has no signature, without which macOS loads nothing on ARM")
    _exports(path, facts.exports, functions)
    _whole(path, weights)
    return {"machine": facts.machine, "bits": 64, "needs": list(facts.needed), "macos": facts.minimum,
            "code_bytes": facts.code_bytes}  # fmt: skip


def _kind(path: Path, library: bool, machine: str, wanted: str) -> None:
    if not library or machine != wanted:
        raise ToolchainError(f"{path.name} came out as {'a library' if library else 'something else'} for {machine}")


def _whole(path: Path, weights: int) -> None:
    if path.stat().st_size < weights:
        raise ToolchainError(f"{path.name} lost some of its {weights} bytes of weights")


def _wasm(path: Path, functions: set[str], weights: int) -> Json:
    facts = read_wasm(path)
    if facts.imports:
        raise ToolchainError(f"{path.name} would need {', '.join(facts.imports)}, which no page has")
    _exports(path, facts.exports, functions | {"memory", INITIALISE, *ALLOCATE})
    if facts.data_bytes < weights:
        raise ToolchainError(f"{path.name} lost some of its {weights} bytes of weights")
    return {"machine": "wasm32", "bits": 32, "needs": [], "code_bytes": facts.code_bytes}


def _exports(path: Path, found: Collection[str], wanted: set[str]) -> None:
    more, less = sorted(set(found) - wanted), sorted(wanted - set(found))
    if more or less:
        wrong = f"exports {', '.join(more)}" if more else f"lacks {', '.join(less)}"
        raise ToolchainError(f"{path.name} {wrong}: the linker did not keep to the list of exports")

"""Short names of levels of processors, such as v3, for libraries that have code for several of them."""

from __future__ import annotations

import difflib

from ..errors import TargetError
from .boards import board_names, find_board, is_file
from .llvm import DEFAULT_TRIPLES, architecture
from .resolve import spelt_cpu

# architecture -> short name -> target, from the least on
LEVELS = {
    "x86_64": {
        "v2": "x86-64-v2",
        "v3": "x86-64-v3",
        "v4": "x86-64-v4",
        "amx": "x86_64-linux-gnu+sapphirerapids",
    },
    "aarch64": {
        "armv8.0": "aarch64",
        "armv8.2": "aarch64+rdm,lse,fullfp16,dotprod",
    },
}


def level_names(text: str, target: str) -> list[str]:
    """The targets that ``v2,v3,amx`` names for machines like ``target``: a triple, or ``native``. What is no short name
    stays as it is, a target itself. Raises TargetError for less than two, for one twice, for what is neither, and for a
    triple with a CPU, which the levels say."""
    triple = _own_triple() if target in ("native", "host") else target
    if "+" in triple or "-linux-" not in triple:
        known = " or ".join(DEFAULT_TRIPLES.values())
        raise TargetError(f"target {target!r}: with levels, which say the processors, give a triple such as {known}")
    short = LEVELS.get(architecture(triple), {})
    names = [part.strip() for part in text.split(",") if part.strip()]
    found = [short.get(name, name) for name in names]
    if len(found) < 2 or len(set(found)) < len(found):
        example = ",".join(short) or "two targets"
        raise TargetError(f"levels {text!r}: give several, each once, from the least on, such as {example}")
    for name in names:
        if name not in short:
            _check_known(name, architecture(triple))
    return found


def _check_known(name: str, arch: str) -> None:
    """Raises TargetError, with the levels there are, for what is no name of a target either."""
    elsewhere = next((a for a, levels in LEVELS.items() if name in levels), None)
    if elsewhere is not None:
        raise TargetError(f"level {name!r} is of {elsewhere}: give the target {DEFAULT_TRIPLES[elsewhere]}")
    if name.lower() in ("native", "host") or "+" in name or is_file(name) or find_board(name) is not None:
        return
    if spelt := spelt_cpu(name):
        raise TargetError(f"level {name!r} is a CPU, not a machine; write {spelt}")
    short = LEVELS.get(arch, {})
    near = difflib.get_close_matches(name.lower(), [*short, *board_names()], n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    own = f"those of {arch} are {', '.join(short)}; " if short else ""
    raise TargetError(f"unknown level {name!r}; {hint}{own}any name from `halotile targets list` can be one too")


def _own_triple() -> str:
    import platform

    from .llvm import ARCHITECTURES

    return DEFAULT_TRIPLES[ARCHITECTURES.get(platform.machine().lower(), "x86_64")]

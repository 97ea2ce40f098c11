"""Short names of levels of processors, such as v3, for libraries that have code for several of them."""

from __future__ import annotations

from ..errors import TargetError
from .llvm import DEFAULT_TRIPLES, architecture

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
    stays as it is, a target itself. Raises TargetError for less than two, for one twice, and for a triple with a CPU,
    which the levels say."""
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
    return found


def _own_triple() -> str:
    import platform

    from .llvm import ARCHITECTURES

    return DEFAULT_TRIPLES[ARCHITECTURES.get(platform.machine().lower(), "x86_64")]

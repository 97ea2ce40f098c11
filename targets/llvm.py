"""What the LLVM inside TVM knows: processors and features per architecture, so that no misspelling passes silently.

LLVM itself falls back to generic code on an unknown processor or feature; here it is an error with the nearest names.
TVM is imported by the first call, not with the module.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from ..errors import TargetError

ARCHITECTURES = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
    "arm": "armv7l",
    "armv7": "armv7l",
    "armv7l": "armv7l",
    "armv7a": "armv7l",
    "armv7hl": "armv7l",
    "armv8l": "armv7l",
}
DEFAULT_TRIPLES = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "armv7l": "armv7l-linux-gnueabihf",
}


def architecture(triple: str) -> str:
    """``x86_64``, ``aarch64`` or ``armv7l``; any other architecture is refused (LLVM may crash on unknown ones)."""
    first = triple.split("-", 1)[0].lower()
    if first not in ARCHITECTURES:
        known = ", ".join(DEFAULT_TRIPLES.values())
        raise TargetError(
            f"target triple {triple!r}: unknown architecture {first!r}{hint(first, ARCHITECTURES)} (known: {known})"
        )
    return ARCHITECTURES[first]


_ABIS = {"x86_64": ("gnu", "musl"), "aarch64": ("gnu", "musl"), "armv7l": ("gnueabihf", "musleabihf")}


def check_triple(triple: str) -> None:
    """Raises :class:`TargetError` unless the triple is ``arch[-vendor]-linux-abi`` with an ABI that we link for."""
    arch = architecture(triple)
    _, *rest = triple.lower().split("-")
    known = [f"{triple.split('-')[0]}-linux-{abi}" for abi in _ABIS[arch]]
    if rest[-2:-1] == ["linux"] and len(rest) <= 3 and rest[-1] in _ABIS[arch]:
        return
    raise TargetError(
        f"target triple {triple!r} is not one that can be built for; did you mean {' or '.join(known)}?"
    )


@cache
def cpus(arch: str) -> frozenset[str]:
    """The processor names that LLVM knows for an architecture."""
    return frozenset(str(c) for c in _codegen().llvm_get_cpu_archlist(_target(arch)))


@cache
def features(arch: str, cpu: str, switches: tuple[str, ...] = ()) -> frozenset[str]:
    """The features that are on for ``cpu`` after ``switches`` (``+name``, ``-name``)."""
    return frozenset(str(f) for f in _codegen().llvm_get_cpu_features(_target(arch, cpu, switches)))


@cache
def known_features(arch: str) -> frozenset[str]:
    """Every feature that some processor of the architecture has."""
    return frozenset(f for cpu in cpus(arch) for f in features(arch, cpu))


def host_cpu() -> str:
    """LLVM's guess of this machine's processor; under a hypervisor it may be a wrong one."""
    return str(_codegen().llvm_get_system_cpu())


def check(triple: str, cpu: str, switches: Sequence[str]) -> None:
    """Raises :class:`TargetError` unless LLVM knows the architecture, the processor and every feature."""
    arch = architecture(triple)
    check_triple(triple)
    if cpu not in cpus(arch):
        raise TargetError(f"unknown CPU {cpu!r} for {triple}{hint(cpu, cpus(arch))}")
    for switch in switches:
        if switch[:1] not in ("+", "-"):
            raise TargetError(f"feature {switch!r} needs a sign: +{switch} or -{switch}")
        if switch[1:] not in known_features(arch) | features(arch, cpu):
            raise TargetError(
                f"unknown feature {switch[1:]!r} for {triple}{hint(switch[1:], known_features(arch))}"
            )


def widens_float16(triple: str, cpu: str, switches: tuple[str, ...] = ()) -> bool:
    """Whether LLVM makes float32 vectors of float16 by an instruction (on 32-bit ARM it goes one by one)."""
    arch = architecture(triple)
    return arch == "aarch64" or (arch == "x86_64" and "f16c" in features(arch, cpu, tuple(switches)))


def hint(name: str, known: Iterable[str]) -> str:
    """``"; did you mean a, b?"`` with the nearest known names, or nothing when none is near."""
    near = difflib.get_close_matches(name.lower(), sorted(known), n=3, cutoff=0.6)
    return f"; did you mean {', '.join(near)}?" if near else ""


def _codegen() -> Any:
    from tvm.target import codegen

    return codegen


def _target(arch: str, cpu: str | None = None, switches: tuple[str, ...] = ()) -> Any:
    import tvm

    config: dict[str, Any] = {"kind": "llvm", "mtriple": DEFAULT_TRIPLES[arch]}
    if cpu:
        config["mcpu"] = cpu
    if switches:
        config["mattr"] = list(switches)
    return tvm.target.Target(config)

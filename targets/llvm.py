"""What the LLVM inside TVM knows: processors and features per architecture, so that no misspelling passes silently.

LLVM itself falls back to generic code on an unknown processor or feature; here it is an error with the nearest names.
TVM is imported by the first call, not with the module.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ..errors import TargetError
from .systems import ARCHITECTURES, DEFAULT_TRIPLES, architecture, hint, parse
from .tvm_loading import load

__all__ = ["ARCHITECTURES", "DEFAULT_TRIPLES", "architecture", "hint"]

# What every machine of an architecture is taken to have, where LLVM's processor names fewer: Linux promises it, and
# so do browsers since 2023.
PROMISED = {"riscv64": ("m", "a", "f", "d", "c"), "wasm32": ("simd128",)}
ABIS = {"riscv64": "lp64d"}  # where LLVM would take another for the default
NEEDED = {"riscv64": ("d", "it passes floats in registers (ABI lp64d)")}


@cache
def cpus(arch: str) -> frozenset[str]:
    """The processor names that LLVM knows for an architecture."""
    names = (str(c) for c in _codegen().llvm_get_cpu_archlist(_target(arch)))
    if arch == "riscv64":  # LLVM's list has those of 32 bits too
        return frozenset(name for name in names if name == "generic" or "64bit" in features(arch, name))
    return frozenset(names)


# Names that compilers take for a processor and LLVM's lists have not, of ARM's 64 bits.
ALSO = {"apple-m1": "apple-a14", "apple-m2": "apple-a15", "apple-m3": "apple-a16", "cobalt-100": "neoverse-n2",
        "grace": "neoverse-v2"}  # fmt: skip


def own_name(arch: str, cpu: str) -> str:
    """What LLVM calls a processor."""
    return ALSO.get(cpu, cpu) if arch == "aarch64" and cpu not in cpus(arch) else cpu


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
    arch = parse(triple).arch
    if cpu not in cpus(arch):
        known = cpus(arch) | (ALSO.keys() if arch == "aarch64" else set())
        raise TargetError(f"unknown CPU {cpu!r} for {triple}{hint(cpu, known)}")
    for switch in switches:
        if switch[:1] not in ("+", "-"):
            raise TargetError(f"feature {switch!r} needs a sign: +{switch} or -{switch}")
        if switch[1:] not in known_features(arch) | features(arch, cpu):
            raise TargetError(
                f"unknown feature {switch[1:]!r} for {triple}{hint(switch[1:], known_features(arch))}"
            )
    feature, why = NEEDED.get(arch, ("", ""))
    if feature and feature not in features(arch, cpu, tuple(switches)):
        raise TargetError(f"{triple}: the processor must have {feature}, because {why}; add +{feature}")


def widens_float16(triple: str, cpu: str, switches: tuple[str, ...] = ()) -> bool:
    """Whether LLVM makes float32 vectors of float16 by an instruction (on 32-bit ARM it goes one by one)."""
    arch = architecture(triple)
    return arch == "aarch64" or (arch == "x86_64" and "f16c" in features(arch, cpu, tuple(switches)))


def _codegen() -> Any:
    load()
    from tvm.target import codegen

    return codegen


def _target(arch: str, cpu: str | None = None, switches: tuple[str, ...] = ()) -> Any:
    import tvm

    config: dict[str, list[str] | str] = {"kind": "llvm", "mtriple": DEFAULT_TRIPLES[arch]}
    if cpu:
        config["mcpu"] = cpu
    if switches:
        config["mattr"] = list(switches)
    return tvm.target.Target(config)

"""Facts that follow from a processor's name and features, for targets without a board file."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from .boards import size
from .fitted import Fitted, usual

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_WIDEST = 512  # what kernels were written for: longer vectors are used in part


@dataclass(frozen=True)
class Core:
    """Multiply-add throughput, caches (the third level where every chip with that core has one), whether one core
    executes in order, bytes a cycle that it reads from beyond its second level, and constants that are its own."""

    fma_ports: int = 1
    fma_latency: int = 4
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 256 * 1024
    l3_bytes: int = 0
    in_order: bool = False
    far_bytes: int = 12
    fitted: Fitted = field(default_factory=usual)


def core(cpu: str) -> Core:
    """What is known about the core that LLVM calls ``cpu``; careful defaults for one we don't know."""
    return _table().get(cpu, Core())


def known_cores() -> list[str]:
    """The names that have facts, in the table's order."""
    return list(_table())


def assumed_bandwidth(arch: str) -> int:
    """Bytes a second of the memory where nothing is known: two channels of DDR3-1600, or 32 bits of LPDDR2-900."""
    return 25_600_000_000 if arch == "x86_64" else 3_600_000_000


def simd(arch: str, features: Iterable[str]) -> tuple[int, int]:
    """(bits, number) of the vector registers that the features give."""
    features = set(features)
    if arch == "aarch64":
        return 128, 32
    if arch == "wasm32":  # registers are the machine's behind it: sixteen on x86-64, thirty-two on ARM
        return (128 if "simd128" in features else 64), 16
    if arch == "riscv64":
        # vectors of the least length that the processor promises; without any, pairs of float registers
        sizes = [int(f[3:-1]) for f in features if f.startswith("zvl") and f.endswith("b")]
        return (min(max(128, *sizes), _WIDEST), 32) if "v" in features else (64, 32)
    if arch != "x86_64":
        return (128, 16) if "neon" in features else (64, 16)
    if "avx512f" in features:
        return 512, 32
    return (256, 16) if "avx" in features else (128, 16)


@lru_cache(maxsize=1)
def _table() -> dict[str, Core]:
    data = tomllib.loads((Path(__file__).parent / "cores.toml").read_text(encoding="utf-8"))
    default = Core()
    return {
        name: Core(
            fma_ports=entry.get("fma_ports", default.fma_ports),
            fma_latency=entry.get("fma_latency", default.fma_latency),
            l1_bytes=size(entry.get("l1", default.l1_bytes)),
            l2_bytes=size(entry.get("l2", default.l2_bytes)),
            l3_bytes=size(entry.get("l3", default.l3_bytes)),
            in_order=entry.get("in_order", default.in_order),
            far_bytes=entry.get("far_bytes", default.far_bytes),
            fitted=default.fitted.with_values(
                {(group, name): value for group, own in entry.get("fitted", {}).items() for name, value in own.items()}
            ),
        )
        for name, entry in data.items()
    }

"""Triples of machines that libraries are made for: architecture and system, and the forms in which a triple is written.

    triple(text) -> Triple(arch, system, abi), or TargetError with the forms that there are

``riscv64`` is what Linux distributions promise (RV64GC with floats in registers, ABI lp64d). No architecture is
here that LLVM has code for and no linker or C library is at hand, or that nobody has run a model on.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

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
    "riscv64": "riscv64",
    "wasm32": "wasm32",
}
DEFAULT_TRIPLES = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "armv7l": "armv7l-linux-gnueabihf",
    "riscv64": "riscv64-linux-gnu",
    "wasm32": "wasm32-unknown-unknown",
}
# architecture -> systems -> what may follow in a triple, as people write it
_FORMS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"linux": ("linux-gnu", "linux-musl"), "windows": ("windows-gnu",)},
    "aarch64": {"linux": ("linux-gnu", "linux-musl"), "macos": ("macos", "darwin")},
    "armv7l": {"linux": ("linux-gnueabihf", "linux-musleabihf")},
    "riscv64": {"linux": ("linux-gnu", "linux-musl")},
    "wasm32": {"wasm": ("unknown-unknown", "unknown", "")},
}


@dataclass(frozen=True)
class Triple:
    """A triple taken apart: ``system`` is linux, windows, macos or wasm (no system at all), ``abi`` what comes last."""

    arch: str
    system: str
    abi: str


def architecture(triple: str) -> str:
    """x86_64, aarch64, armv7l, riscv64 or wasm32; any other is refused (LLVM may crash on unknown ones)."""
    first = triple.split("-", 1)[0].lower()
    if first not in ARCHITECTURES:
        raise TargetError(
            f"target triple {triple!r}: unknown architecture {first!r}{hint(first, ARCHITECTURES)} "
            f"(known: {', '.join(known_triples())})"
        )
    return ARCHITECTURES[first]


def parse(triple: str) -> Triple:
    """The parts of ``arch[-vendor]-system[-abi]``; TargetError unless it is one that we link for."""
    arch = architecture(triple)
    first, *rest = triple.lower().split("-")
    starts = {form.split("-")[0] for forms in _FORMS[arch].values() for form in forms}
    if len(rest) > 1 and rest[0] not in starts:
        rest = rest[1:]  # any vendor
    for system, forms in _FORMS[arch].items():
        if "-".join(rest) in forms:
            return Triple(arch, system, rest[-1] if rest else "")
    known = [f"{triple.split('-')[0]}-{form}".rstrip("-") for forms in _FORMS[arch].values() for form in forms]
    raise TargetError(
        f"target triple {triple!r} is not one that can be built for; did you mean {' or '.join(known)}?"
    )


def canonical(triple: str) -> str:
    """One way to write a triple that has several: ``arm64-apple-darwin`` -> ``aarch64-macos``."""
    parts = parse(triple)
    return triple if parts.system == "linux" else _CANONICAL[parts.system]


_CANONICAL = {"windows": "x86_64-windows-gnu", "macos": "aarch64-macos", "wasm": "wasm32-unknown-unknown"}
# as LLVM's library reads them, with the oldest macOS that runs on ARM
LLVM_TRIPLES = {
    "x86_64-windows-gnu": "x86_64-pc-windows-gnu",
    "aarch64-macos": "arm64-apple-macosx11.0.0",
    "wasm32-unknown-unknown": "wasm32-unknown-unknown",
}


def known_triples() -> list[str]:
    """One triple for each architecture and system."""
    first = {arch: DEFAULT_TRIPLES[arch].split("-")[0] for arch in _FORMS}
    return [f"{first[arch]}-{forms[0]}".rstrip("-") for arch, systems in _FORMS.items() for forms in systems.values()]


def hint(name: str, known: Iterable[str]) -> str:
    """``"; did you mean a, b?"`` with the nearest known names, or nothing when none is near."""
    near = difflib.get_close_matches(name.lower(), sorted(known), n=3, cutoff=0.6)
    return f"; did you mean {', '.join(near)}?" if near else ""

"""Libraries for systems other than Linux, linked by zig: what their files are called, how they are linked.

    wasm     ->  <name>.wasm, which imports nothing, and <name>.mjs, which loads it in a browser or in Node.js
    windows  ->  <name>.dll, and the import library <name>.lib
    macos    ->  lib<name>.dylib
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...errors import ToolchainError
from ...targets.target import Target
from ..cache.store import Cache
from . import macho, pe
from .link import Sources, compile_sources
from .toolchain import Toolchain
from .weights import SYMBOL

_STACK = 1 << 20  # bytes; that of a worker on Linux
_FLAGS = ("-std=c11", "-O2", "-g0", "-fvisibility=hidden", "-fno-ident")
_FILES = {"wasm": "{}.wasm", "windows": "{}.dll", "macos": "lib{}.dylib"}


def file_name(stem: str, system: str) -> str:
    """What a library is called."""
    return _FILES[system].format(stem)


def hidden(code: bytes, system: str) -> bytes:
    """An object of kernels whose functions the library does not export."""
    return {"windows": pe.hide, "macos": macho.hide}.get(system, bytes)(code)


def write_raw_weights(work: Path, system: str, toolchain: Toolchain, chunks: Iterable[Any]) -> str:
    """Writes ``weights.o``, by the assembler of ``toolchain``, over the chunks; returns their digest."""
    import hashlib

    digest = hashlib.sha256()
    with (work / "weights.bin").open("wb") as file:
        for chunk in chunks:
            if memoryview(chunk).nbytes:
                view = memoryview(chunk).cast("B")
                digest.update(view)
                file.write(view)
    size = (work / "weights.bin").stat().st_size
    (work / "weights.s").write_text(_ASSEMBLER[system].format(symbol=SYMBOL, size=size))
    toolchain.run(["-c", "weights.s", "-o", "weights.o"], work, "assembling the weights")
    (work / "weights.bin").unlink()
    return digest.hexdigest()


_ASSEMBLER = {
    "wasm": """.section .rodata.{symbol},"",@
.globl {symbol}
.hidden {symbol}
.type {symbol},@object
.p2align 6
{symbol}:
.incbin "weights.bin"
.size {symbol}, {size}
""",
    "windows": """.section .rdata,"dr"
.globl {symbol}
.p2align 6
{symbol}:
.incbin "weights.bin"
""",
    "macos": """.section __TEXT,__const
.globl _{symbol}
.private_extern _{symbol}
.p2align 6
_{symbol}:
.incbin "weights.bin"
""",
}


def link_elsewhere(
    stem: str, functions: Sequence[str], target: Target, toolchain: Toolchain, sources: Sources, work: Path,
    cache: Cache | None = None,
) -> None:  # fmt: skip
    """The library, which exports ``functions`` (and a module the memory and what the loader allocates with)."""
    compiled = compile_sources(toolchain, _FLAGS, sources.c_files, "lib", work, cache)
    name = file_name(stem, target.system)
    arguments = _LINK[target.system](stem, functions, work)
    toolchain.run([*compiled, *sources.objects, *arguments, "-o", name], work, f"linking {name}")
    if not (work / name).is_file():
        raise ToolchainError(f"{toolchain} made no {name}")
    if target.system == "windows":
        (work / name).write_bytes(pe.without_times((work / name).read_bytes()))


ALLOCATE = ("malloc", "free")
INITIALISE = "_initialize"  # which the loader calls once


def _wasm(stem: str, functions: Sequence[str], work: Path) -> list[str]:
    exports = [f"-Wl,--export={function}" for function in (*functions, *ALLOCATE)]
    return ["-mexec-model=reactor", *exports, "-Wl,--gc-sections", "-Wl,--strip-all", "-lm",
            f"-Wl,-z,stack-size={_STACK}"]  # fmt: skip


def _windows(stem: str, functions: Sequence[str], work: Path) -> list[str]:
    (work / "exports.def").write_text("EXPORTS\n" + "".join(f"    {function}\n" for function in functions))
    return ["-shared", "exports.def", f"-Wl,--out-implib,{stem}.lib", "-Wl,-s"]


def _macos(stem: str, functions: Sequence[str], work: Path) -> list[str]:
    return ["-shared", f"-Wl,-install_name,@rpath/lib{stem}.dylib", "-Wl,-s"]


_LINK = {"wasm": _wasm, "windows": _windows, "macos": _macos}

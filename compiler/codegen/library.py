"""From object code and weights to a library that needs nothing: lib<name>.so, <name>.h and manifest.json.

    LibrarySpec -> temp folder: C runtime + model.c + kernels.o + weights.o -> one cc call -> moved into place

Nothing appears under its final name before all of it is whole. The same spec and compiler give the same bytes of
library and header: no times, no paths, no build ids.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ... import __version__
from ...targets.target import Target
from ..runtime.place import MANIFEST, staged
from ..spec import TensorSpec
from .archive import localise, write_archive
from .header import ABI, FUNCTIONS, header_text, model_text
from .names import identifier
from .toolchain import Toolchain, find_toolchain
from .weights import ALIGNMENT, write_weights

RUNTIME = Path(__file__).parent.parent / "runtime"


@dataclass(frozen=True)
class LibrarySpec:
    """All that the link stage needs.

    ``object_bytes`` is an ELF object with ``int32_t halotile_kernel_main(inputs..., outputs..., weights, arena)``.
    ``kernel_objects`` are further objects that it calls into. ``timers`` counts the kernels that it times: 0, or all.
    ``weights`` are bytes-like chunks that lie one behind the other. The arena of T threads has
    ``planned_bytes + T * workspace_bytes``, both multiples of 64; ``default_threads`` 0 means as many as the process
    may use. ``report`` is plain data that goes into the manifest.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    object_bytes: bytes
    weights: Sequence[Any]
    planned_bytes: int
    workspace_bytes: int
    max_threads: int
    default_threads: int
    target: Target
    report: dict[str, Any] = field(default_factory=dict)
    version: str = __version__
    kernel_objects: tuple[bytes, ...] = ()
    timers: int = 0

    def __post_init__(self) -> None:
        for what in ("planned_bytes", "workspace_bytes"):
            if getattr(self, what) % ALIGNMENT or getattr(self, what) < 0:
                raise ValueError(f"{what} is {getattr(self, what)}, which is not a multiple of {ALIGNMENT}")
        if not 0 <= self.default_threads <= self.max_threads or self.max_threads < 1:
            raise ValueError(
                f"default_threads {self.default_threads} is not within max_threads {self.max_threads}"
            )

    @property
    def identifier(self) -> str:
        """The model's name as a C identifier: the prefix of every function and the stem of every file."""
        return identifier(self.name)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names that a library exports."""
        extra = ("kernel_seconds",) if self.timers else ()
        return tuple(f"{self.identifier}_{function}" for function in (*FUNCTIONS, *extra))

    @property
    def weight_bytes(self) -> int:
        return sum(memoryview(chunk).nbytes for chunk in self.weights)

    def arena_bytes(self, threads: int) -> int:
        return self.planned_bytes + threads * self.workspace_bytes


@dataclass(frozen=True)
class BuiltLibrary:
    """The files of a finished library."""

    directory: Path
    library: Path
    header: Path
    manifest: Path
    fingerprint: str
    archive: Path | None = None


def build_library(
    spec: LibrarySpec,
    directory: str | os.PathLike[str],
    *,
    toolchain: Toolchain | None = None,
    static: bool = False,
) -> BuiltLibrary:
    """Links ``spec`` into ``directory``, which is made when missing; an earlier library there is replaced.

    ``static`` adds lib<name>.a. Raises ToolchainError when there is no compiler or it fails, OutputError when the
    folder can't be written.
    """
    toolchain = toolchain or find_toolchain(spec.target)
    files = {"library": f"lib{spec.identifier}.so", "header": f"{spec.identifier}.h"}
    if static:
        files["archive"] = f"lib{spec.identifier}.a"
    with staged(Path(directory)) as stage:
        sources = write_sources(spec, stage.work)
        _link_shared(spec, toolchain, sources, stage.work)
        if static:
            _link_static(spec, toolchain, sources, stage.work)
        for name in files.values():
            os.replace(stage.work / name, stage.result / name)
        manifest = json.dumps(
            _manifest(spec, files, sources.fingerprint), indent=1, ensure_ascii=False, default=_plain
        )
        (stage.result / MANIFEST).write_text(manifest + "\n", encoding="utf-8")
    final = Path(directory)
    paths = {kind: final / name for kind, name in files.items()}
    return BuiltLibrary(final, manifest=final / MANIFEST, fingerprint=sources.fingerprint, **paths)


@dataclass(frozen=True)
class Sources:
    """What a library is made of, as file names in one folder: C sources, objects, and the digest of it all."""

    c_files: tuple[str, ...]
    objects: tuple[str, ...]
    fingerprint: str


def write_sources(spec: LibrarySpec, work: Path) -> Sources:
    """Writes the runtime, the header, the C file behind it, the kernels and the weights into ``work``."""
    (work / "kernels.o").write_bytes(spec.object_bytes)
    objects, digest = ["kernels.o"], ""
    for i, code in enumerate(spec.kernel_objects):
        (work / f"kernels{i}.o").write_bytes(code)
        objects.append(f"kernels{i}.o")
    if spec.weight_bytes:
        _, digest = write_weights(work / "weights.o", spec.target.triple, spec.weights)
        objects.append("weights.o")
    header = header_text(spec)
    fingerprint = _fingerprint(spec, header, digest)
    (work / f"{spec.identifier}.h").write_text(header)
    runtime = work / "runtime"  # apart from the header, whose name is the model's choice
    runtime.mkdir()
    (runtime / "generated.c").write_text(model_text(spec, fingerprint))
    for source in runtime_sources():
        (runtime / source.name).write_bytes(source.read_bytes())
    names = ["generated.c", *(s.name for s in runtime_sources() if s.suffix == ".c")]
    return Sources(tuple(f"runtime/{name}" for name in names), tuple(objects), fingerprint)


def _link_shared(spec: LibrarySpec, toolchain: Toolchain, sources: Sources, work: Path) -> None:
    name = f"lib{spec.identifier}.so"
    exports = " ".join(f"{function};" for function in spec.functions)
    (work / "exports.map").write_text(f"{{ global: {exports} local: *; }};\n")
    arguments = [*toolchain.compile_flags, *sources.c_files, *sources.objects, *toolchain.link_flags,
                 "-Wl,--version-script=exports.map", f"-Wl,-soname,{name}", "-pthread", "-lm"]  # fmt: skip
    toolchain.run([*arguments, "-o", name], work, f"linking {name}")


def _link_static(spec: LibrarySpec, toolchain: Toolchain, sources: Sources, work: Path) -> None:
    compiled = [f"{source}.o" for source in sources.c_files]
    for source, made in zip(sources.c_files, compiled, strict=True):
        # One at a time: not every driver (zig's) takes several sources with -c.
        toolchain.run([*toolchain.compile_flags, "-c", source, "-o", made], work, f"compiling {source}")
    arguments = ["-r", "-nostdlib", *compiled, *sources.objects, "-Wl,-S", "-o", "whole.o"]
    toolchain.run(arguments, work, f"joining lib{spec.identifier}.a")
    localise(work / "whole.o", spec.functions)
    write_archive(work / f"lib{spec.identifier}.a", work / "whole.o", spec.functions)


def runtime_sources() -> list[Path]:
    """The C files that are compiled into every library."""
    return sorted(path for path in RUNTIME.iterdir() if path.suffix in (".c", ".h"))


def _fingerprint(spec: LibrarySpec, header: str, weights: str) -> str:
    digest = hashlib.blake2b(spec.object_bytes, digest_size=16)
    for code in spec.kernel_objects:
        digest.update(code)
    digest.update(f"{header}\0{weights}\0{ABI}".encode())
    return digest.hexdigest()


def _manifest(spec: LibrarySpec, files: dict[str, str], fingerprint: str) -> dict[str, Any]:
    target = spec.target
    return {
        "format": "halotile",
        "abi": ABI,
        "version": spec.version,
        "name": spec.name,
        "prefix": spec.identifier,
        **files,
        "fingerprint": fingerprint,
        "target": {
            "id": target.id,
            "triple": target.triple,
            "cpu": target.cpu,
            "features": list(target.features),
        },
        "inputs": [_tensor(t) for t in spec.inputs],
        "outputs": [_tensor(t) for t in spec.outputs],
        "weight_bytes": spec.weight_bytes,
        "planned_bytes": spec.planned_bytes,
        "workspace_bytes": spec.workspace_bytes,
        "max_threads": spec.max_threads,
        "default_threads": spec.default_threads,
        "report": spec.report,
    }


def _tensor(tensor: TensorSpec) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}


def _plain(value: Any) -> Any:
    """numpy's numbers and paths in a report as JSON's."""
    return value.item() if hasattr(value, "item") else str(value)

"""From object code and weights to files that need nothing: lib<name>.so, lib<name>.a, model_run, a header, a manifest.

    LibrarySpec -> temp folder: C runtime + model.c + kernels.o + weights.o -> linked, examined -> moved into place

Nothing appears under its final name before all of it is whole. The same spec and compiler give the same bytes: no
times, no paths, no build ids.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ... import __version__
from ...errors import TargetError, ToolchainError
from ...targets.target import Target
from ..runtime.place import MANIFEST, staged
from ..spec import TensorSpec
from ..verify import default_rtol
from .beside import beside_files
from .examine import examine_program, examine_shared
from .header import ABI, FUNCTIONS, header_text, model_text
from .link import PROGRAM, Sources, link_archive, link_program, link_shared, runtime_sources
from .manifest import manifest_text
from .names import identifier
from .toolchain import Toolchain, find_static_toolchain, find_toolchain, machine_of
from .transfers import FUNCTIONS as TRANSFERS
from .weights import ALIGNMENT, write_weights

FORMATS = ("so", "a", "exe", "extras")
_MOST_OF_A_STATIC_PROGRAM = (2 << 30) - (16 << 20)  # bytes of weights, beside its code
_LARGEST_OF_32_BITS, _MOST_OF_32_BITS = 2 << 30, 3 << 30  # one piece of memory (PTRDIFF_MAX), and all of a process


@dataclass(frozen=True)
class LibrarySpec:
    """All that the link stage needs.

    ``object_bytes`` is an ELF object with ``int32_t halotile_kernel_main(inputs..., outputs..., weights, arena)``.
    ``kernel_objects`` are further objects that it calls into. ``timers`` counts the kernels that it times: 0, or all;
    ``scratchpad_bytes`` is what its stripes use of a scratchpad, 0 where there are none; ``scratchpad_offset`` is where
    the arena has as much, for machines without one.
    ``weights`` are bytes-like chunks that lie one behind the other. The arena of T threads has
    ``planned_bytes + T * workspace_bytes``, both multiples of 64; ``default_threads`` 0 means as many as the process
    may use. ``report`` is plain data that goes into the manifest, as do ``model`` (file name
    and digest of the source) and ``options``, from which the same can be built again. ``flush_denormals``: runs count
    floats below the normal ones as zero. ``matrix_unit``: kernels use that of the target, which a process has to ask
    for.
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
    model: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    timers: int = 0
    scratchpad_bytes: int = 0
    scratchpad_offset: int = 0
    flush_denormals: bool = False
    matrix_unit: bool = False

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
        extra = (*(("kernel_seconds",) if self.timers else ()), *(TRANSFERS if self.scratchpad_bytes else ()))
        return tuple(f"{self.identifier}_{function}" for function in (*FUNCTIONS, *extra))

    @property
    def weight_bytes(self) -> int:
        return sum(memoryview(chunk).nbytes for chunk in self.weights)

    def arena_bytes(self, threads: int) -> int:
        return self.planned_bytes + threads * self.workspace_bytes

    def check_addresses(self) -> None:
        """Raises TargetError for what no process of a 32-bit target can hold."""
        if self.target.bits == 64:
            return
        arena = self.arena_bytes(max(1, self.default_threads))
        whole = arena + self.weight_bytes + sum(t.nbytes for t in (*self.inputs, *self.outputs))
        largest = max((arena, self.weight_bytes, *(t.nbytes for t in (*self.inputs, *self.outputs))))
        if largest >= _LARGEST_OF_32_BITS or whole > _MOST_OF_32_BITS:
            raise TargetError(
                f"arena, weights, inputs and outputs take {whole} bytes, which no 32-bit process of {self.target.id} "
                "can hold; build for a 64-bit target, or fix smaller shapes"
            )

    def check_program(self) -> None:
        """Raises TargetError for weights behind which a static program of x86-64 would not reach its own end."""
        if machine_of(self.target.triple) == "x86_64" and self.weight_bytes >= _MOST_OF_A_STATIC_PROGRAM:
            raise TargetError(
                f"the static program {PROGRAM} can't hold {self.weight_bytes} bytes of weights on x86-64, where its C "
                "library reaches 2 GiB; leave it out with --format so,a"
            )


@dataclass(frozen=True)
class BuiltLibrary:
    """The files of a finished library; ``library``, ``archive`` and ``executable`` are None unless asked for."""

    directory: Path
    header: Path
    manifest: Path
    fingerprint: str
    library: Path | None = None
    archive: Path | None = None
    executable: Path | None = None
    example: Path | None = None
    cmake: Path | None = None
    pkgconfig: Path | None = None


def build_library(
    spec: LibrarySpec,
    directory: str | os.PathLike[str],
    *,
    toolchain: Toolchain | None = None,
    formats: Sequence[str] = ("so",),
    cc: str | None = None,
) -> BuiltLibrary:
    """Links ``spec`` into ``directory``, which is made when missing; an earlier library there is replaced.

    ``formats``: ``so``, ``a``, ``exe`` (the static program ``model_run``), and ``extras`` (example, CMake, pkg-config).
    ``cc`` names a compiler. Raises ToolchainError when there is none, it fails, or what it made would not run on the
    target; OutputError when the folder can't be written.
    """
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise ValueError(f"unknown format {unknown[0]!r}; known are {', '.join(FORMATS)}")
    spec.check_addresses()
    if "exe" in formats:
        spec.check_program()
    stem = spec.identifier
    files = {"header": f"{stem}.h"}
    facts: dict[str, Any] = {}
    with staged(Path(directory)) as stage:
        work = stage.work
        sources = write_sources(spec, work)
        toolchain = toolchain or (find_toolchain(spec.target, cc) if {"so", "a"} & set(formats) else None)
        if "so" in formats and toolchain:
            files["library"] = f"lib{stem}.so"
            link_shared(stem, spec.functions, toolchain, sources, work)
            facts["library"] = examine_shared(work / files["library"], spec.target, spec.functions, spec.weight_bytes)
        if "a" in formats and toolchain:
            files["archive"] = f"lib{stem}.a"
            link_archive(stem, spec.functions, toolchain, sources, work)
        if "exe" in formats:
            static = find_static_toolchain(spec.target, cc) or _no_static_compiler(spec.target)
            files["executable"] = PROGRAM
            rtol = default_rtol(str(spec.options.get("weights", "float32")))
            link_program(stem, static, sources, work, rtol, spec.report.get("dropped_inputs", ()))
            facts["executable"] = examine_program(work / PROGRAM, spec.target, spec.weight_bytes)
            facts["executable"]["compiler"] = static.version()
        if toolchain:
            facts["compiler"] = toolchain.version()
        if "extras" in formats:
            for kind, (name, text) in beside_files(spec, "so" in formats, "a" in formats).items():
                files[kind] = name
                (work / name).write_text(text, encoding="utf-8")
        for name in files.values():
            _written_in_order(work / name, stage.result / name)
        manifest = manifest_text(spec, files, stage.result, sources.fingerprint, facts)
        (stage.result / MANIFEST).write_text(manifest, encoding="utf-8")
    final = Path(directory)
    paths = {kind: final / name for kind, name in files.items()}
    return BuiltLibrary(final, manifest=final / MANIFEST, fingerprint=sources.fingerprint, **paths)


def check_linkers(target: Target, formats: Sequence[str], cc: str | None) -> None:
    """Raises ToolchainError, before anything is compiled, where nothing could link what :func:`build_library` makes."""
    if {"so", "a"} & set(formats):
        find_toolchain(target, cc)
    if "exe" in formats and find_static_toolchain(target, cc) is None:
        _no_static_compiler(target)


def _written_in_order(made: Path, final: Path) -> None:
    """Moves a file, page by page. Linkers write theirs here and there, so that its pages lie scattered in memory for as
    long as the system keeps them, which is what a run right after the build reads the weights from: under a hypervisor
    U-Net takes 0.97 of the time from a file that was written in order (Emerald Rapids)."""
    shutil.copy(made, final)
    made.unlink()


def _no_static_compiler(target: Target) -> NoReturn:
    raise ToolchainError(
        f"no compiler with a static C library for {target.triple} was found: install libc's static part (Debian: "
        "libc6-dev), `pip install ziglang`, or leave the program out with --format so,a"
    )


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
    own = runtime_sources(bool(spec.scratchpad_bytes))
    for source in own:
        (runtime / source.name).write_bytes(source.read_bytes())
    names = ["generated.c", *(s.name for s in own if s.suffix == ".c")]
    return Sources(tuple(f"runtime/{name}" for name in names), tuple(objects), fingerprint)


def _fingerprint(spec: LibrarySpec, header: str, weights: str) -> str:
    digest = hashlib.blake2b(spec.object_bytes, digest_size=16)
    for code in spec.kernel_objects:
        digest.update(code)
    digest.update(f"{header}\0{weights}\0{ABI}".encode())
    return digest.hexdigest()

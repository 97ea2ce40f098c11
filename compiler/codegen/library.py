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
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ...errors import ToolchainError
from ...schedules.words.half_error import rtol_within
from ...targets.target import Target
from ..cache.store import Cache
from ..runtime.place import MANIFEST, staged
from ..runtime.seal import seal
from ..verify import default_rtol
from .beside import beside_files
from .elsewhere import file_name, hidden, link_elsewhere, write_raw_weights
from .examine import examine_program, examine_shared
from .examine_elsewhere import examine_elsewhere
from .header import header_text
from .levels import write_levels
from .link import PROGRAM, Sources, link_archive, link_program, link_shared, runtime_sources
from .loader_js import loader_text
from .manifest import manifest_text
from .model_source import model_text
from .spec import ABI, FORMATS, BuiltLibrary, LibrarySpec
from .toolchain import Toolchain, find_static_toolchain, find_toolchain
from .weights import write_weights

if TYPE_CHECKING:
    from ...targets.plain import Json


def build_library(
    spec: LibrarySpec,
    directory: str | os.PathLike[str],
    *,
    toolchain: Toolchain | None = None,
    formats: Sequence[str] = ("so",),
    cc: str | None = None,
    cache: Cache | None = None,
) -> BuiltLibrary:
    """Links ``spec`` into ``directory``, which is made when missing; an earlier library there is replaced.

    ``formats``: ``so``, ``a``, ``exe`` (the static program ``model_run``), and ``extras`` (example, CMake, pkg-config).
    ``cc`` names a compiler; what ``cache`` has of its objects is not compiled again. Raises ToolchainError when
    there is none, it fails, or what it made would not run on the target; OutputError when the folder can't be written.
    """
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise ValueError(f"unknown format {unknown[0]!r}; known are {', '.join(FORMATS)}")
    spec.check_addresses()
    if "exe" in formats:
        spec.check_program()
    stem = spec.identifier
    files = {"header": f"{stem}.h"}
    facts: Json = {}
    known: dict[str, str] = {}  # SHA-256 by the name of a file
    with staged(Path(directory)) as stage:
        work = stage.work
        toolchain = toolchain or (find_toolchain(spec.target, cc) if {"so", "a"} & set(formats) else None)
        sources = write_sources(spec, work, toolchain or find_static_toolchain(spec.target, cc))
        elsewhere = spec.target.system != "linux"
        if elsewhere and toolchain:
            files["library"] = file_name(stem, spec.target.system)
            if spec.target.system == "windows":
                files["import_library"] = f"{stem}.lib"
            link_elsewhere(stem, spec.functions, spec.target, toolchain, sources, work, cache)
            facts["library"] = examine_elsewhere(
                work / files["library"], spec.target, spec.functions, spec.weight_bytes
            )
        elif "so" in formats and toolchain:
            files["library"] = f"lib{stem}.so"
            link_shared(stem, spec.functions, toolchain, sources, work, cache)
            facts["library"] = examine_shared(work / files["library"], spec.target, spec.functions, spec.weight_bytes)
        if "a" in formats and toolchain:
            files["archive"] = f"lib{stem}.a"
            link_archive(stem, spec.functions, toolchain, sources, work, cache)
        if "exe" in formats:
            static = find_static_toolchain(spec.target, cc) or _no_static_compiler(spec.target)
            files["executable"] = PROGRAM
            usual = default_rtol(*(str(spec.options.get(name, "float32")) for name in ("weights", "precision")))
            rtol = rtol_within(usual, spec.options.get("half_error"))
            link_program(stem, static, sources, work, rtol, spec.report.get("dropped_inputs", ()), cache)
            facts["executable"] = examine_program(work / PROGRAM, spec.target, spec.weight_bytes)
            facts["executable"]["compiler"] = static.version()
        if toolchain:
            facts["compiler"] = toolchain.version()
        if spec.target.system == "wasm":
            files["loader"] = f"{stem}.mjs"
            (work / files["loader"]).write_text(loader_text(spec, files["library"]), encoding="utf-8")
        if "extras" in formats and not elsewhere:
            for kind, (name, text) in beside_files(spec, "so" in formats, "a" in formats).items():
                files[kind] = name
                (work / name).write_text(text, encoding="utf-8")
        for name in files.values():
            _written_in_order(work / name, stage.result / name)
        if "library" in files and not elsewhere:
            known[files["library"]] = seal(stage.result / files["library"])
        manifest = manifest_text(spec, files, stage.result, sources.fingerprint, facts, known)
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


def write_sources(spec: LibrarySpec, work: Path, toolchain: Toolchain | None = None) -> Sources:
    """Writes the runtime, the header, the C file behind it, the kernels and the weights into ``work``. ``toolchain``
    joins the kernels of one level, where there are several."""
    objects, digest = [], ""
    if spec.levels and toolchain is not None:
        objects += write_levels(spec, work, toolchain)
    else:
        for i, code in enumerate((spec.object_bytes, *spec.kernel_objects)):
            objects.append(f"kernels{i - 1 if i else ''}.o")
            (work / objects[-1]).write_bytes(hidden(code, spec.target.system))
    if spec.weight_bytes:
        if spec.target.system == "linux":
            _, digest = write_weights(work / "weights.o", spec.target.triple, spec.weights)
        else:
            assert toolchain is not None
            digest = write_raw_weights(work, spec.target.system, toolchain, spec.weights)
        objects.append("weights.o")
    header = header_text(spec)
    fingerprint = _fingerprint(spec, header, digest)
    (work / f"{spec.identifier}.h").write_text(header)
    runtime = work / "runtime"  # apart from the header, whose name is the model's choice
    runtime.mkdir()
    (runtime / "generated.c").write_text(model_text(spec, fingerprint))
    own = runtime_sources(bool(spec.scratchpad_bytes), bool(spec.symbols), bool(spec.stream), bool(spec.levels))
    for source in own:
        (runtime / source.name).write_bytes(source.read_bytes())
    names = ["generated.c", *(s.name for s in own if s.suffix == ".c")]
    files = tuple(f"runtime/{name}" for name in names)
    return Sources(files, tuple(objects), fingerprint, bool(spec.symbols), bool(spec.stream))


def _fingerprint(spec: LibrarySpec, header: str, weights: str) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for level in spec.all_levels:
        for code in (level.object_bytes, *level.kernel_objects):
            digest.update(code)
    digest.update(f"{header}\0{weights}\0{ABI}".encode())
    return digest.hexdigest()

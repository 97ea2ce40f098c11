"""From sources and objects to what a user links or runs: a shared library, an archive, a static program.

    Sources -> link_shared:  lib<name>.so
            -> link_archive: lib<name>.a
            -> link_program: model_run

The C sources are compiled once for the library in either form and once for the program, side by side. Those that are
the same in every library are compiled once in the life of a process; none is, that a cache on disk has the object of.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..cache.keys import key_of
from ..cache.store import Cache
from ..verify import RTOL
from .archive import localise, write_archive
from .names import literal
from .toolchain import Toolchain

RUNTIME = Path(__file__).parent.parent / "runtime"
PROGRAM = "model_run"


@dataclass(frozen=True)
class Sources:
    """What a library is made of, as file names in one folder: C sources, objects, and the digest of it all;
    whether its runs choose sizes, and whether it streams."""

    c_files: tuple[str, ...]
    objects: tuple[str, ...]
    fingerprint: str
    shapes: bool = False
    stream: bool = False


def runtime_sources(
    scratchpad: bool = False, shapes: bool = False, stream: bool = False, levels: bool = False
) -> list[Path]:
    """The C files that are compiled into every library, those of libraries for a scratchpad, those of libraries with
    open ``shapes``, those of libraries that ``stream``, and those of libraries for several ``levels``."""
    extra = {"levels": levels, "scratchpad": scratchpad, "shapes": shapes, "stream": stream}
    folders = [RUNTIME, *(RUNTIME / name for name, wanted in extra.items() if wanted)]
    return [file for folder in folders for file in _c_files(folder)]


def program_sources(shapes: bool = False, stream: bool = False) -> list[Path]:
    """The C files of ``model_run``, beside those of the library: of one with fixed or with open ``shapes``, which may
    ``stream``."""
    folders = ("open" if shapes else "fixed", "rows" if stream else "whole")
    program = RUNTIME / "program"
    return [file for folder in (program, *(program / f for f in folders)) for file in _c_files(folder)]


def _c_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in (".c", ".h"))


def link_shared(
    stem: str, functions: Sequence[str], toolchain: Toolchain, sources: Sources, work: Path,
    cache: Cache | None = None,
) -> None:  # fmt: skip
    """``lib<stem>.so``, which exports ``functions`` and nothing else."""
    name = f"lib{stem}.so"
    exports = " ".join(f"{function};" for function in functions)
    (work / "exports.map").write_text(f"{{ global: {exports} local: *; }};\n")
    arguments = [*_library_objects(toolchain, sources, work, cache), *sources.objects, *toolchain.link_flags,
                 "-Wl,--version-script=exports.map", f"-Wl,-soname,{name}", "-pthread", "-lm"]  # fmt: skip
    toolchain.run([*arguments, "-o", name], work, f"linking {name}")


def link_archive(
    stem: str, functions: Sequence[str], toolchain: Toolchain, sources: Sources, work: Path,
    cache: Cache | None = None,
) -> None:  # fmt: skip
    """``lib<stem>.a``: one object whose only global names are ``functions``."""
    compiled = _library_objects(toolchain, sources, work, cache)
    arguments = ["-r", "-nostdlib", *compiled, *sources.objects, "-Wl,-S", "-o", "whole.o"]
    toolchain.run(arguments, work, f"joining lib{stem}.a")
    localise(work / "whole.o", functions)
    write_archive(work / f"lib{stem}.a", work / "whole.o", functions)


def link_program(
    stem: str, toolchain: Toolchain, sources: Sources, work: Path, rtol: float = RTOL, unused: Sequence[str] = (),
    cache: Cache | None = None,
) -> None:  # fmt: skip
    """``model_run``: the model and a command line, static. ``rtol`` is what its comparisons allow by default,
    ``unused`` are inputs of the ONNX model that it takes and passes over."""
    own = write_program(stem, work, rtol, unused, sources.shapes, sources.stream)
    compiled = compile_sources(toolchain, toolchain.program_flags, (*sources.c_files, *own), "run", work, cache)
    arguments = [*compiled, *sources.objects, *toolchain.static_flags, "-pthread", "-lm", "-o", PROGRAM]
    toolchain.run(arguments, work, f"linking {PROGRAM}")
    (work / PROGRAM).chmod(0o755)


def write_program(
    stem: str, work: Path, rtol: float = RTOL, unused: Sequence[str] = (), shapes: bool = False, stream: bool = False
) -> list[str]:
    """Writes the C sources of ``model_run`` into ``work``; gives the files to compile."""
    folder = work / "runtime" / "program"
    folder.mkdir(exist_ok=True)
    own = program_sources(shapes, stream)
    for source in own:
        (folder / source.name).write_bytes(source.read_bytes())
    names = "".join(f"{literal(name)}, " for name in unused)
    types = (_OPEN_TYPES if shapes else _FIXED_TYPES).format(name=stem, upper=stem.upper())
    types += _STREAM_TYPES.format(name=stem) if stream else ""
    text = _MODEL_API.format(name=stem, rtol=f"{rtol:g}", unused=names) + types
    (folder / "model_api.h").write_text(text)
    return [f"runtime/program/{source.name}" for source in own if source.suffix == ".c"]


def _library_objects(toolchain: Toolchain, sources: Sources, work: Path, cache: Cache | None) -> list[str]:
    """The objects of a library's C sources, which both of its forms are made of; compiled by whoever comes first."""
    return compile_sources(toolchain, toolchain.compile_flags, sources.c_files, "lib", work, cache)


def compile_sources(
    toolchain: Toolchain, flags: Sequence[str], sources: Sequence[str], kind: str, work: Path, cache: Cache | None
) -> list[str]:
    """Compiles each source by itself: not every driver (zig's) takes several with -c."""
    compiled = [f"{source}.{kind}.o" for source in sources]
    missing = [(source, made) for source, made in zip(sources, compiled, strict=True) if not (work / made).exists()]
    common = _digest_of_common(work / "runtime")

    def make(pair: tuple[str, str]) -> None:
        source, made = pair
        key = (toolchain, tuple(flags), source, common)
        if key in _objects:
            (work / made).write_bytes(_objects[key])
            return
        _make(toolchain, [*flags, "-c", source], work / source, work / made, work, cache)
        if source in _COMMON and (work / made).is_file():
            if len(_objects) >= _MOST_OBJECTS:
                _objects.clear()
            _objects[key] = (work / made).read_bytes()

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as workers:
        list(workers.map(make, missing))
    return compiled


def _make(
    toolchain: Toolchain, arguments: Sequence[str], source: Path, made: Path, work: Path, cache: Cache | None
) -> None:
    """Compiles one source into ``made``, or writes what ``cache`` has."""
    name = source.relative_to(work)

    def compiled() -> bytes:
        toolchain.run([*arguments, "-o", str(made.relative_to(work))], work, f"compiling {name}")
        return made.read_bytes()

    if cache is None:
        compiled()
        return
    common = str(name) in _COMMON
    seen = sorted(work.glob("runtime/*.h") if common else (*work.glob("runtime/**/*.h"), *work.glob("*.h")))
    texts = [part for file in seen for part in (str(file.relative_to(work)), file.read_bytes())]
    key = key_of("C object", toolchain.identity(), "\0".join(arguments), source.read_bytes(), *texts)
    made.write_bytes(cache.entry(key, compiled))


_COMMON = frozenset(f"runtime/{file.name}" for file in runtime_sources(True, True, True, True) if file.suffix == ".c")
_MOST_OBJECTS = 64  # some 10 KB each
_objects: dict[tuple[Toolchain, tuple[str, ...], str, str], bytes] = {}


def _digest_of_common(runtime: Path) -> str:
    """Of all C files of the runtime but those that are written for one model."""
    digest = hashlib.sha256()
    for path in sorted(runtime.glob("*.[ch]")):
        if path.name != "generated.c":
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


_MODEL_API = """/* The model's own names, for a program that is written once for all models. */
#include "../../{name}.h"

#define MODEL(what) {name}_##what
#define MODEL_RTOL "{rtol}"
#define MODEL_UNUSED {{{unused}0}}
"""

_FIXED_TYPES = """typedef {name}_tensor halotile_tensor;
typedef {name}_description halotile_description;
typedef {name}_instance halotile_instance;
"""

_STREAM_TYPES = """typedef {name}_rows halotile_rows;
typedef {name}_steps halotile_steps;
typedef {name}_stream halotile_stream;
typedef {name}_shape halotile_shape;
"""

# with the sizes of a run, which the program settles before it does anything else
_OPEN_TYPES = """#define HALOTILE_INPUTS {upper}_INPUTS
#define HALOTILE_OUTPUTS {upper}_OUTPUTS
#define HALOTILE_SYMBOLS {upper}_SYMBOLS
#define HALOTILE_DIMS {upper}_SHAPE_DIMS
typedef struct halotile_tensor {{
    const char *name;
    const char *dtype;
    size_t rank;
    const size_t *shape;
    size_t elements;
    size_t bytes;
    const char *const *dims;
    size_t element_bytes;
}} halotile_tensor;
typedef struct halotile_description {{
    const char *name;
    const char *version;
    const char *target;
    const char *fingerprint;
    size_t input_count;
    const halotile_tensor *inputs;
    size_t output_count;
    const halotile_tensor *outputs;
    size_t weight_bytes;
    int max_threads;
    int default_threads;
}} halotile_description;
typedef {name}_instance halotile_instance;
"""

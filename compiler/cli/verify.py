"""``halotile verify``: a model against ONNX Runtime, compiled here or from a built library."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import ToolchainError
from . import parameters
from .arrays import read_arrays
from .console import StageProgress, columns, emit, emit_json
from .images import images_option, images_wanted
from .interrupt import removed_on_exit
from .shapes import shape_options
from .sizes import size_option, sizes_of
from .verb import verb

if TYPE_CHECKING:
    from ...targets.plain import Json
    from ..cache.store import Cache
    from ..options import Shapes
    from ..verify import Verification


@verb(
    groups={
        "Inputs": ("inputs", "sizes", "seed"),
        "What is compared": (
            "on", "images", "shapes", "typical", "min_shapes", "opt_shapes", "max_shapes", "fixed", "threads", "exact",
            "cache",
        ),
        "Tolerance": ("rtol", "atol"),
    },
    examples=[
        ("halotile verify model.onnx", "Compiled for this machine, on random inputs:"),
        ("halotile verify model.onnx out -i x=in.npy", "A library, on an input of yours:"),
        ("halotile verify out --on ssh://pi@raspberrypi.local", "A library on a board; the manifest knows the model:"),
    ],
)  # fmt: skip
@parameters.model_argument()
@parameters.directory_argument("[DIR]", required=False)
@parameters.input_option
@size_option
@parameters.on_option
@shape_options
@parameters.fix_option
@images_option
@parameters.threads_option
@click.option("--exact", is_flag=True, help="Compile exactly; ten times tighter tolerances.")
@parameters.tolerance_options
@parameters.cache_option
@parameters.json_option
def verify(
    model: str, directory: str | None, inputs: Sequence[str], sizes: Sequence[dict[str, int]],
    on: str | None, shapes: Shapes | None, typical: Mapping[str, int] | None, fixed: Sequence[tuple[str, object]],
    cache: bool, as_json: bool, images: str | None, **options: Any,
) -> int:
    """Compare MODEL (ONNX) with ONNX Runtime: the library in DIR, or one compiled for this machine and thrown away.

    MODEL may be left out: `halotile verify DIR` finds the model that the manifest in DIR names.
    Exit code 3 when an output differs by more than rtol * max|reference| + atol.
    """
    known = parameters.fixed_of(fixed)
    path, folder = _model_and_folder(model, directory)
    if on is not None and folder is None:
        raise click.UsageError("--on runs a built library; name its folder: halotile verify MODEL DIR --on ...")
    if folder is not None and known:
        raise click.UsageError("--fix is for compiling; the library in DIR has its constants already")
    if folder is not None and images:
        raise click.UsageError("--images is for compiling; the library in DIR has its steps already")
    if folder is not None and (shapes or typical):
        raise click.UsageError("--shape is for compiling; the library in DIR has its shapes already")
    from ..verify import available

    if not available():
        raise ToolchainError(
            "verifying needs onnxruntime, which is not installed: pip install onnxruntime"
        )
    if folder is not None:
        result = _compare(path, folder, inputs, sizes_of(sizes), on, **options)
    else:
        with removed_on_exit(), tempfile.TemporaryDirectory() as temporary:
            library = Path(temporary) / "library"
            wanted: Json = {"shapes": shapes, "typical": typical, "fixed": known}
            before, behind = images_wanted((), (), images)
            wanted |= {"inputs": before, "outputs": behind}
            wanted |= {"threads": options["threads"], "exact": options["exact"]}
            _compile(path, library, parameters.cache_of(cache), wanted, quiet=as_json)
            result = _compare(path, library, inputs, sizes_of(sizes), None, **options)
    if as_json:
        emit_json(result.data())
    else:
        emit(columns(_rows(result)))
        emit(result.message())
    return 0 if result.ok else 3


def _model_and_folder(model: str, directory: str | None) -> tuple[Path, Path | None]:
    """The ONNX file and the built folder; of a folder alone, the file that its manifest names."""
    if directory is not None or not model or not Path(model).is_dir():
        return parameters.check_model_path(model), parameters.check_library_path(directory) if directory else None
    from ..runtime.place import MANIFEST
    from .models import find_model
    from .recipe import read_recorded

    folder = parameters.check_library_path(model)
    return find_model(folder / MANIFEST, read_recorded(folder / MANIFEST)), folder


def _compile(path: Path, library: Path, cache: Cache | None, wanted: Json, quiet: bool) -> None:
    from ..cache.library import library as made_library
    from ..cache.targets import resolved
    from ..state import Options

    options = Options(target=resolved("native", cache)[0], cache=cache, **wanted)
    with StageProgress(quiet) as progress:
        made_library(path, options, library, progress)


def _compare(
    path: Path, library: Path, inputs: Sequence[str], wanted: dict[str, int], on: str | None, *,
    threads: int | None, exact: bool,
    rtol: float | None, **others: Any,
) -> Any:  # fmt: skip
    from ..recipe import fixed_of, reference_of, rtol_of
    from ..runtime.place import read_manifest
    from ..sized import verify_at

    if on is None and parameters.streams(read_manifest(library)):
        from ..model import load

        with load(library, threads) as streaming:
            given = read_arrays(inputs, streaming.inputs)
            return streaming.verify(given or None, model=path, shape=wanted, rtol=rtol, **others)
    with parameters.open_model(library, on, threads) as model:
        rtol = rtol_of(model.recorded) if rtol is None else rtol
        given = read_arrays(inputs, model.inputs, model.recorded.report.dropped_inputs)
        run = (lambda arrays: model(arrays, threads)) if hasattr(model, "place") else model
        dropped, fixed = model.recorded.report.dropped_shapes, fixed_of(model.recorded)
        return verify_at(
            model, reference_of(path, model.recorded), given, wanted, run=run, dropped=dropped, fixed=fixed,
            exact=exact, rtol=rtol, **others,
        )  # fmt: skip


def _rows(result: Verification) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("output", "elements", "largest error", "allowed", "")]
    for o in result.outputs:
        rows.append((o.name, str(o.elements), f"{o.max_error:.3g}", f"{o.limit:.3g}", o.verdict))
    return rows

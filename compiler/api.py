"""The Python API: ``compile``, ``tune``, ``inspect``, ``report``. (``load`` is the runtime's and needs numpy only.)"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import HalotileError
from ..targets.target import Target
from .guard import carried, guarded

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from ..targets.plain import Json, JsonView
    from .images import Image, Output
    from .model import Model
    from .options import FloatMode, Objective, Precision, Stage, Tiling, Weights

Progress = Callable[[str, int, int], None]
ShapesGiven = Mapping[str, Sequence[int | str | None] | int | str]


@guarded
def compile(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    target: str | Target = "native",
    shapes: ShapesGiven | None = None,
    threads: int | None = None,
    exact: bool = False,
    *,
    levels: str | Sequence[str] | None = None,
    typical: Mapping[str, int] | None = None,
    fixed: Mapping[str, int | np.ndarray] | None = None,
    inputs: Mapping[str, Image | JsonView] | None = None,
    outputs: Mapping[str, Output | JsonView] | None = None,
    images: str | os.PathLike[str] | None = None,
    name: str | None = None,
    float_mode: FloatMode = "strict",
    tile: Tiling | JsonView | None = None,
    memory_budget: int | str | None = None,
    optimize: Objective = "speed",
    weights: Weights = "float32",
    precision: Precision = "float32",
    calibrate: object = None,
    error: float | None = None,
    stream: bool | int = False,
    flush_denormals: bool = False,
    tuning: str | os.PathLike[str] | None = None,
    dump_ir: str | os.PathLike[str] | None = None,
    cache: bool | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Model:
    """Compiles an ONNX model (path, bytes or ModelProto) and returns it ready to run.

    ``target``: ``native``, a name from ``halotile targets list``, a board file (``.toml``) or
    ``triple+cpu+features`` (docs/targets.md). With ``levels``,
    ["v2", "v3", "v4", "amx"], the library has code for several processors, and takes the best that it finds where it
    runs; ``target`` is then a triple, or ``native`` for this machine's. ``shapes`` fixes open
    dimensions by input name, {"x": (1, 3, 224, 224)}, or names and bounds them, {"x": ("n", 3, "h:64..2160:32", "w")};
    {"batch": 4} and {"batch": "1..16"} do it by the dimension's own name. ``typical``, {"h": 720}, is what to plan for.
    ``fixed`` are whole inputs: {"size": [480, 640]} makes that a constant, which the library does not take any more.
    ``inputs``, {"x": halotile.Image(...)}, are frames in place of inputs, ``outputs``, {"y": halotile.Output(...)},
    what is taken in place of outputs; ``images`` is a TOML file that says the same (docs/images.md).
    ``threads``: the default number of threads; None takes the target's cores. ``exact`` keeps to the order of
    operations (no Winograd, no matrix unit, no re-association across kernels). ``float_mode``: ``strict``, ``finite``
    or ``exact``, how far simplification may go. ``dump_ir``: a folder for the IR after each stage.
    ``progress`` is called with (stage, done, total).

    ``cache``: what was compiled once is not compiled again, by any process. None keeps it where the environment says
    (HALOTILE_CACHE, a folder or ``off``; ~/.cache/halotile), False or ``"off"`` nowhere, a path in that folder. A model
    that comes out of it whole went through no stage: ``report["seconds"]`` has ``cache`` alone, and ``progress`` is not
    called.

    ``tile``: ``auto`` computes chains of layers tile by tile where that is predicted to pay, ``off`` never does, and
    {"last": node, "shape": (16, 64)} does it for the chain that ends there. ``memory_budget`` (bytes, or "32MiB") is a
    limit that the arena never exceeds (of a stream all that it takes), ``optimize="memory"`` asks for the smallest one;
    both tile as they need.
    ``tuning``: a database that :func:`tune` wrote; what it knows of this target's kernels replaces the estimates.

    ``weights="float16"`` stores the weights of convolutions and matrix products so, which halves them; they are widened
    where they are used, and :meth:`Model.verify` allows ten times the error. ``weights="int8"`` stores them, tables and
    recurrent layers' as bytes with a scale for each output channel, which quarters them, and computes in float32; it
    allows a hundred times the error. ``flush_denormals`` counts floats below
    the normal ones (1.2e-38) as zero while a run lasts: x86 processors take a hundred times as long for them.
    ``precision="bfloat16"`` rounds what convolutions and matrix products multiply to bfloat16 where the target has a
    matrix unit or AVX512_BF16 for it; :meth:`Model.verify` then allows a hundred times the error (docs/numerics.md).
    ``precision="float16"`` computes and stores layers in float16 where the target computes in it, and ``calibrate`` (or
    random inputs, without) says that their numbers stay far inside its range, and that outputs are expected to be off
    by at most ``error``, 0.01 if left out, of their largest value (docs/guides/precision.md).
    ``precision="int8"`` computes layers in bytes, with ranges from ``calibrate``: sample inputs as an .npz or .npy
    file, a folder of them, or dicts of arrays. ``error`` is what the outputs may be off by on these samples, as a part
    of their largest value: layers that cost too much of it stay in float32 (docs/int8.md).
    ``precision="auto"`` chooses the precision of each layer, so that the build is the fastest whose outputs are off by
    at most ``error`` on the samples in ``calibrate`` (docs/guides/error-budget.md).
    ``stream``: rows come and go piece by piece, and memory does not depend on the height, the one dimension that stays
    open: {"x": (1, 3, "h", 4096)}. A number is the rows of a step, about (docs/streams.md).

    Raises one of ``halotile.errors``: every one says in a line what is wrong, where, and what to do.
    """
    from .cache.digests import begin
    from .cache.place import chosen_cache
    from .options import path_of

    if progress is not None and not callable(progress):
        raise HalotileError(f"progress={progress!r} can't be called; give a function of (stage, done, total)")
    where = chosen_cache(cache)
    if (file := path_of(model)) is not None and os.path.isfile(file):
        begin(file, where)
    from .cache.library import library as made_library
    from .cache.targets import resolved, resolved_levels
    from .images import both
    from .model import Model
    from .narrow import narrowed
    from .options import (
        checked_budget,
        checked_denormals,
        checked_fixed,
        checked_float_mode,
        checked_name,
        checked_optimize,
        checked_path,
        checked_shapes,
        checked_stream,
        checked_threads,
        checked_tile,
        checked_typical,
        checked_weights,
    )
    from .runtime.loader import opened
    from .runtime.private import PrivateFolder
    from .state import Options

    above = () if levels is None else resolved_levels(levels, str(target), where)
    chosen, here = resolved(above[0] if above else target, where)
    before, behind = both(inputs, outputs, checked_path(images, "images"))
    options = Options(
        target=chosen,
        levels=above[1:] or None,
        shapes=checked_shapes(shapes),
        typical=checked_typical(typical),
        fixed=checked_fixed(fixed),
        inputs=before,
        outputs=behind,
        threads=checked_threads(threads),
        exact=bool(exact),
        float_mode=checked_float_mode(float_mode),
        tile=checked_tile(tile),
        memory_budget=checked_budget(memory_budget),
        optimize=checked_optimize(optimize),
        weights=checked_weights(weights, bool(exact), precision),
        flush_denormals=checked_denormals(flush_denormals, bool(exact)),
        stream=checked_stream(stream),
        tuning=_choices(tuning, chosen, threads),
        name=checked_name(name),
        dump_ir=checked_path(dump_ir, "dump_ir"),
        cache=where,
    )
    options = narrowed(model, options, precision, calibrate, error, carried(progress))
    folder = PrivateFolder()
    try:
        library = Path(folder.name) / "library"
        made = made_library(model, options, library, carried(progress), private=True)
        loaded = opened(library / (made.recorded.library or ""), made.recorded) if here else None
        return Model(
            loaded, made.recorded, library, private=folder, target=chosen, report=made.report, source=model
        )
    except BaseException:
        folder.cleanup()
        raise


@guarded
def tune(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    database: str | os.PathLike[str],
    shapes: ShapesGiven | None = None,
    threads: int | None = None,
    exact: bool = False,
    *,
    typical: Mapping[str, int] | None = None,
    fixed: Mapping[str, object] | None = None,
    inputs: Mapping[str, Image | JsonView] | None = None,
    outputs: Mapping[str, Output | JsonView] | None = None,
    images: str | os.PathLike[str] | None = None,
    seconds: float = 10.0,
    candidates: int | None = None,
    progress: Progress | None = None,
) -> Json:
    """Measures the candidates of every kernel of a model on this machine and enters what wins into ``database``.

    The database is a JSON file, made if need be, that holds any number of models and machines; pass it on as
    ``compile(..., tuning=database)``. ``seconds`` is how long to measure, besides compiling the model once for each of
    at most ``candidates`` (8) candidates. Returns the winners, and seconds of a run before and after.
    """
    from ..schedules.words.candidates import MOST
    from ..targets.resolve import resolve
    from .images import both
    from .options import checked_fixed, checked_path, checked_shapes, checked_threads, checked_typical
    from .state import Options
    from .tune import tune as measure
    from .tuning_file import add, check

    file = checked_path(database, "database")
    if file is None:
        raise HalotileError("database=None: name the file to write")
    if not isinstance(seconds, Real) or not 0 < seconds < float("inf"):
        raise HalotileError(f"seconds={seconds!r}: give how long to measure, such as 10")
    if candidates is not None and (not isinstance(candidates, int) or isinstance(candidates, bool) or candidates < 1):
        raise HalotileError(f"candidates={candidates!r}: give a whole number from 1, or None")
    check(file)
    before, behind = both(inputs, outputs, checked_path(images, "images"))
    options = Options(
        resolve("native"),
        inputs=before,
        outputs=behind,
        shapes=checked_shapes(shapes),
        typical=checked_typical(typical),
        fixed=checked_fixed(fixed),
        threads=checked_threads(threads),
        exact=bool(exact),
    )
    found = measure(model, options, seconds, candidates or MOST, carried(progress))
    add(file, options.target, options.threads, found.kernels)
    return found.data()


@guarded
def report(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    output: str | os.PathLike[str] = "report.html",
    target: str | Target = "native",
    shapes: ShapesGiven | None = None,
    threads: int | None = None,
    exact: bool = False,
    *,
    typical: Mapping[str, int] | None = None,
    fixed: Mapping[str, object] | None = None,
    inputs: Mapping[str, Image | JsonView] | None = None,
    outputs: Mapping[str, Output | JsonView] | None = None,
    images: str | os.PathLike[str] | None = None,
    tile: Tiling | JsonView | None = None,
    memory_budget: int | str | None = None,
    optimize: Objective = "speed",
    weights: Weights = "float32",
    precision: Precision = "float32",
    calibrate: object = None,
    error: float | None = None,
    tuning: str | os.PathLike[str] | None = None,
    seconds: float = 1.0,
    cache: bool | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Json:
    """Compiles a model and writes one HTML page about it: kernels and their times, the arena, tiles, agreement with
    ONNX Runtime.

    ``output`` is the file, ``seconds`` how long to measure besides compiling; the others are those of :func:`compile`.
    With samples in ``calibrate``, whatever the ``precision``, the page has the curve of error against time, too.
    The page needs no network. Where this machine can't run the target's code it has no times, and says so. Returns
    ``output``, the number of ``kernels``, and whether they were ``timed``.
    """
    from .cache.place import chosen_cache
    from .cache.targets import resolved
    from .destinations import check_file_destination
    from .images import both
    from .options import (
        checked_budget,
        checked_fixed,
        checked_optimize,
        checked_path,
        checked_shapes,
        checked_threads,
        checked_tile,
        checked_typical,
        checked_weights,
    )
    from .page.precision import PrecisionWish
    from .page.write import summary, write_page
    from .state import Options

    file = checked_path(output, "output")
    if file is None:
        raise HalotileError("output=None: name the file to write")
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not 0 < seconds < float("inf"):
        raise HalotileError(f"seconds={seconds!r}: give how long to measure, such as 1")
    check_file_destination(file)
    where = chosen_cache(cache)
    chosen, here = resolved(target, where)
    before, behind = both(inputs, outputs, checked_path(images, "images"))
    options = Options(
        chosen,
        shapes=checked_shapes(shapes),
        typical=checked_typical(typical),
        fixed=checked_fixed(fixed),
        inputs=before,
        outputs=behind,
        threads=checked_threads(threads),
        exact=bool(exact),
        tile=checked_tile(tile),
        memory_budget=checked_budget(memory_budget),
        optimize=checked_optimize(optimize),
        weights=checked_weights(weights, bool(exact), precision),
        tuning=_choices(tuning, chosen, threads),
        cache=where,
    )
    wish = PrecisionWish(precision, calibrate, error)
    return summary(write_page(model, options, wish, here, file, float(seconds), carried(progress)), file)


def _choices(database: str | os.PathLike[str] | None, target: Target, threads: int | None) -> dict[str, str] | None:
    from .options import checked_path

    file = checked_path(database, "tuning")
    if file is None:
        return None
    from .tuning_file import choices

    return choices(file, target, threads)


@guarded
def inspect(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    stage: Stage | None = None,
    shapes: ShapesGiven | None = None,
    *,
    target: str | Target = "native",
    float_mode: FloatMode = "strict",
    check: bool = False,
    tile: Tiling | JsonView | None = None,
    memory_budget: int | str | None = None,
    optimize: Objective = "speed",
    threads: int | None = None,
    fixed: Mapping[str, object] | None = None,
    typical: Mapping[str, int] | None = None,
    inputs: Mapping[str, Image | JsonView] | None = None,
    outputs: Mapping[str, Output | JsonView] | None = None,
    images: str | os.PathLike[str] | None = None,
) -> Json:
    """What is in a model, as plain data, without compiling it.

    Without ``stage``: operators and how many of each, which of them Halotile covers, multiply-adds, weights, inputs and
    outputs of the file. With ``stage`` (``import`` to ``plan``): the pipeline runs that far and the operators left are
    listed with shapes and attributes, beside what each pass did and declined. Up to ``simplify``, dimensions may stay
    open: ``symbols`` says of each its sizes, the one to plan for, and why. ``typical``, ``fixed``, ``float_mode``,
    ``tile``, ``memory_budget``, ``optimize``, ``threads``, ``inputs``, ``outputs`` and ``images`` are those of
    :func:`compile`, the last three with a ``stage`` alone; with ``check``, every rewrite of the simplification
    is validated on numbers (slow).
    """
    from .images import both
    from .inspection import inspect_file, inspect_stage
    from .options import (
        checked_budget,
        checked_fixed,
        checked_float_mode,
        checked_optimize,
        checked_path,
        checked_shapes,
        checked_threads,
        checked_tile,
        checked_typical,
    )

    known, lengths = checked_fixed(fixed), checked_shapes(shapes)
    options = {
        "fixed": known,
        "typical": checked_typical(typical),
        "float_mode": checked_float_mode(float_mode),
        "tile": checked_tile(tile),
        "memory_budget": checked_budget(memory_budget),
        "optimize": checked_optimize(optimize),
        "threads": checked_threads(threads),
    }
    before, behind = both(inputs, outputs, checked_path(images, "images"))
    if stage is None and (before or behind):
        raise HalotileError("inputs and outputs are put around the model by a build: give a stage, such as 'import'")
    options |= {"inputs": before, "outputs": behind}
    if stage is None:
        return inspect_file(model, lengths, known, options["typical"])
    return inspect_stage(model, stage, lengths, target, check, options)

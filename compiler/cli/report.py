"""``halotile report``: one HTML page about a model as it is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import several
from . import parameters
from .console import StageProgress, emit, emit_json, size
from .images import Pairs, images_options, images_wanted
from .shapes import shape_options
from .verb import verb

if TYPE_CHECKING:
    from ..options import Shapes


@verb(
    groups={
        "Model": ("shapes", "typical", "min_shapes", "opt_shapes", "max_shapes", "fixed"),
        "Images": ("inputs", "outputs", "images"),
        "As a build would be asked": (
            "target", "threads", "exact", "tile", "memory_budget", "optimize", "weights", "precision",
            "calibrate", "error", "tuning", "cache",
        ),
        "Result": ("output", "seconds"),
    },
    examples=[
        ("halotile report model.onnx -o report.html", "Kernels, times, memory and tiles on one page:"),
        ("halotile report model.onnx --memory-budget 2MiB -o small.html", "Of a build with less memory:"),
        ("halotile report model.onnx --calibrate samples.npz", "With the curve of error against time:"),
        ("halotile report model.onnx -t raspberry-pi-5 -o pi5.html", "For a board, without times:"),
    ],
)  # fmt: skip
@parameters.model_argument()
@click.option(
    "-o", "--output", type=click.Path(), default="report.html", show_default=True, metavar="FILE", help="The page."
)
@click.option(
    "--seconds", type=click.FloatRange(0.1, 1e6), default=1.0, show_default=True,
    help="How long to measure, besides compiling.",
)  # fmt: skip
@shape_options
@parameters.fix_option
@images_options
@parameters.threads_option
@click.option("--exact", is_flag=True, help="As a build with --exact: no Winograd, no matrix unit.")
@parameters.tiling_options
@parameters.weights_option
@parameters.precision_options
@parameters.tuning_option
@parameters.cache_option
@parameters.target_option
@parameters.json_option
def report(
    model: str, output: str, seconds: float, shapes: Shapes | None, typical: Mapping[str, int] | None,
    fixed: Sequence[tuple[str, object]], threads: int | None, exact: bool,
    tile: str | None, memory_budget: int | None, optimize: str, weights: str, tuning: str | None, cache: bool,
    target: str, precision: str, calibrate: str | None, error: float | None,
    as_json: bool, inputs: Pairs, outputs: Pairs, images: str | None,
) -> None:  # fmt: skip
    """Compile MODEL (ONNX) and write one HTML page about it: kernels and their times, the arena, tiles, agreement.

    With --calibrate it has the curve of error against time as well. The page needs no network. Where this machine can't
    run the target's code, it has no times and says so.
    """
    final = Path(output)
    parameters.check_file_destination(final)
    known = parameters.fixed_of(fixed)
    before, behind = images_wanted(inputs, outputs, images)
    path = parameters.check_model_path(model)
    from ...targets.resolve import precheck

    precheck(target)
    from ..cache.targets import resolved
    from ..options import checked_weights
    from ..page.precision import PrecisionWish
    from ..page.write import summary, write_page
    from ..state import Options
    from ..tuning_file import choices

    where = parameters.cache_of(cache)
    chosen, here = resolved(target, where)
    options = Options(
        chosen, shapes=shapes, typical=typical, fixed=known, inputs=before, outputs=behind, threads=threads,
        exact=exact, tile=tile,
        memory_budget=memory_budget, optimize=optimize, weights=checked_weights(weights, exact, precision),
        tuning=choices(Path(tuning), chosen, threads) if tuning else None, cache=where,
    )  # fmt: skip
    with StageProgress(quiet=as_json) as progress:
        wish = PrecisionWish(precision, calibrate, error)
        facts = write_page(path, options, wish, here, final, seconds, progress)
    if as_json:
        emit_json(summary(facts, final))
    else:
        emit(f"{final}: {several(len(facts.report['kernels']), 'kernel')}, {size(final.stat().st_size)}"
             + ("" if facts.seconds else f"; {facts.untimed}"))  # fmt: skip

"""``halotile tune``: measure the candidates of a model's kernels on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from . import parameters
from .console import StageProgress, columns, emit, emit_json
from .images import Pairs, images_options, images_wanted
from .shapes import shape_options
from .verb import verb

if TYPE_CHECKING:
    from ..options import Shapes


@verb(
    groups={
        "Model": ("shapes", "typical", "min_shapes", "opt_shapes", "max_shapes", "fixed"),
        "Images": ("inputs", "outputs", "images"),
        "What is measured": ("threads", "exact", "seconds", "candidates"),
        "Result": ("database",),
    },
    examples=[
        ("halotile tune model.onnx", "Measure, and enter what wins into tuning.json:"),
        ("halotile build model.onnx --tuning tuning.json -o out", "Build with it:"),
    ],
)
@parameters.model_argument()
@click.option(
    "--database", type=click.Path(dir_okay=False), default="tuning.json", show_default=True, metavar="FILE",
    help="Where to enter what wins; made if it is not there.",
)  # fmt: skip
@shape_options
@parameters.fix_option
@images_options
@parameters.threads_option
@click.option("--exact", is_flag=True, help="For builds with --exact: no Winograd, no matrix unit.")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 1e6), default=10.0, show_default=True,
    help="How long to measure, besides compiling.",
)  # fmt: skip
@click.option(
    "--candidates", type=click.IntRange(2, 8), default=8, show_default=True, help="The most to try for each kernel."
)
@parameters.json_option
def tune(
    model: str, database: str, shapes: Shapes | None, typical: Mapping[str, int] | None,
    fixed: Sequence[tuple[str, object]], threads: int | None, exact: bool,
    seconds: float, candidates: int, as_json: bool, inputs: Pairs, outputs: Pairs, images: str | None,
) -> None:  # fmt: skip
    """Measure the kernels of MODEL (ONNX) on this machine, for later builds with --tuning.

    The model is compiled once for every rank of candidate and the builds run in turns. What is faster than the choice
    that the cost model makes by itself is entered into a database, which may hold any number of models and machines.
    """
    known = parameters.fixed_of(fixed)
    before, behind = images_wanted(inputs, outputs, images)
    path = parameters.check_model_path(model)
    from ..api import tune as measure

    with StageProgress(quiet=as_json) as progress:
        found = measure(
            path, database, shapes, threads, exact, typical=typical,
            fixed=known, inputs=before, outputs=behind, seconds=seconds, candidates=candidates, progress=progress,
        )  # fmt: skip
    if as_json:
        emit_json({"database": database, **found})
        return
    rows = [
        (f"{k['own_seconds'] * 1e3:.3f}", f"{k['seconds'] * 1e3:.3f}", k["chosen"], key)
        for key, k in sorted(found["kernels"].items(), key=lambda e: e[1]["seconds"] - e[1]["own_seconds"])
    ]
    if rows:
        emit(columns([("own ms", "tuned ms", "choice", "kernel"), *rows]))
    before, after = found["own_seconds"] * 1e3, found["seconds"] * 1e3
    emit(f"{len(rows)} of {found['considered']} choices changed; a run: {before:.3f} ms, tuned {after:.3f} ms")

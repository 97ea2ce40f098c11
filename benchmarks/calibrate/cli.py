"""``halotile calibrate``: this machine as a board file, and how far its predictions are off."""

from __future__ import annotations

from pathlib import Path

import click

from ...compiler.cli import parameters
from ...compiler.cli.console import StageProgress, columns, emit, emit_json
from ...compiler.cli.verb import OTHERS, verb
from ...compiler.destinations import check_file_destination, write_whole
from ...errors import OutputError


@verb(
    groups={"What is measured": ("seconds",), OTHERS: ("output", "as_json")},
    examples=[
        ("halotile calibrate -o my-machine.toml", "Measure this machine (two minutes; nothing else should run):"),
        ("halotile build model.onnx -t ./my-machine.toml -o out", "Build with what was measured:"),
    ],
)
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False), metavar="FILE.toml",
    help="Where to write the target; without it, the errors are printed alone.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(0.001, 1e4), default=0.5, show_default=True,
    help="Of measuring each limit and each network, besides compiling.",
)  # fmt: skip
@parameters.json_option
def calibrate(output: str | None, seconds: float, as_json: bool) -> None:
    """Measure this machine: its limits, whole kernels, and the constants of the cost model that fit them.

    The error of predictions is that of kernels of other shapes, which nothing was fitted on: the median and the worst
    of each family, by what was known before and by what was measured.
    """
    path = _checked(output)
    from .board import board_text
    from .calibration import calibrate as measure

    with StageProgress(quiet=as_json) as progress:
        found = measure(seconds, progress=progress)
    if path is not None:
        write_whole(path, board_text(found))
    if as_json:
        emit_json({"file": output, **found.data()})
        return
    rows: list[tuple[str, ...]] = [("off by, median", "worst", "before", "worst", "kernels", "family")]
    for e in found.errors:
        shares = (f"{share:.0%}" for share in (e.median, e.worst, e.median_before, e.worst_before))
        rows.append((*shares, str(e.kernels), e.family))
    emit(columns(rows))
    if output is not None:
        emit(f"{output}: {sum(map(len, found.target.fitted.changed().values()))} constants of this machine's own")


def _checked(output: str | None) -> Path | None:
    """The file to write; OutputError, before anything is measured, for one that no target could be."""
    if output is None:
        return None
    path = Path(output)
    if path.suffix.lower() != ".toml":
        raise OutputError(f"{output}: a target's file ends in .toml, so that -t takes it")
    check_file_destination(path)
    return path

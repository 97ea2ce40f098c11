"""The page of a model, made and written: what ``halotile report`` and ``halotile.report`` do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ToolchainError
from ..destinations import write_whole
from ..state import Options, Progress
from .facts import PageFacts, gather
from .page import page

if TYPE_CHECKING:
    from ...targets.plain import Json
    from ..given import ModelGiven
    from .peak import Peak
    from .precision import PrecisionWish


def write_page(
    model: ModelGiven, options: Options, wish: PrecisionWish, here: bool, output: Path, seconds: float,
    progress: Progress | None,
) -> PageFacts:  # fmt: skip
    """What stands on the page that is written to ``output``: ``model`` compiled in the precision that is wished for,
    and measured for about ``seconds`` where this machine can run it (``here``). Raises what a build raises."""
    facts = gather(model, options, wish, here, seconds, progress)
    if facts.seconds:
        facts.peak = _peak(facts.report["threads"])
    write_whole(output, page(facts))
    return facts


def summary(facts: PageFacts, output: Path) -> Json:
    """The outcome as plain data."""
    return {"output": str(output), "kernels": len(facts.report["kernels"]), "timed": bool(facts.seconds)}


def _peak(threads: int) -> Peak | None:
    """The machine's limits; None where there is no compiler to measure them with."""
    from .peak import Meter

    try:
        with Meter() as meter:
            return meter.now(threads, 0.05)
    except ToolchainError:
        return None

"""What the page shows, as plain data: one build, its plan of memory, and where it can run here its times and errors."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import HalotileError, several
from ..given import ModelGiven
from ..state import Build, Options, Progress

if TYPE_CHECKING:
    import numpy as np

    from ...schedules.words.group import Value
    from ...targets.plain import Json
    from ..model import Model
    from .error_curve import ErrorCurve
    from .peak import Peak
    from .precision import PrecisionWish

ENOUGH = 3  # runs at least
MOST = 200


@dataclass(frozen=True)
class ArenaBox:
    """A stretch of the arena and the kernels, first to last, during which it is in use."""

    name: str
    bytes: int
    first: int
    last: int
    offset: int


@dataclass
class PageFacts:
    """``edges``: pairs of kernels, by index, of which the second reads what the first wrote. ``seconds``: of each
    kernel, empty with ``untimed`` the reason. ``agreement``: a sentence on the comparison with ONNX Runtime, and if it
    is good (None where there was none). ``arena``: offsets and sizes as formulas, of open dimensions."""

    name: str
    options: Options
    report: Json
    manifest: Json
    boxes: list[ArenaBox]
    edges: list[tuple[int, int]]
    arena: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    run_seconds: float = 0.0
    untimed: str = ""
    agreement: tuple[str, bool | None] = ("", None)
    outputs: list[Json] = field(default_factory=list)
    peak: Peak | None = None  # the machine's limits (peak.py), where they were measured
    errors: ErrorCurve | None = None  # what precisions would do, where there were samples to tell by


def gather(
    model: ModelGiven, options: Options, wish: PrecisionWish, here: bool, budget: float = 1.0,
    progress: Progress | None = None,
) -> PageFacts:  # fmt: skip
    """Builds ``model`` in the precision that is wished for and, ``here``, runs it for about ``budget`` seconds and
    compares it with ONNX Runtime. What both libraries, with timers and without, have in common is planned once.

    Raises what a build raises.
    """
    from ..cache.library import library
    from ..pipeline import run_pipeline
    from ..runtime.private import PrivateFolder
    from .error_curve import ErrorCurve

    planner = wish.planner(model, options, progress)
    options = wish.options(model, options, progress, planner)
    curve = None if planner is None else ErrorCurve.of(planner, options.assigned)
    plan = run_pipeline(model, replace(options, stop_after="plan"), progress)
    folder = PrivateFolder()
    try:
        plain = Path(folder.name) / "library"
        made = library(model, options, plain, progress, begun=plan)
        from ..model import load

        facts = PageFacts(
            plan.imported.name, options, made.report, _manifest(plain),
            [ArenaBox(b.name, b.bytes, b.first, b.last, b.offset) for b in plan.memory.buffers], _edges(plan),
            _formulas(plan), errors=curve,
        )  # fmt: skip
        if not here:
            facts.untimed = f"this machine can't run code for {options.target.id}, so nothing was timed"
            facts.agreement = (f"not compared: this machine can't run code for {options.target.id}", None)
            return facts
        timed = Path(folder.name) / "timed"
        library(model, replace(options, timers=True), timed, _with_timers(progress), begun=plan)
        feeds = _feeds(_around(model, options), plan)
        with load(plain, threads=options.threads) as loaded:
            _compare(facts, loaded, model)
            try:
                facts.run_seconds = statistics.median(_runs(lambda: loaded(feeds), budget / 2))
            except HalotileError as error:
                facts.untimed = f"no times: it does not run on random inputs ({_first(error)})"
                return facts
        with load(timed, threads=options.threads) as loaded:
            rounds: list[list[float]] = []

            def once() -> None:
                loaded(feeds)
                rounds.append(list(loaded.kernel_seconds() or ()))

            _runs(once, budget / 2)
            facts.seconds = [statistics.median(column) for column in zip(*rounds[1:])]
        return facts
    finally:
        folder.cleanup()


def _with_timers(progress: Progress | None) -> Progress | None:
    """What tells of a second library, the one whose kernels are timed."""
    return None if progress is None else lambda stage, done, total: progress(f"{stage}, with timers", done, total)


def _manifest(folder: Path) -> Json:
    from ..runtime.place import read_manifest

    recorded = read_manifest(folder)
    return {} if recorded is None else dict(recorded.everything)


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _runs(once: Callable[[], object], budget: float) -> list[float]:
    """Seconds of runs after a first that warms up, until the time is over."""
    once()
    found: list[float] = []
    begun = time.perf_counter()
    while len(found) < ENOUGH or (time.perf_counter() - begun < budget and len(found) < MOST):
        start = time.perf_counter()
        once()
        found.append(time.perf_counter() - start)
    return found


def _around(model: ModelGiven, options: Options) -> ModelGiven:
    """The model with what the build puts around it."""
    from ..frontend.around import reference_model

    return reference_model(model, {"inputs": options.inputs, "outputs": options.outputs, "shapes": options.shapes})


def _feeds(model: ModelGiven, plan: Build) -> Mapping[str, np.ndarray]:
    from ..frontend.load import load
    from ..frontend.typical import at_typical
    from ..sample import random_inputs

    specs = at_typical(plan.imported.inputs, plan.imported.symbols)
    return random_inputs(specs, load(model).model)


def _compare(facts: PageFacts, loaded: Model, model: ModelGiven) -> None:
    from ..verify import available

    if not available():
        facts.agreement = ("not compared: onnxruntime is not installed (pip install onnxruntime)", None)
        return
    try:
        check = loaded.verify(model=model)
    except HalotileError as error:
        facts.agreement = (f"not compared: {_first(error)}", None)
        return
    facts.agreement = (f"On {several(check.inputs, 'input')}: {_first(Exception(check.message()))}", check.ok)
    facts.outputs = [
        {"name": o.name, "error": float(o.max_error), "limit": float(o.limit), "ok": o.ok} for o in check.outputs
    ]


def _edges(plan: Build) -> list[tuple[int, int]]:
    """Which kernels read what which others wrote, through views of it."""

    def root(value: Value) -> Value:
        while value in plan.views and plan.views[value] is not value:
            value = plan.views[value]
        return value

    made = {root(v): i for i, group in enumerate(plan.groups) for v in group.outputs}
    made.update({v: i for i, group in enumerate(plan.groups) for v in group.outputs})
    found = set()
    for i, group in enumerate(plan.groups):
        for value in group.inputs:
            maker = made.get(value, made.get(root(value)))
            if maker is not None and maker < i:
                found.add((maker, i))
    return sorted(found)


def _formulas(plan: Build) -> list[str]:
    """Each buffer of the arena where sizes are open: its bytes and the buffers below it."""
    memory = plan.memory
    lines = []
    for i, bytes_ in enumerate(memory.sizes):
        under = ", ".join(f"slot {j}" for j in memory.below[i]) if memory.below[i] else "the bottom"
        lines.append(f"slot {i}: {bytes_} bytes, above {under}")
    return lines

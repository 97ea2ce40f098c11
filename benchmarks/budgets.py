"""Memory budgets hold: every model at five budgets, planned for real, without running it.

    python -m halotile.benchmarks.budgets [NAME ...] [--tag bench] [--threads 2] [--small] [--link]

The budgets go from the smallest arena (which the error of an impossible budget names) to that of tile="off". At each
the arena that the planner promised must be the one that the memory plan gives, and no more than the budget. With
``--link`` the smallest is built, and the library asked for its arena. Exit code 1 if one budget is broken.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import halotile

from ..compiler.pipeline import run_pipeline
from ..compiler.state import Build, Options
from ..errors import HalotileError
from ..targets.resolve import resolve
from .models import MODELS

if TYPE_CHECKING:
    import onnx

    from ..targets.target import Target

BUDGETS = 5


@dataclass
class BudgetOutcome:
    """``met`` are (budget, arena); ``problems`` say in a line what was broken."""

    name: str
    untiled: int
    smallest: int
    met: list[tuple[int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        points = ", ".join(f"{arena / 1e6:.2f} of {budget / 1e6:.2f}" for budget, arena in self.met)
        said = "; ".join(self.problems) or f"{len(self.met)} budgets held"
        return f"{self.name}: off {self.untiled / 1e6:.2f} MB, least {self.smallest / 1e6:.2f}; {points}; {said}"


def check(name: str, threads: int = 2, small: bool = False, link: bool = False, **overrides: object) -> BudgetOutcome:
    """One model at BUDGETS budgets."""
    started = time.perf_counter()
    model = MODELS[name].model(small=small, **overrides)
    target = resolve("native")

    def plan(budget: int | None, tile: str = "auto") -> Build:
        options = Options(target, threads=threads, memory_budget=budget, tile=tile, stop_after="plan")
        return run_pipeline(model, options)

    untiled = int(plan(None, "off").report["arena_bytes"])
    outcome = BudgetOutcome(name, untiled, untiled)
    outcome.smallest = _smallest(plan, outcome)
    for step in range(BUDGETS):
        budget = round(outcome.smallest * (untiled / outcome.smallest) ** (step / (BUDGETS - 1)))
        try:
            build = plan(budget)
        except HalotileError as error:
            outcome.problems.append(f"refused {budget}: {error}")
            continue
        arena, promised = int(build.report["arena_bytes"]), build.details["tile"]["arena"]
        if arena > budget:
            outcome.problems.append(f"{arena} bytes with a budget of {budget}")
        if arena != promised:
            outcome.problems.append(f"{arena} bytes where {promised} were promised")
        outcome.met.append((budget, arena))
    if link and outcome.met:
        _linked(model, target, threads, outcome)
    outcome.seconds = time.perf_counter() - started
    return outcome


def _smallest(plan: Any, outcome: BudgetOutcome) -> int:
    """What the refusal of a budget of one byte names; 0 bytes are a model without intermediates."""
    try:
        return int(plan(1).report["arena_bytes"])
    except HalotileError as error:
        found = re.search(r"the smallest arena .* is (\d+) bytes", str(error))
        if found is None:
            outcome.problems.append(f"an impossible budget says: {error}")
            return outcome.untiled
        return int(found[1])


def _linked(model: onnx.ModelProto, target: Target, threads: int, outcome: BudgetOutcome) -> None:
    budget, arena = outcome.met[0]
    with tempfile.TemporaryDirectory(prefix="halotile-budgets-") as folder:
        run_pipeline(model, Options(target, threads=threads, memory_budget=budget), output=Path(folder))
        uses = halotile.load(folder, threads=threads).arena_bytes()
    if uses != arena:
        outcome.problems.append(f"the library uses {uses} bytes where {arena} were planned")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="models of the registry")
    parser.add_argument("--tag", default="bench")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="the sizes that the tests use")
    parser.add_argument("--link", action="store_true", help="build the smallest, too, and ask the library")
    o = parser.parse_args(arguments)
    unknown = [n for n in o.names if n not in MODELS]
    if unknown:
        parser.error(f"unknown model {', '.join(unknown)}; known: {', '.join(MODELS)}")
    names = o.names or [n for n, e in MODELS.items() if o.tag in e.tags]
    broken = 0
    for name in names:
        outcome = check(name, o.threads, o.small, o.link)
        broken += bool(outcome.problems) or len(outcome.met) != BUDGETS
        print(f"{outcome} ({outcome.seconds:.0f} s)", flush=True)
    print(f"{len(names) - broken} of {len(names)} models keep {BUDGETS} budgets")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

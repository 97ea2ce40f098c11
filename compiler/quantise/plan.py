"""Which layers of a model are computed in bytes, and with what ranges: the plan that a manifest records.

    plan_of(model, samples, error) -> {"ranges": ..., "left": [...], "layers": 53, "error": ...}
    quantised_by(model, plan)      -> ModelProto
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx

from ...errors import HalotileError
from ...targets.plain import Json
from .answers import answers
from .apply import products, quantised
from .prepare import prepared
from .ranges import ranges

if TYPE_CHECKING:
    from ...targets.plain import JsonView

Plan = Json
Samples = Sequence[Mapping[str, np.ndarray]]
MOST_MEASURED = 8  # samples that errors are measured on
Tell = Callable[[str, int, int], None]


def plan_of(source: object, samples: Samples, error: float | None = None, tell: Tell | None = None) -> Plan:
    """The ranges of the tensors of ``source`` over ``samples``, how many products of weights it has (``layers``), those
    that stay in float32 (``left``), and what
    the outputs are off by (``error``: the largest difference over the largest value, over all outputs and samples).

    With an ``error`` to keep, layers are left in float32 until it is kept, in the order of what each of them, in bytes
    alone, moves the outputs by. HalotileError names the least that can be kept.
    """
    model = prepared(source)
    found = ranges(model, samples)
    few = samples[:: max(1, len(samples) // MOST_MEASURED)][:MOST_MEASURED]
    wanted = outputs_of(model, few)
    every = [node.name for node in products(model)]
    left: list[str] = []

    def measured(out: Sequence[str]) -> float:
        return error_of(wanted, outputs_of(quantised(model, found, out), few))

    whole = measured(left)
    if error is not None and whole > error:
        alone = []
        for i, name in enumerate(every):
            if tell is not None:
                tell("quantise", i, len(every))
            alone.append((measured([other for other in every if other != name]), name))
        order = [name for _, name in sorted(alone, reverse=True)]
        left, whole = _fewest(order, error, measured)
    return {
        "ranges": {n: list(r) for n, r in found.items()}, "left": sorted(left), "layers": len(every), "error": whole
    }


def _fewest(order: Sequence[str], error: float, measured: Callable[[Sequence[str]], float]) -> tuple[list[str], float]:
    """The fewest of the first in ``order`` that keep the error, and what it then is: by bisection."""
    low, high = 0, len(order)  # all in bytes is too much; nothing in bytes is exact
    best = 0.0
    while high - low > 1:
        middle = (low + high) // 2
        found = measured(order[:middle])
        if found <= error:
            high, best = middle, found
        else:
            low = middle
    if high == len(order):
        least = measured(order[:-1])
        raise HalotileError(
            f"an error of {error:g} can't be kept in bytes: with one layer alone it is {least:.2g}; allow that, or "
            "build in float32"
        )
    return list(order[:high]), best


def quantised_by(source: object, plan: JsonView) -> onnx.ModelProto:
    """The model that ``plan`` makes of ``source``."""
    base = prepared(source)
    if len(plan["left"]) == plan["layers"]:
        return base  # the quantiser has nothing to do
    pairs = {name: (float(low), float(high)) for name, (low, high) in plan["ranges"].items()}
    return quantised(base, pairs, plan["left"])


def outputs_of(model: onnx.ModelProto, samples: Samples) -> list[list[np.ndarray]]:
    """What ONNX Runtime answers for each sample, without rewrites of its own."""
    return list(answers(model, samples))


def error_of(wanted: list[list[np.ndarray]], found: list[list[np.ndarray]]) -> float:
    """The largest difference over the largest value, of the worst output; infinite where a number is none."""
    worst = 0.0
    for place in range(len(wanted[0]) if wanted else 0):
        pairs = [(w[place], f[place]) for w, f in zip(wanted, found) if np.asarray(w[place]).dtype.kind == "f"]
        if any(w.shape != f.shape for w, f in pairs):
            return float("inf")
        scale = max((float(np.abs(w).max(initial=0, where=np.isfinite(w))) for w, _ in pairs), default=0.0)
        gap = max((_gap(w, f) for w, f in pairs), default=0.0)
        worst = max(worst, gap / scale if scale else gap)
    return worst


def _gap(wanted: np.ndarray, found: np.ndarray) -> float:
    """The largest difference; none where both are NaN, or infinite alike."""
    same = (wanted == found) | np.isnan(wanted) & np.isnan(found)
    with np.errstate(invalid="ignore"):
        gap = np.abs(wanted.astype(np.float64) - found).max(initial=0, where=~same)
    return float("inf") if np.isnan(gap) else float(gap)

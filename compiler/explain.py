"""Whether a difference from the reference is one of those that rounding makes in the reference itself.

Judged output by output with :mod:`.sensitivity`; rows that the model put in order, all outputs that have them together,
with :mod:`.ordered`. The size of what was moved, and how many rows changed places, go with the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from .distances import TIMES, Arrays, distance, farthest
from .ordered import change, ordered_outputs, together
from .sensitivity import Run, answers


@dataclass(frozen=True)
class Explained:
    """An output that is right after all: it is ``error`` off, ``limit`` is what moving constants and inputs by ``size``
    of themselves allows; ``rows`` changed places or are others."""

    error: float
    limit: float
    size: float
    rows: int = 0


def explained(
    wrong: Sequence[str], ours: Arrays, theirs: Arrays, limits: Mapping[str, float],
    model: onnx.ModelProto, arrays: Arrays, run: Run, exact: bool = False,
) -> dict[str, Explained]:  # fmt: skip
    """Which of the outputs that are ``wrong`` are explained, and how. ``limits``: what is allowed of each in any case.
    ``run``: the reference on a model and arrays."""
    ordered = ordered_outputs(model)
    comparable = [n for n in theirs if n in ours]
    groups = together([n for n in comparable if n in ordered], theirs)
    found: dict[str, Explained] = {}
    for size, known in answers(model, arrays, theirs, run, exact):
        for name in wrong:
            if name in found or name in ordered or name not in ours:
                continue
            those = [answer[name] for answer in known]
            mine, most = distance(ours[name], those), farthest(those)
            if mine.within(TIMES, most):
                found[name] = Explained(mine.largest, TIMES * most.largest, size)
        for axis, names in groups:
            open_ = [n for n in names if n in wrong and n not in found]
            mine_moved = change(names, axis, ours, theirs, limits, known[1:]) if open_ else None
            if mine_moved is None:
                continue
            others = [[*known[1:i], *known[i + 1 :]] for i in range(1, len(known))]
            own = [change(names, axis, a, theirs, limits, rest) for a, rest in zip(known[1:], others)]
            if mine_moved.within(TIMES, [c for c in own if c is not None]):
                rows = mine_moved.moved + mine_moved.strange
                found |= {n: Explained(mine_moved.errors[n], limits[n], size, rows) for n in open_}
        if all(name in found for name in wrong):
            break
    return found


def plain_limits(theirs: Arrays, rtol: float, atol: float) -> dict[str, float]:
    """What each output may be off in any case; integers by nothing."""

    def limit(array: np.ndarray) -> float:
        if array.dtype.kind in "biu":
            return 0.5
        sizes = np.abs(array.astype(np.float64))
        return rtol * float(np.max(sizes, initial=0.0, where=np.isfinite(sizes))) + atol

    return {name: limit(array) for name, array in theirs.items()}

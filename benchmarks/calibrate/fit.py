"""Constants of the cost model that make its predictions fit measurements.

Least squares of logarithms, family by family: of predicted over measured time (an error of a tenth counts alike for
all kernels), and, weakly, of each constant over what it was, so that one that no kernel depends on stays as it is.
Errors of more than a sixth count by their size, not its square: a kernel that was disturbed moves little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...targets.target import Target
from .samples import GENERAL, Sample

Constant = tuple[str, str]
Values = np.ndarray

#: Families, by the beginnings of their names, and the constants that are fitted on them; in this order.
CONSTANTS: tuple[tuple[tuple[str, ...], tuple[Constant, ...]], ...] = (
    (("convolution: direct",), (("registers", "box_step"), ("kernels", "epilogue"), ("kernels", "exposed"))),
    (("convolution: depthwise", GENERAL), (
        ("memory", "near"), ("memory", "in_order"), ("memory", "moves"), ("kernels", "element"), ("kernels", "move"),
        ("kernels", "function"), ("kernels", "norm"), ("kernels", "tap"),
    )),
    (("convolution: winograd",), (
        ("winograd", "step"), ("winograd", "moved"), ("winograd", "moved_starved"), ("winograd", "moved_part"),
        ("winograd", "split"), ("winograd", "loaded"), ("winograd", "stored"),
    )),
    (("convolution: matrix unit", "convolution: pixels on the matrix unit"), (
        ("unit", "conv_full"), ("unit", "conv_split"), ("unit", "conv_result"), ("unit", "conv_fill"),
        ("unit", "conv_unaligned"),
    )),
    (("product: register tiles",), (("registers", "product"),)),
    (("product: seven products",), (("strassen", "product_state"), ("strassen", "product_sum"))),
    (("convolution: seven products",), (("strassen", "conv_state"), ("strassen", "conv_sum"))),
    (("product: the matrix unit",), (
        ("unit", "product_step"), ("unit", "product_split"), ("unit", "product_sum"), ("unit", "product_block"),
    )),
)  # fmt: skip
ERROR = 0.05  # of a measurement, and of a good prediction
DOUBT = 1.0  # of a constant, in logarithms: by how much one differs from machine to machine
ROBUST = 3.0  # times ERROR, beyond which an error counts by its size
FARTHEST = math.log(10.0)  # that a constant may move
LEAST = 1e-3  # that a constant moves; less is none
STEP = 0.05  # by which constants are moved to see what depends on them
ROUNDS = 12
ENOUGH = 1e-3  # of the sum of squares: less is no progress


def fitted(samples: Sequence[Sample], target: Target) -> Target:
    """``target`` with the constants that fit the samples' seconds at its clock."""
    for families, constants in CONSTANTS:
        own = [s for s in samples if s.family.startswith(families)]
        if own:
            target = _fit(own, constants, target)
    return target


def _fit(samples: Sequence[Sample], constants: Sequence[Constant], target: Target) -> Target:
    begin = np.array([getattr(getattr(target.fitted, group), name) for group, name in constants])
    measured = np.log([s.seconds * target.hertz for s in samples])

    def at(moved: Values) -> Target:
        """Four digits of what has moved: more were not measured."""
        new = zip(constants, begin * np.exp(moved), np.abs(moved) > LEAST, strict=True)
        values = {key: float(f"{value:.4g}") for key, value, far in new if far}
        return replace(target, fitted=target.fitted.with_values(values))

    def errors(moved: Values) -> Values:
        there = at(moved)
        return (np.log([s.cycles(there) for s in samples]) - measured) / ERROR

    found, _ = least_squares(errors, len(constants))
    return at(found)


def least_squares(errors: Callable[[Values], Values], count: int) -> tuple[Values, float]:
    """The ``count`` numbers, near zero, at which ``errors`` are least, and their cost there: Levenberg's method, with
    differences for derivatives."""
    here, damping = np.zeros(count), 1e-2
    now = errors(here)
    cost = _cost(now, here)
    for _ in range(ROUNDS):
        slopes = np.stack([(errors(here + STEP * unit) - now) / STEP for unit in np.eye(count)], axis=1)
        weights = np.minimum(1.0, ROBUST / np.maximum(np.abs(now), 1e-9))
        normal = slopes.T @ (weights[:, None] * slopes) + np.eye(count) / DOUBT**2
        down = slopes.T @ (weights * now) + here / DOUBT**2
        better = False
        for _ in range(6):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), down)
            tried = np.clip(here - step, -FARTHEST, FARTHEST)
            seen = errors(tried)
            if (then := _cost(seen, tried)) < cost:
                better = then < (1 - ENOUGH) * cost
                here, now, cost, damping = tried, seen, then, damping / 4
                break
            damping *= 8
        if not better:
            break
    return here, cost


def _cost(errors: Values, moved: Values) -> float:
    size = np.abs(errors)
    robust = np.where(size <= ROBUST, size**2, 2 * ROBUST * size - ROBUST**2)
    return float(np.sum(robust) + np.sum((moved / DOUBT) ** 2))

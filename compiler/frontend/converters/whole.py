"""Sums of integers by the kernels of float32, which are exact as long as every sum is below 2**24.

A byte less its zero point, x, lies in [low, high] around 0 with high - low = 255, whatever the zero point is. So a sum
of any of the terms x * w, in any order and with any rounding of sums on the way, is at most

    high * (sum of the w > 0) - low * (sum of the -w > 0)  <=  255 * max(sum of the w > 0, sum of the -w > 0)

Where that is more, the terms are cut into parts of so few channels that each stays below, and these are added in int32.
Winograd and Strassen, whose sums are others, leave weights of whole numbers alone (``OnnxValue.is_whole``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from ..node import OnnxNode
from ..value import OnnxValue

R = relax.op

LIMIT = 1 << 24
STEP = 16  # channels of a part are a multiple of this, so that parts begin at whole vectors
MOST_PARTS = 4  # with more, the sums of int32 are as fast


def cuts(dtype: str, terms: np.ndarray) -> list[tuple[int, int]] | None:
    """Ranges of channels that data of ``dtype`` can be multiplied with in float32; None where the sums have to be of
    integers. ``terms``: whole numbers [channels, taps, outputs]."""
    channels = len(terms)
    if dtype not in ("int8", "uint8") or not terms.size:
        return None
    steps = np.arange(0, channels, STEP)
    above, below = (np.add.reduceat(pick(terms, 0).sum(1), steps, dtype=np.int64) for pick in (np.maximum, np.minimum))
    for parts in range(1, MOST_PARTS + 1):
        long = -(-len(steps) // parts)  # steps of a part
        firsts = range(0, len(steps), long)
        if all(255 * max(above[f : f + long].sum(0).max(), -below[f : f + long].sum(0).min()) <= LIMIT for f in firsts):
            return [(f * STEP, min((f + long) * STEP, channels)) for f in firsts]
    return None


def summed(
    node: OnnxNode,
    multiply: Callable[[OnnxNode, OnnxValue, OnnxValue], OnnxValue],
    data: OnnxValue,
    weights: OnnxValue,
    axes: tuple[int, int],
    ranges: Sequence[tuple[int, int]],
) -> OnnxValue:
    """``multiply`` of float32 ``data`` and whole ``weights``, by parts along their ``axes`` of channels, in int32."""
    total: OnnxValue | None = None
    weights = node.cast(weights, "float32")
    for begin, end in ranges:
        some, few = data, weights
        if len(ranges) > 1:
            assert weights.array is not None  # cut here: what a node of the graph makes could not be packed
            few = OnnxValue.of_array(weights.array.take(np.arange(begin, end), axes[1]))
            some = node.slice(data, axes[0], begin, end)
        part = node.cast(multiply(node, some, few), "int32")
        total = part if total is None else node.do(R.add, total, part)
    assert total is not None
    return total

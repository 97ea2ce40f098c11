"""Writing at computed positions: ScatterElements, ScatterND, TensorScatter, MaxUnpool."""

from __future__ import annotations

import math

import numpy as np

from ....schedules.words.dims import is_open
from ....schedules.words.refusal import Refusal
from ..implied import require_at_least, require_same
from ..node import OnnxNode, normal_axis
from ..registry import converts
from ..value import OnnxValue


@converts("ScatterElements", "Scatter", since=9)
def scatter_elements(node: OnnxNode) -> OnnxValue:
    x, indices, updates = (node.need(i) for i in range(3))
    axis = normal_axis(node.attr("axis", 0), x.rank)
    reduction = node.attr("reduction", "none")
    if indices.size == 0:
        return x
    if indices.part is None and updates.part is None:
        require_same(indices.shape, updates.shape, f"{indices} and {updates}, which lie there")
    require_beside(indices, x, axis)
    if indices.array is not None and not is_open((*x.shape, *updates.shape)):
        known = _resolved(indices.array, x.shape[axis])
        where: list[np.ndarray] = list(np.indices(indices.shape))
        where[axis] = known
        flat = np.ravel_multi_index(tuple(where), x.shape).reshape(-1)
        done = _known(node, x, flat, updates, math.prod(x.shape), reduction)
        if done is not None:
            return done
    return node.own("halotile.scatter_elements", x, indices, updates, axis=axis, reduction=reduction)


@converts("ScatterND", since=11)
def scatter_nd(node: OnnxNode) -> OnnxValue:
    x, indices, updates = (node.need(i) for i in range(3))
    reduction = node.attr("reduction", "none")
    if 0 in indices.shape[:-1]:
        return x
    depth = indices.shape[-1]
    if not is_open([depth]) and indices.part is None and updates.part is None:
        rows = (*indices.shape[:-1], *x.shape[depth:])
        require_same(rows, updates.shape, f"the positions {indices} in {x} and {updates}, which lie there")
    if indices.array is not None and depth and not is_open((*x.shape, *updates.shape)):
        places = indices.array.reshape(-1, depth)
        known = [_resolved(places[:, d], x.shape[d]) for d in range(depth)]
        flat = np.ravel_multi_index(tuple(known), x.shape[:depth])
        done = _known(node, x, flat, updates, math.prod(x.shape[:depth]), reduction)
        if done is not None:
            return done
    return node.own("halotile.scatter_nd", x, indices, updates, reduction=reduction)


def require_beside(indices: OnnxValue, x: OnnxValue, axis: int) -> None:
    """Positions along one axis count where they stand along the others: there, no more of them than there is data."""
    if indices.rank != x.rank:
        raise Refusal(f"the positions {indices} differ in rank from {x}")
    for a, (there, all_of_it) in enumerate(zip(indices.shape, x.shape)):
        if a != axis:
            require_at_least(all_of_it - there, 0, f"axis {a} of {x}, where positions are {indices}")


def _known(
    node: OnnxNode, x: OnnxValue, flat: np.ndarray, updates: OnnxValue, places: int, reduction: str
) -> OnnxValue | None:
    """The scatter as a look-up, when its positions are known and (for a reduction) hit at most once."""
    if reduction != "none" and np.unique(flat).size != flat.size:
        return None
    node.require_room(places, "where its positions are")
    table = np.full(places, -1, "int32")
    table[flat] = np.arange(flat.size)  # numpy, too, lets the last one win
    rows = node.reshape(x, (places, x.size // places))
    new = node.reshape(updates, (flat.size, x.size // places))
    result = node.own("halotile.scatter_known", rows, node.const(table), new, reduction=reduction)
    return node.reshape(result, x.shape)


def _resolved(indices: np.ndarray, length: int) -> np.ndarray:
    known = indices.astype("int64")
    known = np.where(known < 0, known + length, known)
    if known.size and (known.min() < 0 or known.max() >= length):
        raise Refusal(f"its indices reach outside an axis of length {length}")
    return known


@converts("TensorScatter", since=24)
def tensor_scatter(node: OnnxNode) -> OnnxValue:
    """Writes ``update`` into the cache from a position per batch element on, going round when circular."""
    past, update = node.need(0), node.need(1)
    starts = node.constant(2, "its write indices")
    axis = normal_axis(node.attr("axis", -2), past.rank)
    circular = node.attr("mode", "linear") == "circular"
    batch, length, steps = past.shape[0], past.shape[axis], update.shape[axis]
    begin = np.zeros(batch, "int64") if starts is None else starts.reshape(-1)
    where = list(np.indices(update.shape))
    at = begin.reshape([-1] + [1] * (past.rank - 1)) + where[axis]
    if not circular and (at.min() < 0 or at.max() >= length):
        raise Refusal(f"its {steps} steps reach outside a cache of length {length}")
    where[axis] = at % length
    flat = np.ravel_multi_index(tuple(where), past.shape).reshape(-1)
    done = _known(node, past, flat, update, past.size, "none")
    assert done is not None
    return done


@converts("MaxUnpool", since=9)
def max_unpool(node: OnnxNode) -> OnnxValue:
    """Puts every element back where MaxPool found it; the rest is zero.

    An output shape beyond the inferred one pads it at the end: constant indices count in the inferred shape, as in
    ONNX's own test, those of run time in the whole one, as MaxPool's of that image and ONNX Runtime do.
    """
    x, indices = node.need(0), node.need(1)
    wanted = node.ints(2, "its output shape")
    kernel, spatial = node.attr("kernel_shape"), x.rank - 2
    if kernel is None or len(kernel) != spatial or indices.shape != x.shape:
        raise Refusal(f"its window {kernel} and indices {indices} do not fit {x}")
    strides = node.attr("strides", [1] * spatial)
    pads = node.attr("pads", [0] * (2 * spatial))
    inferred = [
        (n - 1) * s + k - b - e
        for n, s, k, b, e in zip(x.shape[2:], strides, kernel, pads[:spatial], pads[spatial:])
    ]
    full = [*x.shape[:2], *inferred]
    target = full if wanted is None else list(wanted)
    if len(target) != x.rank or any(t < n for t, n in zip(target, full)):
        raise Refusal(f"its output shape {target} is less than {full}, which its window needs")
    if indices.array is None:
        flat_zeros = node.broadcast(node.scalar(0, x), (math.prod(target),))
        rows = (node.reshape(v, (x.size,)) for v in (indices, x))
        put = node.own("halotile.scatter_elements", flat_zeros, *rows, axis=0, reduction="none")
        return node.reshape(put, target)
    flat = indices.array.reshape(-1).astype("int64")
    if wanted is not None and list(wanted) != full:
        # The indices count in the inferred shape; the wanted one only pads it at the end.
        flat = np.ravel_multi_index(np.unravel_index(flat, full), target)
    zeros = node.broadcast(node.scalar(0, x), target)
    done = _known(node, zeros, flat, x, math.prod(target), "none")
    assert done is not None
    return done

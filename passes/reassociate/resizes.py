"""A pointwise linear map before the resize that enlarges its input, also through a concatenation of channels.

    conv1x1(concat(resize(a), b), W)    ->    conv1x1(b, Wb) + resize(conv1x1(a, Wa))

A resize takes sums over places, a pointwise map sums over channels: the order is free but for rounding, also where the
weights of the resize do not add up to one (the bias stays behind). A map at the small size costs as much less as the
resize enlarges. What it takes instead, sums and a resize of the outputs' channels, must be less.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from tvm import relax

from ...schedules.words.dims import Open
from ...schedules.words.sizes import dim_of, usual
from ..simplify.graph import CONST, GraphNode
from ..simplify.patterns import rounded
from ..simplify.rule import RewriteBuilder
from .pointwise import Pointwise, pointwise

RESIZES = frozenset(("halotile.resample", "halotile.upsample", "relax.image.resize2d"))
ELEMENT_COST = 32  # multiply-adds in whose time an element is resized or added: a few, at the speed of the cache


def resize_later(node: GraphNode) -> Callable[[RewriteBuilder], GraphNode] | None:
    """What builds ``node``, a pointwise linear map of an enlarged input, on the input before its resizes; None if there
    are none, or nothing is gained."""
    linear = pointwise(node)
    if linear is None or node.op == "relax.matmul":
        return None
    parts = _parts(linear.data)
    sources = [_enlarged(p) for p in parts]
    alone = len(parts) == 1
    chosen = [s if s is not None and _gain(linear, p, s[0], alone) > 0 else None for p, s in zip(parts, sources)]
    matrix = rounded(linear.matrix, node.inputs[1].array.dtype)
    if not any(chosen) or matrix is None or not all(isinstance((p.shape or ())[1], int) for p in parts):
        return None

    def build(b: RewriteBuilder) -> GraphNode:
        first, staying, bounds, sums = 0, [], [], []
        for part, source in zip(parts, chosen):
            rows = slice(first, first + int((part.shape or ())[1]))
            first = rows.stop
            if source is None:
                staying.append(part)
                bounds.append(rows)
                continue
            small, chain = source
            value = linear.on(b, small, matrix[rows])
            for step in chain:
                shape = step.shape or ()
                value = b.typed(step, (shape[0], linear.outputs, *shape[2:]), value, *step.inputs[1:])
            sums.append(value)
        if staying:
            data = staying[0] if len(staying) == 1 else b.call(relax.op.concat, staying, axis=1)
            kept = [matrix[rows] for rows in bounds]
            sums.insert(0, linear.on(b, data, np.concatenate(kept, axis=0)))
        total = sums[0]
        for value in sums[1:]:
            total = b.call(relax.op.add, total, value)
        return total

    return build


def _parts(data: GraphNode) -> list[GraphNode]:
    """What a concatenation along the channels that nobody else reads joins; or the value itself."""
    joins = data.op == "relax.concat" and data.uses == 1 and int(data.attr("axis") or 0) % data.rank == 1
    return list(data.inputs) if joins else [data]


def _enlarged(value: GraphNode) -> tuple[GraphNode, list[GraphNode]] | None:
    """What ``value`` is an enlargement of, and by which resizes in order; None if it is none, or read elsewhere, or if
    its size depends on more than the sizes of the model's inputs."""
    chain: list[GraphNode] = []
    small = value
    while small.op in RESIZES and small.uses == 1 and small.shape is not None and _spatial(small):
        chain.insert(0, small)
        small = small.inputs[0]
    if not chain or small.shape is None or small.op == CONST:
        return None
    places = _places(small), _places(value)
    return None if 0 in places or places[0] >= places[1] else (small, chain)


def _spatial(resize: GraphNode) -> bool:
    """True if the resize leaves batch and channels alone."""
    if resize.op == "halotile.resample":
        axis = resize.attr("axis")
        return axis is not None and int(axis) % resize.rank >= 2 and all(i.op == CONST for i in resize.inputs[1:])
    if resize.op == "relax.image.resize2d":  # to a size that is no multiple of its own, as of open images
        return str(resize.attr("layout")) == "NCHW" and len(resize.inputs) == 1
    factors = resize.attr("factors")
    return factors is not None and all(int(f) == 1 for f in factors[:2])


def _places(value: GraphNode) -> int:
    """How many places there are; of open sizes, as many as are planned for, and 0 where nothing says how many."""
    try:
        shape = [usual(dim_of(d)) for d in value.shape or ()]
    except Open:
        return 0
    return prod(shape[:1] + shape[2:])


def _gain(linear: Pointwise, part: GraphNode, small: GraphNode, alone: bool) -> int:
    """Multiply-adds saved, less what resizing other channels, and adding up, takes."""
    inputs = int((part.shape or ())[1])
    saved = inputs * linear.outputs * (_places(part) - _places(small))
    more = linear.outputs - inputs + (0 if alone else linear.outputs)
    return saved - ELEMENT_COST * more * _places(part)

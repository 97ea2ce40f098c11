"""Convolutions of quantised data by quantised weights.

    conv(scale * (x - zero), step * q) = scale * step * (dot_conv(x, q, outside: zero) - zero * sum of q)

x: uint8 or int8, q: int8, dot_conv: int32. The sum of q is over all taps, since the data has ``zero`` outside, which
counts for nothing. Where the importer cut a sum into parts that float32 holds, it is one again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from tvm import relax

from ...schedules.conv.direct.int8_depthwise import takes_words
from ...schedules.conv.direct.int8_dot import floats_are_faster
from ...schedules.conv.facts import ConvFacts
from ...schedules.instructions.int8_dot import FEW, data_dtype
from ...schedules.operators.registry import call
from ...schedules.words.group import Value
from ...schedules.words.sizes import dim_of, usual
from ...schedules.words.tvm_types import Attribute
from ...targets.target import Target
from ..simplify.anchors import CONVOLUTIONS, weight_index
from ..simplify.graph import GraphNode
from ..simplify.rule import RewriteBuilder
from .operands import LARGEST, RANGE, Data, byte_data, has_elements, whole_steps
from .turned import outside, turned

op = relax.op
Build = Callable[[RewriteBuilder], GraphNode]
LEAST_CHANNELS = 2  # a single one would be a quarter of each word, which is what float32 multiplies


def dot_conv(
    target: Target, exact: bool, node: GraphNode, borders: bool = True, winograd: bool = False
) -> Build | None:
    """What builds ``node``, a convolution of float32 or int32, as one of bytes; None if it is none of quantised data,
    or if Winograd's algorithm in float32 may be taken (``winograd``) and is faster. ``borders``: places around the data
    may hold another byte than 0."""
    if node.op not in CONVOLUTIONS or node.dtype not in ("float32", "int32") or weight_index(node) != 1:
        return None
    data = byte_data(node.inputs[0])
    if data is None or exact and data.scale != 1:
        return None
    exact = exact or node.dtype == "int32"
    whole = whole_steps(node.inputs[1].array, exact)
    if whole is None or winograd and not exact and floats_are_faster(target, _facts(node), whole[0]):
        return None
    return _built(node, node, data, whole, target, exact, borders)


def _facts(node: GraphNode) -> ConvFacts:
    """The convolution at the sizes that the build plans for."""
    data, weight = node.inputs
    given, made = (tuple(usual(dim_of(d)) for d in n.shape or ()) for n in (data, node))
    pads, rank = [int(p) for p in node.attr("padding")], node.rank - 2
    strides, dilation = (tuple(int(n) for n in node.attr(name)) for name in ("strides", "dilation"))
    return ConvFacts(
        data=Value("data", given, "float32"),
        weight=Value("weight", weight.array.shape, "float32", weight.array),
        output=Value("output", made, "float32"),
        kernel=weight.array.shape[2:],
        strides=strides,
        dilation=dilation,
        before=tuple(pads[:rank]),
        after=tuple(pads[rank:]),
        groups=int(node.attrs.groups),
    )


def joined_conv(target: Target, exact: bool, node: GraphNode, borders: bool = True) -> Build | None:
    """What builds one convolution of bytes for ``node``, an int32 sum of convolutions of all parts of one tensor's
    channels; None if it is no such sum."""
    parts = _parts(node)
    if node.op != "relax.add" or node.dtype != "int32" or parts is None:
        return None
    starts = {int(p.inputs[0].raw(2)[0]): p for p in parts}
    ordered = [starts[s] for s in sorted(starts)]
    first, source = ordered[0], ordered[0].inputs[0].inputs[0]
    data, ends = byte_data(source), [int(p.inputs[0].raw(3)[0]) for p in ordered]
    whole = [*sorted(starts), (source.shape or (0, 0))[1]] == [0, *ends] and len(starts) == len(parts)
    same = all(p.inputs[0].inputs[0] is source and _same(p, first) for p in ordered)
    if data is None or data.scale != 1 or not whole or not same:
        return None
    weights = np.concatenate([p.inputs[1].array for p in ordered], axis=1)
    numbers = whole_steps(weights, True)
    return None if numbers is None else _built(node, first, data, numbers, target, True, borders)


def _parts(node: GraphNode) -> list[GraphNode] | None:
    """The convolutions of slices of channels that ``node`` adds up; None if it adds anything else."""
    if node.op == "relax.add" and node.dtype == "int32":
        sides = [_parts(i) for i in node.inputs]
        return None if sides[0] is None or sides[1] is None else sides[0] + sides[1]
    if node.op != "relax.astype" or node.dtype != "int32" or node.inputs[0].op not in CONVOLUTIONS:
        return None
    conv = node.inputs[0]
    piece = conv.inputs[0]
    if weight_index(conv) != 1 or piece.op != "relax.strided_slice" or int(conv.attrs.groups) != 1:
        return None
    axes, steps = piece.raw(1), piece.raw(4)
    return [conv] if axes == [1] and steps in (None, [1]) else None


def _same(a: GraphNode, b: GraphNode) -> bool:
    names = ("strides", "padding", "dilation", "groups")
    return a.op == b.op and all(a.attr(n) == b.attr(n) for n in names)


def _built(
    node: GraphNode,
    conv: GraphNode,
    data: Data,
    whole: tuple[np.ndarray, np.ndarray],
    target: Target,
    exact: bool,
    borders: bool,
) -> Build | None:
    numbers, steps = whole
    wanted, lanes = data_dtype(target), target.channel_block("int32")
    groups, rank = int(conv.attrs.groups), conv.rank - 2
    outputs, channels = numbers.shape[0], numbers.shape[1] * groups
    fits = groups == 1 or numbers.shape[1] % lanes == 0 and (outputs // groups) % lanes == 0
    if groups == outputs == channels > FEW:
        fits = takes_words(target, numbers.shape[2:], int(conv.attr("dilation")[-1]))
    limits = np.iinfo(data.byte.dtype)
    if wanted is None or channels < LEAST_CHANNELS or not fits or not limits.min <= data.zero <= limits.max:
        return None
    if not (has_elements(node) and has_elements(data.byte)):
        return None
    pads = [int(p) for p in conv.attr("padding")]
    if any(pads) and not borders and outside(data, wanted):
        return None
    if RANGE * int(np.abs(numbers.reshape(outputs, -1).astype(np.int64)).sum(axis=1).max()) > LARGEST:
        return None
    strides, dilations = ([int(n) for n in conv.attr(name)] for name in ("strides", "dilation"))
    shape = (outputs, *(1 for _ in range(rank)))

    def build(b: RewriteBuilder) -> GraphNode:
        x, zero = turned(b, data, wanted)
        own: dict[str, Attribute] = dict(strides=strides, dilations=dilations, begin=pads[:rank])
        output = list(node.shape or ())[2:]
        own |= dict(output=output) if all(isinstance(d, int) for d in output) else dict(end=pads[rank:])
        value = b.call(partial(call, "halotile.dot_conv"), x, b.const(numbers), groups=groups, fill=zero, **own)
        if zero:
            sums = numbers.reshape(outputs, -1).astype(np.int64).sum(axis=1)
            value = b.call(op.add, value, b.const((-zero * sums).astype(np.int32).reshape(shape)))
        if node.dtype == "int32":
            return value
        value = b.call(op.astype, value, "float32")
        scale = (data.scale * steps).astype(np.float32)
        return value if (scale == 1).all() else b.call(op.multiply, value, b.const(scale.reshape(shape)))

    return build

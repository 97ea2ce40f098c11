"""Transposed convolution, as a gather.

Output o meets input i at tap k where  o + begin = i * stride + k * dilation.  With g = gcd(stride, dilation),
t = (o + begin) / g, s = stride / g, d = dilation / g:

    k = first(t), first(t) + s, ...   first(t) = t * inverse(d mod s) mod s       i = (t - k * d) / s

Which taps a position meets repeats with the stride, so the least and the largest i are found among the first and the
last ``stride`` positions. Every phase counts as many taps as the one that has most (the operator's expression gives the
missing ones a zero weight): what multiplies a zero is read, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...words.group import Node
from .attributes import own
from .box import Box, BoxRefusal, Needs, Span, need
from .windows import group_channels

Reads = Callable[[Span, int, int, int, int], "Span | None"]


def axis_reads(span: Span, kernel: int, stride: int, dilation: int, begin: int) -> Span | None:
    """The inputs of one axis that the outputs ``span`` read, unclipped; None where no tap meets an element."""
    lo, hi = span
    divisor = math.gcd(stride, dilation)
    step, reach = stride // divisor, dilation // divisor
    inverse = pow(reach, -1, step) if step > 1 else 0
    taps = -(-kernel // step)
    low: list[int] = []
    high: list[int] = []
    for o in {*range(lo, min(hi, lo + stride)), *range(max(lo, hi - stride), hi)}:
        t, rest = divmod(o + begin, divisor)
        if rest:
            continue
        first = t * inverse % step
        high.append((t - first * reach) // step)
        low.append((t - (first + step * (taps - 1)) * reach) // step)
    return (min(low), max(high) + 1) if low else None


def taps_that_count(span: Span, kernel: int, stride: int, dilation: int, begin: int) -> Span | None:
    """The inputs that outputs ``span`` read, without those that only a zero between taps multiplies."""
    lo, hi = span
    ends = {*range(lo, min(hi, lo + stride)), *range(max(lo, hi - stride), hi)}
    met = [divmod(o + begin - k * dilation, stride) for o in ends for k in range(kernel)]
    found = [i for i, rest in met if not rest]
    return (min(found), max(found) + 1) if found else None


def conv_transpose(node: Node, _output: int, box: Box, reads: Reads = axis_reads) -> Needs | BoxRefusal:
    data, weight = node.inputs[:2]
    a = own(node)
    spatial = []
    for axis, span in enumerate(box[2:]):
        found = reads(
            span, weight.shape[2 + axis], a["strides"][axis], a["dilations"][axis], a["begin"][axis]
        )
        if found is None:
            return ()
        spatial.append(found)
    groups, out = int(a["groups"]), weight.shape[1]
    channels = group_channels(box[1], out, data.shape[1] // groups)
    if box[1][0] // out == (box[1][1] - 1) // out:  # one group: only its own part of the weights
        rows = (box[1][0] % out, (box[1][1] - 1) % out + 1)
    else:
        rows = (0, out)
    taps = [(0, n) for n in weight.shape[2:]]
    return need(data, [box[0], channels, *spatial], "zero"), need(weight, [channels, rows, *taps])


RULES = {"halotile.conv_transpose": conv_transpose}

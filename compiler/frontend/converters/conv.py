"""Convolution and transposed convolution of any spatial rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ....errors import several
from ....schedules.words.dims import Open, is_open, maximum
from ....schedules.words.refusal import Refusal
from ..ahead import LARGEST, WIDENED
from ..implied import require_at_least, require_equal
from ..node import OnnxNode
from ..objection import out_of_range
from ..registry import converts
from ..value import OnnxValue
from .movement import filled_round

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op


@converts("Conv")
def conv(node: OnnxNode) -> OnnxValue:
    x, w, bias = node.need(0), node.need(1), node[2]
    result = node.in_float32(lambda a, b: convolve(node, a, b), x, w)
    return result if bias is None else node.do(R.add, result, per_channel(node, bias, result.rank))


def convolve(node: OnnxNode, x: OnnxValue, w: OnnxValue) -> OnnxValue:
    """The convolution without bias; strides, pads, dilations and groups are read from the node."""
    spatial = x.rank - 2
    if w.rank != x.rank:
        raise Refusal(f"input {x} and weights {w} differ in rank")
    if is_open(w.shape):
        raise Open(f"its weights {w} have open dimensions")
    if spatial not in (1, 2, 3):
        raise Refusal(f"a convolution over {spatial} spatial dimensions is not supported")
    kernel = node.attr("kernel_shape") or list(w.shape[2:])
    if list(kernel) != list(w.shape[2:]):
        raise Refusal(f"kernel_shape {list(kernel)} does not match the weights {w}")
    groups = node.attr("group", 1)
    if is_open(x.shape[1:2]):
        require_equal(x.shape[1], w.shape[1] * groups, f"the channels of {x} and the weights {w}")
    if x.shape[1] != w.shape[1] * groups:
        raise Refusal(
            f"input {x} has {several(x.shape[1], 'channel')}; weights {w} in {groups} groups need {w.shape[1] * groups}"
        )
    strides = node.attr("strides", [1] * spatial)
    dilations = node.attr("dilations", [1] * spatial)
    begin, end = window_pads(node, x.shape[2:], kernel, strides, dilations)
    if any(not is_open((p,)) and p < 0 for p in begin + end):
        raise Refusal("negative pads are not supported")
    ends = zip(x.shape[2:], begin, end, kernel, dilations)
    if any(not is_open((n,)) and n + b + e < (k - 1) * d + 1 for n, b, e, k, d in ends):
        raise Refusal(f"weights {w} do not fit the input {x} with pads {begin + end} and dilations {list(dilations)}")
    require_fit(x.shape[2:], kernel, dilations, begin, end)
    if groups < 1 or w.shape[0] % groups:
        raise Refusal(f"{groups} groups do not divide the weights {w}")
    if is_open(begin + end):
        x = filled_round(node, x, [0, 0, *begin], [0, 0, *end], node.scalar(0, x))
        begin, end = [0] * spatial, [0] * spatial
    if is_product(x, w, groups):
        return as_product(node, x, w, groups, (list(strides), list(dilations), begin, end))
    function = {1: R.nn.conv1d, 2: R.nn.conv2d, 3: R.nn.conv3d}[spatial]
    return node.do(
        function,
        x,
        w,
        strides=list(strides),
        padding=begin + end,
        dilation=list(dilations),
        groups=groups,
    )


LEAST_OUTPUTS = 4  # of a group, and
LEAST_DEPTH = 8  # multiply-adds for each: with fewer, a product is no better than the sums as they stand
MOST_PHASES = (
    16  # of a transposed convolution; each is a nest of loops of its own, and 64 take minutes to compile
)
MOST_NESTS = 64  # of what is no product; more would not end
MOST_COLUMNS = 1 << 26  # elements of memory that what the taps read may take


def is_product(x: OnnxValue, w: OnnxValue, groups: int) -> bool:
    """True for weights of run time, which no kernel can pack when it is compiled, in numbers worth a product."""
    if w.array is not None or is_open(x.shape) or is_open(w.shape) or x.dtype not in ("float32", "float64"):
        return False
    depth = math.prod(w.shape[1:])
    fits = math.prod(x.shape) * math.prod(w.shape[2:]) <= MOST_COLUMNS
    return fits and w.shape[0] // groups >= LEAST_OUTPUTS and depth >= LEAST_DEPTH


def as_product(
    node: OnnxNode, x: OnnxValue, w: OnnxValue, groups: int, window: tuple[list[int], list[int], list[int], list[int]]
) -> OnnxValue:
    """The convolution as a product of its weights with what every tap reads of the image; of a single tap that is the
    image."""
    (batch, channels, *size), (outputs, *_), kernel = x.shape, w.shape, w.shape[2:]
    strides, dilations, begin, end = window
    spatial = [
        (n + b + e - (k - 1) * d - 1) // s + 1 for n, b, e, k, d, s in zip(size, begin, end, kernel, dilations, strides)
    ]
    columns = x
    if spatial != list(size) or math.prod(kernel) > 1:
        columns = node.own(
            "halotile.columns", x, kernel=list(kernel), strides=strides, dilations=dilations, begin=begin, size=spatial
        )
    depth = channels // groups * math.prod(kernel)
    lead = (batch, groups) if groups > 1 else (batch,) if batch > 1 else ()
    columns = node.reshape(columns, (*lead, depth, math.prod(spatial)))
    weights = (1, groups, outputs // groups, depth) if groups > 1 else (outputs, depth)
    product = node.do(R.matmul, node.reshape(w, weights), columns)
    return node.reshape(product, (batch, outputs, *spatial))


def require_window(node: OnnxNode, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> None:
    """Refuses lengths and steps that are no positive numbers, or not one for each spatial axis."""
    for name, numbers in (("kernel_shape", kernel), ("strides", strides), ("dilations", dilations)):
        if len(numbers) != len(kernel) or any(n < 1 for n in numbers):
            raise Refusal(f"{name} {list(numbers)} are not {len(kernel)} positive numbers")
    if (huge := out_of_range(node.attributes)) is not None:
        raise Refusal(huge)


def window_pads(
    node: OnnxNode, size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The zeros before and after each spatial axis, from ``pads`` or ``auto_pad``.

    SAME_UPPER and SAME_LOWER make the output ceil(size / stride) long; an odd zero goes to the end or the beginning. A
    dilated window counts with its gaps, as ONNX states for pools too (ONNX Runtime's pools leave the gaps out).
    """
    require_window(node, kernel, strides, dilations)
    mode = node.attr("auto_pad", "NOTSET")
    spatial = len(kernel)
    if mode in ("NOTSET", ""):
        pads = list(node.attr("pads", [0] * (2 * spatial)))
        if len(pads) != 2 * spatial:
            raise Refusal(f"pads {pads} do not fit {spatial} spatial dimensions")
        return pads[:spatial], pads[spatial:]
    if mode == "VALID":
        return [0] * spatial, [0] * spatial
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise Refusal(f"auto_pad '{mode}' does not exist")
    begin, end = [], []
    for n, k, s, d in zip(size, kernel, strides, dilations):
        total = maximum((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        begin.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
        end.append(total - begin[-1])
    return begin, end


def require_fit(
    size: Sequence[SizeLike],
    kernel: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[SizeLike],
    end: Sequence[SizeLike],
    less: Sequence[int] | None = None,
) -> None:
    """Open lengths must be such that a window fits; or does but for ``less`` positions, which are added behind it."""
    for n, k, d, b, e, short in zip(size, kernel, dilations, begin, end, less or [0] * len(kernel)):
        span = (k - 1) * d + 1
        require_at_least(n + b + e, span - short, f"its window of {span}", "for a window to fit")


def per_channel(node: OnnxNode, vector: OnnxValue, rank: int) -> OnnxValue:
    """[C] -> [1, C, 1, ...], so that it broadcasts over batch and space."""
    return node.reshape(vector, (1, vector.size) + (1,) * (rank - 2))


@converts("ConvTranspose")
def conv_transpose(node: OnnxNode) -> OnnxValue:
    """Weights are [C, M/groups, k...]; ``output_shape`` fixes the pads, ``output_padding`` adds to the end."""
    x, w, bias = node.need(0), node.need(1), node[2]
    spatial = x.rank - 2
    kernel = list(w.shape[2:])
    groups = node.attr("group", 1)
    if is_open((x.shape[1], w.shape[0])):
        require_equal(x.shape[1], w.shape[0], f"the channels of input {x} and weights {w}")
    if groups < 1 or x.shape[1] != w.shape[0] or x.shape[1] % groups:
        raise Refusal(f"input {x} does not fit weights {w} in {groups} groups")
    strides = list(node.attr("strides", [1] * spatial))
    dilations = list(node.attr("dilations", [1] * spatial))
    extra = list(node.attr("output_padding", [0] * spatial))
    require_window(node, kernel, strides, dilations)
    full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(x.shape[2:], strides, kernel, dilations)]
    begin, output = _transposed_extent(node, x.shape[2:], full, strides, extra)
    if is_open(x.shape[2:]):
        y = _open_transpose(node, x, w, begin, [f + e - b - o for f, e, b, o in zip(full, extra, begin, output)], extra)
        return y if bias is None else node.do(R.add, y, per_channel(node, bias, y.rank))
    if not is_open(output) and any(n < 1 for n in output):
        raise Refusal(f"its result would be {list(output)} long")
    place = {"strides": strides, "dilations": dilations, "begin": begin}

    def run(x: OnnxValue, w: OnnxValue) -> OnnxValue:
        if is_spread_product(x, w, groups):
            return as_spread_product(node, x, w, groups, output, place)
        if is_shuffle(x, w, output, place):
            return as_shuffle(node, x, w, groups, output, place)
        if math.prod(strides) > MOST_NESTS and fits_columns(x, w, groups):
            return as_spread_product(node, x, w, groups, output, place)
        return node.own("halotile.conv_transpose", x, w, output=output, groups=groups, **place)

    result = node.in_float32(run, x, w)
    return result if bias is None else node.do(R.add, result, per_channel(node, bias, result.rank))


def is_spread_product(x: OnnxValue, w: OnnxValue, groups: int) -> bool:
    """True for weights of run time whose product with the image, a value for each tap, is worth its memory."""
    if w.array is not None or is_open(x.shape) or is_open(w.shape) or x.dtype not in ("float32", "float64"):
        return False
    return fits_columns(x, w, groups) and x.shape[1] // groups >= LEAST_DEPTH


def fits_columns(x: OnnxValue, w: OnnxValue, groups: int) -> bool:
    """Whether a value for each tap of each position is not too much."""
    if is_open(x.shape) or is_open(w.shape):
        return False
    return x.shape[0] * groups * math.prod(w.shape[1:]) * math.prod(x.shape[2:]) <= MOST_COLUMNS


def as_spread_product(
    node: OnnxNode, x: OnnxValue, w: OnnxValue, groups: int, output: Sequence[int], place: dict[str, list[int]]
) -> OnnxValue:
    """The transposed convolution as a product of every tap's weights with the image, added where they fall."""
    (batch, channels, *size), (_, outputs, *kernel) = x.shape, w.shape
    depth, rows = channels // groups, outputs * math.prod(kernel)
    weights = node.transpose(node.reshape(w, (1, groups, depth, rows)), (0, 1, 3, 2))
    product = node.do(R.matmul, weights, node.reshape(x, (batch, groups, depth, math.prod(size))))
    taps = node.reshape(product, (batch, groups * outputs, *kernel, *size))
    return node.own("halotile.col2im", taps, image=list(output), **place)


def is_shuffle(x: OnnxValue, w: OnnxValue, output: Sequence[int], place: dict[str, list[int]]) -> bool:
    """True for strides of more phases than a kernel should have code for, whose results are all of them wanted."""
    if w.array is None or math.prod(place["strides"]) <= MOST_PHASES or x.rank > 5:
        return False
    steps = zip(x.shape[2:], w.shape[2:], place["strides"], place["begin"], output)
    inside = all(0 <= b and b + o <= (n - 1 - (-k // s)) * s for n, k, s, b, o in steps)
    taps = math.prod(-(-k // s) * s for k, s in zip(w.shape[2:], place["strides"]))
    small = w.array.itemsize * math.prod(w.shape[:2]) * taps <= max(LARGEST, WIDENED * w.array.nbytes)
    return inside and small and all(d == 1 for d in place["dilations"])


def as_shuffle(
    node: OnnxNode, x: OnnxValue, w: OnnxValue, groups: int, output: Sequence[int], place: dict[str, list[int]]
) -> OnnxValue:
    """The transposed convolution as an ordinary one, with outputs for each phase, and a shuffle of these into place:

        y[q * stride + phase] = sum over t of w[phase + stride * t] * x[q - t]
    """
    array, strides, spatial = w.array, place["strides"], x.rank - 2
    assert array is not None
    channels, outputs, *kernel = array.shape
    taps = [-(-k // s) for k, s in zip(kernel, strides)]
    whole = np.pad(array, [(0, 0), (0, 0), *((0, t * s - k) for t, s, k in zip(taps, strides, kernel))])
    split = whole.reshape(groups, channels // groups, outputs, *(n for pair in zip(taps, strides) for n in pair))
    at_taps, at_phases = (tuple(3 + 2 * a + i for a in range(spatial)) for i in range(2))
    flipped = np.flip(split, at_taps).transpose(0, 2, *at_phases, 1, *at_taps)
    weights = flipped.reshape(groups * outputs * math.prod(strides), channels // groups, *taps)
    function = {1: R.nn.conv1d, 2: R.nn.conv2d, 3: R.nn.conv3d}[spatial]
    border = [t - 1 for t in taps]
    z = node.do(function, x, node.const(np.ascontiguousarray(weights)), padding=border + border, groups=groups)
    size = z.shape[2:]
    parts = node.reshape(z, (x.shape[0], groups * outputs, *strides, *size))
    order = [n for a in range(spatial) for n in (2 + spatial + a, 2 + a)]
    y = node.reshape(
        node.transpose(parts, (0, 1, *order)),
        (x.shape[0], groups * outputs, *(n * s for n, s in zip(size, strides))),
    )
    for axis, (begin, length) in enumerate(zip(place["begin"], output), 2):
        y = node.slice(y, axis, begin, begin + length)
    return y


def _open_transpose(
    node: OnnxNode, x: OnnxValue, w: OnnxValue, begin: list[int], end: list[SizeLike], extra: list[int]
) -> OnnxValue:
    """The operator with what is cut from its result at either end, which says how large an open image becomes."""
    spatial = x.rank - 2
    if is_open([*begin, *end]):
        raise Open(f"what is cut from the result depends on the open dimensions of {x}")
    return node.own(
        "halotile.conv_transpose",
        x,
        w,
        strides=list(node.attr("strides", [1] * spatial)),
        dilations=list(node.attr("dilations", [1] * spatial)),
        begin=list(begin),
        end=[e - more for e, more in zip(end, extra)],
        groups=node.attr("group", 1),
    )


def _transposed_extent(
    node: OnnxNode, size: Sequence[int], full: list[int], strides: list[int], extra: list[int]
) -> tuple[list[int], list[int]]:
    """What is cut from the beginning of the full result, and how long the output is, per axis.

    SAME_UPPER and SAME_LOWER make it size * stride long, as ONNX states (ONNX Runtime gives less where a kernel is
    smaller than the stride). What is longer than the full result ends in zeros, as in ONNX Runtime and TensorFlow.
    """
    spatial = len(full)
    mode = node.attr("auto_pad", "NOTSET")
    wanted = node.attr("output_shape")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(size, strides)]
    if wanted is not None:
        output = list(wanted)[-spatial:]
        total = [maximum(f + e - o, 0) for f, e, o in zip(full, extra, output)]
        # ONNX: SAME_UPPER cuts the odd element at the end, every other mode at the beginning.
        begin = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
        return begin, output
    pads = [0] * (2 * spatial) if mode == "VALID" else list(node.attr("pads", [0] * (2 * spatial)))
    output = [f + e - b - a for f, e, b, a in zip(full, extra, pads[:spatial], pads[spatial:])]
    return pads[:spatial], output

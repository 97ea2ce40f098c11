"""Windowed and global pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ....errors import several
from ....schedules.words.dims import Dim, Open, is_open
from ....schedules.words.refusal import Refusal
from ..node import OnnxNode
from ..registry import converts
from ..value import OnnxValue
from .conv import require_fit, window_pads
from .elementwise import LARGEST_PRODUCT, whole_power
from .movement import filled_round

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op


@dataclass(frozen=True)
class PoolingWindow:
    """A pooling window: per spatial axis its size, step, dilation, the pads asked for, and the output's length."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    begin: list[int]
    end: list[int]
    output: list[SizeLike]
    size: list[SizeLike]
    ceil: bool = False

    @property
    def reach(self) -> list[int]:
        """Padding at the end that makes every window fit (more than ``end`` with ceil_mode, less when cut short)."""
        if is_open(self.size):  # a step less one more makes as many windows fit as ceil_mode has, whatever the length
            return [e + (s - 1 if self.ceil else 0) for e, s in zip(self.end, self.strides)]
        return [
            max((o - 1) * s + (k - 1) * d + 1 - n - b, 0)
            for o, s, k, d, n, b in zip(
                self.output, self.strides, self.kernel, self.dilations, self.size, self.begin
            )
        ]

    def counts(self, include_pad: bool) -> list[np.ndarray]:
        """How many elements each window averages over along every axis: real ones, or also the pads asked for."""
        per_axis = []
        for n, k, s, d, b, e, o in zip(
            self.size, self.kernel, self.strides, self.dilations, self.begin, self.end, self.output
        ):
            at = np.arange(o)[:, None] * s - b + np.arange(k)[None, :] * d
            low, high = (-b, n + e) if include_pad else (0, n)
            per_axis.append(((at >= low) & (at < high)).sum(axis=1))
        return per_axis


def window(node: OnnxNode, x: OnnxValue) -> PoolingWindow:
    kernel = node.attr("kernel_shape")
    spatial = x.rank - 2
    if kernel is None or len(kernel) != spatial or spatial < 1:
        raise Refusal(f"kernel_shape {kernel} does not fit the input {x}")
    strides = list(node.attr("strides", [1] * spatial))
    dilations = list(node.attr("dilations", [1] * spatial))
    begin, end = window_pads(node, x.shape[2:], kernel, strides, dilations)
    if any(not is_open((p,)) and p < 0 for p in begin + end):
        raise Refusal("negative pads are not supported")
    ceil = bool(node.attr("ceil_mode", 0))
    late = ceil and any(e + s > (k - 1) * d + 1 for e, s, k, d in zip(end, strides, kernel, dilations))
    if late and is_open(x.shape[2:]):  # whether the last window lies in the padding
        raise Open(f"ceil_mode over open dimensions of {x} with pads or steps longer than the window")
    require_fit(x.shape[2:], kernel, dilations, begin, end, [s - 1 if ceil else 0 for s in strides])
    output: list[SizeLike] = []
    for n, k, s, d, b, e in zip(x.shape[2:], kernel, strides, dilations, begin, end):
        room = n + b + e - (k - 1) * d - 1
        length = (-(-room // s) if ceil else room // s) + 1
        # A window that would start in the padding at the end is dropped.
        if late and (length - 1) * s >= n + b:
            length -= 1
        if not isinstance(length, Dim) and length < 1:
            raise Refusal(f"the window {list(kernel)} does not fit the input {x}")
        output.append(length)
    return PoolingWindow(list(kernel), strides, dilations, begin, end, output, list(x.shape[2:]), ceil)


@converts("MaxPool")
def max_pool(node: OnnxNode) -> OnnxValue | list[OnnxValue | None]:
    x = node.need(0)
    w = window(node, x)
    if is_open(w.begin + w.end) and not node.wants(1):
        low = -math.inf if x.is_float else np.iinfo(x.dtype).min
        x, w = _padded(node, x, w, low)
    if node.wants(1):
        values, indices = node.own_many(
            "halotile.max_pool_with_indices",
            x,
            kernel=w.kernel,
            strides=w.strides,
            dilations=w.dilations,
            begin=w.begin,
            output=w.output,
        )
        return [values, _column_major(node, indices, x.shape) if node.attr("storage_order", 0) else indices]
    spatial = x.rank - 2
    if spatial > 3:
        raise Refusal(f"pooling over {several(spatial, 'dimension')} is not supported")
    function = {1: R.nn.max_pool1d, 2: R.nn.max_pool2d, 3: R.nn.max_pool3d}[spatial]
    pooled = node.do(
        function,
        x,
        pool_size=w.kernel,
        strides=w.strides,
        dilation=w.dilations,
        padding=w.begin + w.reach,
        ceil_mode=False,
    )
    return cut(node, pooled, w.output)


def _padded(node: OnnxNode, x: OnnxValue, w: PoolingWindow, fill: float) -> tuple[OnnxValue, PoolingWindow]:
    """The image with pads of open widths around it, and the window as it lies there."""
    y = filled_round(node, x, [0, 0, *w.begin], [0, 0, *w.end], node.scalar(fill, x))
    none = [0] * len(w.kernel)
    return y, replace(w, begin=none, end=none, size=list(y.shape[2:]))


def _column_major(node: OnnxNode, flat: OnnxValue, shape: Sequence[int]) -> OnnxValue:
    """Positions in a tensor of ``shape`` counted with the first spatial axis fastest, the planes as they were."""
    if is_open(shape[2:]):
        raise Open("positions in columns over open dimensions")
    rest, step = flat, math.prod(shape[2:])
    total = node.do(R.multiply, node.do(R.floor_divide, flat, node.scalar(step, flat)), node.scalar(step, flat))
    weight = 1
    for length in shape[2:]:
        rest = node.do(R.floor_mod, rest, node.scalar(step, flat))
        step //= length
        along = node.do(R.floor_divide, rest, node.scalar(step, flat))
        total = node.do(R.add, total, node.do(R.multiply, along, node.scalar(weight, flat)))
        weight *= length
    return total


def cut(node: OnnxNode, x: OnnxValue, output: Sequence[int]) -> OnnxValue:
    for axis, length in enumerate(output):
        if isinstance(length, Dim):
            continue
        x = node.slice(x, axis + 2, 0, length)
    return x


@converts("AveragePool")
def average_pool(node: OnnxNode) -> OnnxValue:
    """The mean over the window; pads count only with count_include_pad, what ceil_mode adds never does."""
    x = node.need(0)
    w = window(node, x)
    include = bool(node.attr("count_include_pad", 0))
    spatial = x.rank - 2
    if is_open(w.begin + w.end):
        return node.in_float32(lambda v: _open_mean(node, v, w, include), x)
    padded = any(w.begin + w.reach)
    plain = all(d == 1 for d in w.dilations) and spatial <= 3
    if plain and (not padded or not include or all(r <= e for r, e in zip(w.reach, w.end))):
        function = {1: R.nn.avg_pool1d, 2: R.nn.avg_pool2d, 3: R.nn.avg_pool3d}[spatial]
        return node.in_float32(
            lambda v: node.do(
                function,
                v,
                pool_size=w.kernel,
                strides=w.strides,
                padding=w.begin + w.reach,
                ceil_mode=False,
                count_include_pad=include and padded,
            ),
            x,
        )
    counts = [node.const(c.reshape(-1, *(1,) * i)) for i, c in enumerate(reversed(w.counts(include)))]
    total = reduce(lambda a, b: node.do(R.multiply, a, b), counts)

    def mean(v: OnnxValue) -> OnnxValue:
        return node.do(R.divide, window_sum(node, v, w), node.cast(total, v.dtype))

    return node.in_float32(mean, x)


def _open_mean(node: OnnxNode, x: OnnxValue, w: PoolingWindow, include: bool) -> OnnxValue:
    """The mean under pads of open widths: over all of a window, by the part of it that lies in the image."""
    if any(d > 1 for d in w.dilations) or x.rank > 5:
        raise Open(f"dilations {w.dilations} and pads that depend on open dimensions of {x}")
    function = {3: R.nn.avg_pool1d, 4: R.nn.avg_pool2d, 5: R.nn.avg_pool3d}[x.rank]

    def mean(v: OnnxValue) -> OnnxValue:
        return node.do(function, _padded(node, v, w, 0)[0], pool_size=w.kernel, strides=w.strides)

    if include:
        return mean(x)
    return node.do(R.divide, mean(x), mean(node.broadcast(node.scalar(1, x), [1, 1, *x.shape[2:]])))


@converts("LpPool")
def lp_pool(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    w = window(node, x)
    p = _order(node)

    def norm(v: OnnxValue) -> OnnxValue:
        if p == 1:
            return window_sum(node, node.do(R.abs, v), w)
        if p == 2:
            return node.do(R.sqrt, window_sum(node, node.do(R.multiply, v, v), w))
        powered = _powered(node, node.do(R.abs, v), p)
        return node.do(R.power, window_sum(node, powered, w), node.scalar(1.0 / p, v))

    return node.in_float32(norm, x)


def _order(node: OnnxNode) -> int:
    """The p of a p-norm."""
    p = int(node.attr("p", 2))
    if p < 1:
        raise Refusal(f"there is no norm of order {p}")
    return p


def _powered(node: OnnxNode, x: OnnxValue, p: int) -> OnnxValue:
    return whole_power(node, x, p) if p <= LARGEST_PRODUCT else node.do(R.power, x, node.scalar(p, x))


def window_sum(node: OnnxNode, x: OnnxValue, w: PoolingWindow) -> OnnxValue:
    return node.own(
        "halotile.window_sum",
        x,
        kernel=w.kernel,
        strides=w.strides,
        dilations=w.dilations,
        begin=w.begin,
        output=w.output,
    )


def _spatial(x: OnnxValue) -> list[int]:
    if x.rank < 3:
        raise Refusal(f"{x} has no spatial dimensions")
    return list(range(2, x.rank))


@converts("GlobalAveragePool")
def global_average_pool(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    axes = _spatial(x)
    return node.in_float32(lambda v: node.do(R.mean, v, axis=axes, keepdims=True), x)


@converts("GlobalMaxPool")
def global_max_pool(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    return node.own("halotile.global_max_pool", x, axes=_spatial(x))


@converts("GlobalLpPool")
def global_lp_pool(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    p = _order(node)
    axes = _spatial(x)

    def norm(v: OnnxValue) -> OnnxValue:
        if p == 2:
            return node.do(R.sqrt, node.do(R.sum, node.do(R.multiply, v, v), axis=axes, keepdims=True))
        powered = _powered(node, node.do(R.abs, v), p)
        total = node.do(R.sum, powered, axis=axes, keepdims=True)
        return node.do(R.power, total, node.scalar(1.0 / p, v))

    return node.in_float32(norm, x)

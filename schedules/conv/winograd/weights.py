"""The weights of a Winograd convolution, U = G w GT: transformed at compile time and rounded to float32 once, in the
order they are read, [chunk][matrix][channel][vector][lane]."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from ...instructions.prefetch import wanted_level
from ...words.group import Packed
from ...words.tvm_types import Expr
from ..kernel import ConvKernel
from ..weight_prefetch import prefetch
from .plan import WinogradPlan
from .transform import Transform

if TYPE_CHECKING:
    from typing import Any

FAR = 1 << 30  # more than any position


@dataclass
class Weights:
    """Where a kernel finds them in what it is ``given``."""

    conv: ConvKernel
    plan: WinogradPlan
    given: Any = None

    @property
    def dtype(self) -> str:
        return self.conv.facts.output.dtype

    @property
    def depth(self) -> int:
        """Terms of a sum: channels of all planes of the kernel, plane by plane."""
        return self.plan.planes * self.conv.facts.channels

    def packed(self) -> Packed:
        plan, weight = self.plan, self.conv.facts.weight
        chunks, width = plan.chunks_per_group * plan.groups, plan.vectors * self.conv.lanes
        elements = chunks * plan.transform.matrices * self.depth * width
        make = partial(pack_weights, np.asarray(weight.constant), plan.transform, chunks, width, self.dtype)
        linear = partial(linear_weights, np.asarray(weight.constant), plan.transform)
        return Packed(f"w_{weight.name}", make, elements, self.dtype, linear=linear)

    def matrix(self, chunk: Expr, number: Expr) -> Expr:
        """Which of all chunks' matrices is ``number`` of this ``chunk``'s."""
        return self.conv.bind(chunk * self.plan.transform.matrices + number, 1 << 24)

    def at(self, matrix: Expr, channel: Expr) -> Expr:
        return (matrix * self.depth + channel) * (self.plan.vectors * self.conv.lanes)

    @property
    def hinted(self) -> int:
        """Elements from the hint of one step to that of the next: all that it reads, or a tile's part of that."""
        read, tiles = self.plan.vectors * self.conv.lanes, self.plan.row_tiles
        far = self.depth * read * self.plan.element_bytes > self.conv.request.target.l2_bytes // 4
        return read if tiles == 1 or far else -(-read // tiles)

    def share_of(self, tiles: Expr) -> Expr | None:
        """Elements from the hint of one step to that of the next where only a run tells how many ``tiles`` share a
        matrix of weights; None where steps ask for what follows in any case."""
        if self.plan.row_tiles == 1 or self.hinted == self.plan.vectors * self.conv.lanes:
            return None
        read = self.plan.vectors * self.conv.lanes
        return self.conv.bind(tirx.floordiv(read + tiles - 1, tiles), read + 1)

    def hints(self, panel: Expr, matrix: Expr, share: Expr | None = None) -> Callable[[Expr, Expr], None]:
        """Hints for the weights that follow, once a step of the reduction. Where several register tiles share a matrix
        of weights, they ask for the next one, each for its part, so that it arrives at an even rate: the ``share`` that
        a run tells, or the plan's. Steps ask for whole elements further on, not for whole lines: a place that needs a
        division costs as many instructions as the step has multiply-adds beside it, and Haswell waits for them.

        They are wanted in the first level, where that pays: when a strip finds its weights in the second, products
        still wait for each line once. 64 channels at 640 x 360 take 0.98 of the time (Emerald Rapids)."""
        conv, vectors, lanes, tiles = self.conv, self.plan.vectors, self.conv.lanes, self.plan.row_tiles
        size, level = self.depth * vectors * lanes, wanted_level(conv.request.target)
        element, each = self.plan.element_bytes, self.hinted
        if share is not None:
            follows = conv.bind(self.at(matrix, 0) + size + panel * self.depth * share, FAR)
            return lambda _, channel: prefetch(
                conv.k, self.given, follows + channel * share, vectors, lanes, element, 0, level
            )
        if each == vectors * lanes:
            return lambda step, channel: prefetch(conv.k, self.given, step, vectors, lanes, element, level=level)
        begin = conv.bind(self.at(matrix, 0) + size + tirx.floordiv(panel * size, tiles), FAR)

        def ask(step: Expr, channel: Expr) -> None:
            vectors_of_step = -(-each // lanes)
            prefetch(conv.k, self.given, begin + channel * each, vectors_of_step, lanes, element, 0, level)

        return ask


def pack_weights(
    weight: np.ndarray, transform: Transform, chunks: int, width: int, dtype: str = "float32"
) -> np.ndarray:
    """[O, I, planes..., rows, columns] -> [chunk][matrix][plane and channel][width], rounded to ``dtype`` once; zero
    for outputs past the last."""
    depth = math.prod(_planes(weight, transform.kernel).shape[1:3]) * transform.planes
    packed = np.zeros((chunks, transform.matrices, depth, width), dtype)
    for chunk, made in transformed(weight, transform, chunks, width):
        packed[chunk, :, :, : made.shape[-1]] = made
    return packed


def transformed(
    weight: np.ndarray, transform: Transform, chunks: int, width: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Each chunk's weights, float64 [matrix][plane, part and channel][output]: the last have fewer outputs, or none."""
    flat = _in_parts(weight, transform)
    for chunk in range(chunks):
        part = flat[chunk * width : (chunk + 1) * width]
        if len(part):
            yield chunk, transform.transform_weights(part)


def linear_weights(weight: np.ndarray, transform: Transform) -> tuple[np.ndarray, np.ndarray]:
    """The same as a linear map, before any order: matrix [matrices, taps], and the weights [taps, depth and output]."""
    taps = np.ascontiguousarray(_in_parts(weight, transform).transpose(2, 3, 1, 0), np.float32)
    return transform.weight_matrix, taps.reshape(transform.weight_matrix.shape[1], -1)


def _in_parts(weight: np.ndarray, transform: Transform) -> np.ndarray:
    """[output, plane, part and channel, rows, columns of a part]."""
    parts = transform.split(_planes(weight, transform.kernel))
    return parts.transpose(1, 3, 0, 2, 4, 5).reshape(len(weight), -1, *parts.shape[-2:])


def _planes(weight: np.ndarray, kernel: tuple[int, int]) -> np.ndarray:
    """[O, I, planes, rows, columns]: one row, where there are none, and zeros behind the taps up to ``kernel``."""
    rows = weight.shape[-2:] if weight.ndim > 3 else (1, weight.shape[-1])
    found = weight.reshape(*weight.shape[:2], -1, *rows)
    return np.pad(found, [(0, 0)] * 3 + [(0, k - r) for k, r in zip(kernel, rows)])

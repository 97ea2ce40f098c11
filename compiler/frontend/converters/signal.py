"""Fourier transforms of static length, as products with tables of cosines and sines; mel weights; and Det."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ....schedules.words.dims import is_open
from ....schedules.words.refusal import Refusal
from ..functions import dtype_name
from ..implied import require_at_least
from ..node import OnnxNode, normal_axis
from ..registry import converts
from ..value import OnnxValue
from .movement import take

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op

LONGEST = 4096  # a table of this length squared is 64 MB


def _tables(length: int, kept: int, inverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of -2 pi t k / length as [length, kept]; the inverse turns the sign and divides."""
    angle = (np.outer(np.arange(length), np.arange(kept)) % length) * (2 * np.pi / length)
    sign, scale = (1.0, 1.0 / length) if inverse else (-1.0, 1.0)
    return np.cos(angle) * scale, np.sin(angle) * sign * scale


def _transform(
    node: OnnxNode, real: OnnxValue, imaginary: OnnxValue | None, kept: int, inverse: bool
) -> tuple[OnnxValue, OnnxValue]:
    """(real + i imaginary) @ (cos + i sin) along the last axis."""
    length = real.shape[-1]
    if length > LONGEST:
        raise Refusal(f"a transform of {length} points is longer than {LONGEST}")
    cosine, sine = (node.const(t, real.dtype) for t in _tables(length, kept, inverse))
    out_real, out_imaginary = node.do(R.matmul, real, cosine), node.do(R.matmul, real, sine)
    if imaginary is not None:
        out_real = node.do(R.subtract, out_real, node.do(R.matmul, imaginary, sine))
        out_imaginary = node.do(R.add, out_imaginary, node.do(R.matmul, imaginary, cosine))
    return out_real, out_imaginary


@converts("DFT", since=17)
def dft(node: OnnxNode) -> OnnxValue:
    """[..., n, 1 or 2] -> [..., dft_length (or half of it), 2]; the input is cut or padded with zeros to the length."""
    x = node.need(0)
    if x.rank < 2 or x.shape[-1] not in (1, 2):
        raise Refusal(f"the last axis of {x} holds no real or complex numbers")
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    if node.opset >= 20:
        axes = node.ints(2, "its axis")
        axis = axes[0] if axes else -2
    else:
        axis = node.attr("axis", 1)
    axis = normal_axis(axis, x.rank)
    lengths = node.ints(1, "its length")

    def run(x: OnnxValue) -> OnnxValue:
        order = [a for a in range(x.rank - 1) if a != axis] + [axis]
        parts = []
        for c in range(x.shape[-1]):
            part = node.reshape(node.slice(x, x.rank - 1, c, c + 1), x.shape[:-1])
            parts.append(node.transpose(part, order))
        given = parts[0].shape[-1]
        half = inverse and onesided
        length = lengths[0] if lengths else (2 * (given - 1) if half else given)
        parts = [_fitted(node, p, length // 2 + 1 if half else length) for p in parts]
        imaginary = parts[1] if len(parts) == 2 else None
        back = [int(a) for a in np.argsort(order)]
        if half:
            signal = _from_half(node, parts[0], imaginary, length)
            return node.reshape(node.transpose(signal, back), (*[signal.shape[a] for a in back], 1))
        kept = length // 2 + 1 if onesided else length
        out = [node.transpose(o, back) for o in _transform(node, parts[0], imaginary, kept, inverse)]
        return node.do(R.concat, [node.reshape(h, (*h.shape, 1)) for h in out], axis=x.rank - 1)

    # In double precision: a sum over the whole signal that should cancel to zero otherwise leaves its rounding.
    return node.cast(run(node.cast(x, "float64")), x.dtype)


def _fitted(node: OnnxNode, x: OnnxValue, length: int) -> OnnxValue:
    if x.shape[-1] >= length:
        return node.slice(x, x.rank - 1, 0, length)
    width = [0] * (2 * x.rank)
    width[-1] = length - x.shape[-1]
    return node.do(R.nn.pad, x, pad_width=width, pad_mode="constant", pad_value=0.0)


def _from_half(node: OnnxNode, real: OnnxValue, imaginary: OnnxValue | None, length: int) -> OnnxValue:
    """The real signal of ``length`` whose spectrum's first half is given; its second half mirrors the first."""
    bins = length // 2 + 1
    if length > LONGEST:
        raise Refusal(f"a transform of {length} points is longer than {LONGEST}")
    angle = (np.outer(np.arange(bins), np.arange(length)) % length) * (2 * np.pi / length)
    weight = np.full((bins, 1), 2.0 / length)
    weight[0] = 1.0 / length
    if length % 2 == 0:
        weight[-1] = 1.0 / length
    signal = node.do(R.matmul, real, node.const(np.cos(angle) * weight, real.dtype))
    if imaginary is None:
        return signal
    return node.do(
        R.subtract, signal, node.do(R.matmul, imaginary, node.const(np.sin(angle) * weight, real.dtype))
    )


@converts("STFT", since=17)
def stft(node: OnnxNode) -> OnnxValue:
    """Frames of the signal, times the window, each transformed: [B, T, 1 or 2] -> [B, frames, bins, 2]."""
    x, window = node.need(0), node[2]
    step = node.ints(1, "its frame step")
    if not step or step[0] < 1:
        raise Refusal(f"its frame step is {step}")
    lengths = node.ints(3, "its frame length")
    length = lengths[0] if lengths else (window.size if window is not None else 0)
    onesided = bool(node.attr("onesided", 1))
    batch, total = x.shape[:2]
    if length < 1:
        raise Refusal(f"its frames have a length of {length}")
    require_at_least(total, length, f"frames of {length} of the signal {x}", "for a frame to fit")
    frames = (total - length) // step[0] + 1

    at = _frames(node, frames, step[0], length)

    def run(x: OnnxValue, window: OnnxValue | None) -> OnnxValue:
        parts = []
        for c in range(x.shape[2] if x.rank == 3 else 1):
            part = node.slice(x, 2, c, c + 1) if x.rank == 3 else x
            framed = node.reshape(at(node.reshape(part, (batch, total))), (batch, frames, length))
            parts.append(framed if window is None else node.do(R.multiply, framed, window))
        kept = length // 2 + 1 if onesided else length
        out = _transform(node, parts[0], parts[1] if len(parts) == 2 else None, kept, False)
        return node.do(R.concat, [node.reshape(o, (*o.shape, 1)) for o in out], axis=3)

    wide = None if window is None else node.cast(window, "float64")
    return node.cast(run(node.cast(x, "float64"), wide), x.dtype)


def _frames(node: OnnxNode, frames: SizeLike, step: int, length: int) -> Callable[[OnnxValue], OnnxValue]:
    """What takes the frames of signals [B, T]."""
    if not is_open([frames]):
        node.require_room(frames * length, "where its frames are")
        known = (np.arange(frames)[:, None] * step + np.arange(length)[None, :]).reshape(-1)
        return lambda x: take(node, x, known, 1)
    starts = node.do(R.multiply, node.counting(frames), node.const(step, "int64"))
    at = node.do(R.add, node.reshape(starts, (frames, 1)), node.const(np.arange(length)[None, :], "int64"))
    return lambda x: node.own("halotile.gather", x, at, axis=1)


@converts("MelWeightMatrix", since=17)
def mel_weight_matrix(node: OnnxNode) -> OnnxValue:
    """Triangles over the bins of a transform, [length // 2 + 1, bands], whose corners lie evenly on the mel scale."""
    given = [node.constant(i, "an operand") for i in range(5)]
    bands, length, rate, low, high = (0 if g is None else g.reshape(-1)[0].item() for g in given)
    if bands < 1 or length < 1 or rate < 1 or not 0 <= low <= high < np.inf:
        raise Refusal(f"{bands} bands from {low} to {high} Hz of {length} points at {rate} Hz are none")
    bins = int(length) // 2 + 1
    node.require_room(bins * bands, "its weights")
    first, last = (2595 * np.log10(1 + hertz / 700) for hertz in (low, high))
    corners = np.arange(bands + 2) * ((last - first) / (bands + 2)) + first
    corners = ((length + 1) * (700 * (10 ** (corners / 2595) - 1)) // rate).astype("int64")
    if corners[-1] > bins:
        raise Refusal(f"its highest frequency, {high} Hz, is above half of its rate, {rate} Hz")
    begin, middle, end = corners[:-2], corners[1:-1], corners[2:]
    at = np.arange(bins)[:, None]
    rising = np.where(middle > begin, (at - begin) / np.maximum(middle - begin, 1), 1.0)
    falling = (end - at) / np.maximum(end - middle, 1)
    up, down = (at >= begin) & (at <= middle), (at >= middle) & (at < end)
    weights = np.where(down, falling, np.where(up, rising, 0.0))
    return node.const(weights, dtype_name(node.attr("output_datatype", 1)))


@converts("Det", since=11)
def determinant(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    if x.shape[-1] != x.shape[-2] or x.shape[-1] > 4:
        raise Refusal(f"the determinant of {x} is not supported (up to 4 x 4 are)")
    return node.in_float32(lambda v: node.own("halotile.determinant", v), x)

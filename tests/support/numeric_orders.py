"""Windows, reductions, positions and orders of tensors with NaN and infinities, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numerics import Sheet


def windows(x: np.ndarray, kernel: int, stride: int, pad: int, fill: float) -> np.ndarray:
    """Every window over the spatial axes of [N, C, ...], its elements along the last axis."""
    rank = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *[(pad, pad)] * rank], constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(padded, [kernel] * rank, axis=tuple(range(2, x.ndim)))
    view = view[(slice(None), slice(None), *[slice(None, None, stride)] * rank)]
    return view.reshape(*view.shape[: x.ndim], -1)


def largest_number(x: np.ndarray, axis: Any, keepdims: bool = False) -> np.ndarray:
    return np.fmax.reduce(x, axis=axis, keepdims=keepdims, initial=-np.inf)


def extreme_position(x: np.ndarray, axis: int, largest: bool, last: bool) -> np.ndarray:
    """A NaN is the extreme."""
    if not last:
        return x.argmax(axis) if largest else x.argmin(axis)
    turned = np.flip(x, axis)
    return x.shape[axis] - 1 - (turned.argmax(axis) if largest else turned.argmin(axis))


def order(x: np.ndarray, axis: int, largest: bool) -> np.ndarray:
    """Positions in order, equals by their positions; a NaN is larger than any number."""
    key = np.where(np.isnan(x), np.inf, x)
    tie = np.where(np.isnan(x), 1, 0)

    def along(line: np.ndarray) -> np.ndarray:
        k, t = line[: len(line) // 2], line[len(line) // 2 :]
        sign = -1 if largest else 1
        return np.array(sorted(range(len(k)), key=lambda i: (sign * t[i], sign * k[i], i)))

    return np.apply_along_axis(along, axis, np.concatenate([key, tie], axis))


def log_sum_exp(x: np.ndarray, axis: int) -> np.ndarray:
    top = np.max(x, axis, keepdims=True)
    shift = np.where(np.isfinite(top), top, 0)
    return np.squeeze(np.log(np.sum(np.exp(x - shift), axis, keepdims=True)) + shift, axis)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - np.max(x, axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


REDUCTIONS: dict[str, Callable[[np.ndarray, int], Any]] = {
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, a: np.sum(np.abs(x), a),
    "ReduceL2": lambda x, a: np.sqrt(np.sum(x * x, a)),
    "ReduceSumSquare": lambda x, a: np.sum(x * x, a),
    "ReduceLogSumExp": log_sum_exp,
}


def add_orders(s: Sheet, tag: str, x: np.ndarray) -> None:
    """Reductions, positions, orders, softmax and running sums along every axis."""
    name, wide = s.input(x), x.astype(np.float64)
    with np.errstate(all="ignore"):
        for axis in range(x.ndim):
            label, axes = f"{tag}{axis}", s.constant([axis], np.int64)
            for operator, function in REDUCTIONS.items():
                s.case(
                    f"{label}_{operator}",
                    s.node(operator, name, axes, keepdims=0),
                    function(wide, axis),
                    rtol=1e-4,
                )
            for largest in (True, False):
                operator = "ArgMax" if largest else "ArgMin"
                for last in (False, True):
                    found = s.node(operator, name, axis=axis, keepdims=0, select_last_index=int(last))
                    s.case(f"{label}_{operator}_{last}", found, extreme_position(x, axis, largest, last))
                for k in sorted({1, 2, x.shape[axis]}):
                    at = np.take(order(x, axis, largest), range(k), axis)
                    results = s.node(
                        "TopK", name, s.constant([k], np.int64), outputs=2, axis=axis, largest=int(largest)
                    )
                    s.case(f"{label}_TopK_{largest}_{k}", results, [np.take_along_axis(x, at, axis), at])
            first = extreme_position(x, axis, True, False)
            hot = (np.indices(x.shape)[axis] == np.expand_dims(first, axis)).astype(np.float32)
            s.case(f"{label}_Hardmax", s.node("Hardmax", name, axis=axis), hot)
            s.case(f"{label}_Softmax", s.node("Softmax", name, axis=axis), softmax(wide, axis))
            away = wide - wide.max(axis, keepdims=True)
            logarithm = away - np.log(np.exp(away).sum(axis, keepdims=True))
            s.case(f"{label}_LogSoftmax", s.node("LogSoftmax", name, axis=axis), logarithm)
            s.case(
                f"{label}_CumSum", s.node("CumSum", name, s.constant(axis, np.int64)), np.cumsum(wide, axis)
            )
    s.case(f"{tag}_NonZero", s.node("NonZero", name), np.array(np.nonzero(x)))


def add_pools(s: Sheet, tag: str, name: str, x: np.ndarray) -> None:
    """Pools of every kind over a tensor [N, C, ...] called ``name``."""
    rank, wide = x.ndim - 2, x.astype(np.float64)
    for kernel, stride, pad in ((3, 2, 1), (2, 2, 0), (3, 1, 0)):
        attributes = {"kernel_shape": [kernel] * rank, "strides": [stride] * rank, "pads": [pad] * (2 * rank)}
        label = f"{tag}_{kernel}{stride}{pad}"
        largest = largest_number(windows(x, kernel, stride, pad, -np.inf), -1)
        s.case(f"{label}_MaxPool", s.node("MaxPool", name, **attributes), largest)
        places = np.arange(x.size, dtype=np.float64).reshape(x.shape)
        inside = windows(places, kernel, stride, pad, np.inf)
        hit = windows(x, kernel, stride, pad, -np.inf) == largest[..., None]
        hit |= np.isinf(largest[..., None]) & (
            largest[..., None] < 0
        )  # of nothing but NaN and -inf the first
        at = np.where(hit, inside, np.inf).min(-1).astype(np.int64)
        s.case(f"{label}_MaxPool_positions", s.node("MaxPool", name, outputs=2, **attributes), [largest, at])
        with np.errstate(all="ignore"):
            parts = windows(wide, kernel, stride, pad, 0)
            counts = windows(np.ones_like(wide), kernel, stride, pad, 0).sum(-1)
            s.case(
                f"{label}_AveragePool",
                s.node("AveragePool", name, **attributes),
                parts.sum(-1) / counts,
                rtol=1e-4,
            )
            s.case(
                f"{label}_LpPool",
                s.node("LpPool", name, **attributes),
                np.sqrt((parts * parts).sum(-1)),
                rtol=1e-4,
            )
    axes = tuple(range(2, x.ndim))
    s.case(f"{tag}_GlobalMaxPool", s.node("GlobalMaxPool", name), largest_number(x, axes, True))
    with np.errstate(all="ignore"):
        s.case(
            f"{tag}_GlobalAveragePool",
            s.node("GlobalAveragePool", name),
            wide.mean(axes, keepdims=True),
            rtol=1e-4,
        )
        for size in (1, 3, 5) if rank == 2 else ():
            before = (size - 1) // 2
            squares = np.pad(wide * wide, [(0, 0), (before, size - 1 - before), (0, 0), (0, 0)])
            total = sum(squares[:, i : i + x.shape[1]] for i in range(size))
            s.case(
                f"{tag}_LRN{size}",
                s.node("LRN", name, size=size, alpha=0.5),
                wide / (1 + 0.5 / size * total) ** 0.75,
            )

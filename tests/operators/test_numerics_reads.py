"""NaN, infinities and zeros where operators read between elements, step through time, select or scatter (the rules of
docs/numerics.md), against NumPy: all cases of a group are one model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import halotile
import numpy as np
import pytest
from numerics import SPECIAL, Sheet, special

POOL = SPECIAL[:5]


def checked(s: Sheet, exact: bool = False) -> None:
    results = halotile.compile(s.model(), exact=exact)(s.feeds)
    for name in s.cases:
        s.check(name, results)


def linear(t: np.ndarray) -> list[np.ndarray]:
    return [1 - t, t]


def cubic(t: np.ndarray) -> list[np.ndarray]:
    def kernel(d: np.ndarray) -> np.ndarray:
        d, a = np.abs(d), -0.75
        near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0))

    return [kernel(t + 1), kernel(t), kernel(1 - t), kernel(2 - t)]


def weighted(weight: np.ndarray, value: np.ndarray) -> np.ndarray:
    """What weighs nothing does not count, whatever it is."""
    with np.errstate(invalid="ignore"):
        return np.where(weight == 0, 0, weight * value)


# ------------------------------------------------------------------ Resize


def resized(x: np.ndarray, axis: int, scale: float, mode: str, coordinate: str) -> np.ndarray:
    size = x.shape[axis]
    length = int(np.floor(size * scale))
    o = np.arange(length, dtype=np.float64)
    p = {
        "half_pixel": lambda: (o + 0.5) / scale - 0.5,
        "asymmetric": lambda: o / scale,
        "align_corners": lambda: o * (size - 1) / (length - 1),
    }[coordinate]()
    base = np.floor(p)
    weights = (linear if mode == "linear" else cubic)(p - base)
    first = 0 if mode == "linear" else -1
    total: Any = 0
    for k, weight in enumerate(weights):
        at = np.clip(base.astype(int) + k + first, 0, size - 1)
        shape = [-1 if a == axis else 1 for a in range(x.ndim)]
        total = total + weighted(weight.reshape(shape), np.take(x, at, axis))
    return np.asarray(total)


@pytest.mark.parametrize("exact", [False, True])
def test_resize(exact: bool) -> None:
    rng, s = np.random.default_rng(1), Sheet()
    for tag, shape in (("image", (1, 5, 6, 37)), ("blocks", (1, 19, 6, 7))):
        x = special(rng, shape, 0.05, POOL)
        name = s.input(x)
        for mode, coordinate, scales in itertools.product(
            ("linear", "cubic"),
            ("half_pixel", "asymmetric", "align_corners"),
            ((2.0, 2.0), (2.0, 0.5), (1.0, 3.0)),
        ):
            y = x.astype(np.float64)
            with np.errstate(invalid="ignore"):
                for axis, scale in zip((2, 3), scales):
                    y = resized(y, axis, scale, mode, coordinate) if scale != 1 else y
            attributes = {"mode": mode, "coordinate_transformation_mode": coordinate}
            found = s.node("Resize", name, "", s.constant([1, 1, *scales]), **attributes)
            s.case(f"{tag}_{mode}_{coordinate}_{scales}", found, y, rtol=1e-4)
    checked(s, exact)


# ------------------------------------------------------------------ GridSample, RoiAlign, DeformConv


def sampled(x: np.ndarray, grid: np.ndarray, mode: str, padding: str, corners: bool) -> np.ndarray:
    """GridSample of one image [C, H, W] at [h, w, 2], in float32 as far as the positions go."""
    place = []
    for axis, size in ((1, x.shape[1]), (0, x.shape[2])):
        g = grid[..., axis]
        g = np.where(np.isnan(g), np.float32(-1), g).astype(np.float32)
        one, two, n = np.float32(1), np.float32(2), np.float32(size)
        p = (g + one) / two * (n - one) if corners else ((g + one) * n - one) / two
        p = np.clip(p, np.float32(-(2**22)), np.float32(2**22))
        place.append(np.clip(p, 0, n - 1) if padding == "border" and mode != "cubic" else p)
    below = [np.floor(p) for p in place]
    weights = [
        (linear if mode == "linear" else cubic)((p - b).astype(np.float64)) for p, b in zip(place, below)
    ]
    first = 0 if mode == "linear" else -1
    total: Any = 0
    for ky, kx in itertools.product(range(len(weights[0])), repeat=2):
        y, xx = (b.astype(int) + k + first for b, k in zip(below, (ky, kx)))
        inside = (y >= 0) & (y < x.shape[1]) & (xx >= 0) & (xx < x.shape[2])
        value = x[:, np.clip(y, 0, x.shape[1] - 1), np.clip(xx, 0, x.shape[2] - 1)]
        value = np.where(inside, value, 0) if padding == "zeros" else value
        total = total + weighted(weights[0][ky] * weights[1][kx], value)
    return np.asarray(total)


def test_grid_sample() -> None:
    """Positions between elements, on them, beyond the image, and none at all."""
    rng, s = np.random.default_rng(2), Sheet()
    for corners in (False, True):
        width = 5 if corners else 4  # whose columns lie at numbers that float32 holds
        x = special(rng, (1, 5, 9, width), 0.1, POOL)
        grid = (rng.random((1, 6, 11, 2)) * 2.4 - 1.2).astype(np.float32)
        grid[0, :, :width, 0] = [-1, -0.5, 0, 0.5, 1] if corners else [-0.75, -0.25, 0.25, 0.75]
        grid[0, 0, :, 1] = -1
        grid[0, 5, 6:10] = [[np.nan, 0.3], [np.inf, 0], [-np.inf, -np.inf], [0.2, 1e30]]
        a, b = s.input(x), s.input(grid)
        for mode, padding in itertools.product(("linear", "cubic"), ("zeros", "border")):
            with np.errstate(invalid="ignore"):
                wanted = sampled(x[0].astype(np.float64), grid[0], mode, padding, corners)[None]
            found = s.node("GridSample", a, b, mode=mode, padding_mode=padding, align_corners=int(corners))
            s.case(f"{mode}_{padding}_{corners}", found, wanted, rtol=1e-3)
        for padding in ("zeros", "border", "reflection"):  # nearest: only that these places are defined
            found = s.node(
                "GridSample", a, b, mode="nearest", padding_mode=padding, align_corners=int(corners)
            )
            s.case(f"nearest_{padding}_{corners}", found, np.zeros((1, 5, 6, 11)))
    results = halotile.compile(s.model())(s.feeds)
    for name, case in s.cases.items():
        if not name.startswith("nearest"):
            case.wanted = [_without_ties(w, results[o]) for w, o in zip(case.wanted, case.outputs)]
            s.check(name, results)


def _without_ties(wanted: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Two infinities of weights near zero may cancel in one order of sums and not in another."""
    return np.where(np.isinf(wanted) & np.isinf(got), got, wanted)


def aligned(x: np.ndarray, box: np.ndarray, bins: int, ratio: int, largest: bool) -> np.ndarray:
    """RoiAlign (half_pixel) of one region of one image [C, H, W]."""
    x1, y1, x2, y2 = box - np.float32(0.5)
    out = np.zeros((x.shape[0], bins, bins))
    for by, bx in itertools.product(range(bins), repeat=2):
        found = []
        for iy, ix in itertools.product(range(ratio), repeat=2):
            at = []
            for low, high, b, i, size in ((y1, y2, by, iy, x.shape[1]), (x1, x2, bx, ix, x.shape[2])):
                step = (high - low) / bins
                at.append((low + b * step + (i + 0.5) * step / ratio, size))
            if any(not -1 <= p <= n for p, n in at):
                found.append(np.zeros(x.shape[0]))
                continue
            parts = []
            for p, n in at:
                p = min(max(p, 0), n - 1)
                parts.append([(int(p), 1 - (p - int(p))), (min(int(p) + 1, n - 1), p - int(p))])
            corners = [
                weighted(np.float64(a * b), x[:, i, j]) for (i, a), (j, b) in itertools.product(*parts)
            ]
            found.append(np.max(corners, 0) if largest else np.sum(corners, 0))
        out[:, by, bx] = np.max(found, 0) if largest else np.mean(found, 0)
    return out


def test_roi_align() -> None:
    """Samples between elements, on them and outside of the image."""
    rng, s = np.random.default_rng(4), Sheet()
    x = special(rng, (1, 19, 9, 11), 0.04, POOL)
    boxes = np.array([[0.5, 0.5, 8.5, 8.5], [1, 1, 4.3, 5.5], [-4, -6, 16, 18], [3, 2, 7, 6]], np.float32)
    a, b, c = s.input(x), s.constant(boxes), s.constant(np.zeros(4), np.int64)
    for mode in ("avg", "max"):
        with np.errstate(invalid="ignore"):
            wanted = np.stack([aligned(x[0].astype(np.float64), box, 2, 2, mode == "max") for box in boxes])
        found = s.node("RoiAlign", a, b, c, output_height=2, output_width=2, sampling_ratio=2, mode=mode)
        s.case(mode, found, wanted, rtol=1e-4)
    checked(s)


def test_deformed_by_whole_elements() -> None:
    """DeformConv whose offsets are whole reads no neighbours, and a NaN there does not count."""
    rng, s = np.random.default_rng(5), Sheet()
    x = special(rng, (1, 3, 8, 9), 0.03, POOL)
    w = rng.standard_normal((4, 3, 2, 2)).astype(np.float32)
    offset = np.zeros((1, 8, 7, 8), np.float32)
    offset[:, ::2] = 1  # all taps one row down
    found = s.node("DeformConv", s.input(x), s.constant(w), s.input(offset))
    down = np.concatenate([x[:, :, 1:], np.zeros((1, 3, 1, 9))], 2)
    with np.errstate(invalid="ignore"):
        view = np.lib.stride_tricks.sliding_window_view(down[0], (2, 2), axis=(1, 2))
        s.case("whole", found, np.einsum("cyxij,ocij->oyx", view, w.astype(np.float64))[None], rtol=1e-4)
    checked(s)


# ------------------------------------------------------------------ recurrent layers


def sigmoid(v: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-v))


def recurrent(
    kind: str, x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray, h: np.ndarray, clip: float
) -> np.ndarray:
    """All outputs [steps, batch, hidden]; an LSTM begins with a cell of zeros."""
    hidden = h.shape[1]
    gates = w.shape[0] // hidden
    parts = [slice(g * hidden, (g + 1) * hidden) for g in range(gates)]
    wb, rb = b[: w.shape[0]], b[w.shape[0] :]
    held: Callable[[np.ndarray], np.ndarray] = lambda v: np.clip(v, -clip, clip) if clip else v  # noqa: E731
    c, out = np.zeros_like(h), []
    for step in x:
        if kind == "GRU":
            p, q = step @ w.T + wb, h @ r.T + rb
            z, reset = (sigmoid(held(p[:, s] + q[:, s])) for s in parts[:2])
            n = np.tanh(held(p[:, parts[2]] + (reset * h) @ r[parts[2]].T + rb[parts[2]]))
            h = (1 - z) * n + z * h
        else:
            total = held(step @ w.T + wb + h @ r.T + rb)
            if kind == "RNN":
                h = np.tanh(total)
            else:
                i, o, f, g = (total[:, s] for s in parts)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
        out.append(h)
    return np.stack(out)


def test_recurrent_layers() -> None:
    """A NaN stays in its row of the batch, where it reaches all of the state in the next step."""
    rng, s = np.random.default_rng(6), Sheet()
    for batch, hidden in ((5, 11), (17, 24), (1, 32)):
        x = special(rng, (4, batch, 7), 0.02, POOL)
        h = special(rng, (1, batch, hidden), 0.005, POOL)
        a, b = s.input(x), s.input(h)
        for kind, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
            shapes = ((gates * hidden, 7), (gates * hidden, hidden), (2 * gates * hidden,))
            w, r, bias = ((rng.standard_normal(n) * 0.4).astype(np.float32) for n in shapes)
            for clip in (0.0, 1.5):
                attributes = {"clip": clip} if clip else {}
                operands = [s.constant(v[None]) for v in (w, r, bias)]
                y = s.node(kind, a, *operands, "", b, outputs=2, hidden_size=hidden, **attributes)[0]
                wide = [v.astype(np.float64) for v in (x, w, r, bias, h[0])]
                with np.errstate(all="ignore"):
                    wanted = recurrent(kind, *wide, clip)[:, None]
                s.case(f"{kind}_{batch}_{clip}", y, wanted, rtol=1e-3)
    checked(s)


# ------------------------------------------------------------------ selecting and scattering


def groups_of(rows: np.ndarray, in_order: bool) -> list[np.ndarray]:
    """Unique of rows: the positions of the first of each group, the group of each row, and sizes; NaN are equal and
    come last."""
    keys = [tuple((1, 0.0) if np.isnan(v) else (0, float(v)) for v in np.ravel(row)) for row in rows]
    groups: list[list[int]] = []
    for i in sorted(range(len(keys)), key=lambda i: keys[i]):
        if groups and keys[groups[-1][0]] == keys[i]:
            groups[-1].append(i)
        else:
            groups.append([i])
    if not in_order:
        groups.sort()
    inverse = np.zeros(len(keys), np.int64)
    for n, group in enumerate(groups):
        inverse[group] = n
    first = np.array([g[0] for g in groups])
    return [rows[first], first, inverse, np.array([len(g) for g in groups])]


def test_selecting() -> None:
    rng, s = np.random.default_rng(8), Sheet()
    x, rows = special(rng, (53,), 0.4), special(rng, (12, 3), 0.5)
    rows[[7, 9]], rows[[5, 11]], rows[[3, 4]] = rows[2], np.nan, [1, np.nan, 2]
    a, b = s.input(x), s.input(rows)
    for in_order in (False, True):
        found = s.node("Unique", a, outputs=4, sorted=int(in_order))
        s.case(f"Unique_{in_order}", found, groups_of(x, in_order))
        found = s.node("Unique", b, outputs=4, axis=0, sorted=int(in_order))
        s.case(f"Unique_rows_{in_order}", found, groups_of(rows, in_order))
    s.case("NonZero", s.node("NonZero", b), np.array(np.nonzero(rows)))
    hot = np.where(np.eye(6)[[0, 3, 5]] == 1, -np.inf, np.nan)
    values = s.input(np.array([np.nan, -np.inf], np.float32))
    s.case("OneHot", s.node("OneHot", s.input(np.array([0, 3, 5])), s.constant(6, np.int64), values), hot)
    x = special(rng, (6, 37), 0.1)
    updates, index = special(rng, (9, 37), 0.1), rng.integers(0, 6, (9, 37))
    for reduction, function in (
        ("max", np.maximum),
        ("min", np.minimum),
        ("add", np.add),
        ("mul", np.multiply),
    ):
        wanted = x.astype(np.float64)
        with np.errstate(invalid="ignore"):
            function.at(wanted, (index, np.arange(37)[None, :]), updates.astype(np.float64))
        operands = s.input(x), s.constant(index, np.int64), s.input(updates)
        s.case(
            f"scatter_{reduction}", s.node("ScatterElements", *operands, axis=0, reduction=reduction), wanted
        )
    checked(s)


def test_boxes_with_nan() -> None:
    """A score that is NaN is never selected, with a threshold or without; a box with a NaN overlaps nothing."""
    boxes = np.array(
        [[0, 0, 1, 1], [0, 0, 1, 0.9], [np.nan, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3.1]], np.float32
    )
    scores = np.array([0.9, np.nan, 0.8, np.nan, 0.7], np.float32)
    s = Sheet()
    a, b, most, overlap = (
        s.input(boxes[None]),
        s.input(scores[None, None]),
        s.constant(9, np.int64),
        s.constant(0.5),
    )
    wanted = np.array([[0, 0, 0], [0, 0, 2], [0, 0, 4]])
    s.case("plain", s.node("NonMaxSuppression", a, b, most, overlap), wanted)
    s.case("threshold", s.node("NonMaxSuppression", a, b, most, overlap, s.constant(0.1)), wanted)
    checked(s)

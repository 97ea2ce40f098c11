"""The rules of docs/numerics.md for NaN, infinities and zeros of both signs, in every form of kernel, against NumPy.

Each form is one model of all its cases. Rows of 37 and 5 x 7 images of 19 channels have vectors and tails of any width.
"""

from __future__ import annotations

import functools

import halotile
import numpy as np
import pytest
from numeric_orders import add_orders, add_pools, largest_number, windows
from numeric_rules import EPILOGUES, RULES, meaning
from numerics import SPECIAL, Sheet, special

EXACT = [False, True]


def operands(
    shape: tuple[int, ...], share: float = 0.4, pool: np.ndarray = SPECIAL
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return special(rng, shape, share, pool), special(rng, shape, share, pool)


def ones_by_conv(s: Sheet, channels: int = 19) -> str:
    """A convolution [1, channels, 5, 7] whose every element is 1, to the bit."""
    kernel = np.zeros((channels, 4, 3, 3), np.float32)
    kernel[:, :, 1, 1] = 0.25
    return str(s.node("Conv", s.input(np.ones((1, 4, 7, 9), np.float32)), s.constant(kernel)))


def ones_by_matmul(s: Sheet) -> str:
    """A product [5, 37] of ones."""
    return str(s.node("MatMul", s.input(np.ones((5, 8), np.float32)), s.constant(np.full((8, 37), 0.125))))


def elementwise(form: str, pool: np.ndarray = SPECIAL) -> Sheet:
    s = Sheet()
    if form == "plain":
        x, y = operands((5, 37), pool=pool)
        a, b = s.input(x), s.input(y)
        for name, rule in RULES.items():
            s.case(name, rule.build(s, a, b), meaning(rule, x, y), rule.signs)
    elif form == "blocks":
        x, y = operands((1, 19, 5, 7), pool=pool)
        ones = ones_by_conv(s)
        a, b = s.node("Mul", ones, s.input(x)), s.node("Mul", ones, s.input(y))
        for name, rule in RULES.items():
            s.case(name, rule.build(s, a, b), meaning(rule, x, y), rule.signs)
    elif form in ("conv", "matmul"):
        x, y = operands((1, 19, 5, 7) if form == "conv" else (5, 37), pool=pool)
        a, b = s.input(x), s.input(y)
        for name in EPILOGUES:
            ones = ones_by_conv(s) if form == "conv" else ones_by_matmul(s)
            rule = RULES[name]
            s.case(name, rule.build(s, s.node("Mul", ones, a), b), meaning(rule, x, y), rule.signs)
    else:  # before a convolution of one pixel, which mixes the channels of one place
        x, y = operands((1, 19, 5, 7), 0.02, pool)
        a, b = s.input(x), s.input(y)
        kernel = np.linspace(0.1, 1, 21 * 19, dtype=np.float32).reshape(21, 19, 1, 1)
        for name in EPILOGUES:
            wanted = meaning(RULES[name], x, y)
            if wanted.dtype == bool:
                continue
            with np.errstate(all="ignore"):
                mixed = np.einsum("oc,ncyx->noyx", kernel[:, :, 0, 0].astype(np.float64), wanted)
            s.case(name, s.node("Conv", RULES[name].build(s, a, b), s.constant(kernel)), mixed, rtol=1e-4)
    return s


FORMS = ["plain", "blocks", "conv", "matmul", "prologue"]


@functools.cache
def run(form: str, exact: bool) -> tuple[Sheet, dict[str, np.ndarray]]:
    s = elementwise(form)
    return s, halotile.compile(s.model(), exact=exact)(s.feeds)


@pytest.mark.sampled
@pytest.mark.parametrize("exact", EXACT)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", RULES)
def test_elementwise(rule: str, form: str, exact: bool) -> None:
    s, results = run(form, exact)
    if rule in s.cases:
        s.check(rule, results)


@functools.cache
def ordered() -> tuple[Sheet, dict[str, np.ndarray]]:
    rng, s = np.random.default_rng(3), Sheet()
    add_orders(s, "wide", special(rng, (3, 131), 0.02))
    add_orders(s, "tall", special(rng, (41, 6), 0.1))
    add_orders(s, "deep", special(rng, (2, 7, 19), 0.1))
    return s, halotile.compile(s.model())(s.feeds)


def test_reductions_positions_and_orders() -> None:
    s, results = ordered()
    for name in s.cases:
        s.check(name, results)


@pytest.mark.parametrize("exact", EXACT)
def test_pools(exact: bool) -> None:
    rng, s = np.random.default_rng(5), Sheet()
    for tag, shape, share in (
        ("line", (2, 5, 23), 0.3),
        ("image", (1, 19, 6, 7), 0.3),
        ("row", (1, 1, 6, 37), 0.1),
        ("volume", (1, 5, 4, 5, 6), 0.1),
    ):
        x = special(rng, shape, share)
        add_pools(s, tag, s.input(x), x)
    x = special(rng, (1, 19, 5, 7), 0.2)
    add_pools(s, "blocks", s.node("Mul", ones_by_conv(s), s.input(x)), x)
    results = halotile.compile(s.model(), exact=exact)(s.feeds)
    for name in s.cases:
        s.check(name, results)


@pytest.mark.parametrize("exact", EXACT)
def test_a_tile_group(exact: bool) -> None:
    """conv, times NaN and infinities, relu, pool, clip, times a few NaN, conv: one group of 3 x 5 tiles."""
    x, few = operands((1, 19, 20, 24), 0.2)[0], operands((1, 19, 10, 12), 0.01)[1]
    s = Sheet()
    kernel = np.zeros((19, 4, 3, 3), np.float32)
    kernel[:, :, 1, 1] = 0.25
    ones = s.node("Conv", s.input(np.ones((1, 4, 22, 26), np.float32)), s.constant(kernel))
    relu = s.node("Relu", s.node("Mul", ones, s.input(x)))
    pooled = s.node("MaxPool", relu, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    clipped = s.node("Clip", pooled, s.constant(0.5), s.constant(2.0))
    mixing = np.linspace(0.1, 1, 21 * 19, dtype=np.float32).reshape(21, 19, 1, 1)
    end = s.node("Conv", s.node("Mul", clipped, s.input(few)), s.constant(mixing))
    inner = largest_number(windows(np.maximum(x, 0), 3, 2, 1, -np.inf), -1)
    with np.errstate(all="ignore"):
        product = np.clip(inner, 0.5, 2).astype(np.float64) * few
        s.case(
            "end", end, np.einsum("oc,ncyx->noyx", mixing[:, :, 0, 0].astype(np.float64), product), rtol=1e-4
        )
    tile = {"last": s.nodes[-1].name, "shape": (3, 5)}
    model = halotile.compile(s.model(), exact=exact, tile=tile, threads=1)
    s.check("end", model(s.feeds))

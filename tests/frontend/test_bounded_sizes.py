"""Sizes that have a greatest value: what follows from them is as narrow as without one, and so is memory."""

from __future__ import annotations

import random

import halotile
from halotile.compiler.frontend.implied import at
from halotile.schedules.words.dims import Dim, bounds, floor_div, maximum

from ..support.open_models import Drawing


def test_bounds_of_what_is_left_of_a_division() -> None:
    for most in (float("inf"), 3000):
        n = Dim.symbol("n", 1, most)
        assert bounds(floor_div(n + 1, 2) * 2 - n) == (0, 1)
        assert bounds(n - floor_div(n, 7) * 7) == (0, 6)
        assert bounds(floor_div(floor_div(n + 1, 2) + 1, 2) * 4 - n) == (0, 3)


def test_bounds_of_random_sums_hold() -> None:
    rng, narrower = random.Random(4), 0
    for _ in range(600):
        n = Dim.symbol("n", rng.randint(0, 3), rng.randint(12, 40))
        m = Dim.symbol("m", rng.randint(0, 3), rng.randint(12, 40))
        value = n * rng.choice([0, 1, -1, 2])
        for _ in range(rng.randint(1, 3)):
            a = (n if rng.random() < 0.7 else m) * rng.choice([1, 2]) + rng.randint(0, 5)
            divisor = rng.choice([2, 3, 4, 6])
            value = value + floor_div(a, divisor) * rng.choice([1, -1, divisor, -divisor, 2])
            if rng.random() < 0.3:
                value = maximum(value, n + rng.randint(-2, 2)) - n
        low, high = bounds(value)
        sizes = [{"n": a, "m": b} for a in range(3, 13) for b in range(3, 13)]
        found = [at(value, s) for s in sizes]
        assert low <= min(found) and max(found) <= high, value
        narrower += high - low < 20
    assert narrower > 100


def test_the_arena_is_that_of_any_size() -> None:
    g = Drawing(3)
    x = g.input("x", "n", 8, "h", "w")
    for channels in (8, 16, 16):
        x = g("Relu", g.conv(x, channels, 16, 3, strides=[2, 2]))
    g.output(x, 4)
    proto, typical = g.model(), {"n": 1, "h": 64, "w": 64}
    free = halotile.compile(proto, "x86-64-v3", typical=typical)
    bound = halotile.compile(proto, "x86-64-v3", typical=typical, shapes={"h": "1..3000", "w": "1..3000"})
    for size in (16, 33, 64, 250):
        sizes = {"n": 1, "h": size, "w": size}
        assert bound.arena_bytes(1, sizes) == free.arena_bytes(1, sizes), size

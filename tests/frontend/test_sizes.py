"""Dims as numbers and as index expressions: the same at every size."""

from __future__ import annotations

import random
from typing import Any

import pytest
from halotile.schedules.words import dims
from halotile.schedules.words.atoms import variable
from halotile.schedules.words.dims import Dim, Open, maximum, minimum, to_index
from halotile.schedules.words.sizes import dim_of, no_symbols, product, surely, usual, value_of
from tvm import sym, tirx


def _drawn(chance: random.Random, depth: int) -> Any:
    if depth == 0:
        return chance.choice([Dim.symbol("a"), Dim.symbol("b", 2, 40), chance.randint(0, 9)])
    left, right = _drawn(chance, depth - 1), _drawn(chance, depth - 1)
    kind = chance.randrange(6)
    if kind == 0:
        return left + right
    if kind == 1:
        return left * right
    if kind == 2:
        return left // chance.randint(1, 7)
    if kind == 3:
        return maximum(left, right)
    if kind == 4:
        return minimum(left, right)
    return divmod(left, chance.randint(1, 5))[1] if isinstance(left, Dim) else left


def _evaluated(expr: Any, values: dict[str, int]) -> int:
    analyzer = sym.Analyzer()
    for name, value in values.items():
        analyzer.bind(variable(name, "int32"), tirx.IntImm("int32", value))
    return int(analyzer.simplify(expr).value)


def test_a_dim_is_the_same_number_everywhere():
    chance = random.Random(1)
    seen = 0
    for _ in range(150):
        dim = _drawn(chance, 3)
        if not isinstance(dim, Dim):
            continue
        seen += 1
        for a, b in ((0, 2), (1, 3), (7, 40), (33, 17)):
            values = {"a": a, "b": b}
            wanted = value_of(dim, values)
            assert _evaluated(to_index(dim), values) == wanted, (str(dim), values)
            assert value_of(dim_of(to_index(dim)), values) == wanted, (str(dim), values)
    assert seen > 60


def test_extremes_that_say_each_other_are_one():
    """A length that is cut or padded to a number has it, in whichever form the two stand."""
    n, m = Dim.symbol("n"), Dim.symbol("m")
    assert 2 * maximum(n, m) - maximum(2 * n, 2 * m) != 0  # another distance, and left alone
    for least in (480_000, 3 * m + 1, n // 2):
        padded = n + maximum(least - n, 0)
        assert padded - maximum(n - least, 0) == least
        assert padded == maximum(n, least) or padded - maximum(n, least) == 0
        assert n - maximum(0, n - least) - minimum(n, least) == 0
        assert minimum(n, least) + maximum(n, least) == n + least
        both = 3 * maximum(n - least, 0) - 5 * minimum(least, n) + m
        for values in ({"n": 0, "m": 2}, {"n": 7, "m": 2}, {"n": 900_000, "m": 1}, {"n": 480_000, "m": 160_000}):
            a, b = value_of(n, values), value_of(least, values)
            assert value_of(both, values) == 3 * max(a - b, 0) - 5 * min(a, b) + values["m"]


def test_what_no_length_reaches_limits_none():
    """Lengths are counted in 32 bits: a limit that does not fit these, as of every other of 2^31 - 1, is none."""
    a = Dim.symbol("a")
    for limit in (2**31, 2**40):
        assert _evaluated(to_index(minimum(3 * a + 4, limit) // 2), {"a": 7}) == 12
        assert _evaluated(to_index(maximum(3 * a - 4, -limit)), {"a": 1}) == -1


def test_estimates_take_typical_sizes_and_code_does_not():
    with no_symbols():
        n = Dim.symbol("n")
        with pytest.raises(KeyError):
            usual(n)
        with pytest.raises(Open):
            int(n)
        assert not surely(lambda: n > 3) and surely(lambda: n >= 0)
        assert product((2, n, 3)) == 6 * n


def test_a_loop_variable_is_no_dim():
    with pytest.raises(Open):
        dim_of(tirx.Var("a", "int32"))


def test_sums_of_extremes_of_extremes_ask_once_for_each_level(monkeypatch: pytest.MonkeyPatch):
    """Each level would ask twice for the one below: the plan of forty windows took ten minutes."""
    sums, without_two = 0, dims.without_two

    def counted(terms: Any) -> Any:
        nonlocal sums
        sums += 1
        return without_two(terms)

    monkeypatch.setattr(dims, "without_two", counted)
    h, w = Dim.symbol("h", 1, 4096), Dim.symbol("w", 1, 4096)
    one = other = h
    for level in range(12):
        pair = one + w * level, other * 2 + 1
        one, other = (dims._atom("max", operands, 0, dims.INFINITY) for operands in (pair, (pair[1], h)))
    assert one - other != 0
    assert sums < 400, sums

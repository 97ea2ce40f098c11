"""Loops whose condition counts have a number of rounds: as many rows as an open dimension, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from flow_models import agree, floats, kernels, model_of
from halotile.compiler.frontend import import_model

ENDS = "shape = Shape <start = 0, end = 1> (x)\n n = Squeeze(shape)\n"


def loop(first: str, body: str, *, start: str = "zero", before: str = ENDS, limit: str = "", bound: str = "n") -> str:
    """A loop that keeps a row a round: ``first`` makes the condition ``g``, ``body`` leaves ``d`` and the counter ``j``
    of the counter ``i`` and ``{bound}``."""
    return f"""g (float[n,4] x, float[4] s) => (float[4] y, float[k,4] rows) {{
        {before}{first}
        last, y, same, rows = Loop <body = b (int64 r, bool c, int64 i, float[4] t, int64 m)
            => (bool d, int64 j, float[4] u, int64 w, float[4] row) {{
            w = Identity(m)
            at = Mod(i, seven)
            v = Gather <axis = 0> (table, at)
            u = Add(t, v)
            row = Mul(u, u)
            {body}
        }}> ({limit}, g, {start}, s, {bound})
    }}"""


NUMBERS = {f"n{v}": np.int64(v) for v in (1, 2, 3, 5)} | {"zero": np.int64(0), "seven": np.int64(7)}
MADE = "j = Add(i, n1)\n"
ROUNDS = {
    "as written by converters": (loop("g = Less(zero, n)", MADE + "d = Less(j, m)"), lambda n: n),
    "as floats": (
        loop("f = Cast <to = 1> (n)\n z = Cast <to = 1> (zero)\n g = Less(z, f)", MADE + "a = Cast <to = 1> (j)\n"
             "e = Cast <to = 1> (m)\n d = Less(a, e)"), lambda n: n,
    ),
    "of the outer dimension": (loop("g = Greater(n, zero)", MADE + "d = Greater(n, j)"), lambda n: n),
    "in steps, from another start": (
        loop("g = Less(n3, n)", "j = Add(n2, i)\n d = Less(j, m)", start="n3"), lambda n: max(0, -(-(n - 3) // 2)),
    ),
    "of two counters": (
        loop("p = Less(zero, n5)\n q = Less(zero, n)\n g = And(p, q)", MADE + "e = Add(r, n1)\n f = Less(e, n5)\n"
             "h = Less(j, m)\n d = And(f, h)"), lambda n: min(n, 5),
    ),
    "no condition before the first": (loop("g = Identity(yes)", MADE + "d = Less(j, m)"), lambda n: max(1, n)),
    "of the counter before": (loop("g = Identity(yes)", MADE + "d = Less(i, m)"), lambda n: n + 1),
    "beside a number": (loop("g = Less(zero, n)", MADE + "d = Less(j, m)", limit="n3"), lambda n: min(n, 3)),
}  # fmt: skip


@pytest.mark.parametrize("what", ROUNDS)
def test_as_many_rows_as_the_condition_counts(what: str) -> None:
    text, rounds = ROUNDS[what]
    model = model_of(text, table=floats(7, 4), yes=np.bool_(True), **NUMBERS)
    sizes = (0, 1, 2, 3, 4, 5, 6, 7, 31, 400)
    built = agree(model, [{"x": floats(n, 4), "s": floats(4)} for n in sizes])
    assert all(built.output_shapes(n=n)["rows"] == (rounds(n), 4) for n in sizes), "their number is no longer a formula"
    assert [k for k in kernels(built) if k.startswith("loop over")], "its rounds are not rounds any more"
    assert "ends when" not in str(import_model(model, None, True).module)


@pytest.mark.parametrize("n", [0, 1, 4, 9])
def test_fixed_sizes(n: int) -> None:
    model = model_of(ROUNDS["in steps, from another start"][0], table=floats(7, 4), yes=np.bool_(True), **NUMBERS)
    agree(model, [{"x": floats(n, 4), "s": floats(4)}], shapes={"x": (n, 4)})


def test_a_condition_that_does_more_stays_and_the_rounds_are_bounded() -> None:
    """It ends when a sum is large enough, and at the end of the sequence at the latest."""
    body = MADE + "e = Less(j, m)\n sum = ReduceSum <keepdims = 0> (u)\n f = Less(sum, much)\n d = And(e, f)"
    model = model_of(
        loop("g = Less(zero, n)", body), table=np.abs(floats(7, 4)), much=np.float32(5), **NUMBERS
    )
    built = agree(model, [{"x": floats(n, 4), "s": np.zeros(4, np.float32)} for n in (0, 1, 2, 3, 9, 50)])
    assert built.outputs[-1].shape is not None


def test_a_condition_of_run_time_before_the_first_round_stays() -> None:
    text = loop("z = Squeeze(s1)\n g = Greater(z, big)", MADE + "d = Less(j, m)", before=ENDS + "s1 = Slice(s, a, b)\n")
    model = model_of(
        text, table=floats(7, 4), big=np.float32(0), a=np.int64([0]), b=np.int64([1]), **NUMBERS
    )
    feeds = [{"x": floats(n, 4), "s": np.float32([v, 0, 1, 2])} for n in (0, 1, 5) for v in (-1, 1)]
    agree(model, feeds)


def test_what_does_not_count_is_left_alone() -> None:
    """A counter that grows by what an input says, and one that falls."""
    for body in ("k = Cast <to = 7> (t0)\n j = Add(i, k)\n d = Less(j, m)", "j = Sub(i, n1)\n d = Less(j, m)"):
        prefix = "t0 = ReduceMax <keepdims = 0> (t)\n" if "t0" in body else ""
        text = loop("g = Less(zero, n)", prefix + body, limit="n5")
        model = model_of(text, table=floats(7, 4), **NUMBERS)
        agree(model, [{"x": floats(n, 4), "s": np.float32([2, 2, 2, 2])} for n in (0, 1, 3, 8)])

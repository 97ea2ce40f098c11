"""Loops whose rounds are known at run time only, or are too many to be written out, against ONNX Runtime."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from flow_models import agree, floats, kernels, model_of
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError
from onnx import ModelProto

STEP = """body = b (int64 i, bool c, float[3,4] s) => (bool d, float[3,4] t) {
    d = Identity(c)
    p = MatMul(s, w)
    t = Tanh(p)
}"""
ROWS = """body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t, float[4] row) {
    d = Identity(c)
    r = Gather <axis = 0> (x, i)
    t = Add(s, r)
    row = Mul(t, t)
}"""


def state_and_x(rows: int, **others: int) -> dict:
    return {"x": floats(rows, 4), "s": floats(4), **{n: np.int64(v) for n, v in others.items()}}


def test_a_number_of_rounds_that_is_an_input() -> None:
    """With nothing kept of the rounds, nothing has to bound their number."""
    model = model_of(
        f"g (int64 m, float[3,4] s) => (float[3,4] y) {{ y = Loop <{STEP}> (m, , s) }}", w=floats(4, 4) / 2
    )
    built = agree(model, [{"m": m, "s": floats(3, 4)} for m in (0, 1, 2, 7, 1000, -3)])
    assert [k for k in kernels(built) if k.startswith("loop over")] == ["loop over 1 kernel"]


def test_many_rounds_stay_rounds() -> None:
    """A number that is known, and more than is written out: the rows lie in the output, all of them."""
    model = model_of(
        f"g (float[1000,4] x, float[4] s) => (float[4] y, float[n,4] rows) {{ y, rows = Loop <{ROWS}> (m, , s) }}",
        m=np.int64(1000),
    )
    built = agree(model, [state_and_x(1000)])
    assert [o.name for o in built.outputs] == ["y", "rows"] and built.outputs[1].shape == (1000, 4)


def test_as_many_rounds_as_an_open_dimension_says() -> None:
    model = model_of(
        f"""g (float[n,4] x, float[4] s) => (float[4] y, float[k,4] rows) {{
        shape = Shape <start = 0, end = 1> (x)
        m = Squeeze(shape)
        y, rows = Loop <{ROWS}> (m, , s)
    }}"""
    )
    built = agree(model, [state_and_x(n) for n in (0, 1, 2, 3, 5, 13, 31, 127, 128, 400)])
    assert built.output_shapes(n=7)["rows"] == (7, 4)


def test_rounds_that_a_constant_bounds_give_rows_of_that_room() -> None:
    model = model_of(
        f"""g (int64 m, float[500,4] x, float[4] s) => (float[4] y, float[n,4] rows) {{
        few = Min(m, most)
        y, rows = Loop <{ROWS}> (few, , s)
    }}""",
        most=np.int64(500),
    )
    agree(model, [state_and_x(500, m=m) for m in (0, 1, 2, 499, 500, 900)])


def test_as_long_as_a_condition_holds() -> None:
    """The form of while: no number, a condition before the first round, and one that each round leaves."""
    model = model_of(
        """g (int32 c, float[3,4] s) => (float[3,4] y) {
        first = Cast <to = 9> (c)
        y = Loop <body = b (int64 i, bool before, float[3,4] s1) => (bool again, float[3,4] t) {
            p = MatMul(s1, w)
            t = Tanh(p)
            size = Abs(t)
            top = ReduceMax <keepdims = 0> (size)
            again = Greater(top, least)
        }> (, first, s)
    }""",
        w=floats(4, 4) / 8,
        least=np.float32(0.01),
    )
    agree(model, [{"c": np.int32(c), "s": scale * floats(3, 4)} for c, scale in ((0, 1), (1, 1), (1, 0), (1, 50))])


def test_state_of_several_kinds_that_changes_places() -> None:
    """Each round reads what the one before left, whatever is written first; one value stays what it was."""
    model = model_of(
        """g (int64 m, int64 p, int64 q, float[4] x) => (int64 y, int64 z, float[4] same, bool[n] flags) {
        few = Min(m, most)
        y, z, same, flags = Loop <body = b (int64 i, bool c, int64 p1, int64 q1, float[4] x1)
                => (bool d, int64 p2, int64 q2, float[4] x2, bool small) {
            d = Identity(c)
            p2 = Identity(q1)
            q2 = Add(p1, one)
            x2 = Identity(x1)
            small = Less(p1, nine)
        }> (few, , p, q, x)
    }""",
        most=np.int64(700),
        one=np.int64(1),
        nine=np.int64(9),
    )
    agree(model, [{"m": np.int64(m), "p": np.int64(3), "q": np.int64(5), "x": floats(4)} for m in (0, 1, 2, 9, 333)])


NESTED = """g (int64 m0, int64 k0, float[4] x, float[4] s) => (float[4] y, float[n] sums) {
    m = Min(m0, most)
    k = Min(k0, most)
    y, sums = Loop <body = outer (int64 i, bool c, float[4] s1) => (bool again, float[4] s3, float sum) {
        s2, rows = Loop <body = inner (int64 j, bool e, float[4] t1) => (bool f, float[4] t2, float[4] row) {
            f = Identity(e)
            t2 = Add(t1, x)
            row = Mul(t2, s1)
        }> (k, , s1)
        sum = ReduceSum <keepdims = 0> (rows)
        s3 = Mul(s2, part)
        top = ReduceMax <keepdims = 0> (s3)
        again = Less(top, five)
    }> (m, , s)
}"""


def test_loops_in_loops_read_values_around_them() -> None:
    model = model_of(NESTED, most=np.int64(300), part=np.float32(0.3), five=np.float32(5))
    pairs = ((0, 0), (1, 0), (0, 1), (1, 1), (3, 4), (20, 2), (300, 7), (5, 300))
    agree(model, [{"m0": np.int64(m), "k0": np.int64(k), "x": floats(4), "s": floats(4)} for m, k in pairs])


def grown(limit: str, **more: object) -> ModelProto:
    return model_of(
        f"""g (int64 m, int64[1,p] t) => (int64[1,q] tokens) {{
        few = {limit}
        tokens = Loop <body = b (int64 i, bool c, int64[1,r] t1) => (bool again, int64[1,u] t2) {{
            rows = Gather(table, t1)
            mean = ReduceMean <axes = [1], keepdims = 0> (rows)
            product = MatMul(mean, turned)
            scores = Sin(product)
            length = Shape <start = 1, end = 2> (t1)
            place = Mod(length, twenty)
            nudge = OneHot(place, depth, values)
            nudged = Add(scores, nudge)
            next = ArgMax <axis = 1> (nudged)
            t2 = Concat <axis = 1> (t1, next)
            token = Squeeze(next)
            stop = Equal(token, seven)
            again = Not(stop)
        }}> (few, , t)
    }}""",
        most=np.int64(400),
        table=TABLE,
        turned=TABLE.T.copy(),
        twenty=np.array([20]),
        depth=np.int64(20),
        values=np.array([0, 0.5], np.float32),
        seven=np.int64(7),
        **more,
    )


TABLE = np.random.default_rng(3).normal(size=(20, 8)).astype("float32")


def test_a_decoder_whose_tokens_grow_by_one_a_round() -> None:
    """It has room for as many as there can be; what works on them sees those that are there."""
    feeds = [{"m": np.int64(m), "t": np.array([[t]])} for m in (0, 1, 2, 50, 400) for t in (0, 3, 11)]
    agree(grown("Min(m, most)"), feeds, shapes={"p": 1})


def test_growth_that_nothing_bounds_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"Loop.*'t2' grows from round to round.*int64\[1, 2\].*--fix m=VALUE"):
        halotile.compile(grown("Identity(m)"), shapes={"p": 1})


def refused(match: str, text: str, **constants: object) -> None:
    with pytest.raises(UnsupportedError, match=match) as caught:
        import_model(model_of(text, **constants), symbolic=True)
    assert "\n" not in str(caught.value)


def test_rows_without_a_bound_are_refused() -> None:
    """An output has to have room before a run."""
    refused(
        "Loop.*nothing bounds the number of its rounds.* scan output 'row'; give it the Min of .*--fix m=VALUE",
        f"g (int64 m, float[5,4] x, float[4] s) => (float[4] y, float[n,4] r) {{ y, r = Loop <{ROWS}> (m, , s) }}",
    )


def test_a_state_that_changes_its_rank_is_refused() -> None:
    refused(
        r"Loop.*'t' is float32\[4\] before a round and float32\[1, 4\] behind it.*one type and rank",
        """g (int64 m, float[4] s) => (float[a,b] y) {
        y = Loop <body = b (int64 i, bool c, float[4] s1) => (bool d, float[a,b] t) {
            d = Identity(c)
            t = Unsqueeze(s1, zero)
        }> (m, , s)
    }""",
        zero=np.array([0]),
    )


def test_a_state_that_takes_its_shape_in_the_first_round_is_refused() -> None:
    refused(
        r"Loop.*'t' is float32\[1, 4\] before the first round and float32\[n, 4\] behind it.*Expand",
        """g (float[n,4] x, int64 m, float[1,4] s) => (float[a,4] y) {
        y = Loop <body = b (int64 i, bool c, float[p,4] s1) => (bool d, float[q,4] t) {
            d = Identity(c)
            t = Add(s1, x)
        }> (m, , s)
    }""",
    )


def test_a_state_that_gets_shorter() -> None:
    """Its room is that of the beginning, and no number of rounds is too large."""
    model = model_of(
        """g (float[40,4] x, int64 m) => (float[p,4] y) {
        y = Loop <body = b (int64 i, bool c, float[q,4] s1) => (bool d, float[r,4] t) {
            d = Identity(c)
            t = Slice(s1, one, last, zero)
        }> (m, , x)
    }""",
        one=np.array([1]), last=np.array([1000]), zero=np.array([0]),
    )  # fmt: skip
    agree(model, [{"x": floats(40, 4), "m": np.int64(m)} for m in (0, 1, 5, 39, 50)])


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "int32", "double", "bool"])
def test_states_and_rows_of_other_types(dtype: str) -> None:
    combined = "Xor(s1, v)" if dtype == "bool" else "Add(s1, v)"
    model = model_of(
        f"""g (int64 m, {dtype}[5] s, {dtype}[5] v) => ({dtype}[5] y, {dtype}[n,5] rows) {{
        few = Min(m, most)
        y, rows = Loop <body = b (int64 i, bool c, {dtype}[5] s1) => (bool d, {dtype}[5] t, {dtype}[5] row) {{
            d = Identity(c)
            t = {combined}
            row = Identity(s1)
        }}> (few, , s)
    }}""",
        most=np.int64(400),
    )
    kind = {"double": "float64"}.get(dtype, dtype)
    values = [(floats(2, 5) > 0 if kind == "bool" else (3 * floats(2, 5)).astype(kind)) for _ in range(4)]
    agree(model, [{"m": np.int64(m), "s": s, "v": v} for m, (s, v) in zip((0, 1, 3, 13), values)])


@pytest.mark.parametrize("kind", ["loop", "branch"])
def test_a_size_that_no_tensor_of_the_body_has(kind: str) -> None:
    """The body computes with an open dimension and reads nothing that is so long."""
    body = """n = Shape <start = 0, end = 1> (x)
            nf = Cast <to = 1> (n)
            h = MatMul(s1, w)
            t = Add(h, nf)"""
    loop = f"""y = Loop <body = b (int64 i, bool c, float[4] s1) => (bool d, float[4] t) {{
            d = Identity(c)
            {body}
        }}> (m, , s)"""
    branch = f"""some = Cast <to = 9> (m)
        s1 = Identity(s)
        y = If (some) <then_branch = p () => (float[4] t) {{ {body} }},
            else_branch = q () => (float[4] u) {{ u = Neg(s) }}>"""
    text = loop if kind == "loop" else branch
    model = model_of(f"g (float[n,3] x, int64 m, float[4] s) => (float[4] y) {{ {text} }}", w=floats(4, 4) / 3)
    agree(model, [{"x": floats(n, 3), "m": np.int64(m), "s": floats(4)} for n in (1, 2, 9) for m in (0, 1, 2)])


def test_a_state_of_two_lengths_that_change_is_refused() -> None:
    refused(
        r"Loop.*'t' is float32\[2, 3\] before a round and float32\[4, 6\] behind it.*one axis may change",
        """g (int64 m, float[2,3] s) => (float[a,b] y) {
        y = Loop <body = b (int64 i, bool c, float[p,q] s1) => (bool d, float[a,b] t) {
            d = Identity(c)
            t = Tile(s1, twice)
        }> (m, , s)
    }""",
        twice=np.array([2, 2]),
    )


def test_few_rounds_with_much_to_do_are_no_more_than_run() -> None:
    """Where run time ends them, they are not written out one behind the other."""
    feeds = [{"m": np.int64(m), "t": np.array([[3]])} for m in (0, 1, 30)]
    built = agree(grown("Min(m, twenties)", twenties=np.int64(20)), feeds, shapes={"p": 1})
    assert len(kernels(built)) < 6 and any(k.startswith("loop over") for k in kernels(built))


def test_a_prompt_of_any_length_grows() -> None:
    feeds = [{"m": np.int64(m), "t": np.full((1, p), 3)} for m in (0, 1, 5, 400) for p in (1, 2, 7)]
    built = agree(grown("Min(m, most)"), feeds)
    assert built.output_shapes(p=7)["tokens"] == (1, 407)


def test_what_is_the_same_in_every_round_is_computed_once() -> None:
    """A product that depends on nothing carried stays outside of the loop, as does a state that no round changes."""
    model = model_of(
        """g (int64 m, float[8,16] a, float[16,4] b0, float[8,4] s) => (float[8,4] y) {
        y, b9 = Loop <body = b (int64 i, bool c, float[8,4] s1, float[16,4] b1)
                => (bool d, float[8,4] t, float[16,4] b2) {
            d = Identity(c)
            p = MatMul(a, b1)
            t = Add(s1, p)
            b2 = Identity(b1)
        }> (m, , s, b0)
    }"""
    )
    built = agree(
        model, [{"m": np.int64(m), "a": floats(8, 16), "b0": floats(16, 4), "s": floats(8, 4)} for m in (0, 1, 5)]
    )
    assert len(kernels(built)) == 2 and built.report["macs"] == 8 * 16 * 4

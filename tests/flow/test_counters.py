"""Carried values that count are known in every round: rows that a decoder writes by number, as Paddle exports them."""

from __future__ import annotations

import numpy as np
import pytest
from flow_models import agree, floats, kernels, model_of
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError

ROWS = 12
DECODER = """g (float[n,4] s, float[1] stop) => (float[n,{rows},4] y, float[n,4] late, bool[1] ended, int64 last) {{
    n = Shape <start = 0, end = 1> (s)
    size = Concat <axis = 0> (n, rest)
    y0 = Expand (nothing, size)
    last, y, t, m, late, ended = Loop <body = b (
        int64 r, bool c, int64 i, float[n,{rows},4] y1, float[n,4] t0, int64 m0, float late0, bool ended0
    ) => (
        bool d, int64 j, float[n,{rows},4] y2, float[n,4] t1, int64 m1, float[n,4] late1, bool[1] ended1
    ) {{
        a = Mul (t0, slope)
        t1 = Add (a, rise)
        late1 = Neg (t1)
        i1 = Cast <to = 1> (i)
        i2 = Add (i1, one)
        e = Cast <to = 7> (i2)
        first = Reshape (i, k1)
        behind = Reshape (e, k1)
        shape = Shape (y1)
        room = Gather <axis = 0> (shape, k1)
        stop_at = Min (room, behind)
        piece = Slice (y1, first, stop_at, k1, k1)
        own = Shape (piece)
        up = Unsqueeze (late1, k1)
        wide = Expand (up, own)
        from = Squeeze (first)
        to = Squeeze (stop_at)
        step = Squeeze (k1)
        places = Range (from, to, step)
        column = Reshape (places, across)
        images = Slice (own, k0, k1, k0)
        columns = Slice (own, k2, k3, k0)
        times = Concat <axis = 0> (images, k1, columns)
        tiled = Tile (column, times)
        y2 = ScatterElements <axis = 1> (y1, tiled, wide)
        top = ReduceMax <keepdims = 0> (t1)
        done = Greater (top, stop)
        ended1 = Or (done, ended0)
        going = Not (ended1)
        m2 = Cast <to = 1> (m0)
        m3 = Add (m2, one)
        m4 = Cast <to = 7> (m3)
        m1 = Identity (m0)
        less = Less (e, m4)
        both = And (less, going)
        flat = Squeeze (both)
        number = Cast <to = 7> (flat)
        sum = Add (number, zero)
        d = Cast <to = 9> (sum)
        ahead = Unsqueeze (e, k0)
        same = Add (ahead, k0)
        j = Squeeze (same, k0)
    }}> ({limit}, yes, zero, y0, s, bound, undefined, no)
}}"""
NUMBERS = {
    "slope": np.float32(0.75), "rise": np.float32(0.5), "one": np.float32(1), "zero": np.int64(0),
    "nothing": np.float32(0), "rest": np.int64([ROWS, 4]), "across": np.int64([1, -1, 1]), "yes": np.bool_(True),
    "no": np.bool_(False), "undefined": np.float32(7), **{f"k{i}": np.int64([i]) for i in range(4)},
}  # fmt: skip


def decoder(limit: str = "", rows: int = ROWS, **numbers: object) -> object:
    given = {**NUMBERS, "rest": np.int64([rows, 4]), "bound": np.int64(rows - 1), **numbers}
    return model_of(DECODER.format(limit=limit, rows=rows), **given)


def test_rows_are_written_by_their_number_until_it_ends() -> None:
    """With a limit that many rounds reach, one that ends it in the first round, and one in between."""
    model = decoder(rows=300)
    feeds = [{"s": floats(n, 4), "stop": np.float32([stop])} for n in (1, 2, 5) for stop in (-9.0, 1.9, 50.0)]
    built = agree(model, feeds)
    assert [k for k in kernels(built) if k.startswith("loop over")], "its rounds are not rounds any more"
    assert built.output_shapes(n=3)["y"] == (3, 300, 4)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("rows", [2, ROWS])
def test_fixed_sizes(batch: int, rows: int) -> None:
    model = decoder(rows=rows)
    feeds = [{"s": floats(batch, 4), "stop": np.float32([stop])} for stop in (-9.0, 1.9, 50.0)]
    agree(model, feeds, shapes={"s": (batch, 4)})


def test_a_counter_of_run_time_is_not_known() -> None:
    """It begins where an input says."""
    text = """g (int64 begin, float[4] x) => (float[4] y, int64 last) {
        last, y = Loop <body = b (int64 r, bool c, int64 i, float[4] t) => (bool d, int64 j, float[4] u) {
            j = Add (i, one)
            at = Mod (i, four)
            v = Gather <axis = 0> (x, at)
            u = Add (t, v)
            d = Identity (c)
        }> (many, yes, begin, x)
    }"""
    given = {"one": np.int64(1), "four": np.int64(4), "many": np.int64(300), "yes": np.bool_(True)}
    agree(model_of(text, **given), [{"begin": np.int64(b), "x": floats(4)} for b in (0, 3, 1000)])


def test_numbers_beyond_floats_are_not_taken_for_exact() -> None:
    """From 2^24 on a float counts no further: the value stands still, and so does the model's."""
    text = """g (float[4] x) => (float[4] y, int64 last) {
        last, y = Loop <body = b (int64 r, bool c, int64 i, float[4] t) => (bool d, int64 j, float[4] u) {
            f = Cast <to = 1> (i)
            s = Add (f, one)
            j = Cast <to = 7> (s)
            w = Sub (i, base)
            at = Mod (w, four)
            v = Gather <axis = 0> (x, at)
            u = Add (t, v)
            d = Identity (c)
        }> (many, yes, begin, x)
    }"""
    begin = np.int64((1 << 24) - 3)
    given = {"one": np.float32(1), "four": np.int64(4), "many": np.int64(300), "yes": np.bool_(True)}
    agree(model_of(text, begin=begin, base=begin, **given), [{"x": floats(4)}])


def test_a_placeholder_of_another_rank_needs_a_round() -> None:
    """Where there may be none, the result would be the placeholder."""
    text = """g (float[4] x, int64 n) => (float late) {
        y, late = Loop <body = b (int64 r, bool c, float[4] t, float l) => (bool d, float[4] u, float[4] k) {
            u = Mul (t, t)
            k = Neg (u)
            d = Identity (c)
        }> (n, yes, x, undefined)
    }"""
    with pytest.raises(UnsupportedError, match=r"carried value 'k' is float32\[\] before a round and float32\[4\]"):
        import_model(model_of(text, yes=np.bool_(True), undefined=np.float32(7)), None, True)

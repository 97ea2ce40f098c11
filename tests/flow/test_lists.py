"""Loops of run time that append to a list, as exporters of scripts write recurrent layers: ONNX's sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from flow_models import agree, floats, kernels, model_of
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError

STACKED = "y = ConcatFromSequence <axis = {axis}, new_axis = 1> (hs)"
APPENDED = "r = SequenceInsert(q, h2)"


def layer(
    limit: str = "Identity(rounds)", tail: str = STACKED.format(axis=0), first: str = "SequenceEmpty()",
    appended: str = APPENDED, steps: str = "t",
) -> onnx.ModelProto:  # fmt: skip
    """for i in range(m): h = tanh(x[i] w + h u); hs.append(h)"""
    return model_of(
        f"""g (float[{steps},n,4] x, float[n,6] h0, int64 m0) => (float[a,b,c] y) {{
        size = Shape <start = 0, end = 1> (x)
        rounds = Squeeze(size)
        m = {limit}
        e = {first}
        h, hs = Loop <body = b (int64 i, bool c, float[n,6] h1, seq(float[n,6]) q)
                => (bool d, float[n,6] h2, seq(float[n,6]) r) {{
            d = Identity(c)
            xi = Gather <axis = 0> (x, i)
            xw = MatMul(xi, w)
            hu = MatMul(h1, u)
            s = Add(xw, hu)
            h2 = Tanh(s)
            {appended}
        }}> (m, , h0, e)
        {tail}
    }}""",
        w=floats(4, 6),
        u=floats(6, 6) / 3,
        most=np.int64(300),
        front=np.array([0]),
        zero=np.int64(0),
    )


def feeds(sizes: Sequence[tuple[int, ...]]) -> list[dict]:
    return [{"x": floats(t, n, 4), "h0": floats(n, 6), "m0": np.int64(sum(m))} for t, n, *m in sizes]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_stacked_behind_a_loop_over_an_open_dimension(axis: int) -> None:
    built = agree(layer(tail=STACKED.format(axis=axis)), feeds([(1, 1), (2, 3), (17, 2), (300, 1)]))
    assert any(k.startswith("loop over") for k in kernels(built))


def test_joined_along_an_axis_that_it_has() -> None:
    """Every tensor has several rows; how many tensors there are is told as well."""
    tail = """z = ConcatFromSequence <axis = 0> (hs)
        k = SequenceLength(hs)
        kf = Cast <to = 1> (k)
        part = Div(z, kf)
        y = Unsqueeze(part, front)"""
    agree(layer(tail=tail), feeds([(1, 1), (2, 3), (17, 2), (300, 1)]))


@pytest.mark.parametrize(
    "tail", [STACKED.format(axis=1), "z = ConcatFromSequence <axis = 0> (hs)\ny = Unsqueeze(z, front)"]
)
def test_as_long_as_run_time_says(tail: str) -> None:
    model = layer("Min(m0, most)", tail, steps="300")
    agree(model, feeds([(300, 1, 1), (300, 2, 3), (300, 3, 300)]))


def test_behind_what_the_list_begins_with() -> None:
    model = layer("Min(m0, most)", first="SequenceConstruct(h0, h0)", steps="300")
    agree(model, feeds([(300, 1, 0), (300, 2, 3), (300, 3, 300)]))


@pytest.mark.parametrize(
    ("appended", "limit", "match"),
    [
        (APPENDED, "Identity(m0)", "nothing bounds the number of its rounds.* sequence 'r'.*--fix m0=VALUE"),
        ("r = SequenceInsert(q, h2, zero)", "Identity(rounds)", "the length of its sequence is known at run time only"),
        ("p = SequenceInsert(q, h2)\nr = SequenceInsert(p, h1)", "Identity(rounds)", "'r' is not made longer by one"),
        ("r = Identity(q)", "Identity(rounds)", "'r' is not made longer by one tensor in each"),
    ],
)
def test_lists_that_no_loop_of_run_time_can_make_are_refused(appended: str, limit: str, match: str) -> None:
    with pytest.raises(UnsupportedError, match=match) as caught:
        import_model(layer(limit, appended=appended), symbolic=True)
    assert "\n" not in str(caught.value)

"""If with a condition of run time whose branches run only where they are taken, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from flow_models import agree, floats, kernels, model_of
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError

#: As voice detectors have it: a network for each rate, chosen by an input.
RATES = """g (float[n,64] x, int64 sr, float[n,12] h0) => (float[n,1] y, float[n,12] h) {
    wide = Equal(sr, rate)
    y, h = If (wide) <then_branch = a () => (float[n,1] ya, float[n,12] ha) {
        pa = MatMul(x, wa)
        ra = Relu(pa)
        ma = MatMul(ra, ua)
        sa = Add(ma, h0)
        ha = Tanh(sa)
        ya = ReduceMean <axes = [1]> (ha)
    }, else_branch = b () => (float[n,1] yb, float[n,12] hb) {
        quarter = Slice(x, zero, half, one)
        pb = MatMul(quarter, wb)
        sb = Add(pb, h0)
        hb = Sigmoid(sb)
        yb = ReduceMax <axes = [1]> (hb)
    }>
}"""


@pytest.mark.parametrize("batch", [None, 3])
def test_a_network_for_each_rate(batch: int | None) -> None:
    numbers = {"zero": np.array([0]), "half": np.array([32]), "one": np.array([1])}
    weights = {"wa": floats(64, 24) / 8, "ua": floats(24, 12) / 5, "wb": floats(32, 12) / 6}
    model = model_of(RATES, rate=np.int64(16000), **numbers, **weights)
    sizes = (1, 2, 7, 33) if batch is None else (batch,)
    feeds = [
        {"x": floats(n, 64), "sr": np.int64(rate), "h0": floats(n, 12)} for n in sizes for rate in (16000, 8000)
    ]
    built = agree(model, feeds, shapes={} if batch is None else {"n": batch})
    assert [k.split()[0] for k in kernels(built)].count("branch") == 1
    assert built.report["macs"] == 0, "what the branches compute is computed by them alone"


LENGTHS = """g (float s, float[n,4] x) => (float[m,4] y, float[m,4] z) {
    positive = Greater(s, zero)
    y = If (positive) <then_branch = a () => (float[n,4] ya) { ya = MatMul(x, w) },
        else_branch = b () => (float[k,4] yb) { yb = Concat <axis = 0> (x, x, x) }>
    z = Relu(y)
}"""


@pytest.mark.parametrize("shape", [{}, {"n": 3}])
def test_results_of_two_lengths(shape: dict) -> None:
    """The output has room for the longer one; its length is what is there, and what follows works on that."""
    model = model_of(LENGTHS, zero=np.float32(0), w=floats(4, 4))
    sizes = (3,) if shape else (1, 2, 3, 8, 17)
    agree(model, [{"s": np.float32(s), "x": floats(n, 4)} for n in sizes for s in (1, -1)], shapes=shape)


def test_branches_in_loops_and_loops_in_branches() -> None:
    """Each round takes another branch, and one branch has rounds of its own."""
    model = model_of(
        """g (int64 m, float[6] x) => (float[6] y) {
        y = Loop <body = b (int64 i, bool c, float[6] s) => (bool d, float[6] t) {
            d = Identity(c)
            rest = Mod(i, two)
            odd = Cast <to = 9> (rest)
            t = If (odd) <then_branch = p () => (float[6] tp) {
                tp = Loop <body = q (int64 j, bool e, float[6] u) => (bool f, float[6] v) {
                    f = Identity(e)
                    r = MatMul(u, w)
                    v = Tanh(r)
                }> (i, , s)
            }, else_branch = z () => (float[6] tz) { tz = MatMul(x, w) }>
        }> (m, , x)
    }""",
        two=np.int64(2),
        w=floats(6, 6) / 3,
    )
    agree(model, [{"m": np.int64(m), "x": floats(6)} for m in (0, 1, 2, 3, 10)])


def test_a_condition_has_axes_in_one_branch_only() -> None:
    """As converters write it: one element, [] here and [1] there, which another condition is made of."""
    model = model_of(
        """g (bool m, float[6] x) => (float[6] y) {
        c = If (m) <then_branch = p () => (bool[1] cp) {
            most = ReduceMax <keepdims = 1> (x)
            cp = Greater(most, one)
        }, else_branch = z () => (bool cz) {
            least = ReduceMin <keepdims = 0> (x)
            cz = Less(least, one)
        }>
        d = Not(c)
        s = Squeeze(d)
        y = If (s) <then_branch = q () => (float[6] yq) { yq = Neg(x) }, else_branch = r () => (float[6] yr) {
            yr = Tanh(x)
        }>
    }""",
        one=np.float32(1),
    )
    fed = [np.full(6, value, np.float32) + floats(6) / 9 for value in (-3, 3)]
    agree(model, [{"m": np.bool_(m), "x": x} for m in (False, True) for x in fed])


@pytest.mark.parametrize(
    ("then", "match"),
    [
        ("ya = ReduceSum <keepdims = 0> (x)", "differ in rank: give both the same number of axes"),
        ("ya = Cast <to = 7> (x)", "differ in type: cast one"),
        ("ya = Tile(x, twice)", r"float32\[6, 8\] and float32\[3, 4\], which differ in more than one length: pad"),
    ],
)
def test_forms_that_can_not_meet_are_refused(then: str, match: str) -> None:
    text = f"""g (int64 sr, float[3,4] x) => (float[a,b] y) {{
        wide = Equal(sr, rate)
        y = If (wide) <then_branch = p () => (float[a,b] ya) {{ {then} }},
            else_branch = q () => (float[3,4] yb) {{ yb = MatMul(x, w) }}>
    }}"""
    with pytest.raises(UnsupportedError, match=f"If.*computed at run time.*{match}.*--fix sr=VALUE"):
        import_model(model_of(text, rate=np.int64(16000), w=floats(4, 4), twice=np.array([2, 2])))

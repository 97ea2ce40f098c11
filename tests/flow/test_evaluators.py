"""The evaluators of graphs know loops and branches: the yardstick of tests, and that of the translation check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from flow_models import floats, model_of, peer
from halotile.compiler.frontend import import_model
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.passes.simplify.convert import read, with_sizes
from halotile.passes.simplify.interpret import interpret
from halotile.schedules.operators.reference import compile_reference
from halotile.targets.resolve import resolve

BOTH = """g (int64 m, float[9,4] x, float[4] s) => (float[4] y, float[n,4] rows, float[4] z) {
    few = Min(m, most)
    y, rows = Loop <body = b (int64 i, bool c, float[4] s1) => (bool again, float[4] t, float[4] row) {
        r = Gather <axis = 0> (x, i)
        t = Add(s1, r)
        row = Mul(t, t)
        top = ReduceMax <keepdims = 0> (t)
        again = Less(top, three)
    }> (few, , s)
    some = Cast <to = 9> (m)
    z = If (some) <then_branch = p () => (float[4] zp) { zp = MatMul(y, w) },
        else_branch = q () => (float[4] zq) { zq = Sub(y, s) }>
}"""


def both(room: int = 300) -> onnx.ModelProto:
    return model_of(BOTH, most=np.int64(room), three=np.float32(3), w=floats(4, 4))


@pytest.fixture(scope="module")
def feeds() -> list[dict]:
    return [{"m": np.array(m), "x": floats(9, 4), "s": floats(4)} for m in (0, 1, 2, 9)]


def test_operator_by_operator(feeds: list[dict]) -> None:
    model = both()
    imported = import_model(model)
    run, session = compile_reference(imported.module), peer(model)
    graph = read(imported.module["main"])
    for feed in feeds:
        y, rows, z = session.run(None, feed)
        given = [feed[i.name] for i in imported.inputs]
        for found in (run(*given), interpret(graph.outputs, dict(zip(graph.inputs, given)))):
            np.testing.assert_allclose(found[0], y, rtol=1e-5)
            assert found[3][0] == len(rows) and found[1].shape == (300, 4)
            np.testing.assert_allclose(found[1][: len(rows)], rows, rtol=1e-5)
            assert not found[1][len(rows) :].any()
            np.testing.assert_allclose(found[2], z, rtol=1e-5, atol=1e-6)


def test_with_open_dimensions() -> None:
    """Bodies take the sizes of what they are given."""
    model = model_of(
        """g (float[t,n,4] x, float[n,4] h0) => (float[n,4] h, float[t,n,4] y) {
        h, y = Scan <body = b (float[n,4] h1, float[n,4] x1) => (float[n,4] h2, float[n,4] row) {
            s = Add(h1, x1)
            h2 = Tanh(s)
            row = Neg(h2)
        }, num_scan_inputs = 1> (h0, x)
    }"""
    )
    main, session = import_model(model, symbolic=True).module["main"], peer(model)
    for t, n in ((1, 1), (3, 2), (5, 7)):
        graph = read(with_sizes(main, {"t": t, "n": n}))
        feed = {"x": abs(floats(t, n, 4)), "h0": abs(floats(n, 4))}  # sums that cancel have no relative bound
        results = interpret(graph.outputs, dict(zip(graph.inputs, feed.values())))
        for found, wanted in zip(results, session.run(None, feed)):
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_build_whose_stages_are_checked(tmp_path: Path, feeds: list[dict]) -> None:
    """Every rewrite of the bodies, too, is run on numbers; the report and the dump have the loop as a kernel."""
    model = both()
    options = replace(Options(resolve("native"), threads=2, cache=None), check=True, dump_ir=tmp_path / "ir")
    build = run_pipeline(model, options, output=tmp_path / "out")
    flows = [k for k in build.report["kernels"] if k["schedule"].split()[0] in ("loop", "branch")]
    assert sorted(k["operators"] for k in flows) == [["halotile.branch"], ["halotile.rounds"]]
    assert all(k["flops"] > 0 for k in flows)
    assert "While" in (tmp_path / "ir" / "11-schedule.txt").read_text().title()
    assert "body0" in (tmp_path / "ir" / "1-import.txt").read_text()
    session = peer(model)
    with load(tmp_path / "out") as library:
        for feed in feeds:
            y, rows, z = session.run(None, feed)
            found = library(feed)
            np.testing.assert_allclose(found["y"], y, rtol=1e-5)
            np.testing.assert_allclose(found["z"], z, rtol=1e-5, atol=1e-6)
            assert found["rows.length"][0] == len(rows)


def test_constant_operands_do_not_make_a_loop_a_constant() -> None:
    """Nothing evaluates a loop at import or in the simplification but what runs it."""
    text = """g (float[4] x) => (float[4] y) {
        s = Loop <body = b (int64 i, bool c, float[4] s1) => (bool d, float[4] t) {
            d = Identity(c)
            u = Mul(s1, half)
            t = Add(u, one)
        }> (many, , zero)
        y = Add(x, s)
    }"""
    import halotile

    names = {"many": np.int64(400), "half": np.float32(0.5), "one": np.float32(1), "zero": np.zeros(4, np.float32)}
    x = floats(4)
    np.testing.assert_allclose(halotile.compile(model_of(text, **names))({"x": x})["y"], x + 2, rtol=1e-6)

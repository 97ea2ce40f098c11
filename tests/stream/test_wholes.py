"""Operators over the whole image, in passes: as ONNX Runtime has them, counted, and refused where rows come once."""

from __future__ import annotations

import halotile
import numpy as np
import onnxruntime
import pytest
from halotile.compiler.stream.heights import Height
from halotile.compiler.stream.statistics import Gathered, Statistic
from halotile.errors import RunError, UnsupportedError
from stream_models import Maker


def _excited():
    """A squeeze-and-excite block, an instance norm and the largest elements, one behind the other."""
    m = Maker(5)
    y = m.conv("x", 3, 8)
    s = m.op("Relu", m.conv(m.op("GlobalAveragePool", y), 8, 4, 1))
    y = m.op("Mul", y, m.op("Sigmoid", m.conv(s, 4, 8, 1)))
    y = m.op("InstanceNormalization", y, m.const(np.full(8, 2, np.float32)), m.const(np.ones(8, np.float32)))
    y = m.conv(y, 8, 4)
    return m.model([y, m.op("GlobalMaxPool", y)], 12), 3


def _grouped():
    """A decoder's block: group norm as exporters write it, an activation, twice the size."""
    m = Maker(6)
    y = m.conv("x", 3, 8)
    flat = m.op("Reshape", y, m.const(np.array([0, 2, -1])))
    ones, zeros = m.const(np.ones(2, np.float32)), m.const(np.zeros(2, np.float32))
    flat = m.op("InstanceNormalization", flat, ones, zeros)
    y = m.op("Reshape", flat, m.op("Shape", y))
    factor = m.const(m.random.standard_normal((8, 1, 1)).astype(np.float32))
    y = m.op("Add", m.op("Mul", y, factor), m.const(m.random.standard_normal((8, 1, 1)).astype(np.float32)))
    y = m.op("Mul", y, m.op("Sigmoid", y))
    return m.model([m.op("ConvTranspose", y, m.weights(8, 3, 2, 2), strides=[2, 2])], 12), 2


def _classes():
    m = Maker(7)
    y = m.op("Relu", m.conv("x", 3, 8, strides=[2, 2]))
    y = m.op("MatMul", m.op("Flatten", m.op("GlobalAveragePool", y)), m.weights(8, 5))
    return m.model([m.op("Softmax", y, axis=1)], 12), 1


def _smallest():
    m = Maker(8)
    least = m.op("ReduceMin", "x", axes=[2], keepdims=1)
    total = m.op("ReduceSum", m.op("Abs", "x"), m.const(np.array([2, 3])), keepdims=1)
    return m.model([m.op("Div", m.op("Sub", "x", least), total)], 12), 2


@pytest.mark.parametrize("make", [_excited, _grouped, _classes, _smallest])
def test_passes_give_what_the_whole_image_gives(make):
    source, passes = make()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(source.SerializeToString(), options)
    with halotile.compile(source, stream=8, exact=True) as model:
        assert model.plan.passes == passes
        for height in (1, 8, 21, 64):
            x = 5 + np.random.default_rng(height).standard_normal((1, 3, height, 12)).astype(np.float32)
            seen = []
            names = [o.name for o in model.outputs]
            found = model.stream({"x": x}, progress=lambda done, rows: seen.append((done, rows)))  # noqa: B023
            found = found if isinstance(found, dict) else {names[0]: found}
            for name, y in zip(names, session.run(names, {"x": x})):
                # a deviation of few pixels amplifies what rounding does to them
                near = 1e-5 * max(1.0, np.abs(y).max()) * (10 if height == 1 else 1)
                np.testing.assert_allclose(found[name], y, rtol=1e-5, atol=near)
            assert seen[-1] == (passes * height, passes * height)


def test_a_stream_in_passes_goes_on_in_the_pass_where_it_stopped(tmp_path):
    class Stopped(Exception):
        pass

    source, _ = _grouped()
    x = np.random.default_rng(0).standard_normal((1, 3, 40, 12)).astype(np.float32)
    with halotile.compile(source, stream=8) as model:
        wanted = model(x)
        for stopped in (16, 40, 64):
            out = np.zeros_like(wanted)

            def stop(done, rows, at=stopped):
                if done == at:
                    raise Stopped

            journal = {"journal": tmp_path / "journal", "journal_seconds": 0}
            with pytest.raises(Stopped):
                model.stream(x, out, progress=stop, **journal)
            first = []
            model.stream(x, out, progress=lambda done, rows: first.append(done), **journal)  # noqa: B023
            assert first[0] == stopped + 8 and np.array_equal(out, wanted)


def test_outputs_without_rows_have_targets_too(tmp_path):
    source, _ = _classes()
    x = np.random.default_rng(0).standard_normal((1, 3, 40, 12)).astype(np.float32)
    with halotile.compile(source, stream=8) as model:
        wanted, out = model(x), np.zeros((1, 5), np.float32)
        assert wanted.shape == (1, 5) and model.stream(x, out) is out and np.array_equal(out, wanted)
        model.stream(x, tmp_path / "y.npy")
        assert np.array_equal(np.load(tmp_path / "y.npy"), wanted)


def test_rows_that_come_once_are_refused():
    source, _ = _excited()
    with halotile.compile(source, stream=True) as model:
        with pytest.raises(RunError, match="3 passes"):
            model.open()
        with pytest.raises(RunError, match="3 passes.*iterator"):
            model.stream(iter([np.zeros((1, 3, 4, 12), np.float32)]))


def test_running_sums_down_the_rows_are_refused():
    m = Maker()
    source = m.model([m.op("CumSum", "x", m.const(np.array(2)))], 12)
    with pytest.raises(UnsupportedError, match="n0.*rows at once"):
        halotile.compile(source, stream=True)


def test_deviations_are_merged_without_cancellation():
    """Far from zero, where the mean of squares less the squared mean has no digit left."""
    rows = 1e8 + np.random.default_rng(0).standard_normal((1, 2, 50, 3))
    height = Height(1, 1, (0,))
    about = Statistic(
        "standardise", 0, ("m", "s"), ("a", "b", "c"), (1, 2, 1, 3), 2, (2, 3), (1, 2, 1, 1), 8, 3, height, 0.0
    )
    gathered = Gathered(about)
    for step in range(about.steps(50)):
        part = rows[:, :, max(0, step * 8 - 3) : step * 8 + 5]
        assert part.shape[2] == about.rows_in(step, 50)
        mean = part.mean(2, keepdims=True) if part.size else np.zeros((1, 2, 1, 3))
        gathered.add({"m": mean, "s": ((part - mean) ** 2).sum(2, keepdims=True)}, part.shape[2])
    near, rest, deviation = gathered.numbers()
    assert gathered.rows == 50
    np.testing.assert_allclose(near + rest, rows.mean((2, 3), keepdims=True), rtol=1e-15)
    np.testing.assert_allclose(deviation, 1 / rows.std((2, 3), keepdims=True), rtol=1e-7)

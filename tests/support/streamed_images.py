"""Images pushed into streams in pieces, what must not be read poisoned, beside ONNX Runtime's whole ones."""

from __future__ import annotations

import numpy as np
import onnxruntime
from halotile.compiler.stream.machine import Stream


def reference(model, x):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, {"x": x})))


def streamed(model, x, pushes, random):
    """The outputs, pushed and pulled in pieces; what must not be read is NaN."""
    stream = Stream(model._runs, model.plan, {}, poison=True)
    parts = {p.name: [] for p in model.plan.outputs}
    done = 0
    while done < x.shape[2]:
        count = int(random.integers(1, pushes + 1))
        stream.push(x[:, :, done : done + count])
        done += count
        for name, found in parts.items():
            found.append(stream.pull(name, int(random.integers(0, stream.ready(name) + 1))))
    stream.finish()
    for name, found in parts.items():
        found.append(stream.pull(name))
    return {p.name: np.concatenate(parts[p.name], p.axis) for p in model.plan.outputs}


def same(model, source, heights, random, pushes=9):
    for height in heights:
        shape = tuple(height if d == "h" else d for d in model.inputs[0].shape)
        x = random.standard_normal(shape).astype(np.float32)
        found, wanted = streamed(model, x, pushes, random), reference(source, x)
        for name, y in wanted.items():
            assert found[name].shape == y.shape
            close = 1e-4 * np.abs(y).max()
            np.testing.assert_allclose(found[name], y, rtol=1e-4, atol=close, err_msg=f"{height} {name}")

"""Open lengths of whole vectors and a few elements more, as of images of a multiple of 16 behind a pad: every size
leaves the same rest, a number, beside an open number of vectors."""

from __future__ import annotations

import halotile
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper


class Drawing:
    def __init__(self):
        self.nodes, self.constants = [], []

    def const(self, array):
        self.constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def __call__(self, kind, *inputs, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [f"v{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def longer(self, x, rank, axis):
        """Three more elements at the end of an axis."""
        pads = np.zeros(2 * rank, np.int64)
        pads[rank + axis] = 3
        return self("Pad", x, self.const(pads))

    def model(self, y, shape):
        given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        taken = [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "rests", given, taken, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def elementwise(g):
    return g("Sigmoid", g.longer("x", 4, 3)), [1, 3, 5, "w"]


def joined(g):
    x = g.longer("x", 4, 3)
    return g("Concat", x, g("Neg", x), axis=3), [1, 3, 5, "w"]


def turned(g):
    return g("Relu", g("Transpose", g.longer("x", 4, 2), perm=[0, 3, 1, 2])), [1, 3, "w", 5]


def attention(g):
    """Tokens of an image and three more."""
    tokens, draw = g.longer("x", 3, 1), np.random.default_rng(0).standard_normal
    q, k, v = (g("MatMul", tokens, g.const(draw((8, 8)).astype(np.float32) / 3)) for _ in range(3))
    scores = g("Mul", g("MatMul", q, g("Transpose", k, perm=[0, 2, 1])), g.const(np.float32(0.35)))
    return g("MatMul", g("Softmax", scores, axis=-1), v), [1, "w", 8]


@pytest.mark.parametrize("make", [elementwise, joined, turned, attention])
def test_vectors_are_open_and_the_rest_is_a_number(make):
    g = Drawing()
    y, shape = make(g)
    source = g.model(y, shape)
    session = onnxruntime.InferenceSession(source.SerializeToString())
    with halotile.compile(source, shapes={"x": tuple("w:16..:16" if d == "w" else d for d in shape)}) as model:
        for length in (16, 32, 48, 112):
            x = np.random.default_rng(length).standard_normal([length if d == "w" else d for d in shape])
            x = x.astype(np.float32)
            (wanted,) = session.run(None, {"x": x})
            np.testing.assert_allclose(model(x), wanted, rtol=1e-3, atol=1e-4, err_msg=str(length))

"""halotile.onnx_backend: ONNX's backend interface, whose promises are checked against ONNX's own reference backend."""

from __future__ import annotations

import unittest

import halotile.onnx_backend as backend
import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from small_models import WEIGHT, model_of, tiny

X = np.cos(np.arange(15, dtype=np.float32)).reshape(3, 5)


def test_a_model_is_prepared_once_and_run_on_several_shapes() -> None:
    rep = backend.prepare(tiny(("n", 4)), device="CPU")
    for rows in (1, 3):
        x = X[:rows, :4]
        wanted = np.maximum(x @ WEIGHT, 0)
        for inputs in ([x], (x,), {"x": x}, x):
            found = rep.run(inputs)
            np.testing.assert_allclose(found[0], wanted, rtol=1e-5, atol=1e-6)
        assert found["y"] is found[0] and found.y is found[0]
    np.testing.assert_array_equal(backend.run_model(tiny(("n", 4)), [x])[0], found[0])
    assert backend.run is backend.run_model or backend.run == backend.run_model


@pytest.mark.parametrize(
    "node, inputs",
    [
        (helper.make_node("Add", ["x", "x"], ["y"]), [X, X + 1]),
        (helper.make_node("Clip", ["x", "", "top"], ["y"]), [X, np.float32(0.25)]),
        (helper.make_node("TopK", ["x", "k"], ["values", "places"]), [X, np.array([2])]),
        (helper.make_node("Reshape", ["x", "shape"], ["y"]), [X, np.array([5, 3])]),
        (helper.make_node("Dropout", ["x"], ["y", "mask"]), [X]),
        (helper.make_node("LayerNormalization", ["x", "s"], ["y", ""]), [X, X[0]]),
    ],
    ids=lambda v: v.op_type if isinstance(v, onnx.NodeProto) else "",
)
def test_nodes(node: onnx.NodeProto, inputs: list[np.ndarray]) -> None:
    names = [f"input_{i}" for i in range(len(inputs))]
    given = iter(names)
    alone = onnx.NodeProto()
    alone.CopyFrom(node)
    alone.input[:] = [next(given) if n else "" for n in node.input]
    wanted = ReferenceEvaluator(alone).run([n for n in node.output if n], dict(zip(names, inputs)))
    found = backend.run_node(node, inputs)
    stated = backend.run_node(node, inputs, outputs_info=[(w.dtype, w.shape) for w in wanted])
    assert len(found) == len(wanted)
    for ours, again, theirs in zip(found, stated, wanted):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(ours, again)


def test_an_older_opset_is_taken_at_its_word() -> None:
    """Softmax of opset 11 flattens from its axis on."""
    x = np.stack([X, -X])
    old, new = (
        backend.run_node(helper.make_node("Softmax", ["x"], ["y"], axis=1), [x], opset_version=v)[0] for v in (11, 13)
    )
    assert abs(old[0].sum() - 1) < 1e-5 and abs(new[0].sum() - 5) < 1e-5


def test_devices() -> None:
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA") and not backend.supports_device("nothing")
    with pytest.raises(Exception, match="CUDA"):
        backend.prepare(tiny(), "CUDA")


def test_what_is_refused_is_a_test_to_skip() -> None:
    drawn = model_of(helper.make_node("RandomNormalLike", ["x"], ["y"]))
    assert backend.is_compatible(tiny()) and not backend.is_compatible(drawn)
    with pytest.raises(backend.Refused, match="random") as told:
        backend.prepare(drawn)
    assert isinstance(told.value, unittest.SkipTest) and told.value.code == "E200"


def test_too_few_inputs_are_an_error() -> None:
    with pytest.raises(Exception, match="0 inputs for a model that takes 1"):
        backend.prepare(tiny()).run([])
    with pytest.raises(Exception, match="1 input for a node Add that names 2"):
        backend.run_node(helper.make_node("Add", ["a", "b"], ["y"]), [X])

"""The curve of assignments beside all of them, and models that round beside numpy."""

from __future__ import annotations

import math
from itertools import product

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.budget.rounding import nearest, rounded
from halotile.compiler.budget.search import STEP, UnitForm, curve, ladder
from halotile.compiler.budget.shares import Split, spread, with_room
from halotile.schedules.words.policy import Policy
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

FORMS = st.lists(st.tuples(st.floats(1e-5, 1e-1), st.floats(0, 10)), max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(FORMS, min_size=1, max_size=5))
def test_no_assignment_beats_the_curve(units: list[list[tuple[float, float]]]) -> None:
    forms = [[UnitForm("float32", 0.0, 10.0), *(UnitForm("int8", *form) for form in unit)] for unit in units]
    found = curve(forms)
    assert [p.cycles for p in found] == sorted((p.cycles for p in found), reverse=True)
    for point in found:
        assert math.isclose(point.cycles, sum(f.cycles for f in point.forms), abs_tol=1e-9)
        assert math.isclose(point.error, math.sqrt(sum(f.error**2 for f in point.forms)), abs_tol=1e-12)
    for taken in product(*forms):
        error, cycles = math.sqrt(sum(f.error**2 for f in taken)), sum(f.cycles for f in taken)
        near = error * STEP ** len(units) + 1e-8
        assert min(p.cycles for p in found if p.error <= near) <= cycles + 1e-9
    rungs = ladder(found, 4)
    assert rungs[0] is found[0] and rungs[-1] is found[-1] and len(rungs) <= max(4, len(found))


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_layers_round_what_they_read_and_weights(kind: str) -> None:
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s).astype("f4") for s in ((3, 7, 96), (96, 41)))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "mm"), helper.make_node("Relu", ["h"], ["y"], "act")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert rounded(model, {"mm": "int8"}).graph.node == model.graph.node
    (found,) = _run(rounded(model, {"mm": kind}), x)
    (again,) = _run(rounded(model, {"mm": kind}), x)
    assert (found == again).all()
    dtype = ml_dtypes.bfloat16 if kind == "bfloat16" else np.float16
    own = [a.astype(dtype).astype("f8") for a in (x, w)]
    exact = np.maximum(own[0] @ own[1], 0)
    if kind == "bfloat16":
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)
    else:
        assert (found == found.astype(np.float16)).all()
        size = 2.0**-11 * np.sqrt((96 + 1) / 12 * (own[0] ** 2 @ own[1] ** 2))
        gap = np.abs(found - exact) / (size + 2.0**-11 * np.abs(exact))
        assert gap.max() < 6 and 0.2 < np.sqrt((gap[exact > 0] ** 2).mean()) < 1.5


def _run(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, {"x": x})
    return found


def test_numbers_of_eight_bits_are_the_nearest() -> None:
    x = np.random.default_rng(0).standard_normal(1000).astype("f4")
    near = nearest(x, "bfloat16")
    assert (near.view(np.uint32) & 0xFFFF == 0).all()
    assert (np.abs(near - x) <= np.abs(x.astype(ml_dtypes.bfloat16).astype("f4") - x)).all()


@given(st.integers(1, 40))
def test_samples_are_used_or_held_back(count: int) -> None:
    made = [{"x": np.array(i)} for i in range(count)]
    split = Split.of(made)
    used, held = ([int(s["x"]) for s in part] for part in (split.used, split.held))
    assert sorted({*used, *held}) == list(range(count)) and (count == 1 or not {*used} & {*held})
    assert len(spread(made, 8)) == min(8, count)


def test_ranges_have_room_within_float32() -> None:
    found = with_room({"a": (-2.0, 5.0), "mask": (float(np.finfo(np.float32).min), 0.0)})
    assert found["a"] == pytest.approx((-2.4, 6.0)) and np.isfinite(np.float32(found["mask"][0]))


def test_a_policy_is_narrowed_to_what_all_of_a_kernels_layers_are_in() -> None:
    policy = Policy.of(precision="bfloat16", layers={"a": "bfloat16", "b": "bfloat16", "c": "float32"})
    found = [policy.narrowed(names).precision for names in (["a", "x"], ["a", "b"], ["a", "c"], ["x"], ["c"])]
    assert found == ["bfloat16", "bfloat16", "float32", "float32", "float32"]
    assert policy.narrowed(["a"]) == Policy.of(precision="bfloat16")

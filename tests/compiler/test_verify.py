"""The comparison: what passes, what fails, and what the message says."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from evaluate import one_node
from halotile.compiler.spec import TensorSpec
from halotile.compiler.verify import ATOL, RTOL, NoReference, Reference, compare, verify
from halotile.errors import ModelError, RunError, VerificationError
from onnx import TensorProto, helper
from small_models import tiny

X = (TensorSpec("x", "float32", (2, 4)),)


def reference_of(model: onnx.ModelProto):
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0])
    return lambda inputs: {"y": np.maximum(inputs["x"] @ weight, 0)}


def test_equal_functions_agree() -> None:
    model = tiny()
    result = verify(reference_of(model), model, X)
    assert result.ok and result.max_error < 1e-6 and result.inputs == "random"
    assert "agree" in result.message()
    assert json.loads(json.dumps(result.data()))["outputs"][0]["name"] == "y"


def test_a_model_as_path_bytes_and_proto(tmp_path) -> None:
    model = tiny()
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    for source in (path, str(path), path.read_bytes(), model):
        assert verify(reference_of(model), source, X).ok


def test_a_wrong_value_is_told_with_its_place() -> None:
    model = tiny()

    def wrong(inputs):
        y = reference_of(model)(inputs)["y"].copy()
        y[1, 3] += 0.5
        return {"y": y}

    result = verify(wrong, model, X)
    assert not result.ok
    assert result.outputs[0].mismatches == 1
    assert "[1, 3]" in result.message() and "'y'" in result.message()
    with pytest.raises(VerificationError, match=r"\[1, 3\]"):
        result.raise_if_failed()


def test_exact_is_ten_times_tighter() -> None:
    model = tiny()

    def near(inputs):
        y = reference_of(model)(inputs)["y"]
        return {"y": y + np.float32(5e-4) * np.abs(y).max()}

    assert verify(near, model, X).ok
    assert not verify(near, model, X, exact=True).ok


def test_given_inputs_are_used_and_named() -> None:
    model = tiny()
    seen = {}

    def run(inputs):
        seen.update(inputs)
        return reference_of(model)(inputs)

    given = np.full((2, 4), 3, np.float32)
    assert verify(run, model, X, {"x": given}).inputs == "given"
    assert seen["x"] is given
    with pytest.raises(RunError, match="no input 'z'; its inputs are x"):
        verify(run, model, X, {"z": given})


def test_a_missing_output_fails() -> None:
    result = verify(lambda _: {}, tiny(), X)
    assert not result.ok and "missing" in result.message()


def test_a_library_of_another_model_is_told_before_it_runs() -> None:
    """Its inputs can't be the model's: another name, type, shape or one too few; no message of ONNX Runtime's."""
    model = tiny()

    def never(_: object) -> dict[str, np.ndarray]:
        raise AssertionError("it must not run")

    for inputs, line in (
        ([TensorSpec("z", "float32", (2, 4))], "input 'z' is float32[2, 4] in the library and absent in the model"),
        ([TensorSpec("x", "int64", (2, 4))], "input 'x' is int64[2, 4] in the library and float32[2, 4] in the model"),
        ([TensorSpec("x", "float32", (2, 5))], "float32[2, 5] in the library and float32[2, 4] in the model"),
        ([TensorSpec("x", "float32", (2, 4, 1))], "float32[2, 4, 1] in the library and float32[2, 4] in the model"),
        ([], "input 'x' is absent in the library and float32[2, 4] in the model"),
    ):
        with pytest.raises(RunError) as caught:
            verify(never, model, inputs, dropped={})
        assert str(caught.value).startswith("the library was built from another model: ") and line in str(caught.value)
    open_model = tiny(("batch", 4))
    assert verify(reference_of(open_model), open_model, X, dropped={}).ok


def test_an_input_that_nothing_reads_is_made_up_for_the_reference() -> None:
    model = tiny()
    model.graph.input.append(helper.make_tensor_value_info("spare", TensorProto.INT64, ["n", 3]))
    assert verify(reference_of(model), model, X).ok


def test_a_model_that_the_reference_refuses() -> None:
    node = helper.make_node("Gelu", ["x"], ["y"], domain="com.example")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in "xy")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    with pytest.raises(NoReference, match="ONNX Runtime"):
        Reference(helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets))


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("ours", "theirs", "ok", "word"),
    [
        (f32(1, 2, 3), f32(1, 2, 3), True, ""),
        (f32(1, 2, 3.002), f32(1, 2, 3), True, ""),
        (f32(1, 2, 3.004), f32(1, 2, 3), False, "largest error 0.004"),
        (f32(0.003, 3), f32(0, 3), True, ""),  # the measure is the output's largest value, not the element's
        (f32(np.nan, 1), f32(np.nan, 1), True, ""),
        (f32(np.nan, 1), f32(0, 1), False, "NaN in 1 of 2"),
        (f32(0, 1), f32(np.nan, 1), False, "NaN in 1 of 2"),
        (f32(np.inf, 1), f32(np.inf, 1), True, ""),
        (f32(np.inf, 1), f32(-np.inf, 1), False, "infinities differ"),
        (f32(np.inf, 1), f32(1e30, 1), False, "infinities differ"),
        (f32(), f32(), True, ""),
        (f32(1), f32(1, 1), False, "float32[1], expected float32[2]"),
        (np.float64([1]), f32(1), False, "float64[1], expected float32[1]"),
        (np.int64([1, 2]), np.int64([1, 2]), True, ""),
        (np.int64([1, 3]), np.int64([1, 2]), False, "1 of 2 elements differ"),
        (np.array([True]), np.array([False]), False, "1 of 1 elements differ"),
        (np.float16([1.001]), np.float16([1]), True, ""),
        (
            ml_dtypes.bfloat16(1.0078) + np.zeros(1, ml_dtypes.bfloat16),
            np.ones(1, ml_dtypes.bfloat16),
            True,
            "",
        ),
        (
            ml_dtypes.bfloat16(1.05) + np.zeros(1, ml_dtypes.bfloat16),
            np.ones(1, ml_dtypes.bfloat16),
            False,
            "largest",
        ),
    ],
)
def test_compare(ours: np.ndarray, theirs: np.ndarray, ok: bool, word: str) -> None:
    check = compare("y", ours, theirs, RTOL, ATOL)
    assert check.ok == ok
    assert word in check.reason


def test_a_reference_with_one_value_everywhere_is_told() -> None:
    model = tiny(weight=np.zeros((4, 5), np.float32))
    result = verify(reference_of(model), model, X)
    assert result.ok and result.outputs[0].constant and "proves little" in result.message()
    assert not verify(reference_of(tiny()), tiny(), X).outputs[0].constant


def test_a_scalar_output() -> None:
    assert compare("y", np.float32([1]).reshape(()), np.float32([1]).reshape(()), RTOL, ATOL).ok
    assert "[]" in compare("y", np.float32([2]).reshape(()), np.float32([1]).reshape(()), RTOL, ATOL).reason


def means_of_pairs(scale: float = 0.1) -> tuple[onnx.ModelProto, tuple[TensorSpec, ...]]:
    """round(mean of two numbers on a grid / the step of that grid): half of the means lie halfway."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["g"]),
        helper.make_node("AveragePool", ["g"], ["m"], kernel_shape=[2], strides=[2]),
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4, d]) for n, d in (("x", 64), ("y", 32)))
    r = helper.make_tensor_value_info("r", TensorProto.INT8, [1, 4, 32])
    s = helper.make_tensor("s", TensorProto.FLOAT, [], [scale])
    z = helper.make_tensor("z", TensorProto.INT8, [], [0])
    graph = helper.make_graph(nodes, "means", [x], [y, r], [s, z])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, (TensorSpec("x", "float32", (1, 4, 64)),)


def rounded_means(up: bool, steps: int = 0):
    """That model with every tie up, or down, and ``steps`` added to one element."""

    def run(inputs):
        q = np.round(inputs["x"] / np.float32(0.1)).clip(-128, 127).astype(np.int64)
        total = q[..., ::2] + q[..., 1::2]
        r = (total + 1 if up else total) // 2
        r[0, 1, 2] += steps
        return {"y": r.astype(np.float32) * np.float32(0.1), "r": r.astype(np.int8)}

    return run


@pytest.mark.parametrize("up", [True, False])
def test_either_side_of_a_tie_is_right(up: bool) -> None:
    model, specs = means_of_pairs()
    result = verify(rounded_means(up), model, specs)
    assert result.ok, result.message()
    assert all(o.ties > 0 and o.limit == o.ties for o in result.outputs)
    assert "ties may move them" in result.message()


@pytest.mark.parametrize("up", [True, False])
def test_ties_of_a_range_that_is_known_at_run_time(up: bool) -> None:
    """Halves of a step, which a sum in another order would round the other way."""
    graph = helper.make_graph(
        [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
         helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])],
        "ties", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.float32([0, 255, 1.5, 2.5, 7.5, 100.5, 3, 4])
    moved = np.ceil(x) if up else np.floor(x)
    result = verify(lambda i: {"y": moved}, model, [TensorSpec("x", "float32", (8,))], {"x": x})
    assert result.ok and result.outputs[0].ties > 0, result.message()
    assert not verify(lambda i: {"y": moved + 3}, model, [TensorSpec("x", "float32", (8,))], {"x": x}).ok


def test_more_than_ties_can_do_is_wrong() -> None:
    model, specs = means_of_pairs()
    result = verify(rounded_means(True, steps=4), model, specs)
    assert [o.mismatches for o in result.outputs] == [1, 1]


def test_what_rounds_nothing_is_not_excused() -> None:
    model = tiny()
    result = verify(lambda i: {"y": reference_of(model)(i)["y"] + np.float32(0.5)}, model, X)
    assert not result.ok and result.outputs[0].ties == 0


def test_the_weights_of_a_nudged_model_may_lie_in_a_file(tmp_path) -> None:
    model, specs = means_of_pairs()
    weight = onnx.numpy_helper.from_array(np.ones((1, 4, 32), np.float32), "w")
    model.graph.initializer.append(weight)
    model.graph.node.append(helper.make_node("Mul", ["y", "w"], ["o"]))
    model.graph.output[0].name = "o"
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
    result = verify(lambda i: {("o" if k == "y" else k): v for k, v in rounded_means(True)(i).items()},
                    tmp_path / "m.onnx", specs)  # fmt: skip
    assert result.ok and result.outputs[0].ties > 0


def test_a_file_that_is_no_model_is_told_in_a_line(tmp_path) -> None:
    (tmp_path / "junk.onnx").write_bytes(b"hello")
    with pytest.raises(ModelError, match=r"junk\.onnx.*not an ONNX model"):
        verify(reference_of(tiny()), tmp_path / "junk.onnx", X)


@pytest.mark.parametrize("operator", ["QLinearMatMul", "QLinearConv", "MatMulInteger", "ConvInteger"])
def test_sums_of_bytes_are_whole(operator: str) -> None:
    """Two products of the largest bytes leave 16 bits, where the reference's sums on x86-64 without VNNI end."""
    conv, quantised = "Conv" in operator, operator.startswith("QLinear")
    x = np.full((1, 16, 3, 3) if conv else (3, 16), 255, np.uint8)
    w = np.full((4, 16, 1, 1) if conv else (16, 4), 127, np.int8)
    inputs = [x, np.float32(1), np.uint8(0), w, np.float32(1), np.int8(0), np.float32(3000), np.uint8(0)]
    model, feeds = one_node(operator, inputs if quantised else [x, w])
    (found,) = Reference(model)(feeds, 0).values()
    total = 16 * 255 * 127
    assert (found == (round(total / 3000) if quantised else total)).all()

"""Raw exports import and simplify without help, with fixed and with open dimensions, and compute what they did."""

from __future__ import annotations

from collections import Counter

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from exports import EXPORTS, SEQUENCES
from halotile.benchmarks.models import MODELS
from halotile.compiler.frontend import import_model
from halotile.errors import ShapeError
from halotile.passes.simplify import Simplify

#: What only shape arithmetic, masks and positions of open length leave behind.
SHAPE_WORK = {"relax.shape_to_tensor", "relax.arange", "relax.full", "relax.equal", "relax.less", "relax.tile"}
FORMS = [pytest.param(False, id="torchscript"), pytest.param(True, id="dynamo")]


def simplified(model: onnx.ModelProto):
    imported = import_model(model, symbolic=True)
    return imported, Simplify().apply(imported.module)


def feeds(model: onnx.ModelProto, batch: int, length: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch)
    arrays = {}
    for info in model.graph.input:
        dims = info.type.tensor_type.shape.dim
        shape = [d.dim_value or {"batch": batch, "seq": length}[d.dim_param] for d in dims]
        if info.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            arrays[info.name] = rng.integers(0, 30 if "ids" in info.name else 2, shape)
        else:
            arrays[info.name] = rng.standard_normal(shape).astype(np.float32)
    return arrays


def assert_right(tools, model: onnx.ModelProto, imported, result, sizes) -> None:
    """Against ONNX Runtime with its optimisations off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    for batch, length in sizes:
        given = feeds(model, batch, length)
        outputs = tools.values(result.module, [given[i.name] for i in imported.inputs])
        for expected, got in zip(session.run(None, given), outputs, strict=True):
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamo", FORMS)
@pytest.mark.parametrize("name", EXPORTS)
def test_fixed_and_open_batch_leave_the_same(tools, name: str, dynamo: bool) -> None:
    fixed = EXPORTS[name](2, 5, dynamo=dynamo)
    imported, result = simplified(fixed)
    assert_right(tools, fixed, imported, result, [(2, 5)])
    left = Counter(result.details["operators"])
    assert not SHAPE_WORK.difference({"relax.equal"} if name == "distilbert" else ()) & left.keys()
    model = EXPORTS[name]("batch", 5, dynamo=dynamo)
    imported, result = simplified(model)
    open_ = Counter(result.details["operators"])
    assert open_ - left == ({"relax.broadcast_to": 1} if name == "vit" else {})  # its class token, for every image
    assert not left - open_
    assert_right(tools, model, imported, result, [(1, 5), (3, 5)])
    assert not Simplify().apply(result.module).changed
    assert result.details["operators_after"] <= result.details["operators_before"]


@pytest.mark.parametrize("dynamo", FORMS)
@pytest.mark.parametrize("name", SEQUENCES)
def test_open_batch_and_length(tools, name: str, dynamo: bool) -> None:
    model = EXPORTS[name]("batch", "seq", dynamo=dynamo)
    imported, result = simplified(model)
    left = Counter(result.details["operators"])
    assert "relax.shape_to_tensor" not in left
    assert left["relax.arange"] == 0
    assert left["halotile.of_sizes"] == {"bert": 0, "distilbert": 1, "t5_encoder": 1, "llama": 3}[name]
    assert_right(tools, model, imported, result, [(2, 5), (1, 1), (3, 8)])
    assert not Simplify().apply(result.module).changed


def test_what_a_run_implies_is_learned_and_said() -> None:
    imported, _ = simplified(EXPORTS["bert"]("batch", "seq"))
    assert any("'seq' is at most 32" in note for note in imported.notes)


@pytest.mark.parametrize("name", ["bert", "t5_encoder", "unet", "yolo"])
def test_every_rewrite_holds_on_numbers(name: str) -> None:
    imported = import_model(EXPORTS[name]("batch", "seq" if name in SEQUENCES else 5), symbolic=True)
    result = Simplify(check=True).apply(imported.module)
    assert result.details["checked"] > 0 and not result.details["unchecked"]


def test_a_library_keeps_them_open() -> None:
    model = halotile.compile(EXPORTS["bert"]("batch", 5))
    assert [s.name for s in model.symbols] == ["batch"]
    assert all(model.verify(shape={"batch": batch}).ok for batch in (1, 3))
    with pytest.raises(ShapeError, match="--shape"):
        halotile.compile(EXPORTS["bert"]("batch", 5), memory_budget="1MB")


def with_open_images(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same with height and width of its image open as well."""
    for axis, name in ((2, "height"), (3, "width")):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return model


@pytest.mark.parametrize("name", ["regnet", "resnet18_raw", "efficientnet_b0", "edsr", "densenet", "convnext_raw"])
def test_convolutional_networks_with_open_images(tools, name: str) -> None:
    model = EXPORTS[name]("batch", 5) if name in EXPORTS else MODELS[name].model(small=True, batch="batch")
    height, width = (model.graph.input[0].type.tensor_type.shape.dim[a].dim_value for a in (2, 3))
    imported, result = simplified(with_open_images(model))
    assert not SHAPE_WORK & result.details["operators"].keys()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    for shape in ((1, 3, height, width), (2, 3, height + 32, width + 64)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        expected = session.run(None, {model.graph.input[0].name: x})[0]
        got = tools.values(result.module, [x])[0]
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("dynamo", FORMS)
def test_focus_of_an_open_image_takes_its_halves_to_be_equal(tools, dynamo: bool) -> None:
    model = with_open_images(EXPORTS["yolo"]("batch", 5, dynamo=dynamo))
    imported, result = simplified(model)
    assert sum("is a multiple of 2, since" in note for note in imported.notes) == 2
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    height, width = (EXPORTS["yolo"](1, 5).graph.input[0].type.tensor_type.shape.dim[a].dim_value for a in (2, 3))
    for shape in ((1, 3, height, width), (2, 3, height + 32, width + 64)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        expected = session.run(None, {model.graph.input[0].name: x})
        for a, b in zip(expected, tools.values(result.module, [x]), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4 * np.abs(a).max())


@pytest.mark.parametrize("name", ["unet", "swin2sr"])
def test_pads_that_follow_from_open_images(tools, name: str) -> None:
    """An odd height has no half: a skip that is padded to fit, and a reflected pad up to a multiple of the window."""
    model = with_open_images(EXPORTS[name]("batch", 5))
    imported, result = simplified(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in ((1, 3, 7, 9), (2, 3, 12, 10)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        expected = session.run(None, {model.graph.input[0].name: x})[0]
        got = tools.values(result.module, [x])[0]
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())

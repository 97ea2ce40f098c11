"""halotile.onnxruntime: what ONNX Runtime's interface promises holds of both, ours and the real one; then what is ours.

The tests that take ``ort`` run on each of the two."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import halotile.onnxruntime as ours
import numpy as np
import onnx
import onnxruntime as real
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import model_of, tiny

X = np.sin(np.arange(12, dtype=np.float32)).reshape(3, 4)


@pytest.fixture(params=[real, ours], ids=["real", "ours"])
def ort(request: pytest.FixtureRequest) -> Any:
    return request.param


def kinds(ort: Any) -> Any:
    return ort.capi.onnxruntime_pybind11_state


@pytest.fixture(scope="module")
def open_batch() -> bytes:
    model = tiny(("batch", 4))
    model.producer_name, model.model_version, model.doc_string = "maker", 7, "what it is"
    model.domain, model.graph.doc_string = "org.example", "the graph"
    helper.set_model_props(model, {"names": "{0: 'cat'}", "stride": "32"})
    return model.SerializeToString()


def session(ort: Any, model: Any, options: Any = None) -> Any:
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def test_what_it_says_of_a_model(ort: Any, open_batch: bytes) -> None:
    made = session(ort, open_batch)
    (x,), (y,) = made.get_inputs(), made.get_outputs()
    assert (x.name, x.type, list(x.shape)) == ("x", "tensor(float)", ["batch", 4])
    assert (y.name, y.type, list(y.shape)) == ("y", "tensor(float)", ["batch", 5])
    meta = made.get_modelmeta()
    assert (meta.producer_name, meta.version, meta.description) == ("maker", 7, "what it is")
    assert (meta.domain, meta.graph_name, meta.graph_description) == ("org.example", "tiny", "the graph")
    assert meta.custom_metadata_map == {"names": "{0: 'cat'}", "stride": "32"}
    assert made.get_providers() == ["CPUExecutionProvider"] and ort.get_device() == "CPU"
    assert "CPUExecutionProvider" in ort.get_available_providers()
    assert list(made.get_provider_options()) == ["CPUExecutionProvider"]


def test_types_and_shapes_are_spelt_alike() -> None:
    elements = [TensorProto.DOUBLE, TensorProto.INT8, TensorProto.UINT64, TensorProto.FLOAT16, TensorProto.BOOL]
    infos = [helper.make_tensor_value_info(f"x{i}", kind, [2, None, "n"]) for i, kind in enumerate(elements)]
    infos += [helper.make_tensor_value_info("s", TensorProto.INT64, [])]
    outs = [helper.make_tensor_value_info(f"y_{i.name}", i.type.tensor_type.elem_type, None) for i in infos]
    nodes = [helper.make_node("Identity", [i.name], [o.name]) for i, o in zip(infos, outs)]
    graph = helper.make_graph(nodes, "g", infos, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()

    def told(ort: Any) -> list[Any]:
        return [(i.name, i.type, i.shape) for i in session(ort, model).get_inputs()]

    assert told(ours) == told(real)


def test_runs_of_several_shapes(ort: Any, open_batch: bytes) -> None:
    made = session(ort, open_batch)
    weight = numpy_helper.to_array(onnx.load_from_string(open_batch).graph.initializer[0])
    for x in (X, X[:1], X, np.concatenate([X, X])):
        for names in (None, [], ["y"]):
            (y,) = made.run(names, {"x": x})
            np.testing.assert_allclose(y, np.maximum(x @ weight, 0), rtol=1e-5, atol=1e-6)


def test_paths_and_options(ort: Any, tmp_path: Path, open_batch: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(open_batch)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.add_free_dimension_override_by_name("batch", 3)
    for path in (str(tmp_path / "m.onnx"), tmp_path / "m.onnx"):
        made = ort.InferenceSession(path, sess_options=options, providers=[("CPUExecutionProvider", {})])
        assert list(made.get_inputs()[0].shape) == [3, 4]
        assert made.run(None, {"x": X}, ort.RunOptions())[0].shape == (3, 5)
    assert options.get_session_config_entry("session.set_denormal_as_zero") == "1"


def test_wrong_calls_raise_what_scripts_catch(ort: Any, open_batch: bytes) -> None:
    made = session(ort, open_batch)
    wrong = kinds(ort).InvalidArgument
    for feed in ({"x": X.astype("f8")}, {"x": X[0]}, {"x": X[:, :2]}, {"x": X, "z": X}):
        with pytest.raises(wrong):
            made.run(None, feed)
    with pytest.raises(ValueError):
        made.run(None, {})
    with pytest.raises(wrong):
        made.run(["nope"], {"x": X})
    stop = ort.RunOptions()
    stop.terminate = True
    with pytest.raises(kinds(ort).Fail):
        made.run(None, {"x": X}, stop)


def test_wrong_models_raise_what_scripts_catch(ort: Any, tmp_path: Path) -> None:
    with pytest.raises(kinds(ort).NoSuchFile):
        session(ort, str(tmp_path / "missing.onnx"))
    with pytest.raises(kinds(ort).InvalidProtobuf):
        session(ort, b"not a model")
    loop = model_of(helper.make_node("Add", ["x", "a"], ["y"]), helper.make_node("Relu", ["y"], ["a"]))
    with pytest.raises((kinds(ort).InvalidGraph, kinds(ort).Fail)):
        session(ort, loop.SerializeToString())
    with pytest.raises(TypeError):
        session(ort, 3)


def test_values(ort: Any) -> None:
    array = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(array)
    assert (value.shape(), value.data_type(), value.element_type()) == ([3, 4], "tensor(float)", TensorProto.FLOAT)
    assert value.device_name() == "cpu" and value.is_tensor() and not value.is_sparse_tensor()
    assert value.has_value() and value.tensor_size_in_bytes() == 48 and not value.is_tensor_sequence()
    array[0, 0] = 9.0
    assert value.data_ptr() == array.ctypes.data and value.numpy()[0, 0] == 9.0
    value.update_inplace(np.zeros((3, 4), np.float32))
    assert not array.any()
    made = ort.OrtValue.ortvalue_from_shape_and_type((2, 3), np.int64)
    assert made.shape() == [2, 3] and made.data_type() == "tensor(int64)"
    made.update_inplace(np.ones((2, 3), np.int64))
    assert np.asarray(made).sum() == 6 and np.from_dlpack(made).sum() == 6
    assert ort.OrtValue.from_dlpack(array).data_ptr() == array.ctypes.data
    halves = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(4, np.uint16), TensorProto.BFLOAT16)
    assert halves.data_type() == "tensor(bfloat16)"


def test_values_in_and_out(ort: Any, open_batch: bytes) -> None:
    made = session(ort, open_batch)
    feed = {"x": ort.OrtValue.ortvalue_from_numpy(X)}
    (y,) = made.run_with_ort_values(["y"], feed)
    np.testing.assert_array_equal(y.numpy(), made.run(None, {"x": X})[0])
    np.testing.assert_array_equal(made.run(None, feed)[0], y.numpy())


def test_bound_arrays_are_read_and_filled_in_place(ort: Any, open_batch: bytes) -> None:
    made = session(ort, open_batch)
    x, y = X.copy(), np.full((3, 5), np.nan, np.float32)
    binding = made.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    for step in (1.0, -2.0, 3.0):
        x[...] = X * step
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(y, made.run(None, {"x": x})[0])
    (value,) = binding.get_outputs()
    assert value.data_ptr() == y.ctypes.data
    (copy,) = binding.copy_outputs_to_cpu()
    assert not np.may_share_memory(copy, y)
    np.testing.assert_array_equal(copy, y)


def test_bound_outputs_without_memory(ort: Any, open_batch: bytes) -> None:
    made = session(ort, open_batch)
    binding = made.io_binding()
    binding.bind_output("y")
    for x in (X, np.concatenate([X, X])):
        binding.bind_cpu_input("x", x)
        binding.clear_binding_outputs()
        binding.bind_output("y", "cpu")
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], made.run(None, {"x": x})[0])
    binding.clear_binding_inputs()
    with pytest.raises((kinds(ort).InvalidArgument, kinds(ort).Fail, ValueError, RuntimeError)):
        made.run_with_iobinding(binding)


def test_asynchronous_runs(ort: Any, open_batch: bytes) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2  # the real one's callback comes from a thread of its pool
    made = session(ort, open_batch, options)
    done = threading.Event()
    found: list[Any] = []

    def callback(results: Any, data: Any, told: str) -> None:
        found.append((results, data, told))
        done.set()

    made.run_async(["y"], {"x": X}, callback, "mine")
    assert done.wait(60)
    ((results, data, told),) = found
    assert data == "mine" and not told
    np.testing.assert_array_equal(results[0], made.run(None, {"x": X})[0])


# ---------------------------------------------------------------------- ours alone


def test_one_library_serves_every_size(open_batch: bytes) -> None:
    made = session(ours, open_batch)
    libraries = {id(made._libraries.for_call({"x": X[:rows]}).model) for rows in (1, 3, 2)}
    assert len(libraries) == 1 and [made.run(None, {"x": X[:rows]})[0].shape[0] for rows in (3, 1)] == [3, 1]


def test_what_was_compiled_for_values_is_not_compiled_again() -> None:
    options = ours.SessionOptions()
    options.add_session_config_entry("halotile.libraries", "2")
    made = session(ours, shaped(), options)
    libraries = made._libraries

    def library(*shape: int) -> Any:
        feed = {"x": X, "shape": np.array(shape)}
        made.run(None, feed)
        assert len(libraries) <= 2
        return libraries.for_call(feed).model

    one, two = library(2, 6), library(6, 2)
    assert library(2, 6) is one and library(6, 2) is two and library(2, 6) is one
    three = library(1, 12)  # (6, 2) was used longest ago
    assert library(2, 6) is one and library(1, 12) is three and library(6, 2) is not two


def test_many_threads_at_once_build_a_shape_once(open_batch: bytes, caplog: pytest.LogCaptureFixture) -> None:
    made = session(ours, open_batch)
    results: list[Any] = []
    with caplog.at_level(logging.INFO, "halotile.onnxruntime"):
        threads = [threading.Thread(target=lambda: results.append(made.run(None, {"x": X})[0])) for _ in range(6)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    assert len(results) == 6 and all((r == results[0]).all() for r in results)
    assert sum("compiled" in r.message for r in caplog.records) == 1


def shaped() -> bytes:
    """y = x in the shape that an input gives."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"])], "g", inputs, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_values_that_decide_are_constants_of_a_library(ort: Any) -> None:
    made = session(ort, shaped())
    for shape in ((2, 6), (6, 2), (2, 6)):
        (y,) = made.run(None, {"x": X, "shape": np.array(shape)})
        np.testing.assert_array_equal(y, X.reshape(shape))
    if ort is ours:
        assert made._libraries.deciding == ("shape",) and len(made._libraries) == 2


def test_values_that_decide_are_looked_at_in_bindings_too() -> None:
    made = session(ours, shaped())
    binding, shape = made.io_binding(), np.array([2, 6])
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("shape", shape)
    for a, b in ((2, 6), (6, 2), (1, 12)):
        shape[:] = a, b
        binding.clear_binding_outputs()
        binding.bind_output("y")
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X.reshape(a, b))


def counted() -> bytes:
    """The places of what is not zero: how many there are depends on the data."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [2, "n"])
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_lengths_that_depend_on_the_data(ort: Any) -> None:
    made = session(ort, counted())
    assert [o.name for o in made.get_outputs()] == ["y"] and made.get_outputs()[0].shape[0] == 2
    assert not isinstance(made.get_outputs()[0].shape[1], int)
    binding = made.io_binding()
    for x in (X, np.maximum(X, 0), np.zeros_like(X)):
        (y,) = made.run(None, {"x": x})
        np.testing.assert_array_equal(y, np.stack(np.nonzero(x)))
        binding.clear_binding_outputs()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y")
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], y)


def test_a_fixed_model_is_compiled_with_the_session_and_refused_there(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "halotile.onnxruntime"):
        made = session(ours, tiny((3, 4)).SerializeToString())
        assert any("compiled" in r.message for r in caplog.records)
    caplog.clear()
    made.run(None, {"x": X})
    assert not caplog.records
    drawn = model_of(helper.make_node("RandomNormalLike", ["x"], ["y"], name="dice"))
    refused = kinds(ours).NotImplemented
    with pytest.raises(refused, match="random") as told:
        session(ours, drawn.SerializeToString())
    assert told.value.code == "E200" and "\n" not in str(told.value)
    drawn.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(refused, match="RandomNormalLike: it draws random numbers"):
        session(ours, drawn.SerializeToString())


def cut(data: Any) -> bytes:
    """y = x[starts : ends] along the first axes."""
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, data)]
    given += [helper.make_tensor_value_info(n, TensorProto.INT64, [2]) for n in ("starts", "ends")]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])
    graph = helper.make_graph([helper.make_node("Slice", ["x", "starts", "ends"], ["y"])], "g", given, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_whole_numbers_that_settle_a_refused_node_are_constants(ort: Any) -> None:
    """Two lengths that depend on the data at once are refused; the values of both bounds settle it."""
    made = session(ort, cut(["n", 4]))
    for starts, ends in (([0, 1], [2, 3]), ([1, 0], [3, 4])):
        feed = {"x": X, "starts": np.array(starts), "ends": np.array(ends)}
        np.testing.assert_array_equal(made.run(None, feed)[0], X[starts[0] : ends[0], starts[1] : ends[1]])
    if ort is ours:
        assert set(made._libraries.deciding) == {"starts", "ends"}


def test_inputs_that_are_no_tensors_are_refused_with_the_session() -> None:
    model = model_of(helper.make_node("SequenceLength", ["x"], ["y"]))
    model.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(model.graph.input[0].type))
    with pytest.raises(kinds(ours).NotImplemented, match="input 'x' is a sequence"):
        session(ours, model.SerializeToString())


def test_the_lowest_level_of_optimisation_is_exact_and_threads_are_taken() -> None:
    options = ours.SessionOptions()
    assert options.build_options()["exact"] is False
    options.graph_optimization_level = ours.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 2
    made = session(ours, tiny((3, 4)).SerializeToString(), options)
    assert made._libraries._options["exact"] is True and made._libraries._options["float_mode"] == "exact"
    assert made._libraries._options["threads"] == 2


def test_what_is_not_there_is_refused_by_name(open_batch: bytes) -> None:
    options = ours.SessionOptions()
    refused = kinds(ours).NotImplemented
    for call in (
        lambda: options.register_custom_ops_library("ops.so"),
        lambda: options.add_initializer("w", None),
        lambda: options.add_free_dimension_override_by_denotation("N", 1),
    ):
        with pytest.raises(refused):
            call()
    options.enable_profiling = True
    with pytest.raises(refused, match="profile"):
        session(ours, open_batch, options)
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        made = ours.InferenceSession(open_batch, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert made.get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(kinds(ours).InvalidArgument, match="cuda"):
        ours.OrtValue.ortvalue_from_numpy(X, "cuda", 0)


def test_an_initialiser_that_is_an_input_as_well_stays_a_constant() -> None:
    model = tiny((3, 4))
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 5]))
    made = session(ours, model.SerializeToString())
    assert [i.name for i in made.get_inputs()] == ["x"]
    assert [i.name for i in made.get_overridable_initializers()] == ["w"]
    with pytest.raises(kinds(ours).InvalidArgument, match="initialiser"):
        made.run(None, {"x": X, "w": np.zeros((4, 5), np.float32)})


def test_outputs_that_lie_over_inputs_are_right() -> None:
    model = model_of(helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("Reshape", ["t", "s"], ["y"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 4]), "s"))
    made = session(ours, model.SerializeToString())
    memory = X[:2].copy()
    binding = made.io_binding()
    binding.bind_cpu_input("x", memory)
    binding.bind_ortvalue_output("y", ours.OrtValue.ortvalue_from_numpy(memory))
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(memory, X[:2].T.reshape(2, 4))


def test_lists_are_taken_in_the_models_type(ort: Any, open_batch: bytes) -> None:
    made = session(ort, open_batch)
    if ort is ours:
        np.testing.assert_array_equal(made.run(None, {"x": X.tolist()})[0], made.run(None, {"x": X})[0])
        with pytest.raises(kinds(ours).InvalidArgument):
            made.run(None, {"x": "text"})

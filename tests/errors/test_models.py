"""Bad models: each is refused in one line that says what, where and what to do, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import external, model_of, tiny


def save(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_missing_file(halotile) -> None:
    halotile("build", "nowhere.onnx").refused("E100", "nowhere.onnx", "does not exist")


def test_an_empty_path(halotile) -> None:
    for command in ("build", "inspect", "verify"):
        halotile(command, "").refused("E100", "path is empty")


def test_a_device_is_not_read(halotile) -> None:
    halotile("build", "/dev/null").refused("E100", "/dev/null", "is a device")


def test_folder_instead_of_a_file(halotile, tmp_path) -> None:
    (tmp_path / "m.onnx").mkdir()
    halotile("build", "m.onnx").refused("E100", "is a folder")
    (tmp_path / "m.onnx" / "manifest.json").write_text("{}")
    halotile("inspect", "m.onnx").refused("E100", "is what a build made", "give the ONNX file")


def test_a_model_where_a_library_belongs(halotile, tmp_path) -> None:
    save(tmp_path, tiny())
    halotile("run", "m.onnx").refused("E600", "is not a folder", "build it first: halotile build m.onnx")


def test_empty_file(halotile, tmp_path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    halotile("build", "m.onnx").refused("E100", "empty")


def test_truncated_file(halotile, tmp_path) -> None:
    path = save(tmp_path, tiny())
    path.write_bytes(path.read_bytes()[:-7])
    halotile("build", "m.onnx").refused("E100", "truncated")


def test_not_onnx(halotile, tmp_path) -> None:
    (tmp_path / "m.onnx").write_text("This is a text about models.\n")
    halotile("build", "m.onnx").refused("E100", "not an ONNX model")


def test_future_opset(halotile, tmp_path) -> None:
    model = tiny()
    model.opset_import[0].version = 900
    save(tmp_path, model)
    halotile("build", "m.onnx").refused("E200", "opset 900", "upgrade onnx")


def test_future_ir_version(halotile, tmp_path) -> None:
    model = tiny()
    model.ir_version = 900
    save(tmp_path, model)
    halotile("build", "m.onnx").refused("E200", "IR version 900")


def test_unknown_operator(halotile, tmp_path) -> None:
    save(tmp_path, model_of(helper.make_node("Frobnicate", ["x"], ["y"], name="frob")))
    halotile("build", "m.onnx").refused("E200", "frob", "Frobnicate", "17")


def test_unknown_domain(halotile, tmp_path) -> None:
    node = helper.make_node("Gelu", ["x"], ["y"], name="act", domain="com.example")
    save(tmp_path, model_of(node, domains=("com.example",)))
    halotile("build", "m.onnx").refused("E200", "act", "com.example")


def test_domain_without_an_opset(halotile, tmp_path) -> None:
    save(tmp_path, model_of(helper.make_node("Gelu", ["x"], ["y"], name="act", domain="com.example")))
    halotile("build", "m.onnx").refused("E100", "act", "com.example", "opset")


def test_all_offenders_in_one_message(halotile, tmp_path) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
        helper.make_node("RandomNormalLike", ["x"], ["b"], name="second"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    save(tmp_path, model_of(*nodes))
    halotile("build", "m.onnx").refused("E200", "first", "Frobnicate", "second", "RandomNormalLike")


def test_cyclic_graph(halotile, tmp_path) -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["b"], name="two"),
        helper.make_node("Neg", ["b"], ["y"], name="three"),
    ]
    save(tmp_path, model_of(*nodes))
    halotile("build", "m.onnx").refused("E100", "cycle", "one", "two")


def test_wrong_attribute_type(halotile, tmp_path) -> None:
    save(tmp_path, model_of(helper.make_node("Softmax", ["x"], ["y"], name="soft", axis="last")))
    halotile("build", "m.onnx").refused("E100", "axis")


def test_unknown_attribute(halotile, tmp_path) -> None:
    save(tmp_path, model_of(helper.make_node("Relu", ["x"], ["y"], name="act", slope=3.0)))
    halotile("build", "m.onnx").refused("E100", "slope")


def test_value_that_nothing_produces(halotile, tmp_path) -> None:
    save(tmp_path, model_of(helper.make_node("Add", ["x", "ghost"], ["y"], name="sum")))
    halotile("build", "m.onnx").refused("E100", "sum", "ghost")


def test_two_nodes_produce_one_name(halotile, tmp_path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="one"),
        helper.make_node("Neg", ["x"], ["y"], name="two"),
    ]
    save(tmp_path, model_of(*nodes))
    halotile("build", "m.onnx").refused("E100", "two", "'y'")


def test_missing_external_data(halotile, tmp_path) -> None:
    external(tmp_path / "m.onnx", "weights.bin")
    halotile("build", "m.onnx").refused("E100", "weights.bin", "does not exist")


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "link.bin"])
def test_external_data_outside_the_folder(halotile, tmp_path, location: str) -> None:
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(80))
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    external(inside / "m.onnx", location)
    halotile("build", "model/m.onnx").refused("E100", location, "outside")


def test_external_data_that_is_too_short(halotile, tmp_path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(79))
    external(tmp_path / "m.onnx", "weights.bin")
    halotile("build", "m.onnx").refused("E100", "weights.bin", "80")


def test_open_dimension(halotile, tmp_path) -> None:
    save(tmp_path, tiny(("batch", 4)))
    halotile("build", "m.onnx", "--memory-budget", "64KB").refused("E300", "largest shape", "'batch'", "--shape")
    halotile("build", "m.onnx", "--shape", "x=2,5").refused("E300", "x", "5 is not 4")
    outcome = halotile("build", "m.onnx", "-o", "lib", "--format", "so")
    assert outcome.code == 0 and "lib/libmodel_m.so" in outcome.new_files, outcome.err


def test_an_input_of_unknown_rank(halotile, tmp_path) -> None:
    model = tiny()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    save(tmp_path, model)
    halotile("build", "m.onnx").refused("E300", "'x' has no shape at all", "--shape x=")
    outcome = halotile("build", "m.onnx", "--shape", "x=2,4", "-o", "lib", "--format", "so")
    assert outcome.code == 0 and "lib/libmodel_m.so" in outcome.new_files, outcome.err
    assert not any(name.startswith(".tmp/") for name in outcome.new_files)


def test_shape_for_a_name_that_does_not_exist(halotile, tmp_path) -> None:
    save(tmp_path, tiny(("batch", 4)))
    halotile("build", "m.onnx", "--shape", "z=1,4").refused("E300", "'z'", "'x'")


def test_shape_of_another_rank(halotile, tmp_path) -> None:
    save(tmp_path, tiny(("batch", 4)))
    halotile("build", "m.onnx", "--shape", "x=1,4,4").refused("E300", "'x'", "3 dimensions")


def test_shape_that_contradicts_the_model(halotile, tmp_path) -> None:
    save(tmp_path, tiny(("batch", 4)))
    halotile("build", "m.onnx", "--shape", "x=1,5").refused("E300", "'x'", "5 is not 4")


def test_negative_dimension(halotile, tmp_path) -> None:
    save(tmp_path, tiny(("batch", 4)))
    halotile("build", "m.onnx", "--shape", "x=-1,4").refused("E300", "negative")


def test_types_that_do_not_go_together(halotile, tmp_path) -> None:
    three = numpy_helper.from_array(np.array([3], np.int64), "three")
    model = model_of(helper.make_node("Add", ["x", "three"], ["y"], name="sum"))
    model.graph.initializer.append(three)
    save(tmp_path, model)
    outcome = halotile("build", "m.onnx")
    outcome.refused("E200" if "error[E200]" in outcome.err else "E100", "sum")


def test_shapes_that_do_not_go_together(halotile, tmp_path) -> None:
    save(tmp_path, tiny(weight=np.zeros((3, 5), np.float32)))
    outcome = halotile("build", "m.onnx")
    outcome.refused("E200" if "error[E200]" in outcome.err else "E100", "mm")


def test_text_tensors(halotile, tmp_path) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.STRING, [2]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    save(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    halotile("build", "m.onnx").refused("E200", "'x'", "STRING")


def test_windows_larger_than_their_input(halotile, tmp_path) -> None:
    """ONNX's shape inference goes on with a negative dimension, and aborts the process at the Slice behind it."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="wide", kernel_shape=[7, 1], dilations=[2, 1]),
        helper.make_node("Slice", ["c", "starts", "ends", "axes", "steps"], ["y"], name="cut"),
    ]
    numbers = {"starts": [0, 2], "ends": [-4, 4], "axes": [2, 3], "steps": [2, 1]}
    weights = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in numbers.items()]
    weights.append(numpy_helper.from_array(np.ones((2, 3, 7, 1), np.float32), "w"))
    x, y = helper.make_tensor_value_info("x", 1, [1, 3, 9, 8]), helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    save(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    halotile("build", "m.onnx").refused("E200", "wide", "do not fit the input")
    outcome = halotile("inspect", "m.onnx")
    assert outcome.code == 0, outcome.err
    assert "1 refused" in outcome.out and "do not fit the input" in outcome.out

"""Weights beside the model: mapped, shared without a copy, and larger than protobuf allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from halotile.compiler.frontend import import_model
from halotile.errors import ModelError
from halotile.schedules.operators.reference import compile_reference
from onnx import TensorProto, helper


def beside(folder: Path, elements: int, offset: int = 0, data_type: int = TensorProto.FLOAT) -> Path:
    """y = w[i] for a weight w of so many elements in a sparse file, and i an input."""
    weight = onnx.TensorProto(name="w", data_type=data_type, dims=[elements])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", "offset": offset, "length": elements * 4}.items():
        weight.external_data.add(key=key, value=str(value))
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "i"], ["y"])],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", data_type, [2])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    with open(folder / "w.bin", "wb") as file:
        file.truncate(offset + elements * 4)
        file.seek(offset + elements * 4 - 4)
        file.write(np.float32(7.5).tobytes())
    return folder / "m.onnx"


def test_more_than_two_gigabytes(tmp_path: Path) -> None:
    elements = (1 << 29) + 1024  # 2 GiB and a little, all but the end a hole in the file
    path = beside(tmp_path, elements, offset=4096)
    imported = import_model(path)
    run = compile_reference(imported.module)
    (y,) = run(np.array([0, -1], "int64"))
    assert y.tolist() == [0.0, 7.5]


def test_unaligned_data_is_copied(tmp_path: Path) -> None:
    path = beside(tmp_path, 1 << 19, offset=4)
    (y,) = compile_reference(import_model(path).module)(np.array([1, -1], "int64"))
    assert y.tolist() == [0.0, 7.5]


def test_the_file_is_never_written(tmp_path: Path) -> None:
    path = beside(tmp_path, 1 << 19)
    before = (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").chmod(0o444)
    import_model(path)
    assert (tmp_path / "w.bin").read_bytes() == before


def test_a_file_in_a_folder_below(tmp_path: Path) -> None:
    path = beside(tmp_path, 16)
    model = onnx.load(path, load_external_data=False)
    (tmp_path / "sub").mkdir()
    (tmp_path / "w.bin").rename(tmp_path / "sub" / "w.bin")
    model.graph.initializer[0].external_data[0].value = "sub/w.bin"
    path.write_bytes(model.SerializeToString())
    (y,) = compile_reference(import_model(path).module)(np.array([0, 15], "int64"))
    assert y.tolist() == [0.0, 7.5]


@pytest.mark.parametrize("name", ["w\0.bin", "w" * 400])
def test_a_name_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    path = beside(tmp_path, 4)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = name
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="does not exist"):
        import_model(path)


def sparse(dims: list[int], places: list) -> onnx.ModelProto:
    """x + w, where w has 1, 2, ... at so many places and zeros elsewhere."""
    values = helper.make_tensor("w", TensorProto.FLOAT, [len(places)], [float(i + 1) for i in range(len(places))])
    at = np.array(places)
    indices = helper.make_tensor("i", TensorProto.INT64, at.shape, at.reshape(-1))
    weight = helper.make_sparse_tensor(values, indices, dims)
    constant = helper.make_node("Constant", [], ["v"], sparse_value=weight)
    graph = helper.make_graph(
        [constant, helper.make_node("Sum", ["x", "v", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)],
        sparse_initializer=[weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("places", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_tensors(places: list) -> None:
    x, dense = np.ones((2, 3), "float32"), np.array([[0, 1, 0], [0, 0, 2]], "float32")
    (y,) = compile_reference(import_model(sparse([2, 3], places)).module)(x)
    np.testing.assert_array_equal(y, x + 2 * dense)


@pytest.mark.parametrize("places", [[1, 6], [[0, 1], [2, 0]]])
def test_sparse_tensors_with_values_outside(places: list) -> None:
    with pytest.raises(ModelError, match="sparse|index|indices"):
        import_model(sparse([2, 3], places))

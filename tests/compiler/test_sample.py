"""Random inputs: reproducible, of the right types, and in range where they index something."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from halotile.compiler.sample import index_bounds, random_inputs
from halotile.compiler.spec import TensorSpec
from onnx import TensorProto, helper, numpy_helper


def test_the_same_seed_gives_the_same_arrays() -> None:
    specs = [TensorSpec("a", "float32", (3, 4)), TensorSpec("b", "float32", (3, 4))]
    one, two, other = (
        random_inputs(specs, None, 7),
        random_inputs(specs, None, 7),
        random_inputs(specs, None, 8),
    )
    assert (one["a"] == two["a"]).all() and (one["a"] != other["a"]).all() and (one["a"] != one["b"]).all()


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int32", "int64", "float16", "bfloat16", "float64"]
)
def test_dtype_and_shape(dtype: str) -> None:
    array = random_inputs([TensorSpec("a", dtype, (50, 2))])["a"]
    assert array.dtype.name == dtype and array.shape == (50, 2)
    assert len(np.unique(array.astype(np.float32))) > 1


def test_a_scalar_and_an_empty_tensor() -> None:
    arrays = random_inputs([TensorSpec("a", "float32", ()), TensorSpec("b", "float32", (0, 3))])
    assert arrays["a"].shape == () and arrays["b"].shape == (0, 3)


def embedding(rows: tuple[int, ...]) -> onnx.ModelProto:
    """ids -> Cast -> Gather from tables of ``rows`` entries, beside an input that indexes nothing."""
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 9])
    free = helper.make_tensor_value_info("free", TensorProto.INT64, [1, 9])
    tables = [numpy_helper.from_array(np.zeros((n, 2), np.float32), f"t{i}") for i, n in enumerate(rows)]
    nodes = [helper.make_node("Cast", ["ids"], ["c"], to=TensorProto.INT32)]
    nodes += [helper.make_node("Gather", [f"t{i}", "c"], [f"y{i}"]) for i in range(len(rows))]
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(len(rows))]
    return helper.make_model(helper.make_graph(nodes, "g", [ids, free], outputs, tables))


def test_indices_stay_within_the_smallest_table() -> None:
    model = embedding((30, 2))
    assert index_bounds(model) == {"ids": 2}
    specs = [TensorSpec("ids", "int64", (1, 200)), TensorSpec("free", "int64", (1, 200))]
    arrays = random_inputs(specs, model)
    assert set(arrays["ids"].flat) == {0, 1} and set(arrays["free"].flat) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("operator", "shapes", "expected"),
    [
        ("RoiAlign", [(2, 3, 9, 9), (7, 4), (7,)], {"i2": 2}),  # images
        ("MaxUnpool", [(1, 2, 3, 3), (1, 2, 3, 3)], {"i1": 18}),  # as many elements as there are for certain
        ("RotaryEmbedding", [(1, 2, 7, 8), (20, 4), (20, 4), (1, 7)], {"i3": 20}),
    ],
)
def test_positions_of_other_operators(
    operator: str, shapes: list[tuple[int, ...]], expected: dict[str, int]
) -> None:
    names = [f"i{n}" for n in range(len(shapes))]
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.INT64 if n in expected else TensorProto.FLOAT, s)
        for n, s in zip(names, shapes)
    ]
    node = helper.make_node(operator, names, ["y"])
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    assert index_bounds(helper.make_model(helper.make_graph([node], "g", inputs, outputs))) == expected


def test_indices_reach_across_a_large_table() -> None:
    array = random_inputs([TensorSpec("ids", "int64", (1, 500))], embedding((30,)))["ids"]
    assert array.min() == 0 and array.max() == 29


def test_integers_without_a_model_fit_every_table_of_two() -> None:
    array = random_inputs([TensorSpec("ids", "int64", (100,))])["ids"]
    assert set(array.flat) == {0, 1}


def test_a_mask_that_becomes_a_float_is_of_flags() -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["mask", "axes"], ["wide"]),
        helper.make_node("Cast", ["wide"], ["y"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["count", "count"], ["z"]),
    ]
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, (1, 100)) for n in ("mask", "count")]
    axes = helper.make_tensor("axes", TensorProto.INT64, (1,), [1])
    kinds = {"y": TensorProto.FLOAT, "z": TensorProto.INT64}
    outputs = [helper.make_tensor_value_info(n, kind, None) for n, kind in kinds.items()]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, [axes]))
    arrays = random_inputs([TensorSpec(n, "int64", (1, 100)) for n in ("mask", "count")], model)
    assert set(arrays["mask"].flat) == {0, 1} and set(arrays["count"].flat) == {0, 1, 2, 3}

"""Every kind of bad model: the right error, in one line, that names where."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import onnx
import pytest
from halotile.compiler.api import compile as compile_model
from halotile.compiler.frontend import import_model, registry
from halotile.errors import HalotileError, ModelError, ShapeError, UnsupportedError
from halotile.schedules.operators.reference import compile_reference
from onnx import TensorProto, helper, numpy_helper
from small_models import model_of, tiny


def refusal(error: type[HalotileError], model: object, *words: str, **kwargs: object) -> str:
    """Imports and returns the message, which must be of ``error`` and hold every one of ``words``."""
    with pytest.raises(error) as raised:
        import_model(model, **kwargs)  # type: ignore[arg-type]
    text = str(raised.value)
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"
    assert text == text.strip() and "Traceback" not in text
    return text


def one_line(error: type[HalotileError], model: object, *words: str, **kwargs: object) -> None:
    assert "\n" not in refusal(error, model, *words, **kwargs)


node = helper.make_node


# ------------------------------------------------------------------ the file


def test_missing_file(tmp_path: Path) -> None:
    one_line(ModelError, tmp_path / "no.onnx", "no.onnx", "does not exist")


def test_folder(tmp_path: Path) -> None:
    one_line(ModelError, tmp_path, "is a folder")


def test_no_model_at_all() -> None:
    for nothing in (3, None, object()):
        with pytest.raises(ModelError, match="a model is a path, bytes or an onnx.ModelProto, not "):
            compile_model(nothing)  # type: ignore[arg-type]


def test_truncated(tmp_path: Path) -> None:
    data = tiny(weight=np.ones((4, 100), "float32")).SerializeToString()
    for length in (len(data) // 2, len(data) - 3):
        (tmp_path / "m.onnx").write_bytes(data[:length])
        one_line(ModelError, tmp_path / "m.onnx", "m.onnx")


@pytest.mark.parametrize(
    "data", [b"", b"<html>not a model</html>", b"\x89PNG\r\n\x1a\n" + bytes(64), bytes(100)]
)
def test_not_onnx(data: bytes) -> None:
    one_line(ModelError, data, "not an ONNX model")


def test_another_protobuf() -> None:
    one_line(ModelError, helper.make_tensor("t", TensorProto.FLOAT, [2], [1, 2]).SerializeToString(), "not")


def test_not_a_model_at_all() -> None:
    one_line(ModelError, 42, "path, bytes", "int")


# ------------------------------------------------------------------ versions


def test_future_opset() -> None:
    one_line(UnsupportedError, model_of(node("Relu", ["x"], ["y"]), opset=999), "opset 999", "upgrade onnx")


def test_future_ir_version() -> None:
    model = tiny()
    model.ir_version = 999
    one_line(UnsupportedError, model, "IR version 999")


def test_no_opset() -> None:
    model = tiny()
    del model.opset_import[:]
    one_line(ModelError, model, "no opset")


def test_operator_newer_than_the_opset() -> None:
    model = model_of(node("Gelu", ["x"], ["y"], name="g"), opset=17)
    one_line(UnsupportedError, model, "node 'g'", "Gelu", "opset 17")


# ------------------------------------------------------------------ operators


def test_unknown_operator() -> None:
    one_line(
        UnsupportedError,
        model_of(node("Frobnicate", ["x"], ["y"], name="f")),
        "node 'f'",
        "Frobnicate",
        "no such",
    )


def test_unknown_domain() -> None:
    model = model_of(node("Relu", ["x"], ["y"], name="r", domain="com.acme"), domains=("com.acme",))
    one_line(UnsupportedError, model, "node 'r'", "com.acme.Relu", "domain 'com.acme'")


def test_domain_without_an_opset() -> None:
    one_line(
        ModelError, model_of(node("Relu", ["x"], ["y"], name="r", domain="com.acme")), "node 'r'", "com.acme"
    )


def test_every_offender_is_named() -> None:
    model = model_of(
        node("Frobnicate", ["x"], ["a"], name="first"),
        node("Relu", ["a"], ["b"]),
        node("RandomNormalLike", ["b"], ["c"], name="second"),
        node("Gremlin", ["c"], ["y"]),
    )
    text = refusal(
        UnsupportedError, model, "3 nodes", "'first'", "'second'", "node #3", "random"
    )
    assert len(text.splitlines()) == 4


@pytest.mark.parametrize(
    "operator,reason",
    [("RandomNormalLike", "random")],
)
def test_reasons(operator: str, reason: str) -> None:
    one_line(UnsupportedError, model_of(node(operator, ["x"], ["y"], name="n")), "node 'n'", operator, reason)


def test_run_time_shape() -> None:
    model = model_of(node("Cast", ["x"], ["s"], to=7), node("Reshape", ["x", "s"], ["y"], name="r"))
    one_line(UnsupportedError, model, "node 'r'", "Reshape", "run time")


# ------------------------------------------------------------------ the graph


def test_cycle() -> None:
    model = model_of(node("Add", ["x", "b"], ["a"], name="one"), node("Neg", ["a"], ["b"], name="two"),
                     node("Neg", ["b"], ["y"]))  # fmt: skip
    one_line(ModelError, model, "cycle", "'one'", "'two'")


def test_unsorted_is_no_cycle() -> None:
    imported = import_model(model_of(node("Neg", ["a"], ["y"]), node("Relu", ["x"], ["a"])))
    assert imported.operators == {"Neg": 1, "Relu": 1}


def test_dangling_input() -> None:
    one_line(ModelError, model_of(node("Add", ["x", "ghost"], ["y"], name="a")), "node 'a'", "'ghost'")


def test_name_produced_twice() -> None:
    model = model_of(node("Neg", ["x"], ["y"]), node("Relu", ["x"], ["y"], name="again"))
    one_line(ModelError, model, "node 'again'", "'y'")


def test_output_from_nowhere() -> None:
    one_line(ModelError, model_of(node("Neg", ["x"], ["z"])), "output 'y'")


def test_two_initialisers_of_a_name() -> None:
    model = tiny()
    model.graph.initializer.append(model.graph.initializer[0])
    one_line(ModelError, model, "two initialisers", "'w'")


def test_wrong_attribute_type() -> None:
    one_line(ModelError, model_of(node("Softmax", ["x"], ["y"], name="s", axis="last")), "Softmax", "axis")


def test_unknown_attribute() -> None:
    one_line(ModelError, model_of(node("Relu", ["x"], ["y"], name="r", slope=1.0)), "Relu", "slope")


def test_missing_attribute() -> None:
    one_line(ModelError, model_of(node("Concat", ["x", "x"], ["y"])), "Concat", "axis")


def test_too_few_operands() -> None:
    one_line(ModelError, model_of(node("Add", ["x"], ["y"], name="a")), "Add")


def test_shapes_that_do_not_fit() -> None:
    model = tiny()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((3, 5), "float32"), "w"))
    one_line(HalotileError, model, "node 'mm'", "MatMul", "[2, 4]", "[3, 5]")


def test_broadcast_that_fails() -> None:
    weight = numpy_helper.from_array(np.ones(3, "float32"), "w")
    model = model_of(node("Add", ["x", "w"], ["y"], name="a"))
    model.graph.initializer.append(weight)
    one_line(HalotileError, model, "node 'a'", "Add", "[2, 4]", "[3]")


def test_operands_of_different_types() -> None:
    model = model_of(node("Add", ["x", "w"], ["y"], name="a"))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(4, "int64"), "w"))
    one_line(HalotileError, model, "node 'a'", "int64")


def test_damaged_initialiser() -> None:
    model = tiny()
    model.graph.initializer[0].raw_data = b"abc"
    one_line(ModelError, model, "tensor name: w", "too small")
    large = tiny(weight=np.ones((4, 1000), "float32"))
    large.graph.initializer[0].raw_data = bytes(2000)
    one_line(ModelError, large, "'w'")


def test_string_input() -> None:
    model = tiny()
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    one_line(UnsupportedError, model, "'x'", "STRING")


def test_sequence_input() -> None:
    model = tiny()
    info = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2, 4])
    model.graph.input[0].CopyFrom(info)
    one_line(UnsupportedError, model, "'x'", "sequence")


# ------------------------------------------------------------------ dimensions


def test_open_dimensions() -> None:
    one_line(ShapeError, tiny(("batch", 4)), "'x'", "batch", "--shape x=1,4")
    one_line(ShapeError, tiny(("batch", "n")), "[batch, n]")


def test_shape_for_an_unknown_name() -> None:
    one_line(ShapeError, tiny(("batch", 4)), "'img'", "'x'", shapes={"img": (1, 4)})


def test_rank_mismatch() -> None:
    one_line(ShapeError, tiny(("batch", 4)), "3 dimensions", "has 2", shapes={"x": (1, 2, 4)})


def test_contradicted_dimension() -> None:
    one_line(ShapeError, tiny(("batch", 4)), "dimension 1", "5 is not 4", shapes={"x": (1, 5)})


def test_negative_dimension() -> None:
    one_line(ShapeError, tiny(("batch", 4)), "negative", shapes={"x": (-1, 4)})


def test_one_symbol_two_values() -> None:
    infos = [helper.make_tensor_value_info(n, 1, ["n", 4]) for n in ("a", "b")]
    graph = helper.make_graph(
        [node("Add", ["a", "b"], ["y"])], "g", infos, [helper.make_tensor_value_info("y", 1, ["n", 4])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    one_line(ShapeError, model, "'n'", "2", "3", shapes={"a": (2, 4), "b": (3, 4)})
    both = import_model(model, {"a": (2, 4)})  # one fixes the other
    assert [i.shape for i in both.inputs] == [(2, 4), (2, 4)]


# ------------------------------------------------------------------ external data


def outside(path: Path, location: str, **entries: object) -> Path:
    """The tiny model in ``path``, whose weight is said to lie in ``location``."""
    model = tiny()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    path.mkdir(exist_ok=True)
    (path / "m.onnx").write_bytes(model.SerializeToString())
    return path / "m.onnx"


WEIGHT_BYTES = 4 * 5 * 4


def test_external_data_is_read(tmp_path: Path) -> None:
    path = outside(tmp_path, "w.bin", offset=64, length=WEIGHT_BYTES)
    (tmp_path / "w.bin").write_bytes(bytes(64) + np.full(20, 2.5, "float32").tobytes())
    imported = import_model(path)
    (y,) = compile_reference(imported.module)(np.ones((2, 4), "float32"))
    assert (y == 10).all()


def test_missing_external_data(tmp_path: Path) -> None:
    one_line(ModelError, outside(tmp_path, "w.bin"), "'w'", "w.bin", "does not exist")


@pytest.mark.parametrize("location", ["../w.bin", "sub/../../w.bin", "{absolute}"])
def test_external_data_outside_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(WEIGHT_BYTES))
    location = location.format(absolute=tmp_path / "w.bin")
    one_line(ModelError, outside(tmp_path / "model", location), "'w'", "outside the model's folder")


def test_external_data_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(WEIGHT_BYTES))
    path = outside(tmp_path / "model", "w.bin")
    (tmp_path / "model" / "w.bin").symlink_to(tmp_path / "w.bin")
    one_line(ModelError, path, "'w'", "outside the model's folder")


def test_short_external_data(tmp_path: Path) -> None:
    path = outside(tmp_path, "w.bin")
    (tmp_path / "w.bin").write_bytes(bytes(WEIGHT_BYTES - 1))
    one_line(ModelError, path, "'w'", str(WEIGHT_BYTES))


@pytest.mark.parametrize("entries", [{"offset": -4}, {"offset": "four"}, {"length": 3}])
def test_nonsense_external_entries(tmp_path: Path, entries: dict[str, object]) -> None:
    path = outside(tmp_path, "w.bin", **entries)
    (tmp_path / "w.bin").write_bytes(bytes(WEIGHT_BYTES))
    one_line(ModelError, path, "'w'")


def test_external_data_without_a_folder(tmp_path: Path) -> None:
    data = outside(tmp_path, "w.bin").read_bytes()
    (tmp_path / "w.bin").write_bytes(bytes(WEIGHT_BYTES))
    one_line(ModelError, data, "'w'", "not given as a path")
    one_line(ModelError, onnx.load_model_from_string(data), "'w'", "not given as a path")


@pytest.mark.parametrize(
    ("error", "raised", "says"),
    [(KeyboardInterrupt, KeyboardInterrupt, "now"), (MemoryError, UnsupportedError, "Relu.*not enough memory")],
)
def test_an_interrupted_import_is_silent(
    error: type[BaseException],
    raised: type[BaseException],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """TVM complains on standard error of a builder that is dropped while it is open; ours is closed first."""

    def stopped(_node: object) -> object:
        raise error("now")

    monkeypatch.setitem(registry._TABLE, ("", "Relu"), [(1, stopped)])
    with pytest.raises(raised, match=says):
        import_model(model_of(node("Relu", ["x"], ["y"])))
    gc.collect()
    assert "BlockBuilder" not in "".join(capfd.readouterr())


def test_an_output_listed_twice_is_given_once() -> None:
    """ONNX's checker and ONNX Runtime take such a model; a name is one tensor, so nothing is lost."""
    model = model_of(node("Relu", ["x"], ["y"]))
    model.graph.output.append(model.graph.output[0])
    imported = import_model(model)
    assert [o.name for o in imported.outputs] == ["y"]
    assert any("listed twice" in n for n in imported.notes)

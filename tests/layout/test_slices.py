"""Concatenation and splitting at no cost: that they vanish, that they stay where they must, and the numbers."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(3)


def conv(name: str, source: str, result: str, channels: int, kernel: int = 3):
    pads = [kernel // 2] * 4
    return helper.make_node("Conv", [source, f"{name}_w", f"{name}_b"], [result], name=name, pads=pads), (
        name,
        channels,
        kernel,
    )


def model(nodes, convs: dict[str, tuple[int, int, int]], shape, outputs) -> onnx.ModelProto:
    """``convs``: name -> (output channels, input channels, kernel)."""
    weights = []
    for name, (m, c, k) in convs.items():
        w = (RNG.standard_normal((m, c, k, k)) / np.sqrt(c * k * k)).astype(np.float32)
        weights += [numpy_helper.from_array(w, f"{name}_w")]
        weights += [numpy_helper.from_array(RNG.standard_normal(m).astype(np.float32), f"{name}_b")]
    graph = helper.make_graph(
        nodes,
        "slices",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        weights,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(proto)


def check(proto: onnx.ModelProto, shape) -> halotile.compiler.model.Model:
    compiled = halotile.compile(proto, threads=2)
    x = RNG.standard_normal(shape).astype(np.float32)
    got = compiled({"x": x})
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for output, want in zip(session.get_outputs(), session.run(None, {"x": x})):
        np.testing.assert_allclose(got[output.name], want, rtol=1e-3, atol=1e-4 * np.abs(want).max() + 1e-5)
    return compiled


def operators(compiled) -> list[str]:
    return [o for kernel in compiled.report["kernels"] for o in kernel["operators"]]


def dense_block(batch: int = 1, growth: int = 32):
    """x -> a; cat(a) -> b; cat(a, b) -> c; cat(a, b, c) -> y, as DenseNet writes it."""
    nodes, convs = [], {}
    for name, source, result, m, c in (
        ("a", "x", "a0", growth, 3),
        ("b", "a0", "b0", growth, growth),
        ("c", "ab", "c0", growth, 2 * growth),
        ("y", "abc", "y0", 5, 3 * growth),
    ):
        if source in ("ab", "abc"):
            nodes.append(helper.make_node("Concat", [f"{s}0" for s in source], [source], axis=1))
        pads = {"pads": [1] * 4}
        nodes.append(helper.make_node("Conv", [source, f"{name}_w", f"{name}_b"], [result], **pads))
        convs[name] = (m, c, 3)
    return model(nodes, convs, (batch, 3, 7, 9), ["y0"])


def test_a_growing_concatenation_vanishes_whole() -> None:
    compiled = check(dense_block(), (1, 3, 7, 9))
    assert "relax.concat" not in operators(compiled)


def test_two_images_interleave_so_the_concatenation_stays() -> None:
    compiled = check(dense_block(batch=2), (2, 3, 7, 9))
    assert operators(compiled).count("relax.concat") == 2


def test_channels_that_do_not_fill_blocks_stay() -> None:
    compiled = check(dense_block(growth=20), (1, 3, 7, 9))
    assert "relax.concat" in operators(compiled)


@pytest.mark.parametrize("outputs", [["y"], ["y", "a"], ["a", "b"]])
def test_an_output_is_no_slice(outputs: list[str]) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "a_w", "a_b"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["x", "b_w", "b_b"], ["b"], pads=[0] * 4),
        helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
        helper.make_node("Conv", ["c", "y_w", "y_b"], ["y"], pads=[2] * 4),
    ]
    proto = model(nodes, {"a": (16, 3, 3), "b": (17, 3, 1), "y": (4, 33, 5)}, (1, 3, 11, 5), outputs)
    check(proto, (1, 3, 11, 5))


def test_a_part_that_is_read_elsewhere_with_wider_margins() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "a_w", "a_b"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "b_w", "b_b"], ["b"], pads=[3] * 4),
        helper.make_node("Concat", ["b", "a"], ["c"], axis=1),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["c", "y_w", "y_b"], ["e"], pads=[1] * 4),
        helper.make_node("Conv", ["d", "y_w", "y_b"], ["f"], pads=[1] * 4),
        helper.make_node("Add", ["e", "f"], ["y"]),
    ]
    proto = model(nodes, {"a": (16, 3, 3), "b": (16, 16, 7), "y": (4, 32, 3)}, (1, 3, 9, 6), ["y"])
    compiled = check(proto, (1, 3, 9, 6))
    assert "relax.concat" not in operators(compiled)


def test_a_slice_of_channels_is_read_in_place() -> None:
    """ShuffleNet's halves: one goes on, the other through convolutions, and both meet again."""
    nodes = [
        helper.make_node("Conv", ["x", "a_w", "a_b"], ["a"], pads=[1] * 4),
        helper.make_node("Split", ["a"], ["l", "r"], axis=1),
        helper.make_node("Conv", ["r", "b_w", "b_b"], ["b"], pads=[1] * 4),
        helper.make_node("Conv", ["l", "c_w", "c_b"], ["c"], pads=[0] * 4),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    convs = {"a": (64, 3, 3), "b": (32, 32, 3), "c": (32, 32, 1)}
    compiled = check(model(nodes, convs, (1, 3, 7, 5), ["y"]), (1, 3, 7, 5))
    assert not {"relax.strided_slice", "relax.split"} & set(operators(compiled))


def test_products_are_written_where_they_are_joined() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"]),
        helper.make_node("MatMul", ["x", "w"], ["b"]),
        helper.make_node("Concat", ["a", "b", "a2"], ["c"], axis=0),
        helper.make_node("Softmax", ["c"], ["y"], axis=0),
        helper.make_node("Relu", ["c"], ["z"]),
    ]
    nodes.insert(2, helper.make_node("Exp", ["x"], ["a2"]))
    proto = model(nodes, {}, (6, 5), ["y", "z"])
    for name in ("v", "w"):
        weight = RNG.standard_normal((5, 5)).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(weight, name))
    compiled = check(proto, (6, 5))
    assert "relax.concat" not in operators(compiled)


def test_every_slice_lies_inside_its_whole() -> None:
    build = run_pipeline(dense_block(), Options(target=resolve("native"), stop_after="plan"))
    assert build.places.slices
    for part, (whole, offset) in build.places.slices.items():
        layout = build.layouts[whole]
        size = build.layouts[part].elements * 4
        assert 0 <= offset and offset + size <= layout.elements * 4
        assert build.layouts[part].margins == layout.margins
    ends = sorted((o, build.layouts[p].elements * 4) for p, (w, o) in build.places.slices.items() if p.shape[1] == 32)
    assert all(a + n <= b for (a, n), (b, _) in zip(ends, ends[1:]))

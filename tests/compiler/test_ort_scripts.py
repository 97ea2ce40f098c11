"""Scripts written for ONNX Runtime, with nothing changed but the import: what they find is what ONNX Runtime finds."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SCRIPTS = Path(__file__).parent / "scripts"
RNG = np.random.default_rng(5)


def script(name: str, ours: bool) -> ModuleType:
    """A script as a module; ``ours``: with the import of onnxruntime changed."""
    text = (SCRIPTS / f"{name}.py").read_text()
    if ours:
        text, first = re.subn(r"^from onnxruntime import", "from halotile.onnxruntime import", text, flags=re.M)
        text, second = re.subn(
            r"^import onnxruntime( as \w+)?$",
            lambda found: f"import halotile.onnxruntime{found[1] or ' as onnxruntime'}",
            text,
            flags=re.M,
        )
        assert first + second == 1
    module = ModuleType(name)
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module


def both(name: str, *arguments: Any) -> tuple[Any, Any]:
    return script(name, True).main(*arguments), script(name, False).main(*arguments)


class Net:
    """Nodes and weights of a model, one after the other."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        names = [i if isinstance(i, str) else self.weight(i) for i in inputs]
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [out], **attributes))
        return out

    def weight(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def conv(self, x: str, inside: int, outside: int, stride: Any = 1) -> str:
        kernel = RNG.normal(0, (2 / (9 * inside)) ** 0.5, (outside, inside, 3, 3)).astype(np.float32)
        strides = [stride, stride] if isinstance(stride, int) else list(stride)
        y = self.op("Conv", x, kernel, RNG.normal(0, 0.1, outside).astype("f"), pads=[1] * 4, strides=strides)
        return self.op("Relu", y)

    def model(self, inputs: dict[str, Any], outputs: dict[str, Any], **metadata: str) -> bytes:
        """``inputs``: name -> (type, dims); ``outputs``: name -> (value, dims)."""
        given = [helper.make_tensor_value_info(n, kind, dims) for n, (kind, dims) in inputs.items()]
        made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, (_, dims) in outputs.items()]
        ends = [helper.make_node("Identity", [value], [n]) for n, (value, _) in outputs.items()]
        graph = helper.make_graph([*self.nodes, *ends], "net", given, made, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model)
        return model.SerializeToString()


def detector(classes: int) -> bytes:
    """Boxes and scores on a map at stride 4, of images of any size."""
    net = Net()
    x = net.conv(net.conv("images", 3, 8, 2), 8, 16, 2)
    raw = net.op("Conv", x, RNG.normal(0, 0.4, (4 + classes, 16, 1, 1)).astype("f"))
    boxes = net.op("Slice", raw, np.array([0]), np.array([4]), np.array([1]))
    scores = net.op("Slice", raw, np.array([4]), np.array([4 + classes]), np.array([1]))
    boxes = net.op("Mul", net.op("Abs", boxes), np.float32(20.0))
    y = net.op("Concat", boxes, net.op("Sigmoid", scores), axis=1)
    y = net.op("Reshape", y, np.array([0, 0, -1]))
    return net.model(
        {"images": (TensorProto.FLOAT, [1, 3, "height", "width"])},
        {"output0": (y, [1, 4 + classes, "anchors"])},
        names=str({i: f"kind {i}" for i in range(classes)}),
        stride="32",
    )


def test_a_detector(tmp_path: Path) -> None:
    path = tmp_path / "detector.onnx"
    path.write_bytes(detector(3))
    images = [RNG.integers(0, 256, size, dtype=np.uint8) for size in ((61, 90, 3), (33, 40, 3), (64, 96, 3))]
    ours, theirs = both("detector", str(path), images)
    assert [len(o) for o in ours] == [len(t) for t in theirs] and min(map(len, ours)) > 0
    for a, b in zip(sum(ours, []), sum(theirs, [])):
        assert a[0] == b[0] and a[1] == pytest.approx(b[1], rel=1e-4)
        np.testing.assert_allclose(a[2], b[2], rtol=1e-3, atol=1e-3)


def text_finder() -> bytes:
    """High where it is dark around."""
    net = Net()
    grey = net.op("ReduceMean", "x", axes=[1], keepdims=1)
    around = net.op("AveragePool", grey, kernel_shape=[3, 3], pads=[1] * 4)
    y = net.op("Sigmoid", net.op("Mul", around, np.float32(-12.0)))
    dims = [1, 1, "height", "width"]
    return net.model({"x": (TensorProto.FLOAT, [1, 3, "height", "width"])}, {"map": (y, dims)})


def reader(letters: str) -> bytes:
    """Scores of letters for every fourth column of a strip 16 high."""
    net = Net()
    x = net.conv(net.conv("x", 3, 8, 2), 8, 16, (4, 2))
    x = net.op("ReduceMean", x, axes=[2], keepdims=0)
    x = net.op("Transpose", x, perm=[0, 2, 1])
    x = net.op("MatMul", x, RNG.normal(0, 3, (16, len(letters) + 2)).astype("f"))
    y = net.op("Softmax", x, axis=-1)
    return net.model(
        {"x": (TensorProto.FLOAT, ["n", 3, 16, "width"])},
        {"scores": (y, ["n", "steps", len(letters) + 2])},
        character="\n".join(letters),
    )


def test_a_pair_that_reads(tmp_path: Path) -> None:
    paths = [tmp_path / "find.onnx", tmp_path / "read.onnx"]
    for path, data in zip(paths, (text_finder(), reader("abcdefgh"))):
        path.write_bytes(data)
    page = np.full((70, 120, 3), 255, np.uint8)
    for top, height, left, right in ((6, 12, 10, 60), (34, 16, 20, 110), (58, 8, 5, 45)):
        page[top : top + height, left:right] = RNG.integers(0, 120, (height, right - left, 3))
    ours, theirs = both("ocr", *map(str, paths), page)
    assert len(ours) == 3 and any(text for _, text, _ in ours)
    for (box, text, score), (their_box, their_text, their_score) in zip(ours, theirs):
        assert box == their_box and text == their_text and score == pytest.approx(their_score, rel=1e-4)


def encoder(words: int, width: int) -> bytes:
    """Embeddings, self-attention under a mask, a norm; sentences of any number and length."""
    net = Net()

    def matrix(rows: int, columns: int, size: float = 1.0) -> Any:
        return RNG.normal(0, size / rows**0.5, (rows, columns)).astype(np.float32)

    x = net.op("Gather", matrix(words, width, words**0.5), "input_ids")
    x = net.op("Add", x, net.op("Gather", matrix(2, width), "token_type_ids"))
    q, k, v = (net.op("MatMul", x, matrix(width, width)) for _ in range(3))
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1]))
    mask = net.op("Unsqueeze", net.op("Cast", "attention_mask", to=TensorProto.FLOAT), np.array([1]))
    bias = net.op("Mul", net.op("Sub", np.float32(1.0), mask), np.float32(-1e9))
    scores = net.op("Add", net.op("Mul", scores, np.float32(width**-0.5)), bias)
    y = net.op("Add", x, net.op("MatMul", net.op("Softmax", scores, axis=-1), v))
    y = net.op("LayerNormalization", y, np.ones(width, "f"), np.zeros(width, "f"))
    dims = ["batch", "sequence"]
    inputs = {n: (TensorProto.INT64, dims) for n in ("input_ids", "attention_mask", "token_type_ids")}
    return net.model(inputs, {"last_hidden_state": (y, [*dims, width])})


def test_a_sentence_encoder() -> None:
    sentences = [
        "a plan that is drawn in tiles",
        "tiles that lie in a plan",
        "the halo of a tile",
        "rain",
    ]
    ours, theirs = both("encoder", encoder(97, 32), 97, sentences)
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert np.allclose(np.diag(ours[2]), 1) and np.allclose(ours[0][:2], ours[1], atol=1e-4)


def test_the_scripts_know_nothing_of_us() -> None:
    for file in SCRIPTS.glob("*.py"):
        assert "halotile" not in file.read_text()
    assert "onnxruntime" in sys.modules  # the reference is the real one

"""Random chains and DAGs of the operators that tile groups are made of, as ONNX models.

The same seed gives the same model. Sizes are odd and prime as often as not, pads are asymmetric, biases are not zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, int, int, int]
SIZES = (1, 2, 3, 5, 7, 8, 11, 13, 16, 17, 19, 23, 24, 29, 32, 37)
CHANNELS = (1, 3, 8, 16, 17, 20, 32)
MOST = 48 * 48 * 32  # elements of the largest value


class Graph:
    """Collects nodes; ``values`` are (name, shape) in order."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.values: list[tuple[str, Shape]] = []
        self.count = 0

    def pick(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, *shape: int) -> str:
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        return self.constant((self.rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))

    def add(self, kind: str, inputs: list[str], shape: Shape, **attributes: Any) -> tuple[str, Shape]:
        name = f"v{self.count}"
        self.count += 1
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"n{self.count}", **attributes))
        self.values.append((name, shape))
        return name, shape

    def infer(self, kind: str, inputs: list[str], **attributes: Any) -> tuple[str, Shape] | None:
        """Adds a node whose output shape ONNX infers; None (and no node) if it is empty or too large."""
        name = f"v{self.count}"
        node = helper.make_node(kind, inputs, [name], name=f"n{self.count + 1}", **attributes)
        known = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.values]
        graph = helper.make_graph(
            [node], "one", known, [helper.make_empty_tensor_value_info(name)], initializer=self.tensors
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        try:
            inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError:
            return None
        dims = tuple(d.dim_value for d in inferred.graph.output[0].type.tensor_type.shape.dim)
        if len(dims) != 4 or min(dims) < 1 or int(np.prod(dims)) > MOST:
            return None
        self.count += 1
        self.nodes.append(node)
        self.values.append((name, dims))
        return name, dims


def random_model(seed: int, layers: int = 6) -> onnx.ModelProto:
    """A DAG of about ``layers`` layers with one to three outputs."""
    g = Graph(seed)
    shape = (1, g.pick(CHANNELS), g.pick(SIZES[4:]), g.pick(SIZES[4:]))
    g.values.append(("input", shape))
    at: tuple[str, Shape] = ("input", shape)
    for _ in range(layers):
        made = _layer(g, at)
        if made is not None:
            at = made
        if g.rng.random() < 0.15 and len(g.values) > 2:
            at = g.pick(g.values[1:])
    read = {n for node in g.nodes for n in node.input}
    outputs = [(n, s) for n, s in g.values[1:] if n not in read][-3:] or [g.values[-1]]
    inner = [v for v in g.values[1:] if v[0] in read]
    if inner and g.rng.random() < 0.2:
        outputs.append(g.pick(inner))
    if not g.nodes:
        outputs = [g.add("Relu", ["input"], shape)]
    graph = helper.make_graph(
        g.nodes,
        f"random{seed}",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in dict(outputs).items()],
        initializer=g.tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _layer(g: Graph, at: tuple[str, Shape]) -> tuple[str, Shape] | None:
    kinds = [_conv] * 6 + [
        _relu,
        _relu,
        _join,
        _join,
        _concat,
        _pool,
        _pool,
        _pad,
        _resize,
        _transposed,
        _slice,
        _shuffle,
    ]
    return g.pick(kinds)(g, at)


def _conv(g: Graph, at: tuple[str, Shape]) -> tuple[str, Shape] | None:
    name, (_, c, _, _) = at
    kernel = [g.pick((1, 2, 3, 3, 5)), g.pick((1, 2, 3, 3, 5))] if g.rng.random() < 0.3 else [g.pick((1, 3, 3))] * 2
    groups = g.pick((1, 1, 1, c))
    outputs = c if groups > 1 else g.pick(CHANNELS)
    strides = [1, 1] if g.rng.random() < 0.6 else [g.pick((1, 2, 3)), g.pick((1, 2, 3))]
    dilations = [1, 1] if g.rng.random() < 0.7 else [g.pick((1, 2, 3)), g.pick((1, 2))]
    if g.rng.random() < 0.6:
        half = [d * (k - 1) // 2 for d, k in zip(dilations, kernel)]
        pads = half * 2
    else:
        pads = [int(p) for p in g.rng.integers(0, 4, 4)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel)]
    if any(size + pads[i] + pads[i + 2] < reach[i] for i, size in enumerate(at[1][2:])):
        return None
    made = g.infer(
        "Conv", [name, g.weights(outputs, c // groups, *kernel), g.weights(outputs)],
        kernel_shape=kernel, group=groups, strides=strides, dilations=dilations, pads=pads,
    )  # fmt: skip
    return _relu(g, made) if made is not None and g.rng.random() < 0.5 else made


def _relu(g: Graph, at: tuple[str, Shape]) -> tuple[str, Shape]:
    return g.add(g.pick(("Relu", "Sigmoid", "Relu")), [at[0]], at[1])


def _join(g: Graph, at: tuple[str, Shape]) -> tuple[str, Shape] | None:
    others = [v for v in g.values if v[1] == at[1] and v[0] != at[0]]
    if not others:
        return None
    return g.add(g.pick(("Add", "Add", "Mul")), [at[0], g.pick(others)[0]], at[1])


def _concat(g: Graph, at: tuple[str, Shape]) -> tuple[str, Shape] | None:
    n, c, h, w = at[1]
    others = [v for v in g.values if v[1][2:] == (h, w)]
    other = g.pick(others)
    if n * (c + other[1][1]) * h * w > MOST:
        return None
    return g.add("Concat", [at[0], other[0]], (n, c + other[1][1], h, w), axis=1)


def _pool(g: Graph, at: tuple[str, Shape]) -> tuple[str, Shape] | None:
    kernel = [g.pick((2, 3)), g.pick((1, 2, 3))]
    pads = [int(g.rng.integers(0, k)) for k in kernel * 2]
    strides = [g.pick((1, 2, 2, 3)), g.pick((1, 2, 2, 3))]
    if any(size + pads[i] + pads[i + 2] < kernel[i] for i, size in enumerate(at[1][2:])):
        return None
    extra: dict[str, Any] = {"ceil_mode": int(g.rng.random() < 0.3)}
    for i, size in enumerate(at[1][2:]):  # about windows that begin in the padding after, runtimes disagree
        count = -(-(size + pads[i] + pads[i + 2] - kernel[i]) // strides[i])
        if count * strides[i] >= size + pads[i]:
            extra["ceil_mode"] = 0
    kind = g.pick(("MaxPool", "MaxPool", "AveragePool"))
    if kind == "AveragePool":
        extra["count_include_pad"] = int(g.rng.random() < 0.5)
        extra["ceil_mode"] = 0  # runtimes disagree about the divisor of windows that leave the padding
    return g.infer(kind, [at[0]], kernel_shape=kernel, pads=pads, strides=strides, **extra)


def _pad(g: Graph, at: tuple[str, Shape]) -> tuple[str, Shape] | None:
    mode = g.pick(("constant", "reflect", "edge"))
    most = min(3, min(at[1][2:]) - 1)
    if most < 1:
        return None
    pads = [
        0,
        0,
        *(int(p) for p in g.rng.integers(0, most + 1, 2)),
        0,
        0,
        *(int(p) for p in g.rng.integers(0, most + 1, 2)),
    ]
    return g.infer("Pad", [at[0], g.constant(np.array(pads, np.int64))], mode=mode)


def _resize(g: Graph, at: tuple[str, Shape]) -> tuple[str, Shape] | None:
    _, _, h, w = at[1]
    scale = g.pick((2, 2, 3, 1.5))
    sizes = np.array([*at[1][:2], max(1, int(h * scale)), max(1, int(w * scale))], np.int64)
    mode = g.pick(("nearest", "linear"))
    where = g.pick(("asymmetric", "half_pixel", "align_corners"))
    return g.infer(
        "Resize",
        [at[0], "", "", g.constant(sizes)],
        mode=mode,
        coordinate_transformation_mode=where,
        nearest_mode="floor",
    )


def _transposed(g: Graph, at: tuple[str, Shape]) -> tuple[str, Shape] | None:
    c, outputs, stride = at[1][1], g.pick(CHANNELS), g.pick((1, 2, 2))
    kernel = g.pick((stride, stride + 1, 3))
    pads = [int(g.rng.integers(0, min(2, kernel)))] * 4
    return g.infer(
        "ConvTranspose", [at[0], g.weights(c, outputs, kernel, kernel), g.weights(outputs)],
        kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads,
    )  # fmt: skip


def _slice(g: Graph, at: tuple[str, Shape]) -> tuple[str, Shape] | None:
    axis = g.pick((2, 3))
    size = at[1][axis]
    start, step = int(g.rng.integers(0, max(1, size // 3))), g.pick((1, 1, 2))
    bounds = [np.array([n], np.int64) for n in (start, size - int(g.rng.integers(0, 2)), axis, step)]
    return g.infer("Slice", [at[0], *(g.constant(b) for b in bounds)])


def _shuffle(g: Graph, at: tuple[str, Shape]) -> tuple[str, Shape] | None:
    if at[1][1] % 4 == 0 and g.rng.random() < 0.7:
        return g.infer("DepthToSpace", [at[0]], blocksize=2, mode=g.pick(("CRD", "DCR")))
    if at[1][2] % 2 == 0 and at[1][3] % 2 == 0:
        return g.infer("SpaceToDepth", [at[0]], blocksize=2)
    return None

"""The nine ``light_*`` models of the onnx package, as shipped (constant weights) or with seeded weights in their place.

As shipped, all weights are 0.02 and every output is the same number: a reference, but one that hides most
mistakes. Seeded, they are SqueezeNet, DenseNet-121, Inception-v1 and -v2, ShuffleNet-v1, ResNet-50, AlexNet,
VGG-19 and ZFNet with informative outputs.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from ..graph import ExportForm

NAMES = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


def folder() -> Path:
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def light(
    *,
    model: str,
    seeded: bool = False,
    form: ExportForm | None = None,
    batch: int = 1,
    size: int = 224,
    seed: int = 0,
) -> onnx.ModelProto:
    """``form``, ``batch`` and ``size`` are those of the file: anything else is refused."""
    if form is not None or batch != 1 or size != 224:
        raise ValueError(f"light_{model} has one form, batch 1 and size 224")
    proto = onnx.load(folder() / f"light_{model}.onnx")
    weights = {t.name for t in proto.graph.initializer}
    kept = [i for i in proto.graph.input if i.name not in weights]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    proto.ir_version = max(proto.ir_version, 4)  # from version 4 on, initialisers need not be inputs
    if seeded:
        _seed_weights(proto, np.random.default_rng(seed))
    return proto


def reference_output(model: str) -> np.ndarray:
    """The output that the onnx package ships for :func:`reference_input`."""
    tensor = onnx.TensorProto()
    tensor.ParseFromString((folder() / f"light_{model}_output_0.pb").read_bytes())
    return numpy_helper.to_array(tensor)


def reference_input(shape: tuple[int, ...]) -> np.ndarray:
    count = math.prod(shape)
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


def _seed_weights(proto: onnx.ModelProto, rng: np.random.Generator) -> None:
    """Replaces each ConstantOfShape weight by random values of the size that its consumer expects.

    Softmax as the last node is dropped: with random weights it would saturate or flatten what there is to compare.
    """
    shapes = {t.name: tuple(numpy_helper.to_array(t)) for t in proto.graph.initializer if t.data_type == 7}
    constants = {n.output[0]: n for n in proto.graph.node if n.op_type == "ConstantOfShape"}
    roles: dict[str, tuple[onnx.NodeProto, int]] = {}
    for node in proto.graph.node:
        for place, value in enumerate(node.input):
            roles.setdefault(value, (node, place))
    users = {n.input[0]: n for n in proto.graph.node if n.op_type in ("Unsqueeze", "Relu", "Sum")}
    summed = {v for n in proto.graph.node if n.op_type == "Sum" for v in n.input}
    for value, producer in constants.items():
        node, place = roles[value]
        if (
            node.op_type == "Unsqueeze"
        ):  # a scale or shift of one dimension, broadcast by the Mul or Add behind it
            node, place = roles[users[value].output[0]]
        shape = tuple(int(d) for d in shapes[producer.input[0]])
        array = _values(node, place, shape, rng).astype(np.float32)
        if node.op_type == "BatchNormalization" and place < 3 and node.output[0] in summed:
            array *= 0.5  # a residual branch at half amplitude, or sixteen blocks would grow by powers of two
        proto.graph.initializer.append(numpy_helper.from_array(array, value))
    nodes = [n for n in proto.graph.node if n.op_type != "ConstantOfShape"]
    if nodes[-1].op_type == "Softmax":
        last = nodes.pop()
        for node in nodes:
            node.output[:] = [last.output[0] if v == last.input[0] else v for v in node.output]
    used = {v for n in nodes for v in n.input}
    weights = [t for t in proto.graph.initializer if t.name in used]
    del proto.graph.node[:], proto.graph.initializer[:]
    proto.graph.node.extend(nodes)
    proto.graph.initializer.extend(weights)


def _values(node: onnx.NodeProto, place: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if node.op_type == "BatchNormalization":
        return rng.uniform(0.7, 1.3, shape) if place in (1, 4) else 0.1 * rng.standard_normal(shape)
    if node.op_type == "Mul":
        return rng.uniform(0.7, 1.3, shape)
    if len(shape) < 2:
        return 0.1 * rng.standard_normal(shape)
    return rng.standard_normal(shape, dtype=np.float32) * math.sqrt(2.0 / math.prod(shape[1:]))

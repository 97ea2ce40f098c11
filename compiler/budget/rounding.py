"""A model whose layers round their numbers as kernels of a narrower float do, for ONNX Runtime to compute in float32.

    y = conv(x, w)      bfloat16    y = conv(r(x), r(w))              r: to the nearest number that has eight bits
                        float16     y = r(conv(r(x), r(w)) + noise)   r: eleven bits
                                    z = r(y + other)                  what follows float16 (passes/halves)

Sums of bfloat16 products are float32's own. Those of float16 round each of the terms of a run, and the sums of runs
(schedules/kernel/half_sums.py): errors of random signs, whose squares are a sixth of that of half a step of the sum so
far, so that an output is off by ``u * sqrt((run + runs) / 12 * sum of (x w)**2)``, u = 2**-11. The noise is drawn with
that size. What is zero among the inputs rounds nothing.

Winograd's transforms multiply the roundings of their sums, of runs of 32 channels: for 3x3 layers of 64 channels
behind a ReLU the kernels' (run + runs) are 330 with F(4x2), 110 with F(2x2) and 50 without one where neighbours are
independent. In networks they are alike, which differences do away with: TRANSFORMED, and SMALL, a third of it, are what
U-Net and most of the harness's other models are off by; EDSR, whose neighbours differ more, by twice as much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ...schedules.conv.winograd.transform import RUN
from ...schedules.kernel.half_sums import MOST, SHORT, SPAN

KINDS = {"bfloat16": TensorProto.BFLOAT16, "float16": TensorProto.FLOAT16}
FOLLOWING = ("Add", "Sub", "Mul", "Max", "Min", "Relu", "LeakyRelu")  # round what they make to float16, too
MOVING = (
    "Concat", "Flatten", "Identity", "MaxPool", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"
)  # fmt: skip
UNIT = 2.0**-11
TRANSFORMED, SMALL = 4.5, 1.5  # times the roundings of sums of products of F(4x2, 3x3), and of F(2x2, 3x3)
DRAWS = 1 << 17  # names that a draw has
LEAST = 16  # channels of layers that have transforms


def rounded(
    model: onnx.ModelProto, precision: Mapping[str, str], transforms: float = 0.0, draw: int = 0
) -> onnx.ModelProto:
    """``model``, of opset 13 or newer and in order, with the nodes that ``precision`` names rounding to "bfloat16" or
    "float16"; other precisions change nothing. ``transforms``: of 3x3 layers in float16, TRANSFORMED or SMALL; without
    any, 0. ``draw``: of the noise. Equal arguments give models of equal answers."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    work = _RoundingWork(copy, {n: p for n, p in precision.items() if p in KINDS}, transforms, draw)
    nodes = [made for node in model.graph.node for made in work.visit(node)]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    copy.graph.initializer.extend(work.weights.values())
    return copy


def _roundings(terms: int, narrow: bool) -> int:
    """How many roundings of the size of a sum of so many products are as large as those of all its parts; ``narrow``:
    sums of runs are float16 too, where these are few."""
    if terms <= SPAN or not narrow or terms > MOST:
        return min(terms, SPAN) + 1
    return SHORT + -(-terms // SHORT)


class _RoundingWork:
    def __init__(self, model: onnx.ModelProto, precision: Mapping[str, str], transforms: float, draw: int) -> None:
        self.transforms, self.draw = transforms, draw
        self.constants = {t.name: t for t in model.graph.initializer}
        self.precision = precision
        self.half: set[str] = set()  # what is stored in float16
        self.weights: dict[str, TensorProto] = {}
        self.count = 0

    def visit(self, node: NodeProto) -> Iterable[NodeProto]:
        """The nodes in place of ``node``, in order."""
        kind = self.precision.get(node.name)
        follows = not self.half.isdisjoint(node.input)
        if kind is None and not follows:
            return [node]
        if kind is None:
            if node.op_type in MOVING:
                self.half.update(node.output)
            return self._stored(node) if node.op_type in FOLLOWING else [node]
        found: list[NodeProto] = []
        own = NodeProto()
        own.CopyFrom(node)
        for i in (0, 1):
            own.input[i] = self._rounded(found, node.input[i], kind)
        if kind == "bfloat16":
            return [*found, own]
        noisy = self._with_noise(own)
        return [*found, *noisy[:-1], *self._stored(noisy[-1])]

    def _stored(self, node: NodeProto) -> list[NodeProto]:
        """``node`` with its first result rounded to float16."""
        own = NodeProto()
        own.CopyFrom(node)
        result, own.output[0] = node.output[0], self._name("exact")
        found = [own]
        narrow = self._cast(found, own.output[0], KINDS["float16"])
        found.append(helper.make_node("Cast", [narrow], [result], to=TensorProto.FLOAT))
        self.half.add(result)
        return found

    def _with_noise(self, node: NodeProto) -> list[NodeProto]:
        """``node`` and an error of its sums; the last writes its result."""
        square: list[NodeProto] = []
        sums = NodeProto()
        sums.CopyFrom(node)
        del sums.input[2:]
        sums.input[0] = self._square(square, node.input[0])
        sums.input[1] = self._square(square, node.input[1])
        sums.output[0], sums.name = self._name("squares"), self._name("node")
        for attribute in sums.attribute:
            if attribute.name == "alpha":
                attribute.f = attribute.f**2
        own = NodeProto()
        own.CopyFrom(node)
        own.output[0] = self._name("plain")
        size, noise, off = (self._name(w) for w in ("size", "noise", "off"))
        roundings = self._transformed(node)
        part: list[NodeProto] = []
        if roundings:
            scale = self._constant(np.float32(UNIT * math.sqrt(roundings / 12)))
        else:
            scale = self._scale(part, node)
        return [
            own, *square, sums, *part,
            helper.make_node("Sqrt", [sums.output[0]], [size]),
            helper.make_node("RandomNormalLike", [size], [noise], seed=float(self.count + DRAWS * self.draw)),
            helper.make_node("Mul", [size, noise], [off]),
            helper.make_node("Mul", [off, scale], [scaled := self._name("scaled")]),
            helper.make_node("Add", [own.output[0], scaled], [node.output[0]]),
        ]  # fmt: skip

    def _scale(self, found: list[NodeProto], node: NodeProto) -> str:
        """By which the error of a sum without a transform is more than that of its terms."""
        roundings = _roundings(self._terms(node), node.op_type == "Conv")
        scale = self._constant(np.float32(UNIT * math.sqrt(roundings / 12)))
        there, count, part, root, times = (self._name("part") for _ in range(5))
        found += [
            helper.make_node("Cast", [node.input[0]], [there], to=TensorProto.BOOL),
            helper.make_node("Cast", [there], [count], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", [count], [part], keepdims=0),
            helper.make_node("Sqrt", [part], [root]),
            helper.make_node("Mul", [root, scale], [times]),
        ]  # fmt: skip
        return times

    def _transformed(self, node: NodeProto) -> float:
        """The roundings of a sum by transforms; 0 for a layer that has none."""
        dims, groups = self._tensor(node.input[1]).dims, [a.i for a in node.attribute if a.name == "group"]
        if node.op_type != "Conv" or list(dims[2:]) != [3, 3] or dims[1] < LEAST or groups not in ([], [1]):
            return 0.0
        return self.transforms * (min(dims[1], RUN) + dims[1] / RUN)

    def _terms(self, node: NodeProto) -> int:
        """Terms of a sum of the node."""
        shape = list(self._tensor(node.input[1]).dims)
        if node.op_type == "Conv":
            return math.prod(shape[1:])
        if node.op_type == "ConvTranspose":
            return shape[0]  # of a place where kernels do not overlap
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        return shape[-1] if transposed else shape[-2]

    def _tensor(self, name: str) -> TensorProto:
        return self.weights[name] if name in self.weights else self.constants[name]

    def _rounded(self, found: list[NodeProto], name: str, kind: str) -> str:
        if name in self.constants:
            return self._kept(name, kind, nearest(numpy_helper.to_array(self.constants[name]), kind))
        return self._cast(found, self._cast(found, name, KINDS[kind]), TensorProto.FLOAT)

    def _square(self, found: list[NodeProto], name: str) -> str:
        if name in self.constants or name in self.weights:
            return self._kept(name, "squared", numpy_helper.to_array(self._tensor(name)) ** 2)
        found.append(helper.make_node("Mul", [name, name], [made := self._name("square")]))
        return made

    def _kept(self, name: str, how: str, array: np.ndarray) -> str:
        made = f"halotile_{name}_{how}"
        if made not in self.weights:
            self.weights[made] = numpy_helper.from_array(np.ascontiguousarray(array, np.float32), made)
        return made

    def _constant(self, value: np.ndarray | np.float32) -> str:
        name = self._name("constant")
        self.weights[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def _cast(self, found: list[NodeProto], name: str, to: int) -> str:
        found.append(helper.make_node("Cast", [name], [made := self._name("cast")], to=to))
        return made

    def _name(self, what: str) -> str:
        self.count += 1
        return f"halotile_{what}_{self.count}"


def nearest(array: np.ndarray, kind: str) -> np.ndarray:
    """The numbers of ``kind`` nearest to those of a float32 array, as float32."""
    if kind == "float16":
        with np.errstate(over="ignore"):
            return array.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)

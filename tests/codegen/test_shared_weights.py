"""A weight that several layers use lies in the library once for each form, however many use it; and they agree."""

from __future__ import annotations

from collections.abc import Callable

import halotile
import numpy as np
import onnx
import pytest
from halotile.compiler.codegen.module import constant_of, gather_weights
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.words.group import Kernel, Packed
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(36)
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
SLACK = 1.04  # panels are filled up to whole vectors, and biases count as well


class Net:
    """A model that is put together layer by layer."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def weight(self, name: str, *shape: int) -> str:
        if name not in self.weights:
            self.weights[name] = (RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(
                np.float32
            )
        return name

    def feed(self, *shape: int, dtype: int = FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(f"x{len(self.inputs)}", dtype, shape))
        return self.inputs[-1].name

    def do(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def give(self, name: str) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, FLOAT, None))

    def model(self) -> onnx.ModelProto:
        held = [numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        graph = helper.make_graph(self.nodes, "shared", self.inputs, self.outputs, held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    @property
    def bytes(self) -> int:
        return sum(a.nbytes for a in self.weights.values())


def products(net: Net) -> None:
    """Of other sizes, behind other operators; of more than 1 MB, and of less."""
    for n, name in ((500, "w"), (120, "v")):
        weight = net.weight(name, 601, n)
        for rows in (16, 50, 128, 300):
            total = net.do(
                "Add", net.do("MatMul", net.feed(rows, 601), weight), net.weight(f"b{n} {rows}", n)
            )
            net.give(net.do("Tanh" if rows > 100 else "Relu", total))


def rows(net: Net) -> None:
    """One, two and four: read side by side by tiles of other sizes (of x86)."""
    weight = net.weight("w", 601, 512)
    for count in (1, 2, 4):
        net.give(net.do("Relu", net.do("MatMul", net.feed(count, 601), weight)))


def chain(net: Net) -> None:
    """The same layer twelve times, as iterated refinement has it."""
    x = net.feed(7, 520)
    for i in range(12):
        x = net.do(
            "Tanh", net.do("Add", net.do("MatMul", x, net.weight("w", 520, 520)), net.weight(f"b{i}", 520))
        )
    net.give(x)


def loops(net: Net) -> None:
    """In a loop's body and in both branches of a condition that is known at run time only."""
    net.weight("w", 301, 301)

    def body(
        operator: str, name: str, ins: list[onnx.ValueInfoProto], *more: onnx.NodeProto
    ) -> onnx.GraphProto:
        nodes = [
            helper.make_node("MatMul", [name, "w"], ["p"]),
            helper.make_node(operator, ["p"], ["q"]),
            *more,
        ]
        outs = [
            helper.make_tensor_value_info(o, FLOAT if o == "q" else TensorProto.BOOL, None)
            for o in "eq"[-len(more) - 1 :]
        ]
        return helper.make_graph(nodes, operator, ins, outs)

    x, flag = net.feed(5, 301), net.feed(dtype=TensorProto.BOOL)
    net.weights["n"], net.weights["yes"] = np.array(3), np.array(True)
    ins = [
        helper.make_tensor_value_info(n, d, s)
        for n, d, s in (("i", INT64, ()), ("c", TensorProto.BOOL, ()), ("s", FLOAT, (5, 301)))
    ]
    y = net.do("Loop", "n", "yes", x, body=body("Tanh", "s", ins, helper.make_node("Identity", ["c"], ["e"])))
    branches = {f"{word}_branch": body(act, y, []) for word, act in (("then", "Relu"), ("else", "Sigmoid"))}
    net.give(net.do("If", flag, **branches))


def heads(net: Net) -> None:
    """A detector's head on images of several sizes: few forms, whatever their number."""
    weight = net.weight("w", 96, 96, 1, 1)
    for size in (80, 72, 64, 40, 36, 32):
        net.give(
            net.do("Relu", net.do("Conv", net.feed(1, 96, size, size), weight, net.weight(f"b{size}", 96)))
        )


def recurrent(net: Net) -> None:
    for steps in (6, 7, 9):
        net.nodes.append(
            helper.make_node(
                "LSTM",
                [net.feed(steps, 1, 96), net.weight("i", 1, 384, 96), net.weight("r", 1, 384, 96)],
                [f"y{steps}"],
                hidden_size=96,
            )
        )
        net.give(f"y{steps}")


CASES: dict[str, tuple[Callable[[Net], None], float]] = {
    "products": (products, 2), "few rows": (rows, 1), "chain": (chain, 1), "loops": (loops, 1), "heads": (heads, 2),
    "recurrent": (recurrent, 1.5),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_library_holds_a_weight_once_a_form(name: str) -> None:
    build, forms = CASES[name]
    net = Net()
    build(net)
    compiled = halotile.compile(net.model())
    assert compiled.report["weight_bytes"] <= SLACK * forms * net.bytes + (1 << 12)
    compiled.verify().raise_if_failed()


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v4", "raspberry-pi-4"])
def test_other_targets_hold_it_once(target: str) -> None:
    net = Net()
    products(net)
    build = run_pipeline(net.model(), Options(resolve(target), stop_after="assemble"))
    assert build.weights.bytes <= SLACK * 2 * net.bytes + (1 << 12)  # of four products each


def test_equal_packs_are_one_array() -> None:
    """Made one after the other, and dropped where they are there already; of any type and shape."""
    data = RANDOM.standard_normal((300, 1000)).astype(np.float32)
    packs = [Packed(f"w{i}", lambda: data.copy(), data.size) for i in range(3)]
    packs.append(Packed("words", data.reshape(-1).view(np.int32)))
    other = Packed("other", data + 1)
    kernels = [Kernel(None, (p,), (), "") for p in (*packs, other)]
    weights = gather_weights(kernels, {})
    assert len(weights.chunks) == 2 and len({weights.offsets[p] for p in packs}) == 1
    assert weights.offsets[other] not in {weights.offsets[p] for p in packs}
    held = [constant_of(p) for p in packs]
    assert all(np.shares_memory(held[0], h) for h in held)
    assert [(str(h.dtype), h.shape) for h in held[2:]] == [("float32", (300, 1000)), ("int32", (300000,))]

"""Minimal ONNX models for what happens before the rewrites: shape arithmetic, constants on their way to an operator,
functions and control flow. Each takes its batch as a number or a name; ``left`` is what a listing then shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from exports import END, Raw
from onnx import TensorProto, helper

Build = Callable[[Raw, Any], str]


@dataclass(frozen=True)
class OnnxEntry:
    title: str
    build: Build
    left: str
    open_left: str | None = None
    opset: int = 17

    def model(self, batch: int | str) -> onnx.ModelProto:
        g = Raw(self.opset)
        output = self.build(g, batch)
        info = onnx.ValueInfoProto(name=output)
        info.type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(g.nodes, "minimal", g.inputs, [info], g.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def shape_gather(g: Raw, batch: Any) -> str:
    x = g.input("x", [batch, 3, 4, 5])
    return g("Div", x, g("Cast", g.size(x, 2), to=TensorProto.FLOAT))


def flatten_by_shape(g: Raw, batch: Any) -> str:
    x = g.input("x", [batch, 3, 4])
    return g.view(x, g.size(x, 0), -1)


def heads(g: Raw, batch: Any) -> str:
    x = g.input("x", [batch, "length" if isinstance(batch, str) else 5, 12])
    split = g.view(x, g.size(x, 0), g.size(x, 1), 3, 4)
    return g("Transpose", split, perm=[0, 2, 1, 3])


def expand_as(g: Raw, batch: Any) -> str:
    x, z = g.input("x", [1, 4]), g.input("z", [batch, 4])
    return g("Add", g("Expand", x, g("Shape", z)), z)


def causal(g: Raw, batch: Any) -> str:
    s = g.input("s", [batch, 2, 63, 63])
    n = g.size(s, 3)
    ones = g("ConstantOfShape", g("Concat", g.unsqueeze(n, 0), g.unsqueeze(n, 0), axis=0))
    place = g("Range", g.const(0), n, g.const(1))
    later = g("Greater", g.unsqueeze(place, 0), g.unsqueeze(place, 1))
    mask = g("Where", later, g.f(-3e38), g("Cast", ones, to=TensorProto.FLOAT))
    return g("Add", s, g.unsqueeze(mask, 0, 1))


def key_padding(g: Raw, batch: Any) -> str:
    s, m = g.input("s", [batch, 2, 63, 63]), g.input("m", [batch, 63], TensorProto.BOOL)
    wide = g.expand(g.unsqueeze(m, 1, 2), -1, 1, g.size(s, 2), g.size(m, 1))
    off = g("Equal", g("Cast", wide, to=TensorProto.FLOAT), g.f(0))
    return g("Where", g("Expand", off, g("Shape", s)), g.f(-3e38), s)


def open_padding(g: Raw, batch: Any) -> str:
    length = "length" if isinstance(batch, str) else 7
    s = g.input("s", [batch, 2, length, length])
    m = g.input("m", [batch, length], TensorProto.BOOL)
    wide = g.expand(g.unsqueeze(m, 1, 2), -1, 1, g.size(s, 2), g.size(m, 1))
    off = g("Equal", g("Cast", wide, to=TensorProto.FLOAT), g.f(0))
    return g("Where", g("Expand", off, g("Shape", s)), g.f(-3e38), s)


def two_batches(g: Raw, batch: Any) -> str:
    other = "other" if isinstance(batch, str) else batch
    x, y = g.input("x", [batch, 3, 4]), g.input("y", [other])
    rows = g.view(y, g.size(x, 0), 1, 1)
    return g("Add", x, g("Expand", rows, g("Shape", x)))


def doubled(g: Raw, batch: Any) -> str:
    x = g.input("x", [batch, 3, 4, 6])
    sizes = [g("Floor", g("Mul", g("Cast", g.size(x, a), to=TensorProto.FLOAT), g.f(2))) for a in (2, 3)]
    target = g("Concat", *(g.unsqueeze(g("Cast", s, to=TensorProto.INT64), 0) for s in sizes), axis=0)
    kept = g("Slice", g("Shape", x), g.const([0]), g.const([2]), g.const([0]))
    return g("Resize", x, "", "", g("Concat", kept, target, axis=0), mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric")  # fmt: skip


def leftovers(g: Raw, batch: Any) -> str:
    x = g.input("x", [batch, 3, 4])
    y = g("Identity", g("Dropout", g("Cast", x, to=TensorProto.FLOAT)))
    return g("Relu", g("Flatten", g("Flatten", y, axis=1), axis=1))


def travelled(g: Raw, batch: Any) -> str:
    x = g.input("x", [batch, 3, 8, 8])
    w = g("Transpose", g("Reshape", g("Cast", g.const(np.arange(36) % 5 - 2.0, "float16"), to=TensorProto.FLOAT),
                         g.const([3, 4, 3, 1])), perm=[1, 0, 2, 3])  # fmt: skip
    w = g("Expand", g("Identity", g("CastLike", w, x)), g.const([4, 3, 3, 3]))
    pads = g("Cast", g("Mul", g("ConstantOfShape", g.const([8])), g.f(1)), to=TensorProto.INT64)
    ones = g("Add", pads, g.const([0, 0, 1, 1, 0, 0, 1, 1]))
    return g("Conv", g("Pad", x, ones), w)


def conditional(g: Raw, batch: Any) -> str:
    x = g.input("x", [batch, 3, 4])
    known = g("Equal", g.size(x, 2), g.const(4))
    branches = [
        helper.make_graph([helper.make_node(o, [x], [f"y_{o}"])], o, [], [onnx.ValueInfoProto(name=f"y_{o}")])
        for o in ("Tanh", "Exp")
    ]
    return g("If", known, then_branch=branches[0], else_branch=branches[1])


def rotary_table(g: Raw, batch: Any) -> str:
    x = g.input("x", [batch, 6, 4])
    place = g("Cast", g("Range", g.const(0), g.size(x, 1), g.const(1)), to=TensorProto.FLOAT)
    table = g("Cos", g("Einsum", place, g.f([1.0, 0.1, 0.01, 0.001]), equation="i,j->ij"))
    return g("Mul", x, g("Slice", table, g.const([0]), g.const([END]), g.const([0])))


def power_of_half(g: Raw, batch: Any) -> str:
    return g("Pow", g.input("x", [batch, 3, 4]), g.f(0.5))


def distance(g: Raw, batch: Any) -> str:
    x = g.input("x", [batch, 3, 4])
    return g("Pow", g("Add", g.mean(g("Mul", x, x), [2]), g.f(0.1)), g.f(0.5))


def contraction(g: Raw, batch: Any) -> str:
    q, k = g.input("q", [batch, 2, 3, 4]), g.input("k", [batch, 2, 5, 4])
    return g("Einsum", q, k, equation="bhid,bhjd->bhij")


def scaled_on_both_sides(g: Raw, batch: Any) -> str:
    """Scaled dot-product attention as the dynamo exporter writes it."""
    q, k, v = (g.input(name, [batch, 2, 5, 4]) for name in "qkv")
    root = g.f(0.5**0.5)
    scores = g("MatMul", g("Mul", q, root), g("Mul", g("Transpose", k, perm=[0, 1, 3, 2]), root))
    return g("MatMul", g("Softmax", scores, axis=-1), v)


def other_channels(g: Raw, batch: Any) -> str:
    x = g.input("x", [batch, 3, 8, 8])
    return g("Conv", g("Gather", x, g.const([2, 1, 0]), axis=1), g.weight(4, 3, 3, 3))


def projected_positions(g: Raw, batch: Any) -> str:
    x = g.input("x", [batch, "length" if isinstance(batch, str) else 7, 6])
    places = g.slice(g.weight(16, 8), 0, 0, g.unsqueeze(g.size(x, 1), 0))
    return g("Add", x, g("MatMul", places, g.weight(8, 6)))


ENTRIES = [
    OnnxEntry("Einsum bhid,bhjd->bhij of an exporter", contraction, "matmul"),
    OnnxEntry("attention scaled on both sides", scaled_on_both_sides, "halotile.attention"),
    OnnxEntry("BGR for RGB before Conv", other_channels, "nn.conv2d"),
    OnnxEntry("positions of open length, projected", projected_positions, "add", "strided_slice add"),
    OnnxEntry("Shape(x)->Gather: a known dim is a number", shape_gather, "multiply"),
    OnnxEntry("Reshape(x,[Shape0,-1])", flatten_by_shape, "reshape"),
    OnnxEntry("x.view(B,S,H,D).transpose, two dims from Shape", heads, "reshape permute_dims"),
    OnnxEntry("Expand(x, Shape(z)) + z", expand_as, "add"),
    OnnxEntry("causal mask of 63 keys", causal, "add"),
    OnnxEntry("key padding mask of 63 keys", key_padding, "reshape where"),
    OnnxEntry("key padding mask of open length", open_padding, "reshape where"),
    OnnxEntry("the batches of two inputs, of two names", two_batches, "reshape add"),
    OnnxEntry("Resize to twice the Shape", doubled, "halotile.upsample"),
    OnnxEntry("Dropout, Identity, Cast and Flatten that do nothing", leftovers, "reshape nn.relu"),
    OnnxEntry("weights and pads through Cast, CastLike, Expand, Identity, Reshape, Transpose", travelled, "nn.conv2d"),
    OnnxEntry("If with a condition on a known dim", conditional, "tanh"),
    OnnxEntry("a table of positions by Range, Einsum, Cos", rotary_table, "multiply"),
    OnnxEntry("Pow(x,.5) of anything stays: -inf", power_of_half, "power"),
    OnnxEntry("Pow(x,.5) of a mean of squares", distance, "multiply mean add sqrt"),
]

"""The catalogue: every rewrite of the list on a minimal model, with a known batch and with an open one.

``python tests/simplify/test_catalogue.py`` prints it as a table: rewrite, static, dynamic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import halotile.schedules.operators  # noqa: F401
import numpy as np
import pytest
from halotile.passes.simplify import Simplify
from halotile.schedules.operator import call
from tvm import relax

op = relax.op
F32, I32, BOOL = "float32", "int32", "bool"
END = 2**31 - 1
B = "batch"


@dataclass(frozen=True)
class Entry:
    """``inputs`` are (shape, dtype) with B for the batch; ``left`` the operators that must remain, in any order."""

    title: str
    inputs: Sequence[tuple]
    body: Callable[..., Any]
    left: str
    mode: str = "strict"
    dynamic: str = ""


def c(*shape: int, seed: int = 1) -> Any:
    return relax.const(np.asarray(np.random.default_rng(seed).standard_normal(shape), F32), F32)


def k(value: Any, dtype: str = F32) -> Any:
    return relax.const(np.asarray(value, dtype), dtype)


X3 = [((B, 3, 4), F32)]
X2 = [((B, 4), F32)]
IMAGE = [((B, 3, 8, 8), F32)]
FLAGS = [((B, 4), BOOL)]


class Emit:
    """Emits operators by name, so that a body reads like the formula."""

    def __init__(self, emit: Callable[[Any], Any]) -> None:
        self.emit = emit

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(op, name, None) or getattr(op.nn, name)
        return lambda *args, **kwargs: self.emit(function(*args, **kwargs))

    def linear(self, x: Any, rows: int = 4, columns: int = 5, seed: int = 1) -> Any:
        return self.matmul(x, c(rows, columns, seed=seed))

    def norm(self, x: Any, channels: int) -> Any:
        variance = relax.const(np.full(channels, 0.7, F32))
        out = self.batch_norm(
            x, c(channels), c(channels, seed=2), c(channels, seed=3), variance, axis=1, training=False
        )
        return self.emit(out[0])

    def cut(self, x: Any, *axes: tuple[int, int, int, int]) -> Any:
        return self.strided_slice(x, *([a[j] for a in axes] for j in range(4)))


def gelu(e: Emit, x: Any, half_first: bool) -> Any:
    gate = e.add(e.erf(e.divide(x, k(math.sqrt(2)))), k(1))
    if half_first:
        return e.multiply(e.multiply(k(0.5), x), gate)
    return e.multiply(e.multiply(x, gate), k(0.5))


def layer_norm(e: Emit, x: Any) -> Any:
    d = e.subtract(x, e.mean(x, [-1], True))
    v = e.add(e.mean(e.power(d, k(2)), [-1], True), k(1e-5))
    return e.add(e.multiply(e.divide(d, e.sqrt(v)), c(4)), c(4, seed=2))


def focus(e: Emit, x: Any) -> Any:
    phases = [(0, 0), (1, 0), (0, 1), (1, 1)]
    return e.concat([e.cut(e.cut(x, (2, a, END, 2)), (3, b, END, 2)) for a, b in phases], 1)


def scores(e: Emit, x: Any) -> Any:
    n = x.ty.shape[0]

    def heads(seed: int) -> Any:
        return e.permute_dims(e.reshape(e.linear(x, 4, 4, seed), [n, 3, 2, 2]), [0, 2, 1, 3])

    return e.matmul(heads(1), e.permute_dims(heads(2), [0, 1, 3, 2]))


def causal(e: Emit, s: Any) -> Any:
    row, column = (e.reshape(e.arange(0, 6, 1, "int64"), shape) for shape in ([6, 1], [1, 6]))
    mask = e.where(e.less_equal(column, row), k(0), k(-np.inf))
    return e.add(s, e.reshape(mask, [1, 6, 6]))


CATALOGUE = [
    # logic
    Entry(
        "Not(Less(a,b)) floats",
        X2 * 2,
        lambda e, a, b: e.logical_not(e.less(a, b)),
        "greater_equal",
        "finite",
    ),
    Entry(
        "Not(Less(int,int))",
        [((B, 4), I32)] * 2,
        lambda e, a, b: e.logical_not(e.less(a, b)),
        "greater_equal",
    ),
    Entry(
        "De Morgan",
        FLAGS * 3,
        lambda e, a, b, d: e.logical_not(e.logical_or(e.logical_or(e.logical_not(a), e.logical_not(b)), d)),
        "logical_and logical_and logical_not",
    ),
    Entry("Not(Not(x))", FLAGS, lambda e, x: e.logical_not(e.logical_not(x)), ""),
    Entry("Equal(Cast(bool),0)", FLAGS, lambda e, x: e.equal(e.astype(x, I32), k(0, I32)), "logical_not"),
    Entry(
        "Where(Equal(Cast(bool),0),-inf,s)",
        [*FLAGS, *X2],
        lambda e, b, s: e.where(e.equal(e.astype(b, F32), k(0)), k(-np.inf), s),
        "where",
    ),
    Entry(
        "Where(Not(b),x,y)", [*FLAGS, *X2, *X2], lambda e, b, x, y: e.where(e.logical_not(b), x, y), "where"
    ),
    Entry("And(x, true)", FLAGS, lambda e, x: e.logical_and(x, k(True, BOOL)), ""),
    # algebra
    Entry(
        "Mul(Add(MatMul,B),C) scalar",
        X3,
        lambda e, x: e.multiply(e.add(e.linear(x), c(5)), k(3)),
        "matmul add",
    ),
    Entry(
        "Mul(Add(MatMul,B),C) [N]", X3, lambda e, x: e.multiply(e.add(e.linear(x), c(5)), c(5)), "matmul add"
    ),
    Entry(
        "Mul(Add(MatMul,B),C) [1,1,N]",
        X3,
        lambda e, x: e.multiply(e.add(e.linear(x), c(5)), c(1, 1, 5)),
        "matmul add",
    ),
    Entry("Div(Add(MatMul,B),c)", X3, lambda e, x: e.divide(e.add(e.linear(x), c(5)), k(3)), "matmul add"),
    Entry(
        "Mul(Add(MatMul,B),C) rank 2",
        X2,
        lambda e, x: e.multiply(e.add(e.linear(x), c(5)), c(5)),
        "matmul add",
    ),
    Entry("Mul(MatMul,C)", X3, lambda e, x: e.multiply(e.linear(x), c(5)), "matmul"),
    Entry("MatMul(Mul(x,C),A)", X3, lambda e, x: e.linear(e.multiply(x, c(4))), "matmul"),
    Entry("MatMul(Add(x,a),W)+b", X3, lambda e, x: e.add(e.linear(e.add(x, c(4))), c(5)), "matmul add"),
    Entry(
        "Div(Add(MatMul,MatMul),c)",
        X2 * 2,
        lambda e, x, z: e.divide(e.add(e.linear(x), e.linear(z, seed=2)), k(3)),
        "matmul matmul add",
    ),
    Entry(
        "scale of scores into the projection",
        X3,
        lambda e, x: e.softmax(e.divide(scores(e, x), k(1.7)), -1),
        "matmul matmul matmul permute_dims permute_dims reshape reshape nn.softmax",
    ),
    Entry(
        "bias shared by two Adds",
        X3,
        lambda e, x: [
            e.exp(e.add(t := e.add(e.linear(x), c(5)), c(5, seed=2))),
            e.tanh(e.add(t, c(5, seed=3))),
        ],
        "matmul add add exp tanh",
    ),
    Entry("MatMul+Add+Add", X3, lambda e, x: e.add(e.add(e.linear(x), c(5)), c(5, seed=2)), "matmul add"),
    Entry(
        "Add+Sub+Mul+Div chain",
        IMAGE,
        lambda e, x: e.divide(e.multiply(e.subtract(e.add(x, c(1, 3, 1, 1)), k(0.5)), c(1, 3, 1, 1)), k(3)),
        "multiply add",
    ),
    Entry("Mul+Mul", X3, lambda e, x: e.multiply(e.multiply(x, k(3)), c(4)), "multiply"),
    Entry("Add+Add", X3, lambda e, x: e.add(e.add(x, k(3)), c(4)), "add"),
    Entry(
        "Add before unpadded Conv, with bias",
        IMAGE,
        lambda e, x: e.add(e.conv2d(e.add(x, c(1, 3, 1, 1)), c(4, 3, 3, 3)), c(1, 4, 1, 1)),
        "nn.conv2d add",
    ),
    Entry(
        "Mul before Conv",
        IMAGE,
        lambda e, x: e.conv2d(e.multiply(x, c(1, 3, 1, 1)), c(4, 3, 3, 3), padding=(1,) * 4),
        "nn.conv2d",
    ),
    Entry(
        "(x-mean)/std before unpadded Conv",
        IMAGE,
        lambda e, x: e.conv2d(e.divide(e.subtract(x, c(1, 3, 1, 1)), k(0.3)), c(4, 3, 3, 3)),
        "nn.conv2d add",
    ),
    Entry("Conv+BN", IMAGE, lambda e, x: e.norm(e.conv2d(x, c(4, 3, 3, 3)), 4), "nn.conv2d add"),
    Entry(
        "Conv+Add+Mul",
        IMAGE,
        lambda e, x: e.multiply(e.add(e.conv2d(x, c(4, 3, 3, 3)), c(1, 4, 1, 1)), c(1, 4, 1, 1)),
        "nn.conv2d add",
    ),
    Entry(
        "BN before unpadded Conv", IMAGE, lambda e, x: e.conv2d(e.norm(x, 3), c(4, 3, 3, 3)), "nn.conv2d add"
    ),
    Entry("Gemm+BN", X2, lambda e, x: e.norm(e.add(e.linear(x), c(5)), 5), "matmul add"),
    Entry(
        "ConvTranspose+BN",
        IMAGE,
        lambda e, x: e.norm(e.conv2d_transpose(x, c(3, 4, 2, 2), strides=(2, 2)), 4),
        "nn.conv2d_transpose add",
    ),
    # shapes and slices
    Entry(
        "Reshape(Reshape)",
        X3,
        lambda e, x: e.reshape(e.reshape(x, [x.ty.shape[0], 12]), [x.ty.shape[0], 4, 3]),
        "reshape",
    ),
    Entry(
        "x[0:-2:2][0:-2:2], L=16",
        [((B, 16), F32)],
        lambda e, x: e.cut(e.cut(x, (1, 0, -2, 2)), (1, 0, -2, 2)),
        "strided_slice",
    ),
    Entry(
        "x[0:-2:2][0:-2:2], L=17",
        [((B, 17), F32)],
        lambda e, x: e.cut(e.cut(x, (1, 0, -2, 2)), (1, 0, -2, 2)),
        "strided_slice",
    ),
    Entry(
        "x[::2][::2]",
        [((B, 17), F32)],
        lambda e, x: e.cut(e.cut(x, (1, 0, END, 2)), (1, 0, END, 2)),
        "strided_slice",
    ),
    Entry(
        "x[2:10][1:5]",
        [((B, 16), F32)],
        lambda e, x: e.cut(e.cut(x, (1, 2, 10, 1)), (1, 1, 5, 1)),
        "strided_slice",
    ),
    Entry(
        "slices of different axes",
        X3,
        lambda e, x: e.cut(e.cut(x, (1, 0, 2, 1)), (2, 1, 3, 1)),
        "strided_slice",
    ),
    Entry("x[0:INT_MAX]", X3, lambda e, x: e.cut(x, (1, 0, END, 1)), ""),
    Entry("Slice(Concat)", X3 * 2, lambda e, x, y: e.cut(e.concat([x, y], 1), (1, 3, 6, 1)), ""),
    Entry("Split+Concat", X3, lambda e, x: e.concat([e.cut(x, (2, j, j + 2, 1)) for j in (0, 2)], 2), ""),
    Entry("Concat(Concat)", X3 * 2, lambda e, x, y: e.concat([e.concat([x, y], 1), x], 1), "concat"),
    Entry("Cast f32->f64->f32", X3, lambda e, x: e.astype(e.astype(x, "float64"), F32), ""),
    Entry("Cast i32->i64->i32", [((B, 4), I32)], lambda e, x: e.astype(e.astype(x, "int64"), I32), ""),
    Entry(
        "Pad(0)+Conv", IMAGE, lambda e, x: e.conv2d(e.pad(x, [0] * 4 + [1] * 4), c(4, 3, 3, 3)), "nn.conv2d"
    ),
    Entry(
        "Pad(-inf)+MaxPool",
        IMAGE,
        lambda e, x: e.max_pool2d(e.pad(x, [0] * 4 + [1] * 4, "constant", -np.inf), (3, 3)),
        "nn.max_pool2d",
    ),
    Entry(
        "Pad(0)+AveragePool",
        IMAGE,
        lambda e, x: e.avg_pool2d(e.pad(x, [0] * 4 + [1] * 4), (3, 3)),
        "nn.avg_pool2d",
    ),
    # data movement
    Entry(
        "Expand before a broadcasting operator",
        [((1, 4), F32), *X2],
        lambda e, x, z: e.add(e.broadcast_to(x, z.ty.shape), z),
        "add",
    ),
    Entry(
        "Tile of a dim of one",
        [((B, 1, 4), F32), *X3],
        lambda e, x, z: e.multiply(e.tile(x, [1, 3, 1]), z),
        "multiply",
    ),
    Entry(
        "Tile->Mul->Add",
        X3,
        lambda e, x: e.add(e.multiply(e.tile(x, [1, 2, 1]), c(4)), k(1)),
        "multiply add tile",
    ),
    Entry(
        "Tile feeding two chains",
        X3,
        lambda e, x: e.add(e.exp(t := e.tile(x, [1, 2, 1])), e.tanh(t)),
        "exp tanh add tile",
    ),
    Entry("Tile before a unary operator", X3, lambda e, x: e.exp(e.tile(x, [1, 2, 1])), "exp tile"),
    Entry(
        "Transposes around elementwise operators",
        IMAGE,
        lambda e, x: e.permute_dims(e.relu(e.add(e.permute_dims(x, [0, 2, 3, 1]), c(3))), [0, 3, 1, 2]),
        "add nn.relu",
    ),
    Entry(
        "Transpose(Transpose)",
        IMAGE,
        lambda e, x: e.permute_dims(e.permute_dims(x, [0, 2, 3, 1]), [0, 3, 1, 2]),
        "",
    ),
    Entry("Focus", IMAGE, focus, "reshape permute_dims reshape"),
    Entry(
        "Focus+Conv", IMAGE, lambda e, x: e.conv2d(focus(e, x), c(4, 12, 3, 3), padding=(1,) * 4), "nn.conv2d"
    ),
    # precomputation
    Entry(
        "MatMul(Gather(const),W)",
        [((B, 3), BOOL)],
        lambda e, i: e.linear(e.take(c(6, 4), e.astype(i, I32), axis=0, mode="clip"), 4, 3),
        "astype take",
    ),
    Entry("causal mask", [((B, 6, 6), F32)], causal, "add"),
    # recognition
    Entry("GELU erf, x*(1+erf)*0.5", X3, lambda e, x: gelu(e, x, False), "nn.gelu"),
    Entry("GELU erf, (0.5x)*(1+erf)", X3, lambda e, x: gelu(e, x, True), "nn.gelu"),
    Entry(
        "GELU tanh",
        X3,
        lambda e, x: e.multiply(
            e.multiply(k(0.5), x),
            e.add(
                k(1),
                e.tanh(
                    e.multiply(k(math.sqrt(2 / math.pi)), e.add(x, e.multiply(k(0.044715), e.power(x, k(3)))))
                ),
            ),
        ),
        "nn.gelu_tanh",
    ),
    Entry("LayerNorm", X3, layer_norm, "nn.layer_norm"),
    Entry(
        "RMSNorm",
        X3,
        lambda e, x: e.multiply(
            e.multiply(x, e.rsqrt(e.add(e.mean(e.multiply(x, x), [-1], True), k(1e-6)))), c(4)
        ),
        "nn.rms_norm",
    ),
    Entry("SiLU", X3, lambda e, x: e.multiply(x, e.sigmoid(x)), "nn.silu"),
    Entry("Softplus", X3, lambda e, x: e.log(e.add(k(1), e.exp(x))), "nn.softplus", "finite"),
    Entry(
        "Exp(x-max)/Sum",
        X3,
        lambda e, x: e.divide(t := e.exp(e.subtract(x, e.max(x, [-1], True))), e.sum(t, [-1], True)),
        "nn.softmax",
    ),
    Entry("Log(Softmax)", X3, lambda e, x: e.log(e.softmax(x, -1)), "nn.log_softmax", "finite"),
    Entry("Min(Max(x,0),6)", X3, lambda e, x: e.minimum(e.maximum(x, k(0)), k(6)), "clip"),
    Entry("Relu+Clip(0,6)", X3, lambda e, x: e.clip(e.relu(x), 0.0, 6.0), "clip"),
    Entry("global pool as mean", IMAGE, lambda e, x: e.adaptive_avg_pool2d(x, (1, 1)), "mean"),
    Entry(
        "mean, then flatten",
        IMAGE,
        lambda e, x: e.reshape(e.mean(x, [2, 3], True), [x.ty.shape[0], 3]),
        "mean",
    ),
    Entry(
        "Einsum bhid,bhjd->bhij",
        [((B, 2, 3, 4), F32), ((B, 2, 5, 4), F32)],
        lambda e, a, b: e.emit(call("halotile.einsum", a, b, equation="bhid,bhjd->bhij")),
        "permute_dims matmul",
        dynamic="the operator itself takes known shapes only",
    ),
    # strength
    Entry("Pow(x,2)", X3, lambda e, x: e.power(x, k(2)), "multiply"),
    Entry("Pow(x,.5)", X3, lambda e, x: e.power(e.abs(x), k(0.5)), "abs sqrt"),
    Entry("division by a power of two", X3, lambda e, x: e.divide(x, k(8)), "multiply", "exact"),
    Entry("Relu(Relu)", X3, lambda e, x: e.relu(e.relu(x)), "nn.relu"),
    Entry("Abs(Abs)", X3, lambda e, x: e.abs(e.abs(x)), "abs"),
    Entry("common subexpressions", X3, lambda e, x: e.multiply(e.exp(x), e.exp(x)), "exp multiply"),
]


def simplified(module: Callable[..., Any], entry: Entry, batch: Any) -> tuple[Any, Any]:
    inputs = [(tuple(batch if d is B else d for d in shape), dtype) for shape, dtype in entry.inputs]
    before = module(inputs, lambda emit, *xs: entry.body(Emit(emit), *xs))
    return before, Simplify(entry.mode, check=True).apply(before)


def remaining(operators: Callable[[Any], list[str]], result: Any) -> str:
    return " ".join(sorted(operators(result)))


CASES = [
    pytest.param(e, b, id=f"{e.title} ({'static' if b == 2 else 'dynamic'})")
    for e in CATALOGUE
    for b in (2, "n")
    if b == 2 or not e.dynamic
]


@pytest.mark.parametrize(("entry", "batch"), CASES)
def test_it_fires_and_is_right(tools, entry, batch):
    before, result = simplified(tools.module, entry, batch)
    assert remaining(tools.operators, result) == " ".join(sorted(entry.left.split())), result.notes
    for n in (1, 2, 5) if batch == "n" else (2,):
        tools.same(before, result.module, exact=entry.mode == "exact", n=n)
    assert not Simplify(entry.mode).apply(result.module).changed


def table() -> str:
    """The catalogue as Markdown: what holds now, computed, not remembered."""
    import conftest  # the helpers beside this file

    rows = ["| rewrite | float mode | static | dynamic |", "|---|---|---|---|"]
    for entry in CATALOGUE:
        cells = []
        for batch in (2, "n"):
            if batch == "n" and entry.dynamic:
                cells.append(f"no: {entry.dynamic}")
                continue
            _, result = simplified(conftest.module, entry, batch)
            cells.append(
                "yes"
                if remaining(conftest.operators, result) == " ".join(sorted(entry.left.split()))
                else "no"
            )
        rows.append(f"| {entry.title} | {entry.mode} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())

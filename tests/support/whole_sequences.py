"""Blocks on sequences, [N, T, D] -> [N, T', D'], on vectors [N, D], and the ways between them and images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto
from whole_graph import Graph, Impossible, Tensor
from whole_images import activation

Block = Callable[[Graph, Tensor], Tensor]


def linear(g: Graph, x: Tensor, outputs: int, bias: bool = True) -> Tensor:
    y = g.add("MatMul", x, g.weight(x.shape[-1], outputs, fan=x.shape[-1]))
    if not bias:
        return y
    return g.add("Add", y, g.weight(outputs)) if g.chance(0.5) else g.add("Add", g.weight(outputs), y)


def layer_norm(g: Graph, x: Tensor) -> Tensor:
    d = x.shape[-1]
    if d < 3:
        return x
    kind = g.pick(("one", "spelt", "rms"))
    if kind == "one":
        return g.add("LayerNormalization", x, g.positive(d), g.weight(d), axis=g.pick((-1, x.rank - 1)), epsilon=1e-3)
    centred = x if kind == "rms" else g.add("Sub", x, g.add("ReduceMean", x, g.ints(-1), keepdims=1))
    square = g.add("Pow", centred, g.scalar(2.0)) if g.chance(0.5) else g.add("Mul", centred, centred)
    root = g.add("Sqrt", g.add("Add", g.add("ReduceMean", square, g.ints(-1), keepdims=1), g.scalar(1e-3)))
    if kind == "rms":
        return g.add("Mul", g.positive(d), g.add("Mul", x, g.add("Reciprocal", root)))
    return g.add("Add", g.add("Mul", g.add("Div", centred, root), g.positive(d)), g.weight(d))


def feed_forward(g: Graph, x: Tensor) -> Tensor:
    d = x.shape[-1]
    y = layer_norm(g, x)
    if g.chance(0.3):  # a gated one
        a, b = linear(g, y, 2 * d, False), linear(g, y, 2 * d, False)
        y = g.add("Mul", g.add("Mul", a, g.add("Sigmoid", a)), b)
    else:
        y = activation(g, linear(g, y, g.pick((d, 2 * d, 17)))) if y.rank > 2 else g.add("Relu", linear(g, y, 2 * d))
    return g.add("Add", x, linear(g, y, d))


def heads_of(g: Graph, x: Tensor, heads: int) -> Tensor:
    n, t, d = x.shape
    y = g.add("Reshape", x, g.ints(*g.pick([(0, 0, heads, -1), (n, t, heads, d // heads)])))
    return g.transpose(y, 0, 2, 1, 3)


def attention(g: Graph, x: Tensor) -> Tensor:
    """Multi-head attention with one of several masks, biases and forms, normalised before or after."""
    n, t, d = x.shape
    heads = next((h for h in (g.pick((1, 2, 4)), 3, 2, 1) if d % h == 0), 1)
    size = d // heads
    y = layer_norm(g, x) if g.chance(0.6) else x
    memory = y
    others = [v for v in g.values if v.is_float and v.rank == 3 and v.shape[0] == n and v.shape[1] > 1]
    if g.chance(0.25):
        memory = g.pick(others)
    if g.chance(0.4) and memory is y:
        q, k, v = g.chunks(linear(g, y, 3 * d), -1, 3)
    else:
        q, k, v = linear(g, y, d), linear(g, memory, d), linear(g, memory, d)
    q, k, v = (heads_of(g, p, heads) for p in (q, k, v))
    if g.chance(0.3):
        q, k = rotated(g, q), rotated(g, k)
    if g.chance(0.5):
        q = g.add("Mul", q, g.scalar(size**-0.5))
    scores = g.add("MatMul", q, g.transpose(k, 0, 1, 3, 2))
    scores = g.add("Div", scores, g.scalar(size**0.5)) if g.chance(0.6) else scores
    scores = masked(g, scores)
    weights = g.add("Softmax", scores, axis=g.pick((-1, 3)))
    y = g.transpose(g.add("MatMul", weights, v), 0, 2, 1, 3)
    y = linear(g, g.add("Reshape", y, g.ints(*g.pick([(0, 0, d), (n, -1, d)]))), d)
    y = g.add("Add", x, y)
    return layer_norm(g, y) if g.chance(0.3) else y


def masked(g: Graph, scores: Tensor) -> Tensor:
    n, h, t, s = scores.shape
    kind = g.pick(("none", "causal", "keys", "bias", "bool", "infinite"))
    least = -1e4
    if kind == "causal":
        return g.add("Add", scores, g.constant(np.triu(np.full((t, s), least), 1)[None, None]))
    if kind == "infinite":
        return g.add("Add", scores, g.constant(np.triu(np.full((t, s), -np.inf), 1)))
    if kind == "bias":
        return g.add("Add", scores, g.weight(g.pick((1, h)), t, s, fan=1))
    if len(g.inputs) > 3 or kind == "none":
        return scores
    mask = next((v for v in g.inputs if v.shape == (n, s)), None) or g.input(
        (n, s), g.pick((TensorProto.BOOL, TensorProto.INT64)) if kind == "bool" else TensorProto.INT64
    )
    if mask.dtype == g.real:
        return scores
    if kind == "bool":
        off = g.cast(mask, TensorProto.BOOL) if mask.dtype != TensorProto.BOOL else mask
        off = g.add("Unsqueeze", g.add("Not", off), g.ints(1, 2))
        return g.add("Where", off, g.scalar(least), scores)
    left = g.add("Sub", g.scalar(1.0), g.cast(g.add("Unsqueeze", mask, g.ints(1, 2)), g.real))
    return g.add("Add", scores, g.add("Mul", left, g.scalar(least)))


def rotated(g: Graph, x: Tensor) -> Tensor:
    """Rotary positions: x * cos + (-x2, x1) * sin."""
    _, _, t, d = x.shape
    if d % 2:
        raise Impossible("an odd head")
    angle = np.arange(t)[:, None] / 10 ** (np.arange(d // 2) / d)[None]
    angle = np.concatenate([angle, angle], -1)
    first, second = g.slice(x, 3, 0, d // 2), g.slice(x, 3, d // 2, 2**40)
    turned = g.add("Concat", g.add("Neg", second), first, axis=-1)
    return g.add("Add", g.add("Mul", x, g.constant(np.cos(angle))), g.add("Mul", turned, g.constant(np.sin(angle))))


def recurrent(g: Graph, x: Tensor) -> Tensor:
    n, t, d = x.shape
    kind, ways, hidden = g.pick(("LSTM", "GRU", "RNN")), g.pick(("forward", "reverse", "bidirectional")), g.pick((5, 8))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    count = 2 if ways == "bidirectional" else 1
    y = g.transpose(x, 1, 0, 2)
    extra = {"linear_before_reset": 1} if kind == "GRU" and g.chance(0.6) else {}
    operands: list[Tensor | None] = [y, g.weight(count, gates * hidden, d, fan=d),
                                     g.weight(count, gates * hidden, hidden, fan=hidden)]  # fmt: skip
    operands.append(g.weight(count, 2 * gates * hidden) if g.chance(0.7) else None)
    if g.chance(0.3):
        operands += [None, g.weight(count, n, hidden)]
    outputs = g.many(kind, operands, 3 if kind == "LSTM" else 2, hidden_size=hidden, direction=ways, **extra)
    if g.chance(0.3):
        g.outputs.append(outputs[-1])
    y = g.transpose(outputs[0], 2, 0, 1, 3)
    return g.add("Reshape", y, g.ints(n, t, count * hidden))


def along_time(g: Graph, x: Tensor) -> Tensor:
    """A one-dimensional convolution."""
    n, t, d = x.shape
    kernel, groups, dilation = g.pick((1, 3, 5)), g.pick((1, d)), g.pick((1, 1, 2))
    outputs = d if groups > 1 else g.pick((8, 12, 17))
    y = g.transpose(x, 0, 2, 1)
    pads = [dilation * (kernel - 1), 0] if g.chance(0.3) else [dilation * (kernel - 1) // 2] * 2
    y = g.add("Conv", y, g.weight(outputs, d // groups, kernel), g.weight(outputs), pads=pads, group=groups,
              dilations=[dilation])  # fmt: skip
    if g.chance(0.4) and outputs % 2 == 0:
        a, b = g.chunks(y, 1, 2)
        y = g.add("Mul", a, g.add("Sigmoid", b))
    return g.transpose(y, 0, 2, 1)


def positions(g: Graph, x: Tensor) -> Tensor:
    n, t, d = x.shape
    table = g.weight(t + 3, d)
    if g.chance(0.5):
        return g.add("Add", x, g.slice(table, 0, 0, t))
    return g.add("Add", x, g.add("Gather", table, g.constant(np.arange(t)[None].repeat(n, 0))))


def class_token(g: Graph, x: Tensor) -> Tensor:
    n, _, d = x.shape
    token = g.add("Expand", g.weight(1, 1, d), g.ints(n, 1, 1))
    return g.add("Concat", token, x, axis=1)


def merged(g: Graph, x: Tensor) -> Tensor:
    """Every second step beside the one before it."""
    n, t, d = x.shape
    if t < 4:
        raise Impossible("too short")
    return g.add("Concat", g.slice(x, 1, 0, t // 2 * 2, 2), g.slice(x, 1, 1, t // 2 * 2, 2), axis=2)


def gathered(g: Graph, x: Tensor) -> Tensor:
    _, t, d = x.shape
    axis = g.pick((1, 2))
    return g.add("Gather", x, g.constant(g.rng.integers(-x.shape[axis], x.shape[axis], g.between(2, 7))), axis=axis)


def scanned(g: Graph, x: Tensor) -> Tensor:
    kind = g.pick(("cumulated", "joined", "topk", "product"))
    if kind == "cumulated":
        return g.add("CumSum", x, g.constant(np.array(1)), exclusive=g.between(0, 1), reverse=g.between(0, 1))
    if kind == "topk":
        values, places = g.many("TopK", [x, g.ints(min(3, x.shape[1]))], 2, axis=1)
        g.outputs.append(places)
        return values
    if kind == "product":
        return g.add("Einsum", x, g.weight(x.shape[2], 12, fan=x.shape[2]), equation="ntd,dh->nth")
    fits = [v for v in g.values if v.is_float and v.shape == x.shape]
    return g.add("Add", x, g.pick(fits))


SEQUENCES: list[Block] = [
    *[feed_forward] * 3, *[attention] * 5, *[recurrent] * 2, *[along_time] * 2, positions, class_token, merged,
    gathered, *[scanned] * 2, layer_norm,
]  # fmt: skip


# ---------------------------------------------------------------------- vectors


def dense_layer(g: Graph, x: Tensor) -> Tensor:
    outputs = g.pick((1, 3, 10, 16, 33))
    if g.chance(0.5):
        c = g.pick([(outputs,), (1, outputs), (x.shape[0], 1), (1,)])
        more = {} if g.chance(0.7) else {"alpha": 0.5, "beta": 2.0}
        return activation_of_vector(g, g.add("Gemm", x, g.weight(outputs, x.shape[1]), g.weight(*c), transB=1, **more))
    return activation_of_vector(g, linear(g, x, outputs))


def activation_of_vector(g: Graph, x: Tensor) -> Tensor:
    kind = g.pick(("Relu", "Tanh", "Softmax", "LogSoftmax", "Identity", "norm"))
    if kind == "norm":
        norm = g.add("ReduceL2", x, g.ints(1), keepdims=1)
        return g.add("Div", x, g.add("Clip", norm, g.scalar(1e-3)))
    return g.add(kind, x)


def crossed(g: Graph, x: Tensor) -> Tensor:
    """The vector beside, or multiplied with, another one of the same batch."""
    fits = [v for v in g.values if v.is_float and v.rank == 2 and v.shape[0] == x.shape[0]]
    other = g.pick(fits)
    if g.chance(0.5):
        return g.add("Concat", x, other, axis=1)
    return g.add("Mul", x, g.add("ReduceSum", other, g.ints(-1), keepdims=1))


VECTORS: list[Block] = [dense_layer, dense_layer, crossed, layer_norm]


# ---------------------------------------------------------------------- from one to another


def image_to_sequence(g: Graph, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    kind = g.pick(("pixels", "columns", "mean"))
    if kind == "pixels":
        if h * w > 150:
            raise Impossible("too long")
        return g.transpose(g.reshape(x, (n, c, h * w)), 0, 2, 1)
    if kind == "columns":
        if c * h > 200:
            raise Impossible("too wide")
        return g.add("Reshape", g.transpose(x, 0, 3, 1, 2), g.ints(n, w, c * h))
    return g.transpose(g.add("ReduceMean", x, g.ints(2), keepdims=0), 0, 2, 1)


def sequence_to_image(g: Graph, x: Tensor) -> Tensor:
    n, t, d = x.shape
    rows = next((k for k in (7, 5, 4, 3, 2) if t % k == 0), 1)
    return g.reshape(g.transpose(x, 0, 2, 1), (n, d, rows, t // rows))


def image_to_vector(g: Graph, x: Tensor) -> Tensor:
    if g.chance(0.3) and np.prod(x.shape[1:]) < 3000:
        return g.add("Flatten", x)
    y = g.add(g.pick(("GlobalAveragePool", "GlobalMaxPool")), x)
    return g.add("Flatten", y) if g.chance(0.5) else g.add("Squeeze", y, g.ints(2, 3))


def sequence_to_vector(g: Graph, x: Tensor) -> Tensor:
    kind = g.pick(("first", "last", "mean", "max"))
    if kind == "first":
        return g.add("Gather", x, g.constant(np.array(0)), axis=1)
    if kind == "last":
        return g.add("Squeeze", g.slice(x, 1, -1, 2**31), g.ints(1))
    return g.add("ReduceMean" if kind == "mean" else "ReduceMax", x, g.ints(1), keepdims=0)

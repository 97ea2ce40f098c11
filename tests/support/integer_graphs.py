"""Random graphs of integer operators on numbers at the edges of their types, and what they are in numpy.

numpy's integers wrap as ONNX's do; where it has an operator otherwise (division towards zero, casts of floats that no
integer holds), the meaning is written out here, apart from all that the compiler computes with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

SIGNED, UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
WIDE = ("int32", "int64", "uint32", "uint64")
LENGTH = 37  # no multiple of a vector's lanes
ROWS = 3
OPSET = 20

# How often one chooses each; what most rewrites look at comes often.
BINARY = ["Add", "Sub", "Mul"] * 4 + ["Div", "Mod", "Min", "Max"] * 2 + ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]
COMPARE = ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]
REDUCE = ["ReduceSum", "ReduceProd", "ReduceMin", "ReduceMax", "ReduceMean", "ReduceL1", "ReduceSumSquare"]


def edges(dtype: str) -> list[int]:
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    found = [0, 1, 2, 3, 7, 8, 10, high, high - 1, high // 2, high // 2 + 1, high // 3, 1 << (info.bits // 2)]
    return found + ([low, low + 1, low // 2, low // 2 - 1, -1, -2, -3, -8] if low else [high - 2, high // 5])


def numbers(rng: np.random.Generator, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """A third edges, a third small numbers, a third any."""
    count, info = math.prod(shape), np.iinfo(dtype)
    any_of = rng.integers(info.min, info.max, count, dtype, endpoint=True)
    small = rng.integers(max(-20, info.min), 20, count).astype(dtype)
    picked = np.array([edges(dtype)[i] for i in rng.integers(0, len(edges(dtype)), count)], dtype)
    return np.choose(rng.integers(0, 3, count), [any_of, small, picked]).reshape(shape)


@dataclass
class Tensor:
    """A value of a graph: its name, what it is, and the operators that it comes from."""

    name: str
    value: np.ndarray
    story: str
    constant: bool = False

    @property
    def dtype(self) -> str:
        return str(self.value.dtype)


@dataclass
class Graphs:
    """A model of many graphs that share their inputs; ``wanted`` has the results, ``stories`` what they are."""

    rng: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    wanted: dict[str, np.ndarray] = field(default_factory=dict)
    stories: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def one_of(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def input(self, dtype: str) -> Tensor:
        kind = self.one_of(["m", "m", "v", "s"])
        name = f"{kind}{self.one_of('ab')}_{dtype}"
        if name not in self.inputs:
            shape = {"m": (ROWS, LENGTH), "v": (LENGTH,), "s": ()}[kind]
            self.inputs[name] = numbers(self.rng, dtype, shape)
        return Tensor(name, self.inputs[name], name)

    def constant(self, dtype: str, shape: Sequence[int] | None = None, value: Any = None) -> Tensor:
        if value is None:
            shape = self.one_of([(), (), (), (1,), (LENGTH,), (ROWS, 1)]) if shape is None else shape
            value = numbers(self.rng, dtype, shape)
            if self.rng.random() < 0.7:
                value = np.full(shape, self.one_of(edges(dtype))).astype(dtype)
        name = self.fresh()
        array = np.asarray(value, dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        shown = array.reshape(-1)[0].item() if array.size and (array == array.reshape(-1)[0]).all() else "[...]"
        return Tensor(name, array, f"{shown}:{dtype}", True)

    def node(self, operator: str, operands: Sequence[Tensor], value: Any, **attributes: Any) -> Tensor:
        name = self.fresh()
        self.nodes.append(helper.make_node(operator, [o.name for o in operands], [name], **attributes))
        given = "".join(f", {k}={v}" for k, v in attributes.items())
        story = f"{operator}({', '.join(o.story for o in operands)}{given})"
        return Tensor(name, np.asarray(value), story, all(o.constant for o in operands))

    def output(self, tensor: Tensor) -> None:
        if tensor.name in self.wanted or tensor.name in self.inputs:
            tensor = self.node("Identity", [tensor], tensor.value)
        if any(c.name == tensor.name for c in self.constants):
            tensor = self.node("Identity", [tensor], tensor.value)
        self.wanted[tensor.name] = tensor.value
        self.stories[tensor.name] = tensor.story

    def model(self) -> onnx.ModelProto:
        def info(name: str, array: np.ndarray) -> Any:
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

        graph = helper.make_graph(
            self.nodes,
            "integers",
            [info(n, a) for n, a in self.inputs.items()],
            [info(n, a) for n, a in self.wanted.items()],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def random_graphs(seed: int, count: int) -> Graphs:
    made = Graphs(np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        for _ in range(count):
            _graph(made)
    return made


def _graph(g: Graphs) -> None:
    dtype = g.one_of(INTEGERS)
    pool = [g.input(dtype), g.input(dtype)]
    for _ in range(int(g.rng.integers(2, 9))):
        x = pool[-1] if g.rng.random() < 0.75 else g.one_of(pool)
        pool.append(_step(g, x, pool))
    g.output(pool[-1])
    if g.rng.random() < 0.25:
        g.output(g.one_of(pool[2:]))


def _step(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor:
    if x.dtype == "bool":
        return _of_flags(g, x, pool)
    steps: list[Callable[..., Tensor | None]] = [_binary] * 8 + [_compare, _unary, _unary, _cast, _cast]
    steps += [_shift, _where, _clip, _power, _reduce, _running, _moved, _scattered, _product, _position]
    while True:
        made = g.one_of(steps)(g, x, pool)
        if made is not None:
            return made


def _other(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor:
    """A second operand of the same type that broadcasts with ``x``."""
    chance = g.rng.random()
    if chance < 0.45:
        return g.constant(x.dtype)
    known = [p for p in pool if p.dtype == x.dtype and _fit(p.value.shape, x.value.shape)]
    if chance < 0.6 and known:
        return g.one_of(known)
    return x if chance < 0.65 else g.input(x.dtype)


def _fit(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(p == q or 1 in (p, q) for p, q in zip(reversed(a), reversed(b)))


def _pair(g: Graphs, x: Tensor, pool: list[Tensor]) -> list[Tensor] | None:
    y = _other(g, x, pool)
    if not _fit(x.value.shape, y.value.shape) or x.value.ndim > 2:
        return None
    return [y, x] if g.rng.random() < 0.3 else [x, y]


def _binary(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor | None:
    operands = _pair(g, x, pool)
    if operands is None:
        return None
    a, b = (o.value for o in operands)
    operator = g.one_of(BINARY)
    if operator == "Mod":
        fmod = int(g.rng.integers(2))
        return g.node("Mod", operands, (np.fmod if fmod else np.mod)(a, b), fmod=fmod)
    values = {
        "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": quotient, "Min": np.minimum, "Max": np.maximum,
        "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
    }  # fmt: skip
    return g.node(operator, operands, values[operator](a, b))


def quotient(a: Any, b: Any) -> np.ndarray:
    """Towards zero, 0 of a division by zero."""
    down = np.floor_divide(a, b)
    return down + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(down.dtype)


def _compare(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor | None:
    operands = _pair(g, x, pool)
    if operands is None:
        return None
    operator = g.one_of(COMPARE)
    values = {"Equal": np.equal, "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal}
    return g.node(operator, operands, values.get(operator, np.greater_equal)(*(o.value for o in operands)))


def _of_flags(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor:
    if g.rng.random() < 0.2:
        return g.node("Not", [x], ~x.value)
    if g.rng.random() < 0.3:
        dtype = g.one_of(INTEGERS)
        return g.node("Cast", [x], x.value.astype(dtype), to=_code(dtype))
    whole = [p for p in pool if p.dtype != "bool" and _fit(p.value.shape, x.value.shape)]
    a = g.one_of(whole) if whole else g.constant("int32", ())
    b = _other(g, a, whole)
    if not _fit(b.value.shape, np.broadcast_shapes(a.value.shape, x.value.shape)):
        b = g.constant(a.dtype, ())
    return g.node("Where", [x, a, b], np.where(x.value, a.value, b.value))


def _unary(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor | None:
    operator = g.one_of(["Abs", "Neg", "Sign", "BitwiseNot", "Relu", "Abs", "Neg"])
    if x.dtype in UNSIGNED and operator in ("Neg", "Relu"):
        return None
    values = {"Abs": np.abs, "Neg": np.negative, "Sign": np.sign, "BitwiseNot": np.invert}
    value = np.maximum(x.value, np.zeros((), x.dtype)) if operator == "Relu" else values[operator](x.value)
    return g.node(operator, [x], value)


def _cast(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor:
    target = g.one_of([*INTEGERS, *INTEGERS, "bool", "float32", "float64"])
    if not target.startswith("float"):
        return g.node("Cast", [x], x.value.astype(target), to=_code(target))
    there = g.node("Cast", [x], x.value.astype(target), to=_code(target))
    back = g.one_of(INTEGERS)
    return g.node("Cast", [there], truncated(there.value, back), to=_code(back))


def truncated(values: np.ndarray, dtype: str) -> np.ndarray:
    """Floats as integers: towards zero as int32, or int64 for more bits and uint32, then the low bits. NaN and what
    lies outside of that is the least number, as x86-64 has it; uint64 reaches to its own end."""
    info = np.iinfo(dtype)
    wide = np.iinfo("int32" if info.bits < 32 or dtype == "int32" else "int64")

    def one(value: float) -> int:
        if dtype == "uint64" and 2**63 <= value < 2**64:
            return int(value)
        exact = int(value) if math.isfinite(value) else wide.min
        return (exact if wide.min <= exact <= wide.max else wide.min) & ((1 << info.bits) - 1)

    low = np.array([one(float(v)) for v in values.reshape(-1)], "uint64").reshape(values.shape)
    return low.astype(f"uint{info.bits}").view(dtype) if values.ndim else low.astype(f"uint{info.bits}").astype(dtype)


def _code(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _shift(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor | None:
    if x.dtype in SIGNED:
        return None
    if g.rng.random() < 0.6:
        by = g.constant(x.dtype, g.one_of([(), (LENGTH,)]), None)
        by = g.constant(x.dtype, None, by.value % np.array(np.iinfo(x.dtype).bits + 2, x.dtype))
    else:
        by = g.input(x.dtype)
    if not _fit(x.value.shape, by.value.shape):
        return None
    direction = g.one_of(["LEFT", "RIGHT"])
    function = np.left_shift if direction == "LEFT" else np.right_shift
    return g.node("BitShift", [x, by], function(x.value, by.value), direction=direction)


def _where(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor | None:
    flags = _compare(g, x, pool)
    return None if flags is None else _of_flags(g, flags, [*pool, x])


def _clip(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor:
    constant = g.rng.random() < 0.6
    low, high = (g.constant(x.dtype, ()) if constant else _scalar(g, x.dtype) for _ in range(2))
    return g.node("Clip", [x, low, high], np.minimum(np.maximum(x.value, low.value), high.value))


def _scalar(g: Graphs, dtype: str) -> Tensor:
    name = f"s{g.one_of('ab')}_{dtype}"
    if name not in g.inputs:
        g.inputs[name] = numbers(g.rng, dtype, ())
    return Tensor(name, g.inputs[name], name)


def _power(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor | None:
    if x.dtype not in ("int32", "int64") or g.rng.random() < 0.4:
        return None
    kind = g.one_of([x.dtype, "int32", "int64", "uint8", "uint64"])
    exponent = g.input(kind) if g.rng.random() < 0.4 else g.constant(kind, None)
    if exponent.constant and g.rng.random() < 0.6:
        exponent = g.constant(kind, (), g.one_of([0, 1, 2, 3, 5, 31, 32, 63, 64, 65]))
    if not _fit(x.value.shape, exponent.value.shape):
        return None
    return g.node("Pow", [x, exponent], powers(x.value, exponent.value))


def powers(base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """Modulo the width of the base; 1, -1 or 0 where the exponent is negative."""
    bits = base.dtype.itemsize * 8

    def one(b: int, e: int) -> int:
        if e < 0:
            return 0 if abs(b) != 1 else b if e % 2 else 1
        low = pow(b, e, 1 << bits)
        return low - (1 << bits) if low >> (bits - 1) else low

    pairs = np.broadcast_arrays(base, exponent)
    found = [one(int(b), int(e)) for b, e in zip(*(p.reshape(-1) for p in pairs))]
    return np.array(found, base.dtype).reshape(pairs[0].shape)


def _reduce(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor | None:
    operator = g.one_of(REDUCE)
    allowed = (*WIDE, "int8", "uint8") if operator in ("ReduceMin", "ReduceMax") else WIDE
    if x.dtype not in allowed or not x.value.ndim or not x.value.size:
        return None
    axes = g.one_of([(x.value.ndim - 1,), (0,), tuple(range(x.value.ndim))])
    value, summed = x.value, {"dtype": x.value.dtype, "axis": axes, "keepdims": True}
    value = {"ReduceL1": np.abs, "ReduceSumSquare": np.square}.get(operator, np.array)(value)
    if operator in ("ReduceMin", "ReduceMax"):
        result = (np.min if operator == "ReduceMin" else np.max)(value, axis=axes, keepdims=True)
    elif operator == "ReduceProd":
        result = np.prod(value, **summed)
    else:
        result = np.sum(value, **summed)
    if operator == "ReduceMean":
        result = quotient(result, np.array(math.prod(value.shape[a] for a in axes), x.dtype))
    return g.node(operator, [x, g.constant("int64", (len(axes),), axes)], result, keepdims=1)


def _running(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor | None:
    if x.dtype not in WIDE or not x.value.ndim or g.rng.random() < 0.5:
        return None
    axis, exclusive, reverse = (int(g.rng.integers(n)) for n in (x.value.ndim, 2, 2))
    value = np.flip(x.value, axis) if reverse else x.value
    result = np.cumsum(value, axis, x.value.dtype)
    if exclusive:
        result = result - value
    result = np.flip(result, axis) if reverse else result
    place = g.constant("int64", (), axis)
    return g.node("CumSum", [x, place], result, exclusive=exclusive, reverse=reverse)


def _moved(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor | None:
    """Slices, transposes, gathers and padding, through which arithmetic is pulled."""
    value, rank = x.value, x.value.ndim
    if not rank or not value.size:
        return None
    kind = g.one_of(["Transpose", "Gather", "Pad", "Concat", "Flip", "Places"])
    if kind == "Transpose":
        turned = g.node("Transpose", [x], value.T, perm=list(range(rank))[::-1])
        doubled = g.node("Add", [turned, turned], turned.value + turned.value)
        return g.node("Transpose", [doubled], doubled.value.T, perm=list(range(rank))[::-1])
    if kind == "Concat":
        parts = g.node("Concat", [x, x], np.concatenate([value, value], -1), axis=-1)
        n = value.shape[-1]
        ends = [g.constant("int64", (1,), [e]) for e in (n // 2, n // 2 + n, rank - 1)]
        return g.node("Slice", [parts, *ends], parts.value[..., n // 2 : n // 2 + n])
    if kind == "Pad":
        fill = g.constant(x.dtype, ())
        pads = g.constant("int64", (2 * rank,), [1] * rank + [0] * rank)
        made = g.node("Pad", [x, pads, fill], np.pad(value, [(1, 0)] * rank, constant_values=fill.value))
        ends = [g.constant("int64", (rank,), e) for e in ([0] * rank, value.shape)]
        return g.node("Slice", [made, *ends], made.value[tuple(slice(0, n) for n in value.shape)])
    if kind == "Flip":
        ends = [g.constant("int64", (1,), [e]) for e in (-1, -(2**62), rank - 1, -1)]
        return g.node("Slice", [x, *ends], value[..., ::-1])
    if kind == "Places":  # positions that are computed, of int32 or int64
        if x.dtype not in ("int32", "int64"):
            return None
        length = g.constant(x.dtype, (), value.shape[-1])
        at = g.node("Mod", [x, length], np.mod(value, length.value), fmod=0)
        return g.node("GatherElements", [x, at], np.take_along_axis(value, at.value, -1), axis=rank - 1)
    order = g.rng.permutation(value.shape[-1])
    places = g.constant("int64", (len(order),), order)
    return g.node("Gather", [x, places], np.take(value, order, -1), axis=rank - 1)


def _scattered(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor | None:
    if not x.value.ndim or x.value.shape[-1] < 5 or g.rng.random() < 0.4:
        return None
    kind = g.one_of(["add", "mul", "min", "max"])
    last = x.value.shape[-1]
    at = g.rng.integers(-last, last, (*x.value.shape[:-1], 5))
    new = g.constant(x.dtype, at.shape, numbers(g.rng, x.dtype, at.shape))
    result = x.value.copy()
    flat, places, given = (a.reshape(-1, a.shape[-1]) for a in (result, at, new.value))
    functions = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
    for row in range(len(flat)):
        for p, v in zip(places[row], given[row]):
            flat[row, p] = functions[kind](flat[row, p], v)
    where = g.constant("int64", at.shape, at)
    return g.node("ScatterElements", [x, where, new], result, axis=x.value.ndim - 1, reduction=kind)


def _product(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor | None:
    if x.value.ndim != 2 or x.value.shape[-1] != LENGTH:
        return None
    if x.dtype in WIDE and g.rng.random() < 0.6:
        other = numbers(g.rng, x.dtype, (LENGTH, 19))
        weights = g.constant(x.dtype, other.shape, other)
        product = g.node("MatMul", [x, weights], np.matmul(x.value, other))
        back = g.constant(x.dtype, (19, LENGTH), numbers(g.rng, x.dtype, (19, LENGTH)))
        return g.node("Einsum", [product, back], np.matmul(product.value, back.value), equation="ij,jk->ik")
    if x.dtype not in ("int8", "uint8"):
        return None
    kind = g.one_of(["int8", "uint8"])
    weights = g.constant(kind, (LENGTH, 19), numbers(g.rng, kind, (LENGTH, 19)))
    zeros = [g.constant(d, ()) for d in (x.dtype, kind)]
    a, b = (t.value.astype("int32") - z.value.astype("int32") for t, z in zip((x, weights), zeros))
    return g.node("MatMulInteger", [x, weights, *zeros], np.matmul(a, b))


def _position(g: Graphs, x: Tensor, pool: list[Tensor]) -> Tensor | None:
    if not x.value.ndim or not x.value.size or g.rng.random() < 0.5:
        return None
    operator, last = g.one_of(["ArgMax", "ArgMin"]), int(g.rng.integers(2))
    function, value = (np.argmax if operator == "ArgMax" else np.argmin), x.value
    at = value.shape[-1] - 1 - function(value[..., ::-1], -1) if last else function(value, -1)
    found = g.node(
        operator, [x], np.asarray(at, "int64"), axis=value.ndim - 1, keepdims=0, select_last_index=last
    )
    ranked = g.node("Unsqueeze", [found, g.constant("int64", (1,), [-1])], found.value[..., None])
    return g.node("GatherElements", [x, ranked], np.take_along_axis(value, ranked.value, -1), axis=value.ndim - 1)

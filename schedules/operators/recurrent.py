"""LSTM, GRU and RNN: one direction of one layer as one kernel, a loop over time.

    for t in time:                                   one after the other
        for block of 16 hidden units:                side by side, where a step is large
            for a few rows of the batch:
                acc[gate] = projected[t, row, gate]
                for k in hidden: acc[gate] += h[row, k] * packed[block, k, gate]       (some gates at a time)
                new state from acc by the cell's equations, in vectors

The input's part of the gates comes in as ``projected`` (one matrix product over all steps, made before). Weights are
packed so that a step reads them once, front to back; whole numbers (:mod:`..math.scaled_integers`) with a scale for
each lane of a gate. The state lies in two slots, of which a step reads one and writes the other: blocks may overlap
where 16 does not divide the hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from tvm import te, tirx

from ..emit.builder import KernelBuilder
from ..math import exponential
from ..words.dims import is_dim
from ..words.sizes import usual
from ..words.tvm_types import Buffer, Expr
from .common import dtype_of, larger, shape_of, smaller
from .loops import PARALLEL_WORK, accumulator, cast, written
from .registry import define

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

LANES = 16
ROWS = 2  # of the batch in one register tile, at least
SCALES = {"w": "s", "u": "t"}  # the letters of weights, and of their scales
MOST_ROWS = 8  # the cell's equations are written out for each

Function = Callable[[KernelBuilder, Expr], Expr]


def lanes_of(hidden: int) -> int:
    return min(hidden, LANES)


def packed(weights: np.ndarray, hidden: int) -> np.ndarray:
    """Recurrent weights [gates * hidden, hidden] as [blocks, hidden (k), gates, lanes]; the last block is shifted."""
    lanes = lanes_of(hidden)
    split = weights.reshape(-1, hidden, hidden)  # gate, unit, k
    starts = [min(b * lanes, hidden - lanes) for b in range(-(-hidden // lanes))]
    return np.ascontiguousarray(np.stack([split[:, s : s + lanes].transpose(2, 0, 1) for s in starts]))


# ------------------------------------------------------------------ activations


def _known(name: str) -> Function:
    """One of the transcendental functions: a plain form in float32, the C library's in float64."""

    def apply(k: KernelBuilder, x: Expr) -> Expr:
        if str(x.ty.dtype) == "float32":
            return exponential.FLOAT32[f"tirx.{name}"](k.bind(x), k.bind)
        return getattr(tirx, name)(x)

    return apply


def _const(number: float, like: Expr) -> Expr:
    return tirx.FloatImm(like.ty, float(number))


def _affine(a: float, b: float) -> Function:
    return lambda k, x: x * _const(a, x) + _const(b, x)


def _held(k: KernelBuilder, x: Expr, low: float, high: float) -> Expr:
    """``x`` within the limits; NaN stays."""
    return smaller(k.bind(larger(k.bind(x), _const(low, x))), _const(high, x))


def _softplus(k: KernelBuilder, x: Expr) -> Expr:
    """log(1 + e**x), whose exponential can't overflow."""
    decay = _known("exp")(k, -tirx.abs(x))
    return larger(x, _const(0, x)) + _known("log")(k, decay + _const(1, x))


def _elu(a: float) -> Function:
    def apply(k: KernelBuilder, x: Expr) -> Expr:
        below = (_known("exp")(k, smaller(x, _const(0, x))) - _const(1, x)) * _const(a, x)
        return tirx.Select(x < _const(0, x), below, x)

    return apply


ACTIVATIONS: dict[str, Callable[[float, float], Function]] = {
    "sigmoid": lambda a, b: _known("sigmoid"),
    "tanh": lambda a, b: _known("tanh"),
    "relu": lambda a, b: lambda k, x: larger(k.bind(x), _const(0, x)),
    "affine": _affine,
    "leakyrelu": lambda a, b: lambda k, x: tirx.Select(x < _const(0, x), x * _const(a, x), x),
    "hardsigmoid": lambda a, b: lambda k, x: _held(k, _affine(a, b)(k, x), 0, 1),
    "softsign": lambda a, b: lambda k, x: x / (tirx.abs(x) + _const(1, x)),
    "softplus": lambda a, b: lambda k, x: _softplus(k, k.bind(x)),
    "elu": lambda a, b: lambda k, x: _elu(a)(k, k.bind(x)),
    "thresholdedrelu": lambda a, b: lambda k, x: tirx.Select(x <= _const(a, x), _const(0, x), x),
    "scaledtanh": lambda a, b: lambda k, x: _known("tanh")(k, x * _const(b, x)) * _const(a, x),
}


# ------------------------------------------------------------------ the kernel


def _tile(batch: Expr, gates: int, lanes: int, registers: int, factor: int) -> tuple[int, int]:
    """Rows of a register tile, which read the weights once, and the gates that are summed at a time: accumulators, the
    weights of a gate, and ``factor`` values for each row that several gates meet, fit the registers, if need be in
    several runs over the weights. Of an open batch some rows may be left behind the last tile."""
    for least in (ROWS + 1, ROWS):
        for part in _parts(gates):
            for rows in range(MOST_ROWS, least - 1, -1):
                if (is_dim(batch) or batch % rows == 0) and _held_by(rows, part, lanes, factor) <= registers:
                    return rows, part
    return ROWS if is_dim(batch) or batch % ROWS == 0 else 1, gates


def _parts(gates: int) -> list[int]:
    return [p for p in range(gates, 0, -1) if gates % p == 0]


def _held_by(rows: int, part: int, lanes: int, factor: int) -> int:
    """Values in registers while ``rows`` meet the weights of ``part`` gates."""
    return (rows * part + 1) * lanes + (rows if part > 1 else 1) * factor


class _Layer:
    """What the emitters of the three cells share: sizes, buffers, and the product with the recurrent weights."""

    def __init__(
        self, k: KernelBuilder, sizes: tuple[SizeLike, SizeLike, SizeLike], gates: int, wide: str, clip: float
    ) -> None:
        self.k = k
        self.steps, self.batch, self.hidden = sizes
        self.gates, self.wide, self.limit = gates, wide, clip
        self.lanes = lanes_of(self.hidden)
        self.blocks = -(-self.hidden // self.lanes)
        lanes = self.lanes * (2 if wide == "float64" else 1)  # of the size of float32
        self.rows, self.part = _tile(self.batch, gates, lanes, k.register_values, k.factor_values)
        self.seen: Callable[[Expr, Expr], Expr] | None = None  # of the state, by the product; None for itself
        work = self.batch * self.hidden * self.hidden * gates
        self.kind = "parallel" if usual(work) >= 4 * PARALLEL_WORK and self.blocks > 1 else "serial"

    def clip(self, x: Expr) -> Expr:
        return _held(self.k, x, -self.limit, self.limit) if self.limit else x

    def unit(self, block: Expr, v: Expr) -> Expr:
        return tirx.min(block * self.lanes, self.hidden - self.lanes) + v

    def product(
        self, block: Expr, first: Expr, weights: tuple[Buffer, Expr], gates: int, source: Callable[[Expr, Expr], Expr]
    ) -> Expr:
        """acc[row, gate, lane] = sum over k of source(row, k) * weights: a register tile, k rolled. ``weights`` come
        with their scales, if they are whole numbers."""
        k, lanes, (weights, scales) = self.k, self.lanes, weights
        acc = k.local("acc", self.wide, self.rows * gates * lanes)
        with k.loop(self.rows * gates, "unroll") as tile, k.loop(lanes, "vectorized") as v:  # LLVM keeps whole vectors
            k.store(acc, tile * lanes + v, tirx.FloatImm(self.wide, 0.0))
        for begin in range(0, gates, self.part):
            with k.loop(self.hidden, name="k") as i:
                h = [k.bind(source(first + r, i)) for r in range(self.rows)]
                for g in range(begin, min(begin + self.part, gates)):
                    at = ((block * self.hidden + i) * gates + g) * lanes
                    for r in range(self.rows):
                        tile = (r * gates + g) * lanes
                        with k.loop(lanes, "vectorized") as v:
                            weight = cast(self.wide, k.load(weights, at + v))
                            if scales is not None:
                                weight = weight * k.load(scales, (block * gates + g) * lanes + v)
                            k.store(acc, tile + v, k.load(acc, tile + v) + h[r] * weight)
        return lambda r, g, v: k.load(acc, (r * gates + g) * lanes + v)

    def over(self, emit: Callable[[Expr, Expr], None]) -> None:
        """``emit(block, first row)`` for every block and group of rows: of an open batch those of full, half and so on
        down to single height, with two behind three, as a row alone waits for its sums and for all weights."""
        k, rows, part = self.k, self.rows, self.part
        lanes = self.lanes * (2 if self.wide == "float64" else 1)
        with k.loop(self.blocks, self.kind, "block") as block:
            done: SizeLike = 0
            while done != self.batch:
                count = (self.batch - done) // self.rows
                with k.loop(count, name="b") as b:
                    emit(block, done + b * self.rows)
                done = self.batch if self.rows == 1 else done + count * self.rows
                self.rows = 2 if self.rows == 3 else max(self.rows // 2, 1)
                held = {p: _held_by(self.rows, p, lanes, k.factor_values) for p in _parts(self.gates)}
                self.part = next((p for p in held if held[p] <= k.register_values), self.gates)
        self.rows, self.part = rows, part


@define("halotile.recurrent")
def recurrent(
    projected: te.Tensor,
    *operands: te.Tensor,
    kind: str,
    hidden: int,
    names: str,
    activations: Sequence[str],
    alphas: Sequence[float],
    betas: Sequence[float],
    clip: float,
    reverse: bool,
    variant: bool,
    rounded: bool = False,
) -> list[te.Tensor]:
    """Y [T, B, H], the last state [B, H] (and cell), and the slots that the states lie in.

    ``projected``: [T, B, gates H].

    ``names`` says what the operands are, one letter each: w weights, u weights of GRU's second product, h and c the
    initial states, b the bias of GRU's hidden gate, p peepholes [3 H], n lengths [B], s and t the scales of w and u
    [blocks, gates, lanes] where these are whole numbers. ``variant`` is
    linear_before_reset for a GRU and input_forget for an LSTM. ``rounded``: the product sees an LSTM's state as
    unsigned bytes of its own range in every step, which holds zero (DynamicQuantizeLSTM of ONNX Runtime).
    """
    steps, batch, _ = shape_of(projected)
    dtype = dtype_of(projected)
    wide = accumulator(dtype)
    states = 2 if kind == "LSTM" else 1
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    functions = [ACTIVATIONS[n](a, b) for n, a, b in zip(activations, alphas, betas)]
    size = batch * hidden
    slots = 2 * states + (2 if kind == "GRU" else 0)  # a GRU also keeps r * h and z between its two products
    slots += rounded

    def write(k: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        layer = _Layer(k, (steps, batch, hidden), gates, wide, clip)
        given = dict(zip(names, ins[1:]))
        y, work = outs[0], outs[-1]

        def slot(state: int, parity: Expr, row: Expr, unit: Expr) -> Expr:
            return (state * 2 + parity) * size + row * hidden + unit

        for s, name in zip(range(states), "hc"):
            with k.loop(size, name="i") as i:
                start = cast(wide, k.load(given[name], i)) if name in given else tirx.FloatImm(wide, 0.0)
                k.store(work, s * 2 * size + i, start)
        with k.loop(steps, name="t") as t:
            now = steps - 1 - t if reverse else t
            old, new = t % 2, (t + 1) % 2

            def projection(row: Expr, gate: int, unit: Expr) -> Expr:
                at = ((now * batch + row) * gates + gate) * hidden + unit
                return cast(wide, k.load(ins[0], at))

            def state(s: int, row: Expr, unit: Expr) -> Expr:
                return k.load(work, slot(s, old, row, unit))

            def finish(row: Expr, unit: Expr, values: Sequence[Expr]) -> None:
                """Stores the new state; past the end of a row's sequence it stays, and Y is zero."""
                alive = k.bind(now < k.load(given["n"], row)) if "n" in given else None
                for s, value in enumerate(values):
                    kept = value if alive is None else tirx.Select(alive, value, state(s, row, unit))
                    k.store(work, slot(s, new, row, unit), kept)
                shown = values[0] if alive is None else tirx.Select(alive, values[0], tirx.FloatImm(wide, 0.0))
                k.store(y, (now * batch + row) * hidden + unit, cast(dtype, shown))

            if rounded:
                seen = 2 * states * size
                _rounded(k, work, old * size, seen, size, wide)
                layer.seen = lambda row, i: k.load(work, seen + row * hidden + i)
            cell = {"RNN": _rnn, "GRU": _gru_after if variant else _gru, "LSTM": _lstm}[kind]
            cell(layer, given, functions, projection, state, finish, work, 2 * size, variant)
        for s in range(states):
            with k.loop(size, name="i") as i:
                k.store(outs[1 + s], i, cast(dtype, k.load(work, (s * 2 + steps % 2) * size + i)))

    shapes = [((steps, batch, hidden), dtype), *[((batch, hidden), dtype)] * states, ((slots, batch, hidden), wide)]
    return written("recurrent", [projected, *operands], shapes, write)


def _rounded(k: KernelBuilder, work: Buffer, at: Expr, to: int, size: int, wide: str) -> None:
    """``size`` numbers at ``at``, as unsigned bytes of their own range can tell them, at ``to``; all are NaN if one is,
    or infinite: as DynamicQuantizeLinear has it."""
    zero, most = tirx.FloatImm(wide, 0.0), tirx.FloatImm(wide, 255.0)
    low, high = k.local("low", wide, 1), k.local("high", wide, 1)
    k.store(low, 0, zero)
    k.store(high, 0, zero)
    with k.loop(size, name="i") as i:
        number = k.bind(k.load(work, at + i))
        k.store(low, 0, smaller(low[0], number))
        k.store(high, 0, larger(high[0], number))
    span = k.bind(high[0] - low[0])
    scale = k.bind(tirx.Select(span == zero, tirx.FloatImm(wide, 1.0), span / most))
    offset = k.bind(exponential.nearest(k.bind((zero - low[0]) / scale), k.bind))
    with k.loop(size, name="i") as i:
        byte = exponential.nearest(k.bind(k.load(work, at + i) / scale), k.bind) + offset
        k.store(work, to + i, (_held(k, byte, 0, 255) - offset) * scale)


def _scaled(given: dict[str, Buffer], name: str) -> tuple[Buffer, Expr]:
    """Weights, and their scales or None."""
    return given[name], given.get(SCALES[name])


Projection = Callable[[Expr, int, Expr], Expr]
State = Callable[[int, Expr, Expr], Expr]
Finish = Callable[[Expr, Expr, Sequence[Expr]], None]


def _rnn(
    layer: _Layer, given: dict[str, Buffer], f: list[Function], projection: Projection, state: State, finish: Finish,
    _work: Buffer, _free: int, _variant: bool,
) -> None:  # fmt: skip
    k = layer.k

    def block(block: Expr, first: Expr) -> None:
        acc = layer.product(block, first, _scaled(given, "w"), 1, lambda row, i: state(0, row, i))
        for r in range(layer.rows):
            with k.loop(layer.lanes, "vectorized") as v:
                unit = layer.unit(block, v)
                total = k.bind(acc(r, 0, v) + projection(first + r, 0, unit))
                finish(first + r, unit, [k.bind(f[0](k, layer.clip(total)))])

    layer.over(block)


def _lstm(
    layer: _Layer, given: dict[str, Buffer], f: list[Function], projection: Projection, state: State, finish: Finish,
    _work: Buffer, _free: int, input_forget: bool,
) -> None:  # fmt: skip
    """Gates i, o, f, c; peepholes i, o, f."""
    k = layer.k

    def block(block: Expr, first: Expr) -> None:
        acc = layer.product(block, first, _scaled(given, "w"), 4, layer.seen or (lambda row, i: state(0, row, i)))
        for r in range(layer.rows):
            row = first + r
            with k.loop(layer.lanes, "vectorized") as v:
                unit = layer.unit(block, v)
                c = k.bind(state(1, row, unit))

                def gate(index: int, act: Function, peep: Expr | None = None) -> Expr:
                    total = acc(r, index, v) + projection(row, index, unit)  # noqa: B023
                    if peep is not None and "p" in given:
                        place = index * layer.hidden + unit  # noqa: B023
                        total = total + peep * cast(layer.wide, k.load(given["p"], place))
                    return k.bind(act(k, layer.clip(k.bind(total))))

                i = gate(0, f[0], c)
                forget = k.bind(_const(1, i) - i) if input_forget else gate(2, f[0], c)
                fresh = k.bind(forget * c + i * gate(3, f[1]))
                o = gate(1, f[0], fresh)
                finish(row, unit, [k.bind(o * f[2](k, fresh)), fresh])

    layer.over(block)


def _gru_after(
    layer: _Layer, given: dict[str, Buffer], f: list[Function], projection: Projection, state: State, finish: Finish,
    _work: Buffer, _free: int, _variant: bool,
) -> None:  # fmt: skip
    """Gates z, r, h; the reset gate scales the product: h~ = g(x + r * (h R + b))."""
    k = layer.k

    def block(block: Expr, first: Expr) -> None:
        acc = layer.product(block, first, _scaled(given, "w"), 3, lambda row, i: state(0, row, i))
        for r in range(layer.rows):
            row = first + r
            with k.loop(layer.lanes, "vectorized") as v:
                unit = layer.unit(block, v)
                z, reset = (
                    k.bind(f[0](k, layer.clip(k.bind(acc(r, g, v) + projection(row, g, unit))))) for g in (0, 1)
                )
                inner = acc(r, 2, v)
                if "b" in given:
                    inner = inner + cast(layer.wide, k.load(given["b"], unit))
                total = k.bind(projection(row, 2, unit) + reset * inner)
                finish(row, unit, [_mixed(k, z, k.bind(f[1](k, layer.clip(total))), state(0, row, unit))])

    layer.over(block)


def _gru(
    layer: _Layer, given: dict[str, Buffer], f: list[Function], projection: Projection, state: State, finish: Finish,
    work: Buffer, free: int, _variant: bool,
) -> None:  # fmt: skip
    """Gates z, r, h; the reset gate scales the state before the product: h~ = g(x + (r * h) R), so there are two."""
    k, size = layer.k, layer.batch * layer.hidden

    def gates(block: Expr, first: Expr) -> None:
        acc = layer.product(block, first, _scaled(given, "w"), 2, lambda row, i: state(0, row, i))
        for r in range(layer.rows):
            row = first + r
            with k.loop(layer.lanes, "vectorized") as v:
                unit = layer.unit(block, v)
                z, reset = (
                    k.bind(f[0](k, layer.clip(k.bind(acc(r, g, v) + projection(row, g, unit))))) for g in (0, 1)
                )
                k.store(work, free + row * layer.hidden + unit, reset * state(0, row, unit))
                k.store(work, free + size + row * layer.hidden + unit, z)

    def fresh(block: Expr, first: Expr) -> None:
        scaled = lambda row, i: k.load(work, free + row * layer.hidden + i)  # noqa: E731
        acc = layer.product(block, first, _scaled(given, "u"), 1, scaled)
        for r in range(layer.rows):
            row = first + r
            with k.loop(layer.lanes, "vectorized") as v:
                unit = layer.unit(block, v)
                z = k.bind(k.load(work, free + size + row * layer.hidden + unit))
                total = k.bind(acc(r, 0, v) + projection(row, 2, unit))
                finish(row, unit, [_mixed(k, z, k.bind(f[1](k, layer.clip(total))), state(0, row, unit))])

    layer.over(gates)
    layer.over(fresh)


def _mixed(k: KernelBuilder, z: Expr, new: Expr, old: Expr) -> Expr:
    return k.bind((_const(1, z) - z) * new + z * old)

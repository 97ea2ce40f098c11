"""LSTM, GRU and RNN over a sequence of known length, written out step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax

from ..node import Node
from ..registry import Refusal, converts
from ..value import Value

R = relax.op

LONGEST = 256  # steps (times directions) that are written out; longer sequences are refused

Activation = Callable[[Node, Value], Value]


def _affine(alpha: float, beta: float) -> Activation:
    return lambda n, x: n.do(R.add, n.do(R.multiply, x, n.scalar(alpha, x)), n.scalar(beta, x))


def _hard_sigmoid(alpha: float, beta: float) -> Activation:
    def apply(n: Node, x: Value) -> Value:
        line = _affine(alpha, beta)(n, x)
        return n.do(R.minimum, n.do(R.maximum, line, n.scalar(0, x)), n.scalar(1, x))

    return apply


_ACTIVATIONS: dict[str, Callable[[float | None, float | None], Activation]] = {
    "sigmoid": lambda _a, _b: lambda n, x: n.do(R.sigmoid, x),
    "tanh": lambda _a, _b: lambda n, x: n.do(R.tanh, x),
    "relu": lambda _a, _b: lambda n, x: n.do(R.nn.relu, x),
    "affine": lambda a, b: _affine(1.0 if a is None else a, 0.0 if b is None else b),
    "leakyrelu": lambda a, _b: lambda n, x: n.do(R.nn.leakyrelu, x, alpha=0.01 if a is None else a),
    "hardsigmoid": lambda a, b: _hard_sigmoid(0.2 if a is None else a, 0.5 if b is None else b),
    "softsign": lambda _a, _b: lambda n, x: n.do(R.divide, x, n.do(R.add, n.do(R.abs, x), n.scalar(1, x))),
    "scaledtanh": lambda a, b: (
        lambda n, x: n.do(
            R.multiply,
            n.do(R.tanh, n.do(R.multiply, x, n.scalar(1.0 if b is None else b, x))),
            n.scalar(1.0 if a is None else a, x),
        )
    ),
}


@dataclass(frozen=True)
class Cell:
    """One direction of a recurrent operator: its weights, split by gate, and its activations."""

    node: Node
    hidden: int
    recurrent: Value  # [gates * H, H]
    bias_w: Value | None
    bias_r: Value | None
    peephole: Value | None
    activations: list[Activation]

    def clip(self, x: Value) -> Value:
        limit = self.node.attr("clip")
        if limit is None:
            return x
        n = self.node
        return n.do(R.minimum, n.do(R.maximum, x, n.scalar(-limit, x)), n.scalar(limit, x))

    def gate(self, x: Value, index: int) -> Value:
        return self.node.slice(x, 1, index * self.hidden, (index + 1) * self.hidden)

    def row(self, vector: Value | None, index: int) -> Value | None:
        """Gate ``index`` of a bias or peephole vector as [1, H]."""
        if vector is None:
            return None
        part = self.node.slice(vector, 0, index * self.hidden, (index + 1) * self.hidden)
        return self.node.reshape(part, (1, self.hidden))

    def through(self, h: Value, first: int, last: int) -> Value:
        """h @ R^T for the gates first..last."""
        n = self.node
        weights = n.slice(self.recurrent, 0, first * self.hidden, last * self.hidden)
        return n.do(R.matmul, h, n.transpose(weights, [1, 0]))

    def plus(self, x: Value, *terms: Value | None) -> Value:
        for term in terms:
            x = x if term is None else self.node.do(R.add, x, term)
        return x


Step = Callable[[Cell, Value, list[Value]], "list[Value]"]


def _rnn(cell: Cell, x: Value, state: list[Value]) -> list[Value]:
    total = cell.plus(x, cell.through(state[0], 0, 1), cell.row(cell.bias_r, 0))
    return [cell.activations[0](cell.node, cell.clip(total))]


def _gru(cell: Cell, x: Value, state: list[Value]) -> list[Value]:
    """Gates z, r, h; with linear_before_reset the reset gate scales the product instead of the state."""
    n, h = cell.node, state[0]
    f, g = cell.activations[:2]
    both = cell.through(h, 0, 2)
    z = f(n, cell.clip(cell.plus(cell.gate(x, 0), cell.gate(both, 0), cell.row(cell.bias_r, 0))))
    r = f(n, cell.clip(cell.plus(cell.gate(x, 1), cell.gate(both, 1), cell.row(cell.bias_r, 1))))
    if n.attr("linear_before_reset", 0):
        inner = cell.plus(cell.through(h, 2, 3), cell.row(cell.bias_r, 2))
        total = cell.plus(cell.gate(x, 2), n.do(R.multiply, r, inner))
    else:
        reset = cell.through(n.do(R.multiply, r, h), 2, 3)
        total = cell.plus(cell.gate(x, 2), reset, cell.row(cell.bias_r, 2))
    new = g(n, cell.clip(total))
    keep = n.do(R.multiply, z, h)
    return [n.do(R.add, n.do(R.multiply, n.do(R.subtract, n.scalar(1, z), z), new), keep)]


def _lstm(cell: Cell, x: Value, state: list[Value]) -> list[Value]:
    """Gates i, o, f, c, with peepholes i, o, f."""
    n, (h, c) = cell.node, state
    f, g, last = cell.activations[:3]
    total = cell.plus(x, cell.through(h, 0, 4))
    if cell.bias_r is not None:
        total = n.do(R.add, total, n.reshape(cell.bias_r, (1, 4 * cell.hidden)))

    def peep(index: int, c: Value) -> Value | None:
        row = cell.row(cell.peephole, index)
        return None if row is None else n.do(R.multiply, c, row)

    i = f(n, cell.clip(cell.plus(cell.gate(total, 0), peep(0, c))))
    if n.attr("input_forget", 0):
        forget = n.do(R.subtract, n.scalar(1, i), i)
    else:
        forget = f(n, cell.clip(cell.plus(cell.gate(total, 2), peep(2, c))))
    candidate = g(n, cell.clip(cell.gate(total, 3)))
    new_c = n.do(R.add, n.do(R.multiply, forget, c), n.do(R.multiply, i, candidate))
    o = f(n, cell.clip(cell.plus(cell.gate(total, 1), peep(1, new_c))))
    return [n.do(R.multiply, o, last(n, new_c)), new_c]


_KINDS: dict[str, tuple[Step, int, list[str]]] = {
    "RNN": (_rnn, 1, ["Tanh"]),
    "GRU": (_gru, 3, ["Sigmoid", "Tanh"]),
    "LSTM": (_lstm, 4, ["Sigmoid", "Tanh", "Tanh"]),
}


@converts("RNN", "GRU", "LSTM", since=7)
def recurrent(node: Node) -> list[Value | None]:
    """Y [T, D, B, H] (or [B, T, D, H] with layout 1), the last state, and for LSTM the last cell."""
    step, gates, _ = _KINDS[node.operator]
    x, w = node.need(0), node.need(1)
    batch_first = bool(node.attr("layout", 0))
    if batch_first:
        x = node.transpose(x, [1, 0, 2])
    length, batch, width = x.shape
    directions, hidden = w.shape[0], w.shape[1] // gates
    if length * directions > LONGEST:
        raise Refusal(f"a sequence of {length} steps in {directions} directions is longer than {LONGEST}")
    lengths = node[4]
    if lengths is not None and lengths.array is not None and (lengths.array == length).all():
        lengths = None
    flat = node.reshape(x, (length * batch, width))
    states = 2 if node.operator == "LSTM" else 1
    all_steps: list[list[Value]] = []
    finals: list[list[Value]] = []
    for d in range(directions):
        backwards = d == 1 or node.attr("direction", "forward") == "reverse"
        cell = _cell(node, d, gates, hidden, directions)
        weights = node.reshape(node.slice(w, 0, d, d + 1), w.shape[1:])
        projected = node.do(R.matmul, flat, node.transpose(weights, [1, 0]))
        if cell.bias_w is not None:
            projected = node.do(R.add, projected, node.reshape(cell.bias_w, (1, gates * hidden)))
        state = [_initial(node, 5 + s, d, batch, hidden, batch_first, x.dtype) for s in range(states)]
        outputs: dict[int, Value] = {}
        for t in reversed(range(length)) if backwards else range(length):
            now = node.slice(projected, 0, t * batch, (t + 1) * batch)
            new = step(cell, now, state)
            if lengths is None:
                state, outputs[t] = new, new[0]
                continue
            # Past the end of a sequence nothing changes and the output is zero. Backwards, a shorter sequence
            # simply starts later, from the initial state, which it then still has.
            alive = node.do(R.less, node.scalar(t, lengths), node.reshape(lengths, (batch, 1)))
            outputs[t] = node.do(R.where, alive, new[0], node.scalar(0, new[0]))
            state = [node.do(R.where, alive, n, o) for n, o in zip(new, state)]
        all_steps.append([outputs[t] for t in range(length)])
        finals.append(state)
    return _assembled(node, all_steps, finals, batch_first, (length, batch, hidden))


def _cell(node: Node, d: int, gates: int, hidden: int, directions: int) -> Cell:
    def part(index: int, shape: tuple[int, ...]) -> Value | None:
        value = node[index]
        return None if value is None else node.reshape(node.slice(value, 0, d, d + 1), shape)

    bias = part(3, (2 * gates * hidden,))
    weights = part(2, (gates * hidden, hidden))
    assert weights is not None
    names = node.attr("activations") or _KINDS[node.operator][2] * directions
    per = len(names) // directions
    alphas, betas = list(node.attr("activation_alpha", [])), list(node.attr("activation_beta", []))
    activations = []
    for i, name in enumerate(names):
        make = _ACTIVATIONS.get(name.lower())
        if make is None:
            raise Refusal(f"its activation '{name}' is not supported")
        takes_alpha = name.lower() in ("affine", "leakyrelu", "hardsigmoid", "scaledtanh")
        takes_beta = name.lower() in ("affine", "hardsigmoid", "scaledtanh")
        alpha = alphas.pop(0) if takes_alpha and alphas else None
        beta = betas.pop(0) if takes_beta and betas else None
        if d * per <= i < (d + 1) * per:
            activations.append(make(alpha, beta))
    return Cell(
        node,
        hidden,
        weights,
        None if bias is None else node.slice(bias, 0, 0, gates * hidden),
        None if bias is None else node.slice(bias, 0, gates * hidden, 2 * gates * hidden),
        part(7, (3 * hidden,)) if node.operator == "LSTM" else None,
        activations,
    )


def _initial(node: Node, index: int, d: int, batch: int, hidden: int, batch_first: bool, dtype: str) -> Value:
    given = node[index]
    if given is None:
        return node.const(np.zeros((batch, hidden), dtype))
    return node.reshape(node.slice(given, 1 if batch_first else 0, d, d + 1), (batch, hidden))


def _assembled(
    node: Node,
    steps: list[list[Value]],
    finals: list[list[Value]],
    batch_first: bool,
    shape: tuple[int, int, int],
) -> list[Value | None]:
    length, batch, hidden = shape

    def joined(values: list[Value], axis: int) -> Value:
        return values[0] if len(values) == 1 else node.do(R.concat, values, axis=axis)

    results: list[Value | None] = [None]
    if node.wants(0):
        per_step = [
            joined([node.reshape(s[t], (1, 1, batch, hidden)) for s in steps], 1) for t in range(length)
        ]
        y = joined(per_step, 0)
        results[0] = node.transpose(y, [2, 0, 1, 3]) if batch_first else y
    for s in range(len(finals[0])):
        if not node.wants(1 + s):
            results.append(None)
            continue
        last = joined([node.reshape(f[s], (1, batch, hidden)) for f in finals], 0)
        results.append(node.transpose(last, [1, 0, 2]) if batch_first else last)
    return results

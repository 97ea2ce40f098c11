"""LSTM, GRU and RNN over a sequence of known length.

Each direction becomes one matrix product over all steps and one kernel with the loop over time (halotile.recurrent).
Weights that are only known at run time can't be packed for it; then the steps are written out, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ....errors import several
from ....schedules.operators.recurrent import ACTIVATIONS, packed
from ....schedules.words.dims import Open, is_open
from ....schedules.words.refusal import Refusal
from ..implied import require_at_least, require_equal, require_same
from ..node import OnnxNode
from ..registry import converts
from ..value import OnnxValue
from .movement import concatenated

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op

LONGEST = 256  # steps (times directions) that are written out; more are refused

ROUNDED = "rounded_state"  # an attribute of ours: the product sees an LSTM's state rounded to bytes

Activation = Callable[[OnnxNode, OnnxValue], OnnxValue]


def _affine(alpha: float, beta: float) -> Activation:
    return lambda n, x: n.do(R.add, n.do(R.multiply, x, n.scalar(alpha, x)), n.scalar(beta, x))


def _hard_sigmoid(alpha: float, beta: float) -> Activation:
    def apply(n: OnnxNode, x: OnnxValue) -> OnnxValue:
        line = _affine(alpha, beta)(n, x)
        return n.do(R.minimum, n.do(R.maximum, line, n.scalar(0, x)), n.scalar(1, x))

    return apply


def _softplus(n: OnnxNode, x: OnnxValue) -> OnnxValue:
    decay = n.do(R.exp, n.do(R.negative, n.do(R.abs, x)))
    return n.do(R.add, n.do(R.nn.relu, x), n.do(R.log, n.do(R.add, decay, n.scalar(1, x))))


def _elu(alpha: float) -> Activation:
    def apply(n: OnnxNode, x: OnnxValue) -> OnnxValue:
        grown = n.do(R.exp, n.do(R.minimum, x, n.scalar(0, x)))
        below = n.do(R.multiply, n.do(R.subtract, grown, n.scalar(1, x)), n.scalar(alpha, x))
        return n.do(R.where, n.do(R.less, x, n.scalar(0, x)), below, x)

    return apply


def _thresholded(alpha: float) -> Activation:
    return lambda n, x: n.do(R.where, n.do(R.less_equal, x, n.scalar(alpha, x)), n.scalar(0, x), x)


_ACTIVATIONS: dict[str, Callable[[float, float], Activation]] = {
    "sigmoid": lambda _a, _b: lambda n, x: n.do(R.sigmoid, x),
    "tanh": lambda _a, _b: lambda n, x: n.do(R.tanh, x),
    "relu": lambda _a, _b: lambda n, x: n.do(R.nn.relu, x),
    "affine": _affine,
    "leakyrelu": lambda a, _b: lambda n, x: n.do(R.nn.leakyrelu, x, alpha=a),
    "hardsigmoid": _hard_sigmoid,
    "softsign": lambda _a, _b: lambda n, x: n.do(R.divide, x, n.do(R.add, n.do(R.abs, x), n.scalar(1, x))),
    "softplus": lambda _a, _b: _softplus,
    "elu": lambda a, _b: _elu(a),
    "thresholdedrelu": lambda a, _b: _thresholded(a),
    "scaledtanh": lambda a, b: (
        lambda n, x: n.do(
            R.multiply, n.do(R.tanh, n.do(R.multiply, x, n.scalar(b, x))), n.scalar(a, x)
        )
    ),
}


@dataclass(frozen=True)
class Cell:
    """One direction of a recurrent operator: its weights, split by gate, and its activations."""

    node: OnnxNode
    hidden: int
    recurrent: OnnxValue  # [gates * H, H]
    bias_w: OnnxValue | None
    bias_r: OnnxValue | None
    peephole: OnnxValue | None
    activations: list[Activation]

    def clip(self, x: OnnxValue) -> OnnxValue:
        limit = self.node.attr("clip")
        if limit is None:
            return x
        n = self.node
        return n.do(R.minimum, n.do(R.maximum, x, n.scalar(-limit, x)), n.scalar(limit, x))

    def gate(self, x: OnnxValue, index: int) -> OnnxValue:
        return self.node.slice(x, 1, index * self.hidden, (index + 1) * self.hidden)

    def row(self, vector: OnnxValue | None, index: int) -> OnnxValue | None:
        """Gate ``index`` of a bias or peephole vector as [1, H]."""
        if vector is None:
            return None
        part = self.node.slice(vector, 0, index * self.hidden, (index + 1) * self.hidden)
        return self.node.reshape(part, (1, self.hidden))

    def through(self, h: OnnxValue, first: int, last: int) -> OnnxValue:
        """h @ R^T for the gates first..last."""
        n = self.node
        weights = n.slice(self.recurrent, 0, first * self.hidden, last * self.hidden)
        return n.do(R.matmul, h, n.transpose(weights, [1, 0]))

    def plus(self, x: OnnxValue, *terms: OnnxValue | None) -> OnnxValue:
        for term in terms:
            x = x if term is None else self.node.do(R.add, x, term)
        return x


Step = Callable[[Cell, OnnxValue, list[OnnxValue]], "list[OnnxValue]"]


def _rnn(cell: Cell, x: OnnxValue, state: list[OnnxValue]) -> list[OnnxValue]:
    total = cell.plus(x, cell.through(state[0], 0, 1), cell.row(cell.bias_r, 0))
    return [cell.activations[0](cell.node, cell.clip(total))]


def _gru(cell: Cell, x: OnnxValue, state: list[OnnxValue]) -> list[OnnxValue]:
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


def _lstm(cell: Cell, x: OnnxValue, state: list[OnnxValue]) -> list[OnnxValue]:
    """Gates i, o, f, c, with peepholes i, o, f."""
    n, (h, c) = cell.node, state
    f, g, last = cell.activations[:3]
    total = cell.plus(x, cell.through(h, 0, 4))
    if cell.bias_r is not None:
        total = n.do(R.add, total, n.reshape(cell.bias_r, (1, 4 * cell.hidden)))

    def peep(index: int, c: OnnxValue) -> OnnxValue | None:
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
def recurrent(node: OnnxNode) -> list[OnnxValue | None]:
    """Y [T, D, B, H] (or [B, T, D, H] with layout 1), the last state, and for LSTM the last cell."""
    step, gates, _ = _KINDS[node.operator]
    _refuse_clip(node)
    x, w = node.need(0), node.need(1)
    batch_first = bool(node.attr("layout", 0))
    if batch_first:
        x = node.transpose(x, [1, 0, 2])
    length, batch, width = x.shape
    directions, hidden = w.shape[0], w.shape[1] // gates
    _require_fit(node, batch, width, w, batch_first)
    require_at_least(length, 1, "its sequence has no steps", why="a recurrent layer has steps")
    packable = node.need(2).array is not None
    if not packable and is_open([length]):
        raise Open(f"its sequence has {several(length, 'step')}, and its recurrent weights are computed at run time")
    if not packable and length * directions > LONGEST:
        raise Refusal(
            f"a sequence of {length} steps in {directions} directions is longer than {LONGEST}, "
            "and its recurrent weights are computed at run time"
        )
    lengths = node[4]
    if lengths is not None and lengths.array is not None and (lengths.array == length).all():
        lengths = None
    flat = node.reshape(x, (length * batch, width))
    states = 2 if node.operator == "LSTM" else 1
    all_steps: list[list[OnnxValue]] = []
    finals: list[list[OnnxValue]] = []
    for d in range(directions):
        backwards = d == 1 or node.attr("direction", "forward") == "reverse"
        if packable:
            y, *final = _kernel(node, d, flat, (length, batch), backwards, lengths, batch_first)
            all_steps.append([y])
            finals.append(final)
            continue
        cell = _cell(node, d, gates, hidden, directions)
        weights = node.reshape(node.slice(w, 0, d, d + 1), w.shape[1:])
        projected = node.do(R.matmul, flat, node.transpose(weights, [1, 0]))
        if cell.bias_w is not None:
            projected = node.do(R.add, projected, node.reshape(cell.bias_w, (1, gates * hidden)))
        state = [_initial(node, 5 + s, d, batch, hidden, batch_first, x.dtype) for s in range(states)]
        outputs: dict[int, OnnxValue] = {}
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
    finals = [[_of_no_steps(node, lengths, s, node[5 + i]) for i, s in enumerate(final)] for final in finals]
    return _assembled(node, all_steps, finals, batch_first, (length, batch, hidden))


def _kernel(
    node: OnnxNode,
    d: int,
    flat: OnnxValue,
    steps: tuple[int, int],
    backwards: bool,
    lengths: OnnxValue | None,
    batch_first: bool,
) -> list[OnnxValue]:
    """One direction: Y [T, B, H], the last state [B, H], and for LSTM the last cell, of ``steps`` (T, B)."""
    length, batch = steps
    kind, w = node.operator, node.need(1)
    _, gates, _ = _KINDS[kind]
    hidden, directions = w.shape[1] // gates, w.shape[0]
    recurrent_weights, bias, peepholes = node.need(2).array, node[3], node[7] if kind == "LSTM" else None
    assert recurrent_weights is not None
    variant = bool(node.attr({"GRU": "linear_before_reset", "LSTM": "input_forget"}.get(kind, ""), 0))
    projected = node.do(R.matmul, flat, node.transpose(node.reshape(_direction(node, w, d), w.shape[1:]), [1, 0]))
    operands: list[tuple[str, OnnxValue]] = []
    weights = recurrent_weights[d]
    if kind == "GRU" and not variant:
        operands.append(("w", node.const(packed(weights[: 2 * hidden], hidden))))
        operands.append(("u", node.const(packed(weights[2 * hidden :], hidden))))
    else:
        operands.append(("w", node.const(packed(weights, hidden))))
    for name, index in (("h", 5), ("c", 6)):
        if node.has(index) and (name == "h" or kind == "LSTM"):
            operands.append((name, _initial(node, index, d, batch, hidden, batch_first, flat.dtype)))
    if bias is not None:
        size = gates * hidden
        both = node.reshape(_direction(node, bias, d), (2 * size,))
        outside, inside = node.slice(both, 0, 0, size), node.slice(both, 0, size, 2 * size)
        if kind == "GRU" and variant:  # the hidden gate's own bias belongs inside of what the reset gate scales
            operands.append(("b", node.slice(inside, 0, 2 * hidden, size)))
            known = np.r_[np.ones(2 * hidden), np.zeros(hidden)].astype(flat.dtype)
            inside = node.do(R.multiply, inside, node.const(known))
        total = node.do(R.add, outside, inside)
        projected = node.do(R.add, projected, node.reshape(total, (1, size)))
    projected = node.reshape(projected, (length, batch, gates * hidden))
    if peepholes is not None:
        operands.append(("p", node.reshape(_direction(node, peepholes, d), (3 * hidden,))))
    if lengths is not None:
        operands.append(("n", node.cast(lengths, "int32")))
    chosen = _activations(node, d, directions)
    results = node.own_many(
        "halotile.recurrent",
        projected,
        *(v for _, v in operands),
        kind=kind,
        hidden=hidden,
        names="".join(n for n, _ in operands),
        activations=[n for n, _, _ in chosen],
        alphas=[float(a) for _, a, _ in chosen],
        betas=[float(b) for _, _, b in chosen],
        clip=float(node.attr("clip", 0.0)),
        reverse=backwards,
        variant=variant,
        rounded=node.attr(ROUNDED),
    )
    return results[:-1]


def _direction(node: OnnxNode, value: OnnxValue, d: int) -> OnnxValue:
    return value if value.shape[0] == 1 else node.slice(value, 0, d, d + 1)


def _refuse_clip(node: OnnxNode) -> None:
    """ONNX says nothing of a limit that is not positive. ONNX Runtime refuses it but in an RNN, where 0 makes all sums
    0 and less is none."""
    limit = node.attr("clip")
    if limit is not None and not limit > 0:
        raise Refusal(f"its clip is {limit:g}, which has to be above 0; left out, nothing is clipped")


# Where alpha and beta are left out: those of ONNX's operators, which names none for Affine and ScaledTanh. ONNX Runtime
# has 0 for these two, which makes all results 0, and for ThresholdedRelu.
_DEFAULTS = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, 0.0),
    "thresholdedrelu": (1.0, 0.0),
    "elu": (1.0, 0.0),
    "hardsigmoid": (0.2, 0.5),
    "scaledtanh": (1.0, 1.0),
}
_ALPHA_ALONE = ("leakyrelu", "thresholdedrelu", "elu")


def _activations(node: OnnxNode, d: int, directions: int) -> list[tuple[str, float, float]]:
    """(name in lower case, alpha, beta) of each activation of direction ``d``."""
    names = [n.lower() for n in node.attr("activations") or _KINDS[node.operator][2] * directions]
    per = len(_KINDS[node.operator][2])
    more = node.operator == "RNN" and len(names) > directions  # ONNX's own default has two
    if len(names) != per * directions and not more:
        raise Refusal(f"it has {len(names)} activations and needs {per * directions}: {per} for each direction")
    alphas, betas = list(node.attr("activation_alpha", [])), list(node.attr("activation_beta", []))
    found: list[tuple[str, float, float]] = []
    for name in names:
        if name not in ACTIVATIONS:
            raise Refusal(f"its activation '{name}' is not supported")
        alpha, beta = _DEFAULTS.get(name, (0.0, 0.0))
        if name in _DEFAULTS and alphas:
            alpha = alphas.pop(0)
        if name in _DEFAULTS and name not in _ALPHA_ALONE and betas:
            beta = betas.pop(0)
        found.append((name, alpha, beta))
    return found[d * per : (d + 1) * per]


def _cell(node: OnnxNode, d: int, gates: int, hidden: int, directions: int) -> Cell:
    def part(index: int, shape: tuple[int, ...]) -> OnnxValue | None:
        value = node[index]
        return None if value is None else node.reshape(node.slice(value, 0, d, d + 1), shape)

    bias = part(3, (2 * gates * hidden,))
    weights = part(2, (gates * hidden, hidden))
    assert weights is not None
    activations = [_ACTIVATIONS[name](alpha, beta) for name, alpha, beta in _activations(node, d, directions)]
    return Cell(
        node,
        hidden,
        weights,
        None if bias is None else node.slice(bias, 0, 0, gates * hidden),
        None if bias is None else node.slice(bias, 0, gates * hidden, 2 * gates * hidden),
        part(7, (3 * hidden,)) if node.operator == "LSTM" else None,
        activations,
    )


def _require_fit(node: OnnxNode, batch: SizeLike, width: SizeLike, w: OnnxValue, batch_first: bool) -> None:
    """What it reads must be as wide as its weights, and its lengths and initial states of as many sequences."""
    require_equal(width, w.shape[2], f"the width of {node.need(0)} and of its weights {w}")
    r, bias, peephole = node.need(2), node[3], node[7] if node.operator == "LSTM" else None
    directions, rows, hidden = w.shape[0], w.shape[1], r.shape[-1]
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[node.operator]
    require_same(r.shape, (directions, rows, hidden), f"its recurrent weights {r} beside {w}")
    require_equal(rows, gates * hidden, f"the gates of {w} and {r}")
    for vector, length in ((bias, 2 * rows), (peephole, 3 * hidden)):
        if vector is not None:
            require_same(vector.shape, (directions, length), f"{vector} beside the weights {w}")
    for index, axis in ((4, 0), (5, 0 if batch_first else 1), (6, 0 if batch_first else 1)):
        given = node[index]
        if given is not None and given.rank > axis:
            require_equal(given.shape[axis], batch, f"the batch of {node.need(0)} and of operand {index}, {given}")


def _initial(
    node: OnnxNode, index: int, d: int, batch: SizeLike, hidden: int, batch_first: bool, dtype: str
) -> OnnxValue:
    given = node[index]
    if given is None:
        zeros = node.const(np.zeros((1 if is_open([batch]) else batch, hidden), dtype))
        return node.broadcast(zeros, (batch, hidden))
    return node.reshape(node.slice(given, 1 if batch_first else 0, d, d + 1), (batch, hidden))


def _of_no_steps(node: OnnxNode, lengths: OnnxValue | None, state: OnnxValue, initial: OnnxValue | None) -> OnnxValue:
    """A last state, zero for sequences without steps: ONNX Runtime drops the initial one, and ONNX does not say."""
    if lengths is None or initial is None or (lengths.array is not None and (lengths.array > 0).all()):
        return state
    some = node.do(R.greater, node.reshape(lengths, (state.shape[0], 1)), node.scalar(0, lengths))
    return node.do(R.where, some, state, node.scalar(0, state))


def _assembled(
    node: OnnxNode,
    steps: list[list[OnnxValue]],
    finals: list[list[OnnxValue]],
    batch_first: bool,
    shape: tuple[SizeLike, SizeLike, SizeLike],
) -> list[OnnxValue | None]:
    length, batch, hidden = shape

    def joined(values: list[OnnxValue], axis: int) -> OnnxValue:
        return concatenated(node, values, axis)

    results: list[OnnxValue | None] = [None]
    if node.wants(0):
        if all(len(s) == 1 for s in steps):  # whole sequences
            y = joined([node.reshape(s[0], (length, 1, batch, hidden)) for s in steps], 1)
        else:
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

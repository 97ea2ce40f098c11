"""Control flow that import can decide: If with a known condition, Loop and Scan with a known number of rounds.

Loop(3, true, x) { y = f(x) }     becomes     f(f(f(x)))

Where a condition is only known at run time, both branches are computed, and as many rounds as there can be.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import onnx
from tvm import relax

from ...schedules.words.dims import Open, is_open
from ...schedules.words.refusal import Refusal
from ...schedules.words.sizes import symbols_of
from .branches import either
from .converters.movement import concatenated
from .deciding import deciding, flags
from .lengths import most_of
from .node import Node, normal_axis
from .parts import with_part
from .sequences import Operands, map_sequence
from .slot import Slot
from .value import POISON, Poison, Value, unknown

LONGEST = 256  # rounds that are written out


class Run(Protocol):
    def __call__(
        self, graph: onnx.GraphProto, given: dict[str, Slot], part: str, guarded: bool = False, /
    ) -> list[Slot]:
        """The outputs of a body for the ``given`` inputs; ``guarded`` by a condition of run time."""


def graph_attribute(proto: onnx.NodeProto, name: str) -> onnx.GraphProto:
    for attribute in proto.attribute:
        if attribute.name == name:
            return attribute.g
    raise Refusal(f"it has no {name}")


def run_if(proto: onnx.NodeProto, inputs: Operands, run: Run, node: Node) -> list[Slot]:
    """The branch that a known condition takes; for one of run time both, and a choice between their results."""
    condition = inputs[0].array if inputs and isinstance(inputs[0], Value) else None
    if condition is None:
        given = _tensor(inputs[0] if inputs else None)
        if given.is_symbolic:
            raise Open("its condition depends on open dimensions")
        branches = [run(graph_attribute(proto, name), {}, name, True) for name in ("then_branch", "else_branch")]
        return [_chosen(node, node.reshape(given, ()), a, b) for a, b in zip(*branches)]
    return run_branch(proto, bool(condition.reshape(-1)[0]), run)


def run_branch(proto: onnx.NodeProto, truth: bool, run: Run) -> list[Slot]:
    """The branch that an If takes on a condition."""
    wanted = "then_branch" if truth else "else_branch"
    return run(graph_attribute(proto, wanted), {}, wanted)


def _chosen(node: Node, condition: Value, a: Slot, b: Slot) -> Slot:
    if isinstance(a, Poison) or isinstance(b, Poison):
        return POISON
    if isinstance(a, Value) and isinstance(b, Value):
        result = either(node, condition, a, b)
        if result is not None:
            return result
    names = deciding(condition.expr)
    way = f"; it follows from {', '.join(map(repr, names))}, and {flags(names)} leaves one branch" if names else ""
    what = f"its branches give {a} and {b}, which differ in form"
    raise Refusal(f"its condition is computed at run time, and {what}{way}", names)


def run_loop(
    proto: onnx.NodeProto, inputs: Operands, run: Run, node: Node
) -> list[Slot]:
    """Writes the rounds out, as many as there can be: the number, or a bound of it, must be known at import.

    What a round leaves is taken where it is run: where all conditions before it held, and the number is not reached.
    """
    body = graph_attribute(proto, "body")
    limit, most = _limit(inputs[0])
    going: Slot = inputs[1] if len(inputs) > 1 else None
    state: list[Slot] = list(inputs[2:])
    names = [i.name for i in body.input]
    scanned: list[list[Value]] = [[] for _ in body.output[1 + len(state) :]]
    held: Value | None = None  # whether this round is run; None for certainly
    holds: list[Value | None] = []
    while most is None or len(holds) < most:
        number = len(holds)
        held = _and(node, held, _condition(going))
        if held is not None and held.array is not None:
            break  # a known condition is one that does not hold
        if held is not None and (most is None or most > LONGEST):
            inputs_ = deciding(held.expr)
            way = f"; {flags(inputs_)} makes the condition a constant" if inputs_ else ""
            raise Refusal(
                f"its condition is computed at run time, and the number of its rounds is no small constant{way}",
                inputs_,
            )
        if number >= LONGEST:
            raise Refusal(f"it has more than {LONGEST} rounds")
        here = held if limit is None else _and(node, held, node.do(relax.op.less, node.const(number, "int64"), limit))
        counter: list[Slot] = [node.const(number, "int64"), node.const(True, "bool")]
        results = run(body, dict(zip(names, [*counter, *state])), f"round {number}", here is not None)
        if any(isinstance(r, Poison) for r in results):
            return [POISON] * len(proto.output)
        going, left = results[0], results[1 : 1 + len(state)]
        state = left if here is None else [_chosen(node, here, a, b) for a, b in zip(left, state)]
        for kept, value in zip(scanned, results[1 + len(state) :]):
            kept.append(_tensor(value))
        holds.append(here)
    if any(not s for s in scanned):  # no rounds: one is looked at for the shapes
        given = dict(zip(names, [node.const(0, "int64"), node.const(True, "bool"), *state]))
        results = run(body, given, "round 0", True)
        if any(isinstance(r, Poison) for r in results):
            return [POISON] * len(proto.output)
        return [*state, *(_none_of(node, _tensor(r)) for r in results[1 + len(state) :])]
    stacked = [_stacked(node, s, 0, False) for s in scanned]
    if stacked and any(h is not None for h in holds):
        rounds = [node.const([1], "int64") if h is None else node.cast(node.reshape(h, (1,)), "int64") for h in holds]
        total = rounds[0]
        for more in rounds[1:]:
            total = node.do(relax.op.add, total, more)
        stacked = [with_part(s, 0, total) for s in stacked]
    return [*state, *stacked]


def _none_of(node: Node, row: Value) -> Value:
    """No rows of this shape."""
    if is_open(row.shape):
        raise Open("it has no rounds, and the shape of its scanned outputs is open")
    return node.const(np.empty((0, *row.shape), row.dtype))


def _limit(value: Slot) -> tuple[Value | None, int | None]:
    """The number of rounds of run time (int64 []), if it is one, and the most that it can be; None where it is open."""
    if not isinstance(value, Value):
        return None, None
    if value.array is not None or value.numbers is None:
        return None, _scalar(value, "the number of its rounds")
    return value, most_of(value.numbers.reshape(-1)[0])


def _condition(value: Slot) -> Value | None:
    """None for a condition that is known to hold."""
    if value is None:
        return None
    condition = _tensor(value)
    return None if condition.array is not None and bool(condition.array.reshape(-1)[0]) else condition


def _and(node: Node, a: Value | None, b: Value | None) -> Value | None:
    """Both of two conditions, where None holds."""
    known = [v for v in (a, b) if v is not None]
    false = [v for v in known if v.array is not None]
    if false or not known:
        return false[0] if false else None
    scalars = [node.reshape(v, ()) for v in known]
    return scalars[0] if len(scalars) == 1 else node.do(relax.op.logical_and, *scalars)


def run_scan(
    proto: onnx.NodeProto, inputs: Operands, run: Run, node: Node
) -> list[Slot]:
    """Writes the rounds out: round t sees the t-th slice of every scanned input, and leaves one of every output."""
    body = graph_attribute(proto, "body")
    count = node.attr("num_scan_inputs")
    given = [_tensor(v) for v in inputs]
    state: list[Slot] = list(given[: len(given) - count])
    scans = given[len(given) - count :]
    outputs = len(body.output) - len(state)
    axes = [normal_axis(a, v.rank) for a, v in zip(node.attr("scan_input_axes", [0] * count), scans)]
    backwards = node.attr("scan_input_directions", [0] * count)
    rounds = scans[0].shape[axes[0]]
    if is_open([rounds]):
        raise _open_rounds(rounds)
    if rounds > LONGEST:
        raise Refusal(f"it has more than {LONGEST} rounds")
    names = [i.name for i in body.input]
    kept: list[list[Value]] = [[] for _ in range(outputs)]
    for t in range(rounds):
        slices = []
        for value, axis, back in zip(scans, axes, backwards):
            at = rounds - 1 - t if back else t
            part = _slice(node, value, axis, at)
            slices.append(node.reshape(part, value.shape[:axis] + value.shape[axis + 1 :]))
        results = run(body, dict(zip(names, [*state, *slices])), f"round {t}")
        if any(isinstance(r, Poison) for r in results):
            return [POISON] * len(proto.output)
        state = results[: len(state)]
        for store, result in zip(kept, results[len(state) :]):
            store.append(_tensor(result))
    out_axes = node.attr("scan_output_axes", [0] * outputs)
    out_back = node.attr("scan_output_directions", [0] * outputs)
    return [*state, *(_stacked(node, v, a, bool(b)) for v, a, b in zip(kept, out_axes, out_back))]


def run_map(proto: onnx.NodeProto, operands: Operands, run: Run) -> list[Slot]:
    """SequenceMap: the body once for each item."""
    body = graph_attribute(proto, "body")
    names = [i.name for i in body.input]
    return map_sequence(len(proto.output), operands, names, lambda given, part: run(body, given, part))


def _slice(node: Node, value: Value, axis: int, at: int) -> Value:
    return node.slice(value, axis, at, at + 1)


def _stacked(node: Node, values: list[Value], axis: int, backwards: bool) -> Value:
    axis = normal_axis(axis, values[0].rank + 1)
    rows = [
        node.reshape(v, (*v.shape[:axis], 1, *v.shape[axis:]))
        for v in (values[::-1] if backwards else values)
    ]
    return concatenated(node, rows, axis)


def _scalar(value: Slot, what: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, Value) and value.contents is not None and is_open(value.contents.reshape(-1)):
        raise _open_rounds(value.contents.reshape(-1)[0])
    if not isinstance(value, Value) or value.array is None:
        raise unknown(what, value) if isinstance(value, Value) else Refusal(f"{what} is computed at run time")
    return int(value.array.reshape(-1)[0])


def _open_rounds(rounds: Any) -> Open:
    names = sorted(symbols_of(rounds))
    listed = " and ".join(f"'{n}'" for n in names)
    return Open(f"it has {rounds} rounds, which must be a number, as they are written out; fix {listed} with --shape")


def _tensor(value: Slot) -> Value:
    if not isinstance(value, Value):
        raise Refusal("a tensor is missing" if value is None else "a sequence stands where a tensor is needed")
    if value.part is not None:
        raise Refusal("the length of a tensor depends on the data, which it does not take")
    return value

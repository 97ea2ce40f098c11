"""Control flow that import can decide: If with a known condition, Loop and Scan with a known number of rounds.

Loop(3, true, x) { y = f(x) }     becomes     f(f(f(x)))
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from tvm import relax

from .branches import either
from .dims import Open
from .node import Node, normal_axis
from .registry import Refusal
from .sequences import Operands, map_sequence
from .slot import Slot
from .value import POISON, Poison, Value

LONGEST = 256  # rounds that are written out

Run = Callable[[onnx.GraphProto, dict[str, Slot], str], list[Slot]]


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
        branches = [run(graph_attribute(proto, name), {}, name) for name in ("then_branch", "else_branch")]
        return [_chosen(node, node.reshape(given, ()), a, b) for a, b in zip(*branches)]
    wanted = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    return run(graph_attribute(proto, wanted), {}, wanted)


def _chosen(node: Node, condition: Value, a: Slot, b: Slot) -> Slot:
    if isinstance(a, Poison) or isinstance(b, Poison):
        return POISON
    if isinstance(a, Value) and isinstance(b, Value):
        result = either(node, condition, a, b)
        if result is not None:
            return result
    raise Refusal(f"its condition is computed at run time, and its branches give {a} and {b}, which differ in form")


def run_loop(
    proto: onnx.NodeProto, inputs: Operands, run: Run, node: Node
) -> list[Slot]:
    """Writes the rounds out; the count, and the condition after every round, must be known at import."""
    body = graph_attribute(proto, "body")
    limit = _scalar(inputs[0], "the number of its rounds")
    going = _scalar(inputs[1] if len(inputs) > 1 else None, "its condition")
    state: list[Slot] = list(inputs[2:])
    names = [i.name for i in body.input]
    scanned: list[list[Value]] = [[] for _ in body.output[1 + len(state) :]]
    rounds = 0
    while (going is None or going) and (limit is None or rounds < limit):
        if rounds >= LONGEST:
            raise Refusal(f"it has more than {LONGEST} rounds")
        given = dict(
            zip(names, [Value.of_array(np.array(rounds, "int64")), Value.of_array(np.array(True)), *state])
        )
        results = run(body, given, f"round {rounds}")
        if any(isinstance(r, Poison) for r in results):
            return [POISON] * len(proto.output)
        after, state = results[0], results[1 : 1 + len(state)]
        for kept, value in zip(scanned, results[1 + len(state) :]):
            kept.append(_tensor(value))
        going = _scalar(after if isinstance(after, Value) else None, "its condition")
        rounds += 1
    if any(not s for s in scanned):
        raise Refusal("it has no rounds, so that the shape of its scanned outputs is not known")
    return [*state, *(_stacked(node, s, 0, False) for s in scanned)]


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
    if value.array is not None:
        return Value.of_array(value.array.take([at], axis))
    return node.slice(value, axis, at, at + 1)


def _stacked(node: Node, values: list[Value], axis: int, backwards: bool) -> Value:
    axis = normal_axis(axis, values[0].rank + 1)
    rows = [
        node.reshape(v, (*v.shape[:axis], 1, *v.shape[axis:]))
        for v in (values[::-1] if backwards else values)
    ]
    if all(r.array is not None for r in rows):
        return Value.of_array(np.concatenate([r.array for r in rows if r.array is not None], axis))
    return rows[0] if len(rows) == 1 else node.do(relax.op.concat, rows, axis=axis)


def _scalar(value: Slot, what: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, Value) or value.array is None:
        raise Refusal(f"{what} is computed at run time")
    return int(value.array.reshape(-1)[0])


def _tensor(value: Slot) -> Value:
    if not isinstance(value, Value):
        raise Refusal("a tensor is missing" if value is None else "a sequence stands where a tensor is needed")
    if value.part is not None:
        raise Refusal("the length of a tensor depends on the data, which it does not take")
    return value

"""Control flow: what import can decide it decides, and few rounds are written out.

Loop(3, true, x) { y = f(x) }     becomes     f(f(f(x)))

Where a condition is only known at run time, both branches of an If are computed where that is little work, else it
stays a branch (branches.py). Rounds that are many, or whose number is not known, stay rounds (rolled.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx
from tvm import relax

from ...schedules.words.dims import Open, is_open, minimum
from ...schedules.words.refusal import Refusal
from .bodies import Cutter
from .branches import Branches, different, either, is_heavy
from .converters.movement import concatenated
from .counting import counted as counted_rounds
from .counting import counters
from .implied import require_equal
from .lengths import most_of
from .node import MOST, OnnxNode, normal_axis
from .parts import counted, from_front, length, with_part
from .rolled import LoopPlan, Rolled, Scanned
from .sequences import Operands, map_sequence
from .slot import Slot
from .value import POISON, OnnxValue, Poison

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

LONGEST = 256  # rounds that are written out
BRANCHES = ("then_branch", "else_branch")


class RunBody(Protocol):
    def __call__(
        self, graph: onnx.GraphProto, given: dict[str, Slot], part: str, guarded: bool = False, /
    ) -> list[Slot]:
        """The outputs of a body for the ``given`` inputs; ``guarded`` by a condition of run time."""


def graph_attribute(proto: onnx.NodeProto, name: str) -> onnx.GraphProto:
    for attribute in proto.attribute:
        if attribute.name == name:
            return attribute.g
    raise Refusal(f"it has no {name}")


def run_if(proto: onnx.NodeProto, inputs: Operands, run: RunBody, node: OnnxNode, alike: bool = False) -> list[Slot]:
    """The branch that a known condition takes; for one of run time both, and a choice between their results: of what
    they compute, or where that is much or their results differ in form, of the branch that runs (branches.py).
    ``alike``: their results must have one form."""
    condition = inputs[0].array if inputs and isinstance(inputs[0], OnnxValue) else None
    if condition is not None:
        return run_branch(proto, bool(condition.reshape(-1)[0]), run)
    given = node.reshape(_truth(node, _tensor(inputs[0] if inputs else None)), ())
    cutter = Cutter(node.builder)
    graphs = [graph_attribute(proto, name) for name in BRANCHES]
    one, other = (run(g, {}, name, True) for g, name in zip(graphs, BRANCHES))
    if any(isinstance(r, Poison) for r in (*one, *other)):
        return [POISON] * len(proto.output)
    if not any(map(is_heavy, graphs)):
        found = [_either(node, given, a, b) for a, b in zip(one, other)]
        if None not in found:
            return [*found]
    return Branches(node, given, cutter, alike).write(one, other)


def _truth(node: OnnxNode, condition: OnnxValue) -> OnnxValue:
    """The condition as a tensor of run time, where it is one of open dimensions."""
    if not condition.is_symbolic:
        return condition
    numbers = OnnxValue.of_contents(condition.contents, "int64")
    return node.do(relax.op.not_equal, numbers, node.scalar(0, numbers))


def _either(node: OnnxNode, condition: OnnxValue, a: Slot, b: Slot) -> OnnxValue | None:
    return either(node, condition, a, b) if isinstance(a, OnnxValue) and isinstance(b, OnnxValue) else None


def run_branch(proto: onnx.NodeProto, truth: bool, run: RunBody) -> list[Slot]:
    """The branch that an If takes on a condition."""
    wanted = BRANCHES[0 if truth else 1]
    return run(graph_attribute(proto, wanted), {}, wanted)


def _chosen(node: OnnxNode, condition: OnnxValue, a: Slot, b: Slot) -> Slot:
    if isinstance(a, Poison) or isinstance(b, Poison):
        return POISON
    result = _either(node, condition, a, b)
    if result is None:
        raise different(condition, a, b)
    return result


def run_loop(
    proto: onnx.NodeProto, inputs: Operands, run: RunBody, node: OnnxNode, problems: list[Any] | None = None,
    scope: Mapping[str, Slot] | None = None,
) -> list[Slot]:  # fmt: skip
    """Few rounds are written out, all others stay rounds (rolled.py), as do those of run time that have much to do.
    ``problems``: the nodes that can't be converted so far; ``scope``: what the body sees besides its inputs."""
    proto, inputs = _counting(proto, inputs, scope or {})
    limit, most, exact = _limit(node, inputs[0] if inputs else None)
    known = None if exact else limit
    body = graph_attribute(proto, "body")
    few, heavy = isinstance(most, int) and most <= LONGEST, is_heavy(body)
    counting = counters(body, inputs, scope or {}, most if isinstance(most, int) else LONGEST)
    if few or most is None and limit is None or exact and isinstance(most, int) and not _goes_on(proto):
        try:
            return _written_out(proto, inputs, run, node, known, most, heavy, counting)
        except _Many:
            pass
    before = len(problems or ())
    try:
        results = _rolled(proto, inputs, run, node, LoopPlan(limit, most, exact, counters=counting))
        if not few or len(problems or ()) == before:
            return results
    except Refusal:
        if not few:
            raise
    if problems is not None:
        del problems[before:]
    return _written_out(proto, inputs, run, node, known, most, False, counting)


def _counting(
    proto: onnx.NodeProto, inputs: Operands, scope: Mapping[str, Slot]
) -> tuple[onnx.NodeProto, Operands]:
    """The loop with the number of rounds that its condition counts, and without a condition that does nothing else."""
    body = graph_attribute(proto, "body")
    limited = bool(inputs) and isinstance(inputs[0], OnnxValue)
    limit = inputs[0].contents if limited else None  # type: ignore[union-attr]
    found = None if limited and limit is None or _goes_on(proto) else counted_rounds(body, inputs, scope)
    if found is None:
        return proto, inputs
    rounds, alone = found
    if limit is not None:
        rounds = minimum(rounds, limit.reshape(-1)[0])
    inputs = [OnnxValue.of_contents(np.array(rounds, object), "int64"), *inputs[1:]]
    if alone:
        inputs[1], proto = None, copy_of(proto)
        body = graph_attribute(proto, "body")
        body.output[0].name = body.input[1].name
    return proto, inputs


def copy_of(proto: onnx.NodeProto) -> onnx.NodeProto:
    """A node that may be changed."""
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    return copy


def _rolled(proto: onnx.NodeProto, inputs: Operands, run: RunBody, node: OnnxNode, plan: LoopPlan) -> list[Slot]:
    going = _condition(inputs[1] if len(inputs) > 1 else None)
    plan = plan if going is None else replace(plan, go=node.reshape(going, ()))
    loop = Rolled(proto, graph_attribute(proto, "body"), node, run, plan)
    return loop.write(list(inputs[2:]), [], [False] * len(proto.output))


class _Many(Refusal):
    """More rounds than are written out."""


def _goes_on(proto: onnx.NodeProto) -> bool:
    """Whether the condition that the body leaves is the same in all rounds, by its names alone."""
    body = graph_attribute(proto, "body")
    made = {o: n for n in body.node for o in n.output if o}
    name = body.output[0].name
    while name in made and made[name].op_type == "Identity":
        name = made[name].input[0]
    inputs = [i.name for i in body.input]
    return made[name].op_type == "Constant" if name in made else name not in inputs or inputs.index(name) == 1


def _written_out(
    proto: onnx.NodeProto, inputs: Operands, run: RunBody, node: OnnxNode, limit: OnnxValue | None, most: int | None,
    heavy: bool = False, counting: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> list[Slot]:  # fmt: skip
    """Writes the rounds out, as many as there can be; _Many where these are too many, or ``heavy`` and decided at run
    time. ``counting``: what carried values that count are in the first round, and what each adds.

    What a round leaves is taken where it is run: where all conditions before it held, and the number is not reached.
    """
    body = graph_attribute(proto, "body")
    going: Slot = inputs[1] if len(inputs) > 1 else None
    state: list[Slot] = list(inputs[2:])
    names = [i.name for i in body.input]
    scanned: list[list[OnnxValue]] = [[] for _ in body.output[1 + len(state) :]]
    held: OnnxValue | None = None  # whether this round is run; None for certainly
    holds: list[OnnxValue | None] = []
    while most is None or len(holds) < most:
        number = len(holds)
        held = _and(node, held, _condition(going))
        if held is not None and held.array is not None:
            break  # a known condition is one that does not hold
        if held is not None and (heavy or most is None or most > LONGEST) or limit is not None and heavy:
            raise _Many("its condition is computed at run time")
        if number >= LONGEST:
            raise _Many(f"it has more than {LONGEST} rounds")
        here = held if limit is None else _and(node, held, node.do(relax.op.less, node.const(number, "int64"), limit))
        counter: list[Slot] = [node.const(number, "int64"), node.const(True, "bool")]
        given = dict(zip(names, [*counter, *(_counted(v, counting.get(n), number) for n, v in zip(names[2:], state))]))
        results = run(body, given, f"round {number}", here is not None)
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


def _counted(value: Slot, counter: tuple[int, int] | None, number: int) -> Slot:
    """A carried value in a round that is run, which is known if it counts, however the rounds before ended."""
    if counter is None or not isinstance(value, OnnxValue) or value.part is not None:
        return value
    if not value.is_integer or value.size != 1:
        return value
    return OnnxValue.of_array(np.full(value.shape, counter[0] + counter[1] * number), value.dtype)


def _none_of(node: OnnxNode, row: OnnxValue) -> OnnxValue:
    """No rows of this shape."""
    if is_open(row.shape):
        raise Open("it has no rounds, and the shape of its scanned outputs is open")
    return node.const(np.empty((0, *row.shape), row.dtype))


def _limit(node: OnnxNode, value: Slot) -> tuple[OnnxValue | None, SizeLike, bool]:
    """The number of rounds (int64 []), if there is one; the most that it can be, None where nothing says; and whether
    it is known, as a number or by the open dimensions."""
    if not isinstance(value, OnnxValue):
        return None, None, False
    limit = node.reshape(node.cast(value.with_part(None), "int64"), ())
    if value.array is not None:
        most = int(value.array.reshape(-1)[0])
        return limit, most, True
    if value.contents is not None:
        return limit, value.contents.reshape(-1)[0], True
    if value.numbers is None:
        high = value.between[1] if value.between is not None else None
        return limit, high if isinstance(high, int) and high < MOST else None, False
    try:
        return limit, most_of(value.numbers.reshape(-1)[0]), False
    except Refusal:
        return limit, None, False


def _condition(value: Slot) -> OnnxValue | None:
    """None for a condition that is known to hold."""
    if value is None:
        return None
    condition = _tensor(value)
    return None if condition.array is not None and bool(condition.array.reshape(-1)[0]) else condition


def _and(node: OnnxNode, a: OnnxValue | None, b: OnnxValue | None) -> OnnxValue | None:
    """Both of two conditions, where None holds."""
    known = [v for v in (a, b) if v is not None]
    false = [v for v in known if v.array is not None]
    if false or not known:
        return false[0] if false else None
    scalars = [node.reshape(v, ()) for v in known]
    return scalars[0] if len(scalars) == 1 else node.do(relax.op.logical_and, *scalars)


def run_scan(
    proto: onnx.NodeProto, inputs: Operands, run: RunBody, node: OnnxNode
) -> list[Slot]:
    """Round t sees the t-th slice of every scanned input, and leaves one of every output. Few rounds are written out,
    all others stay rounds (rolled.py)."""
    body = graph_attribute(proto, "body")
    count = node.attr("num_scan_inputs")
    state: list[Slot] = [*inputs[: len(inputs) - count]]
    scans = [_scanned(v) for v in inputs[len(inputs) - count :]]
    outputs = len(body.output) - len(state)
    axes = [normal_axis(a, v.rank) for a, v in zip(node.attr("scan_input_axes", [0] * count), scans)]
    backwards = [bool(b) for b in node.attr("scan_input_directions", [0] * count)]
    out_axes = node.attr("scan_output_axes", [0] * outputs)
    out_back = [bool(b) for b in node.attr("scan_output_directions", [0] * outputs)]
    rounds = scans[0].shape[axes[0]]
    for value, axis in zip(scans, axes):
        require_equal(value.shape[axis], rounds, "scanned inputs have as many slices")
    partly = any(isinstance(v, OnnxValue) and v.part is not None for v in inputs)
    if not partly and not is_open([rounds]) and rounds <= LONGEST:
        return _scanned_out(body, run, node, state, list(zip(scans, axes, backwards)), (out_axes, out_back))
    limit, exact = _rounds_of(node, list(zip(scans, axes, backwards)), any(out_back))
    moved = [
        Scanned(node.transpose(v.with_part(None), [a, *(i for i in range(v.rank) if i != a)]), b)
        for v, a, b in zip(scans, axes, backwards)
    ]
    loop = Rolled(proto, body, node, run, LoopPlan(limit, rounds, exact), asks=False)
    results = loop.write(state, moved, out_back)
    if any(isinstance(r, Poison) for r in results):
        return results
    kept = [from_front(node, _whole(v), a) for v, a in zip(results[len(state) :], out_axes)]
    return [*results[: len(state)], *kept]


def _scanned_out(
    body: onnx.GraphProto,
    run: RunBody,
    node: OnnxNode,
    state: list[Slot],
    scans: list[tuple[OnnxValue, int, bool]],
    out: tuple[list[int], list[bool]],
) -> list[Slot]:
    """Writes the rounds of a Scan out. ``out``: axes and directions of its outputs."""
    first, axis, _ = scans[0]
    rounds = first.shape[axis]
    if not rounds:
        return _no_rounds(body, run, node, state, scans, out[0])
    names = [i.name for i in body.input]
    kept: list[list[OnnxValue]] = [[] for _ in out[0]]
    for t in range(rounds):
        slices: list[Slot] = []
        for value, axis, back in scans:
            at = rounds - 1 - t if back else t
            part = _slice(node, value, axis, at)
            slices.append(node.reshape(part, value.shape[:axis] + value.shape[axis + 1 :]))
        results = run(body, dict(zip(names, [*state, *slices])), f"round {t}")
        if any(isinstance(r, Poison) for r in results):
            return [POISON] * (len(state) + len(kept))
        state = results[: len(state)]
        for store, result in zip(kept, results[len(state) :]):
            store.append(_tensor(result))
    return [*state, *(_stacked(node, v, a, b) for v, a, b in zip(kept, *out))]


def _no_rounds(
    body: onnx.GraphProto, run: RunBody, node: OnnxNode, state: list[Slot], scans: list[tuple[OnnxValue, int, bool]],
    axes: Sequence[int],
) -> list[Slot]:  # fmt: skip
    """A Scan over nothing: a round is looked at for the shapes."""
    rows = [node.const(np.zeros(v.shape[:a] + v.shape[a + 1 :]), v.dtype) for v, a, _ in scans]
    results = run(body, dict(zip([i.name for i in body.input], [*state, *rows])), "round 0", True)
    if any(isinstance(r, Poison) for r in results):
        return [POISON] * (len(state) + len(axes))
    kept = [from_front(node, _none_of(node, _tensor(r)), a) for r, a in zip(results[len(state) :], axes)]
    return [*state, *kept]


def _scanned(value: Slot) -> OnnxValue:
    return value if isinstance(value, OnnxValue) else _tensor(value)


def _rounds_of(node: OnnxNode, scans: list[tuple[OnnxValue, int, bool]], written_back: bool) -> tuple[OnnxValue, bool]:
    """How many rounds a Scan has (int64 []), and whether open dimensions alone say that."""
    first, axis, _ = scans[0]
    parts = [(v.part, a, b) for v, a, b in scans if v.part is not None]
    if not parts:
        return node.reshape(counted(node, first.shape[axis]), ()), True
    if any(p.axis != a for p, a, _ in parts):
        raise Refusal("the length of a scanned input depends on the data, along another axis than that of its rounds")
    if written_back or any(b for _, _, b in scans):
        raise Refusal("the number of its rounds depends on the data, and it counts them from their end")
    if len(parts) < len(scans) or any(length(v) != length(first) for v, _, _ in scans):
        raise Refusal("the number of its rounds depends on the data, in different ways")
    return node.reshape(parts[0][0].count, ()), False


def _whole(slot: Slot) -> OnnxValue:
    assert isinstance(slot, OnnxValue)
    return slot


def run_map(proto: onnx.NodeProto, operands: Operands, run: RunBody) -> list[Slot]:
    """SequenceMap: the body once for each item."""
    body = graph_attribute(proto, "body")
    names = [i.name for i in body.input]
    return map_sequence(len(proto.output), operands, names, lambda given, part: run(body, given, part))


def _slice(node: OnnxNode, value: OnnxValue, axis: int, at: int) -> OnnxValue:
    return node.slice(value, axis, at, at + 1)


def _stacked(node: OnnxNode, values: list[OnnxValue], axis: int, backwards: bool) -> OnnxValue:
    axis = normal_axis(axis, values[0].rank + 1)
    rows = [
        node.reshape(v, (*v.shape[:axis], 1, *v.shape[axis:]))
        for v in (values[::-1] if backwards else values)
    ]
    return concatenated(node, rows, axis)


def _tensor(value: Slot) -> OnnxValue:
    if not isinstance(value, OnnxValue):
        raise Refusal("a tensor is missing" if value is None else "a sequence stands where a tensor is needed")
    if value.part is not None:
        raise Refusal("the length of a tensor depends on the data, which it does not take")
    return value

"""Where an element of a product ends up behind moves: transposes and reshapes folded into the store.

    y = reshape(transpose(matmul(...)))        element (b, h, t, e)  ->  (b, t, h * E + e)

Reads are folded by substitution (:mod:`..emit.inline`); a store needs the map the other way round, which exists because
each node behind the product reads every element once: transposes are inverted, views keep the flat position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import sym, tirx
from tvm.ir import Range

from ..emit.inline import Inliner, Source, key, narrow
from ..operators.kind import facts_of
from ..operators.te_graph import GroupGraph
from ..operators.views import reshaped_indices
from ..words.dims import is_open
from ..words.group import Group, Node, Value
from ..words.layout import Layout
from ..words.tvm_types import Expr

Place = Callable[[Sequence[Expr]], list[Expr]]


def behind(group: Group, anchor: Node) -> tuple[Node, ...]:
    """The nodes of the group that depend on the anchor, in program order."""
    reached = set(anchor.results)
    found = []
    for node in group.nodes:
        if any(v in reached for v in node.inputs):
            reached.update(node.results)
            found.append(node)
    return tuple(found)


def producers(group: Group, value: Value) -> list[Node]:
    """The nodes of ``group`` that ``value`` is computed from, the last one first."""
    wanted, found = {value}, []
    for node in reversed(group.nodes):
        if any(r in wanted for r in node.results):
            wanted.update(node.inputs)
            found.append(node)
    return found


def outgoing(group: Group, anchor: Node) -> dict[Value, Place] | None:
    """The map from the anchor's indices to those of each value from its result on; None if some node
    reads an element more than once, or not at all."""
    result = anchor.results[0]
    places: dict[Value, Place] = {result: list}
    for node in behind(group, anchor):
        moved = [v for v in dict.fromkeys(node.inputs) if v in places]
        steps = [_step(node, v) for v in moved]
        if len(node.results) != 1 or not steps or any(s is None for s in steps):
            return None
        if len(steps) > 1 and not _agree([_then(places[v], s) for v, s in zip(moved, steps) if s], result):
            return None
        places[node.results[0]] = _then(places[moved[0]], steps[0] or list)
    return places if all(v in places for v in group.outputs) else None


def _then(first: Place, second: Place) -> Place:
    return lambda indices: second(first(indices))


def _step(node: Node, value: Value) -> Place | None:
    """The map from an index of ``value`` to the element of the node's result that is made of it."""
    facts, result = facts_of(node), node.results[0]
    if facts.elementwise_in(value):
        return list
    if result.elements != value.elements:
        return None
    if facts.kind == "view":
        return lambda indices: _reshaped(indices, value.shape, result.shape)
    reads = facts.reads(value) if facts.kind == "injective" else []
    if len(reads) != 1:
        return None
    axes, indices = reads[0]
    order = [_position(a, e, indices) for a, e in zip(axes, result.shape)]
    wide = [o for o, e in zip(order, result.shape) if e != 1]
    if any(o is None for o in wide) or len(set(wide)) != len(wide):
        return None
    zero = tirx.IntImm("int32", 0)
    return lambda given: [zero if o is None else given[o] for o in order]


def _position(axis: Expr, extent: int, indices: Sequence[Expr]) -> int | None:
    """Which index is ``axis`` itself."""
    if extent == 1:
        return None
    for position, index in enumerate(indices):
        while type(index).__name__ == "Cast":
            index = index.value
        if hasattr(index, "same_as") and index.same_as(axis):
            return position
    return None


def _reshaped(indices: Sequence[Expr], old: Sequence[int], new: Sequence[int]) -> list[Expr]:
    return reshaped_indices(indices, old, new) if is_open((*old, *new)) else _flattened(indices, old, new)


def _flattened(indices: Sequence[Expr], old: Sequence[int], new: Sequence[int]) -> list[Expr]:
    flat: Expr = tirx.IntImm("int32", 0)
    for index, extent in zip(indices, old):
        flat = flat * extent + index
    found: list[Expr] = []
    for extent in reversed(new):
        found.append(tirx.floormod(flat, extent))
        flat = tirx.floordiv(flat, extent)
    return found[::-1]


def _agree(places: list[Place], value: Value) -> bool:
    """True if all maps send a marked element to one and the same place."""
    import tvm_ffi

    marks = [tirx.Var(f"m{i}", "int32") for i in range(len(value.shape))]
    first, *rest = [place(marks) for place in places]
    return all(len(first) == len(o) and all(tvm_ffi.structural_equal(a, b) for a, b in zip(first, o)) for o in rest)


def along_memory(result: Value, place: Place, value: Value) -> bool:
    """True if neighbours on the last axis of ``result`` are neighbours in ``value``."""
    return result.shape[-1] == 1 or step_of(result, place, value, len(result.shape) - 1) == 1


def moved_only(group: Group, anchor: Node, value: Value) -> bool:
    """True if each element of ``value``, an operand of the anchor, is one element of one input of the group, and one of
    its last two axes runs along that input's memory, the last with a fixed step."""
    inner, outer = read_steps(group, anchor, value)
    return inner is not None and (inner == 1 or outer == 1)


def read_steps(group: Group, anchor: Node, value: Value) -> tuple[int | None, int | None]:
    """How far neighbours on the last axis of ``value``, an operand of the anchor, lie apart in the one input of the
    group that it is moved from, and those on the axis before; None where that varies, or there is no such input."""
    graph = GroupGraph(group, [anchor])
    found: list[tuple[Value, tuple[Expr, ...]]] = []

    def source(of: Value) -> Source:
        def read(indices: tuple[Expr, ...]) -> Expr:
            found.append((of, indices))
            return tirx.Var("read", graph.tensors[of].expr_ty())

        return read

    sources = {key(graph.tensors[v]): source(v) for v in group.inputs}

    def place(indices: Sequence[Expr]) -> list[Expr]:
        found.clear()
        element = Inliner(sources).at(graph.tensors[value], list(indices))
        return list(found[0][1]) if len(found) == 1 and isinstance(element, tirx.Var) else []

    if not place([tirx.IntImm("int32", 0)] * len(value.shape)):
        return None, None
    origin, rank = found[0][0], len(value.shape)
    return step_of(value, place, origin, rank - 1), step_of(value, place, origin, rank - 2)


def step_of(source: Value, place: Place, target: Value, axis: int) -> int | None:
    """Distance in ``target`` of two neighbours on ``axis`` of ``source``, in elements; None if it varies."""
    analyzer = sym.Analyzer()
    marks = [tirx.Var(f"m{i}", "int32") for i in range(len(source.shape))]
    for mark, extent in zip(marks, source.shape):
        analyzer.bind(mark, Range(0, extent))
    if source.shape[axis] == 1:
        return 1
    ahead = list(marks)
    analyzer.bind(marks[axis], Range(0, source.shape[axis] - 1), allow_override=True)
    ahead[axis] = marks[axis] + 1
    ends = []
    for indices in (ahead, marks):
        found = place(indices)
        if len(found) != len(target.shape):
            return None
        ends.append(narrow(Layout.plain(target.shape).offset([narrow(i) for i in found])))
    step = analyzer.simplify(ends[0] - ends[1], 4)
    return int(step.value) if isinstance(step, tirx.IntImm) else None

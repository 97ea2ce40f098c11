"""Cuts a group's TE DAG into phases: the stages whose elements are stored, in order.

    softmax(x, axis=-1):   max_i = max_j x_ij | e_ij = exp(x_ij - max_i) | sum_i = sum_j e_ij | e_ij / sum_i
                           reduce               map (shared, costly)       reduce              map (output)

A reduction is always a phase. So is an elementwise stage that says so (``STORED``), or that costs something and is read
by two phases, or at several places by each element of its reader (the rows of an image resized along both axes); the
others are inlined where they are read. The output stages form the last phases, those of one shape sharing one.
``prefix`` is the number of leading axes that all phases share, index for index: one parallel loop over them holds all
phases, and what passes from phase to phase stays in cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import tvm_ffi
from tvm import te, tirx
from tvm.ir import Call

from ..emit.inline import Inliner, Source, key
from ..emit.written_out import children
from ..operators.separable_windows import folded, separated
from ..operators.te_graph import GroupGraph
from ..operators.te_stages import COSTLY, STORED, TABLE, is_costly, is_reduce
from ..words.group import Value, dtype_bytes
from ..words.sizes import dim_of, product, usual
from ..words.tvm_types import Expr, Operation

STACK_BYTES = 32 * 1024  # scratch of one row kept on the worker's stack; beyond, in the arena


@dataclass(frozen=True)
class Phase:
    """One loop nest. ``outputs`` pairs each stored tensor with the group's output Value, or None for scratch."""

    tensors: tuple[te.Tensor, ...]
    values: tuple[Value | None, ...]
    reduce: bool
    stands_for: te.Tensor | None = None  # a window's reduction, of which this is the second half

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of what the phase stores."""
        return tuple(map(dim_of, self.tensors[0].shape))


@dataclass(frozen=True)
class PhasePlan:
    """The phases of a kernel, in order; the first ``prefix`` axes of all of them are the same. ``tables`` are computed
    before."""

    phases: tuple[Phase, ...]
    prefix: int
    tables: tuple[Phase, ...] = ()

    @property
    def stored(self) -> dict[tuple[Operation, int], tuple[int, int]]:
        """Key of each stored tensor -> (index of its phase, position among its tensors)."""
        return {key(t): (p, i) for p, phase in enumerate(self.phases[:]) for i, t in enumerate(phase.tensors)}


def plan_phases(
    graph: GroupGraph,
    outputs: tuple[Value, ...],
    blocked: tuple[Value, ...] = (),
    spread: float = 0.0,
    lanes: bool = False,
    boxed: bool = False,
) -> PhasePlan:
    """The phases of ``outputs``; ``blocked`` are the inputs whose channels lie in lanes (only the prefix minds).

    A stage that each element of its reader reads several times is stored if it has at most ``spread`` elements for one
    of the reader's, and if what is stored stays small; and windows are separated if ``spread`` is not zero. Where
    vectors are ``lanes`` of channels, a stored stage has the channels of its reader: positions that all channels share
    (of GridSample) have other axes. ``boxed``: nothing is stored, and windows that would be separated are folded.
    """
    if boxed:
        return _folded(graph, outputs, blocked, plan_phases(graph, outputs, blocked, spread, lanes))
    stages = graph.stages(outputs)
    shared = _read_again(stages, spread, lanes)
    plan = _planned(graph, stages, outputs, blocked, shared, spread > 0)
    if lanes and shared and plan.prefix < 2:  # a concatenation reads its parts at other channels than it has
        return _planned(graph, stages, outputs, blocked, set(), False)
    if any(not _is_small(tensor, plan.prefix, outputs) for tensor in stages if key(tensor) in shared):
        return _planned(graph, stages, outputs, blocked, set(), False)
    if any(p.stands_for is not None and plan.prefix < 3 for p in plan.phases):
        return _planned(graph, stages, outputs, blocked, shared, False)
    return plan


def _folded(graph: GroupGraph, outputs: tuple[Value, ...], blocked: tuple[Value, ...], whole: PhasePlan) -> PhasePlan:
    """The phases of a box, which round as those of the ``whole`` do."""
    plan = plan_phases(graph, outputs, blocked)
    apart = {key(p.stands_for): p.stands_for for p in whole.phases if p.stands_for is not None}
    phases = [
        replace(p, tensors=(folded(apart[key(p.tensors[0])]),), stands_for=p.tensors[0])
        if p.reduce and key(p.tensors[0]) in apart
        else p
        for p in plan.phases
    ]
    return replace(plan, phases=tuple(phases))


def _is_small(tensor: te.Tensor, prefix: int, outputs: tuple[Value, ...]) -> bool:
    """True for stages of which a row fits the stack, or that are small beside the outputs."""
    row = usual(product(map(dim_of, tensor.shape[prefix:]))) * dtype_bytes(str(tensor.dtype))
    whole = usual(product(map(dim_of, tensor.shape)))
    return (prefix and row <= STACK_BYTES) or 4 * whole <= sum(usual(v.elements) for v in outputs)


def _read_again(stages: list[te.Tensor], spread: float, lanes: bool) -> set[tuple[Operation, int]]:
    """The stages that cost something, or read one tensor at several places, and are read at several places."""
    found: set[tuple[Operation, int]] = set()
    for reader in stages:
        if not spread or is_reduce(reader) or not isinstance(reader.op, te.ComputeOp):
            continue
        elements = usual(product(map(dim_of, reader.shape)))
        for tensor, reads in _places(reader):
            if lanes and not all(len(at) > 1 and at[1].same_as(reader.op.axis[1].var) for at in reads):
                continue
            if len(reads) < 2 or is_reduce(tensor) or not isinstance(tensor.op, te.ComputeOp):
                continue
            dear = is_costly(tensor, COSTLY - {"if_then_else"}) or any(len(p) > 1 for _, p in _places(tensor))
            if dear and usual(product(map(dim_of, tensor.shape))) <= spread * elements:
                found.add(key(tensor))
    return found


def _places(reader: te.Tensor) -> list[tuple[te.Tensor, list[list[Expr]]]]:
    """The tensors that an element of ``reader`` reads, each with the different places, as indices."""
    reads: dict[tuple[Operation, int], tuple[te.Tensor, list[list[Expr]]]] = {}

    def visit(expr: Expr) -> None:
        if _is_load(expr):
            tensor, places = reads.setdefault(key(expr.args[0]), (expr.args[0], []))
            if not any(all(map(_alike, expr.args[1:], p)) for p in places):
                places.append(list(expr.args[1:]))
        for part in expr.args if isinstance(expr, Call) else children(expr):
            visit(part)

    for body in reader.op.body:
        visit(body)
    return list(reads.values())


def _is_load(expr: Expr) -> bool:
    return isinstance(expr, Call) and getattr(expr.op, "name", "") == "te.tensor_load"


def _alike(a: Expr, b: Expr) -> bool:
    """True if two indices are the same expression. TVM compares no stages, of which tables are read at such."""
    if not (_is_load(a) and _is_load(b)):
        return not (_is_load(a) or _is_load(b)) and tvm_ffi.structural_equal(a, b)
    return key(a.args[0]) == key(b.args[0]) and all(map(_alike, a.args[1:], b.args[1:]))


def _planned(
    graph: GroupGraph,
    stages: list[te.Tensor],
    outputs: tuple[Value, ...],
    blocked: tuple[Value, ...],
    shared: set[tuple[Operation, int]],
    separable: bool,
) -> PhasePlan:
    """``shared`` stages are stored; windows over rows and columns are two phases if ``separable``."""
    by_key = {key(t): t for t in stages}
    named: dict[tuple[Operation, int], list[Value]] = {}
    for value in outputs:
        named.setdefault(key(graph.tensors[value]), []).append(value)

    readers = _readers(stages, set(named))
    phases: list[Phase] = []
    tables: list[Phase] = []
    seen_reduce: set[Operation] = set()
    for tensor in stages:
        if is_reduce(tensor):
            if tensor.op in seen_reduce:
                continue
            seen_reduce.add(tensor.op)
            tensors = tuple(tensor.op.output(i) for i in range(tensor.op.num_outputs))
            values = tuple(next(iter(named.get(key(t), [])), None) for t in tensors)
            halves = separated(tensor) if separable else None
            if halves is not None:
                phases += [Phase(halves[:1], (None,), True), Phase(halves[1:], values, True, tensor)]
                continue
            phases.append(Phase(tensors, values, True))
        elif key(tensor) in named:
            continue
        elif TABLE in tensor.op.attrs:
            tables += [Phase((tensor,), (None,), False)] if separable else []
        elif STORED in tensor.op.attrs or key(tensor) in shared:
            phases.append(Phase((tensor,), (None,), False))
        elif len(readers.get(key(tensor), ())) > 1 and is_costly(tensor):
            phases.append(Phase((tensor,), (None,), False))
    maps: dict[tuple[int, ...], list[Value]] = {}
    reduced = {id(v) for phase in phases if phase.reduce for v in phase.values if v is not None}
    for value in outputs:
        if id(value) not in reduced:
            maps.setdefault(value.shape, []).append(value)
    for values_ in maps.values():
        phases.append(Phase(tuple(graph.tensors[v] for v in values_), tuple(values_), False))
    del by_key
    return PhasePlan(tuple(phases), _prefix(graph, phases, {key(graph.tensors[v]) for v in blocked}), tuple(tables))


def _readers(
    stages: list[te.Tensor], outputs: set[tuple[Operation, int]]
) -> dict[tuple[Operation, int], set[tuple[Operation, int]]]:
    """For each stage, the phases that would read it: reductions and outputs, seen through inlined stages."""
    consumers: dict[tuple[Operation, int], list[te.Tensor]] = {}
    for tensor in stages:
        for read in tensor.op.input_tensors:
            consumers.setdefault(key(read), []).append(tensor)
    result: dict[tuple[Operation, int], set[tuple[Operation, int]]] = {}
    for tensor in reversed(stages):
        roots: set[tuple[Operation, int]] = set()
        if key(tensor) in outputs:
            roots.add(key(tensor))
        for consumer in consumers.get(key(tensor), []):
            if is_reduce(consumer):
                roots.add((consumer.op, 0))
            else:
                roots |= result.get(key(consumer), set())
        result[key(tensor)] = roots
    return result


def _prefix(graph: GroupGraph, phases: list[Phase], blocked: set[tuple[Operation, int]]) -> int:
    """The largest number of leading axes that all phases have in common and index identically."""
    if len(phases) == 1:
        return 0
    limit = min(len(p.shape) for p in phases)
    shared = 0
    while shared < limit and len({p.shape[shared] for p in phases}) == 1:
        shared += 1
    stored = {key(t) for p in phases for t in p.tensors if p.reduce or p.values[0] is None}
    stored |= {key(p.stands_for) for p in phases if p.stands_for is not None}
    for phase in phases:
        shared = min(shared, _shared_axes(graph, phase, stored, shared, blocked))
    return shared


def _shared_axes(
    graph: GroupGraph,
    phase: Phase,
    stored: set[tuple[Operation, int]],
    limit: int,
    blocked: set[tuple[Operation, int]],
) -> int:
    """How many leading indices of every read of a stored stage are the phase's own axes; less if the phase reduces
    across memory: lanes then run over its last axis, which must stay a loop of its own."""
    axes = [tirx.Var(f"a{i}", "int32") for i in range(len(phase.shape))]
    reads = _reads(graph, phase, stored, axes)
    best = limit
    for tensor, indices in reads:
        if key(tensor) in stored:
            count = 0
            while count < min(best, len(indices)) and _same(indices[count], axes[count]):
                count += 1
            best = count
    wide = [i for i, extent in enumerate(phase.shape) if extent != 1]
    if phase.reduce and wide and wide[-1] < best and _runs_along(reads, axes[wide[-1]], blocked):
        return wide[-1]
    return best


def _runs_along(
    reads: list[tuple[te.Tensor, tuple[Expr, ...]]], axis: Expr, blocked: set[tuple[Operation, int]]
) -> bool:
    """True if ``axis`` is part of the innermost index of some read, alone or with a window's, and of no other index."""
    found = False
    for tensor, indices in reads:
        inner = [i for i, extent in zip(indices, tensor.shape) if dim_of(extent) != 1]
        users = [i for i in inner if not isinstance(i, int) and _uses(i, axis)]
        if users and (len(users) > 1 or users[0] is not (indices[1] if key(tensor) in blocked else inner[-1])):
            return False
        found = found or bool(users)
    return found


def _uses(index: Expr, axis: Expr) -> bool:
    return any(v.same_as(axis) for v in tirx.analysis.undefined_vars(index))


def _reads(
    graph: GroupGraph, phase: Phase, stored: set[tuple[Operation, int]], axes: list[Expr]
) -> list[tuple[te.Tensor, tuple[Expr, ...]]]:
    """Every read of an input or a stored stage by one element of ``phase``, whose coordinates are ``axes``."""
    found: list[tuple[te.Tensor, tuple[Expr, ...]]] = []

    def watch(tensor: te.Tensor) -> Source:
        def read(indices: tuple[Expr, ...]) -> Expr:
            found.append((tensor, indices))
            return tirx.Var("read", tensor.expr_ty())

        return read

    for tensor in phase.tensors:
        sources: dict[tuple[Operation, int], Source] = {
            k: watch(k[0].output(k[1])) for k in stored if k[0] != tensor.op
        }
        for value in graph.tensors.values():
            if isinstance(value.op, te.PlaceholderOp):
                sources[key(value)] = watch(value)
        inliner = Inliner(sources)
        mapping = {axis.var: a for axis, a in zip(tensor.op.axis, axes)}
        body = tensor.op.body[tensor.value_index]
        for part in body.source if isinstance(body, tirx.Reduce) else [body]:
            inliner.expression(part, mapping)
    return found


def _same(index: Expr, axis: Expr) -> bool:
    while type(index).__name__ == "Cast":
        index = index.value
    return hasattr(index, "same_as") and index.same_as(axis)

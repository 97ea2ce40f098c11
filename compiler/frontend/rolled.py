"""Loop and Scan whose rounds stay rounds: their number is known at run time only, or is too large to be written out.

    Loop(n, go, s) { s = f(s, x); row = g(s) }     becomes     halotile.rounds(n, go, s, x), whose body is a function

The body is written once, for carried values that are known by shape and type alone, and cut out (bodies.py). A carried
value whose length changes from round to round is one of which a part is there (partial.py): where nothing else bounds
it, by as many rounds as there can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from tvm import relax

from ...schedules.operators import registry
from ...schedules.operators.control import ENDLESS, ROUNDS
from ...schedules.words.dims import Dim, bounds, is_open, maximum, to_relax
from ...schedules.words.refusal import Refusal
from ...schedules.words.tvm_types import Expr
from .bodies import Cutter, bound, results_of
from .deciding import deciding, flags
from .lengths import length_of
from .node import OnnxNode
from .parts import held, length, part_of, with_part
from .prune import used_names
from .slot import Growing, Slot, TensorSequence
from .value import PLAIN, POISON, OnnxValue, Poison

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

TRIES = 6  # times that a body is written until its carried values have the form that it leaves them in


@dataclass(frozen=True)
class CarriedForm:
    """What is known of a carried value in every round: how large it is, and the axis of which only a part is there."""

    shape: tuple[SizeLike, ...]
    dtype: str
    axis: int | None = None
    still: bool = False  # it is what it was at the beginning

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class LoopPlan:
    """A loop that is to be kept: its ``limit`` (int64 []), the ``most`` rounds that there can be (None: nothing says),
    whether that is the number of rounds that every run has, the condition before the first one, and of carried values
    that count, by their names in the body, the first number and what a round adds."""

    limit: OnnxValue | None
    most: SizeLike
    exact: bool
    go: OnnxValue | None = None
    counters: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Scanned:
    """What is read a row a round, the first axis being that of the rounds, and whether from its end."""

    value: OnnxValue
    back: bool = False


@dataclass
class Rolled:
    """Writes one loop. ``run`` gives the body's outputs for its inputs by name: a condition first, if ``asks``."""

    proto: onnx.NodeProto
    body: onnx.GraphProto
    node: OnnxNode
    run: Any
    plan: LoopPlan
    asks: bool = True
    lists: dict[int, TensorSequence] = field(default_factory=dict)  # sequences among the carried values, by place

    def write(self, state: Sequence[Slot], scans: Sequence[Scanned], backwards: Sequence[bool]) -> list[Slot]:
        """The results: carried values, and kept ones, whose rounds lie along their first axis."""
        self.lists = {i: s for i, s in enumerate(state) if isinstance(s, TensorSequence)}
        outputs = self.body.output[int(self.asks) :]
        for i, output in enumerate(outputs):
            if i >= len(state) or i in self.lists:
                self._require_bound(output.name, "scan output" if i >= len(state) else "sequence")
        names = self._names()[1]
        first = [self._carried(n, s) for i, (n, s) in enumerate(zip(names, state)) if i not in self.lists]
        forms = [_form(v) for v in first]
        cutter = Cutter(self.node.builder)
        for _ in range(TRIES):
            written = self._once(forms, first, scans)
            if written is None:
                return [POISON] * len(self.proto.output)
            first, before = self._begun(first, written), first
            wanted = self._settled(forms, first, written) if first == before else [_form(v) for v in first]
            if wanted == forms:
                back = [*backwards, *([False] * len(self.lists))]
                return self._in_order(self._emitted(cutter, forms, first, scans, written, back), len(state))
            forms = wanted
        raise Refusal(f"its carried values take another form in every round: {', '.join(map(str, forms))}")

    def _begun(self, first: list[OnnxValue], written: WrittenBody) -> list[OnnxValue]:
        """The carried values before the first round. Where there is a round, one that no round reads is but a place for
        what rounds leave, and need not have the rank of that (Paddle's ``undefined`` variables): zeros like it. A truth
        need not either, [] at first and [1] behind it."""
        plan, found = self.plan, list(first)
        used = used_names(self.body.node, [o.name for o in self.body.output])
        sure = plan.exact and plan.go is None and plan.most is not None and bounds(plan.most)[0] >= 1
        for i, (name, left) in enumerate(zip(self._tensors(self._names()[1]), written.state)):
            start = first[i]
            if not sure or left.part is not None or start.part is not None or left.rank == start.rank:
                continue
            if name not in used:
                found[i] = self.node.broadcast(self.node.const(np.zeros((), left.dtype)), left.shape)
            elif left.dtype == start.dtype == "bool" and left.size == start.size == 1:
                found[i] = self.node.reshape(start, left.shape)
        return found

    # ------------------------------------------------------------------ one writing of the body

    def _names(self) -> tuple[list[str], list[str]]:
        """The body's inputs before the carried ones, and all others."""
        names = [i.name for i in self.body.input]
        return (names[:2], names[2:]) if self.asks else ([], names)

    def _once(
        self, forms: Sequence[CarriedForm], first: Sequence[OnnxValue], scans: Sequence[Scanned]
    ) -> WrittenBody | None:
        node = self.node
        params: list[Expr] = [relax.Var("round", relax.TensorType([], "int64"))]
        count = OnnxValue((), "int64", expr=params[0])
        before, rest = self._names()
        given: dict[str, Slot] = {}
        if before:
            given = {before[0]: self._counter(count), before[1]: node.const(True, "bool")}
        values: list[OnnxValue] = []
        count_of_state = len(forms) + len(self.lists)
        given |= {rest[i]: Growing() for i in self.lists}
        for name, form, start in zip(self._tensors(rest[:count_of_state]), forms, first):
            values.append(start if form.still else self._counting(self._parameter(name, form, params), name, count))
            given[name] = values[-1]
        for name, scan in zip(rest[count_of_state:], scans):
            form = CarriedForm(scan.value.shape[1:], scan.value.dtype)
            given[name] = self._parameter(name, form, params)
        results = self.run(self.body, given, "body", True)
        if any(isinstance(r, Poison) for r in results):
            return None
        go = self._condition(results.pop(0)) if self.asks else None
        outputs = [o.name for o in self.body.output][int(self.asks) :]
        items = [self._item(outputs[i], results[i]) for i in self.lists]
        made = [self._carried(n, r) for n, r in zip(self._tensors(outputs), self._tensors(results))] + items
        names_of = [*self._tensors(outputs), *(outputs[i] for i in self.lists)]
        return WrittenBody(params, values, go, made[: len(forms)], made[len(forms) :], names_of)

    def _tensors(self, slots: Sequence[object]) -> list[Expr]:
        """Those that are no sequences."""
        return [s for i, s in enumerate(slots) if i not in self.lists]

    def _item(self, name: str, slot: Slot) -> OnnxValue:
        """What a round has added to a sequence."""
        if isinstance(slot, Growing) and len(slot.added) == 1:
            return self._carried(name, slot.added[0])
        raise Refusal(
            f"the number of its rounds is known at run time only, and its sequence '{name}' is not made longer by one "
            "tensor in each, at the end, which is what such a loop can do"
        )

    def _in_order(self, results: list[Slot], state: int) -> list[Slot]:
        """The results in the order of the node's outputs: sequences are made of rows, which come last."""
        if any(isinstance(r, Poison) for r in results):
            return results
        rows = results[len(results) - len(self.lists) :]
        found = results[: len(results) - len(self.lists)]
        for (place, start), row in zip(self.lists.items(), rows):
            found.insert(place, Growing(rows=self._behind(start.items, self._carried("a sequence", row))))
        assert len(found) >= state
        return found

    def _behind(self, items: Sequence[OnnxValue], rows: OnnxValue) -> OnnxValue:
        """The rows of a sequence behind those tensors that it has at the beginning."""
        if not items:
            return rows
        node = self.node
        if any(v.part is not None or v.shape != rows.shape[1:] or v.dtype != rows.dtype for v in items):
            listed = ", ".join(map(str, items))
            raise Refusal(f"its sequence begins with {listed}, and grows by tensors of another form")
        before = [node.reshape(v, (1, *v.shape)) for v in items]
        whole = node.do(relax.op.concat, [*before, rows.with_part(None)], axis=0)
        if rows.part is None:
            return whole
        return with_part(whole, 0, node.do(relax.op.add, rows.part.count, node.const([len(items)], "int64")))

    def _counter(self, count: OnnxValue) -> OnnxValue:
        most = self.plan.most
        if isinstance(most, int) and most > 0:
            count.between = (0, most - 1)
            told = self.node.reshape(count, (1,))
            length_of(told, most - 1)
            count.told = None if told.told is None else told.told.reshape(())
        return count

    def _counting(self, value: OnnxValue, name: str, count: OnnxValue) -> OnnxValue:
        """A carried value, with what it is in round ``count`` if it counts."""
        if count.told is None or name not in self.plan.counters or value.part is not None:
            return value
        if value.is_integer and value.size == 1:
            first, step = self.plan.counters[name]
            value.told = np.array(count.told.reshape(-1)[0] * step + first, object).reshape(value.shape)
            low, high = sorted((first, first + step * (self.plan.most - 1)))
            value.between = low, high
        return value

    def _parameter(self, name: str, form: CarriedForm, params: list[Expr]) -> OnnxValue:
        if not is_open(form.shape) and 0 in form.shape:
            return OnnxValue.of_array(np.empty(form.shape, form.dtype))
        clean = "".join(c if c.isalnum() and c.isascii() else "_" for c in name) or "value"
        params.append(relax.Var(clean, relax.TensorType([to_relax(d) for d in form.shape], form.dtype)))
        value = OnnxValue(form.shape, form.dtype, expr=params[-1])
        if form.axis is None:
            return value
        params.append(relax.Var(f"{clean}_length", relax.TensorType([1], "int64")))
        return with_part(value, form.axis, OnnxValue((1,), "int64", expr=params[-1]))

    def _condition(self, slot: Slot) -> OnnxValue | None:
        """The condition that the body leaves; None where it always holds."""
        value = self._carried("the condition", slot)
        if value.array is not None and bool(value.array.reshape(-1)[0]):
            return None
        return self.node.reshape(value, ())

    def _carried(self, name: str, slot: Slot) -> OnnxValue:
        if not isinstance(slot, OnnxValue):
            what = "is left out" if slot is None else "is a sequence"
            raise Refusal(f"the number of its rounds is known at run time only, and its value '{name}' {what}")
        if slot.dtype not in PLAIN:
            raise Refusal(f"its value '{name}' has the type {slot.dtype}, which is not supported")
        return slot

    # ------------------------------------------------------------------ forms

    def _settled(
        self, forms: Sequence[CarriedForm], first: Sequence[OnnxValue], written: WrittenBody
    ) -> list[CarriedForm]:
        """The forms that carried values must have for what the body has left."""
        found = []
        for name, form, start, value, left in zip(
            written.outputs, forms, first, written.values, written.state
        ):
            if left is value or _is_same(left, value):
                found.append(form if form.still else replace(_form(start), still=True))
            elif form.still:
                found.append(_form(start))
            else:
                found.append(self._wider(name, form, start, value, left))
        return found

    def _wider(self, name: str, form: CarriedForm, start: OnnxValue, value: OnnxValue, left: OnnxValue) -> CarriedForm:
        """The form that holds ``left`` as well, which a round leaves of ``value``."""
        own = _form(left)
        if own == form:
            return form
        if (own.dtype, len(own.shape)) != (form.dtype, len(form.shape)):
            raise Refusal(
                f"its carried value '{name}' is {form} before a round and {own} behind it; every round must leave "
                "tensors of one type and rank"
            )
        axes = {i for i, (a, b) in enumerate(zip(form.shape, own.shape)) if a != b}
        axes |= {a for a in (form.axis, own.axis) if a is not None}
        if len(axes) > 1:
            raise Refusal(
                f"its carried value '{name}' is {form} before a round and {own} behind it; of tensors that change from "
                "round to round one axis may change its length: pad the others to a fixed length"
            )
        (axis,) = axes
        before, after = form.shape[axis], own.shape[axis]
        more = after - before
        if before == 1 and isinstance(after, Dim):
            raise Refusal(
                f"its carried value '{name}' is {form} before the first round and {own} behind it; let it begin with "
                "the shape that it has then (Expand)"
            )
        if isinstance(more, Dim) and form.axis is not None and bounds(more)[1] > 0:
            raise self._unbounded(name, form, own)
        if isinstance(more, Dim) or form.axis is None or more <= 0:
            room = maximum(before, after)
        else:
            room = self._room(name, form, start, own, axis, _growth(value, left, axis))
        if form.axis == axis and room == before:
            return form
        return CarriedForm(tuple(room if i == axis else d for i, d in enumerate(form.shape)), form.dtype, axis)

    def _room(
        self, name: str, form: CarriedForm, start: OnnxValue, own: CarriedForm, axis: int, growth: int | None
    ) -> SizeLike:
        """The most that a length can be which grows in every round."""
        if growth is None or self.plan.most is None:
            raise self._unbounded(name, form, own)
        return start.shape[axis] + maximum(self.plan.most, 0) * growth

    def _unbounded(self, name: str, form: CarriedForm, own: CarriedForm) -> Refusal:
        inputs, way = self._way()
        return Refusal(
            f"its carried value '{name}' grows from round to round (it is {form} before a round and {own} behind it), "
            f"and no constant bounds how large it becomes; bound the number of rounds (Min with a constant), or carry "
            f"a tensor of a fixed length and write into it{way}",
            inputs,
        )

    def _way(self) -> tuple[tuple[str, ...], str]:
        limit = self.plan.limit
        names = deciding(limit.expr) if limit is not None and limit.array is None else ()
        return names, f"; {flags(names)} makes the number of rounds a constant" if names else ""

    # ------------------------------------------------------------------ the operator

    def _emitted(
        self, cutter: Cutter, forms: Sequence[CarriedForm], first: Sequence[OnnxValue], scans: Sequence[Scanned],
        written: WrittenBody, backwards: Sequence[bool],
    ) -> list[Slot]:  # fmt: skip
        node, plan = self.node, self.plan
        counted = written.go is not None or not plan.exact or plan.go is not None
        for name, row in zip(written.outputs[len(forms) :], written.kept):
            self._require_row(name, row)
        moving = [(i, f) for i, f in enumerate(forms) if _is_carried(f)]
        kept = [(i, r) for i, r in enumerate(written.kept) if is_open(r.shape) or 0 not in r.shape]
        results, starts = [], []
        for i, form in moving:
            results += self._parts_of(written.state[i], form)
            starts += self._parts_of(first[i], form)
        rows = [scan for scan in scans if is_open(scan.value.shape[1:]) or 0 not in scan.value.shape[1:]]
        left = [*([] if written.go is None else [written.go]), *results, *(r for _, r in kept)]
        body = cutter.rounds(written.params, [bound(node, v) for v in left])
        limit = node.const(ENDLESS, "int64") if plan.limit is None else plan.limit
        go = node.const(True, "bool") if plan.go is None else plan.go
        most = maximum(plan.most, 0) if plan.most is not None else 0
        shapes = [(tuple(v.shape), v.dtype) for v in results]
        shapes += [((most, *r.shape), r.dtype) for _, r in kept] + ([((1,), "int64")] if counted else [])
        call = registry.call(
            ROUNDS,
            *(v.expr for v in (limit, go, *starts, *(s.value for s in rows))),
            *body.seen,
            body=body.function, state=len(results), scans=len(rows), kept=len(kept), asks=int(written.go is not None),
            counted=int(counted), backwards=[int(s.back) for s in rows] + [int(backwards[i]) for i, _ in kept],
            results=relax.TupleType([relax.TensorType([to_relax(d) for d in s], t) for s, t in shapes]),
        )  # fmt: skip
        made = results_of(node, call) if shapes else []
        count = made.pop() if counted else None
        return self._given(forms, first, dict(moving), made, written, count, most)

    def _given(
        self, forms: Sequence[CarriedForm], first: Sequence[OnnxValue], moving: dict[int, CarriedForm],
        made: list[OnnxValue],
        written: WrittenBody, count: OnnxValue | None, most: SizeLike,
    ) -> list[Slot]:  # fmt: skip
        """The loop's results, of what the operator has made."""
        node = self.node
        found: list[Slot] = []
        for i, form in enumerate(forms):
            if i not in moving:
                found.append(first[i])
                continue
            value = made.pop(0)
            found.append(value if form.axis is None else with_part(value, form.axis, made.pop(0)))
        for row in written.kept:
            if not is_open(row.shape) and 0 in row.shape:
                value = node.broadcast(node.const(np.empty(row.shape), row.dtype), (most, *row.shape))
            else:
                value = made.pop(0)
            found.append(value if count is None else with_part(value, 0, count))
        return found

    def _require_row(self, name: str, row: OnnxValue) -> None:
        if row.part is not None:
            raise Refusal(
                f"its scan output '{name}' has rows {row} whose length depends on the data; all rows have one length: "
                "pad them"
            )

    def _require_bound(self, name: str, what: str) -> None:
        if self.plan.most is None:
            inputs, way = self._way()
            raise Refusal(
                f"nothing bounds the number of its rounds, each of which adds a row to {what} '{name}'; give it "
                f"the Min of the number and a constant{way}",
                inputs,
            )

    def _parts_of(self, value: OnnxValue, form: CarriedForm) -> list[OnnxValue]:
        """A carried value as the tensors that stand for it: itself, and how much of it is there."""
        return [value] if form.axis is None else held(self.node, value, form.axis, form.shape[form.axis])


@dataclass(frozen=True)
class WrittenBody:
    """What one writing of the body made: its parameters, carried values before and behind, the condition, and rows."""

    params: list[Expr]
    values: list[OnnxValue]
    go: OnnxValue | None
    state: list[OnnxValue]
    kept: list[OnnxValue]
    outputs: list[str]


def _form(value: OnnxValue) -> CarriedForm:
    return CarriedForm(tuple(value.shape), value.dtype, None if value.part is None else value.part.axis)


def _is_same(a: OnnxValue, b: OnnxValue) -> bool:
    if a.part is not None or b.part is not None or a.array is not None:
        return False
    if a.contents is not None or b.contents is not None:  # arithmetic on open dimensions
        alike = a.contents is not None and b.contents is not None and np.array_equal(a.contents, b.contents)
        return alike and a.dtype == b.dtype
    return a._expr is not None and a._expr is b._expr


def _is_carried(form: CarriedForm) -> bool:
    return not form.still and (is_open(form.shape) or 0 not in form.shape)


def _growth(value: OnnxValue, left: OnnxValue, axis: int) -> int | None:
    """By how much a round makes a length longer, at most; None where that is not known."""
    if value.part is None or left.part is None or part_of(left).axis != axis:
        return None
    more = length(left) - length(value)
    return int(more) if isinstance(more, int) and more > 0 else None

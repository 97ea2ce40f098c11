"""The arena's plan: nothing that lives at the same time overlaps, in place only where that is legal, exact size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from halotile.passes.memory.places import Places
from halotile.passes.memory.plan import MemoryPlan, plan_memory
from halotile.schedules.words.alignment import ALIGNMENT
from halotile.schedules.words.group import Kernel, Scratch, Value
from halotile.schedules.words.layout import Layout
from hypothesis import given, settings
from hypothesis import strategies as st

F = "float32"


def value(name: str, elements: int) -> Value:
    return Value(name, (elements,), F)


def kernel(
    inputs: list[Value],
    outputs: list[Value],
    inplace: list[Value] | None = None,
    scratch: int = 0,
    takes: dict[Value, Value] | None = None,
) -> Kernel:
    extra = (Scratch(scratch),) if scratch else ()
    operands = (*inputs, *outputs, *extra)
    return Kernel(None, operands, tuple(outputs), "test", inplace=tuple(inplace or ()), takes=takes or {})


def planned(kernels: list[Kernel], views: dict[Value, Value], placed: set[Value]) -> MemoryPlan:
    return plan_memory(kernels, {}, views, placed)


def size_of(operand: Value | Scratch) -> int:
    return operand.bytes


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Kernel], dict[Value, Value], set[Value]]:
    """Random programs: values of few sizes (so that sharing is possible), views, scratch, kernels that may work in
    place, outputs that live elsewhere."""
    values = [value(f"in{i}", draw(st.sampled_from([16, 32, 40]))) for i in range(2)]
    placed = set(values)
    views: dict[Value, Value] = {}
    kernels: list[Kernel] = []
    for step in range(draw(st.integers(1, 14))):
        inputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique_by=id))
        sizes = draw(st.lists(st.sampled_from([16, 32, 40, 1]), min_size=1, max_size=2))
        outputs = [value(f"v{step}.{i}", size) for i, size in enumerate(sizes)]
        same = [v for v in inputs if v.elements == outputs[0].elements] if len(outputs) == 1 else []
        scratch = draw(st.sampled_from([0, 0, 100]))
        same = same if draw(st.booleans()) else []
        takes: dict[Value, Value] = {}
        for output in outputs if not same and draw(st.booleans()) else []:
            free = [v for v in inputs if v.elements == output.elements and v not in takes.values()]
            if free:
                takes[output] = free[0]
        kernels.append(kernel(inputs, outputs, same, scratch, takes))
        values += outputs
        if draw(st.booleans()):
            view = value(f"view{step}", outputs[0].elements)
            views[view] = outputs[0]
            values.append(view)
        if draw(st.integers(0, 4)) == 0:
            placed.add(outputs[-1])
    return kernels, views, placed


def root(operand: Value, views: dict[Value, Value]) -> Value:
    while operand in views:
        operand = views[operand]
    return operand


@settings(max_examples=300, deadline=None)
@given(programs())
def test_a_run_never_reads_what_was_overwritten(program: tuple[list[Kernel], dict[Value, Value], set[Value]]) -> None:
    """Plays the program on an arena whose bytes remember who wrote them."""
    kernels, views, placed = program
    plan = planned(kernels, views, placed)
    owner = np.full(plan.planned_bytes, -1, np.int64)
    ids: dict[Value | Scratch, int] = {}

    def span(operand: Value | Scratch) -> slice:
        offset = plan.offsets[operand]
        assert offset % ALIGNMENT == 0
        return slice(offset, offset + size_of(operand))

    for k in kernels:
        roots = [root(o, views) if isinstance(o, Value) else o for o in k.operands]
        inputs = [r for r in roots if isinstance(r, Value) and r not in [root(v, views) for v in k.outputs]]
        for r in inputs:
            if r not in placed:
                assert (owner[span(r)] == ids[r]).all(), f"{r} was overwritten before it was read"
        allowed = {(root(k.outputs[0], views), root(v, views)) for v in k.inplace}
        allowed |= {(root(output, views), root(v, views)) for output, v in k.takes.items()}
        written = [r for r in roots if r not in inputs and r not in placed]
        for a, b in itertools.combinations([*written], 2):
            first, second = span(a), span(b)
            assert first.stop <= second.start or second.stop <= first.start, f"{a} and {b} overlap"
        for r, w in itertools.product(inputs, written):
            if r in placed:
                continue
            first, second = span(r), span(w)
            if first.stop > second.start and second.stop > first.start:
                assert (w, r) in allowed, f"{w} overwrites {r} while it is read"
                assert first == second
        for w in written:
            ids[w] = len(ids)
            owner[span(w)] = ids[w]


@settings(max_examples=100, deadline=None)
@given(programs())
def test_the_size_is_what_is_used(program: tuple[list[Kernel], dict[Value, Value], set[Value]]) -> None:
    """No byte is left at the end, and less than everything at once is needed at best."""
    kernels, views, placed = program
    plan = planned(kernels, views, placed)
    ends = [b.offset + b.bytes for b in plan.buffers]
    assert plan.planned_bytes == max(ends, default=0)
    assert plan.planned_bytes <= sum(b.bytes for b in plan.buffers)
    live = [sum(b.bytes for b in plan.buffers if b.first <= step <= b.last) for step in range(len(kernels))]
    assert plan.planned_bytes >= max(live, default=0)
    assert not any(isinstance(v, Value) and v in placed for v in plan.offsets)


def chain(length: int, inplace: bool) -> list[Kernel]:
    values = [value(f"v{i}", 64) for i in range(length + 1)]
    return [kernel([a], [b], [a] if inplace else []) for a, b in itertools.pairwise(values)]


def test_a_chain_takes_two_buffers_and_one_in_place() -> None:
    kernels = chain(7, False)
    placed = {kernels[0].operands[0], kernels[-1].outputs[0]}
    assert planned(kernels, {}, placed).planned_bytes == 2 * 256
    kernels = chain(7, True)
    placed = {kernels[0].operands[0], kernels[-1].outputs[0]}
    plan = planned(kernels, {}, placed)
    assert plan.planned_bytes == 256 and len(plan.inplace) == 5  # not into the model's input, not into its output


def test_each_output_may_take_an_input() -> None:
    x, y, a, b, c, d = (value(name, 64) for name in "xyabcd")
    kernels = [kernel([x], [a, b]), kernel([a, b], [c, d], takes={c: b, d: a}), kernel([c, d], [y])]
    plan = planned(kernels, {}, {x, y})
    assert plan.planned_bytes == 2 * 256 and plan.inplace == ((c, b), (d, a))
    kernels[2] = kernel([c, d, a], [y])
    assert planned(kernels, {}, {x, y}).inplace == ((c, b),)


@pytest.mark.parametrize("why", ["read later", "read twice", "a view is read later", "another size", "an input"])
def test_in_place_is_declined(why: str) -> None:
    x, a, b, c = value("x", 64), value("a", 64), value("b", 64), value("c", 64)
    big, view = value("big", 128), value("view", 64)
    views = {view: a}
    first = kernel([x], [a])
    kernels = {
        "read later": [first, kernel([a], [b], [a]), kernel([a, b], [c])],
        "read twice": [first, kernel([a, view], [b], [a]), kernel([b], [c])],
        "a view is read later": [first, kernel([a], [b], [a]), kernel([view, b], [c])],
        "another size": [first, kernel([a], [big], [a]), kernel([big], [c])],
        "an input": [kernel([x], [b], [x]), kernel([b], [c])],
    }[why]
    assert planned(kernels, views, {x, c}).inplace == ()


def test_blocked_layouts_take_their_padding_and_margins() -> None:
    x, y, z = (Value(n, (1, 17, 5, 5), F) for n in "xyz")
    layout = Layout.blocked(y.shape, 16, ((0, 0), (0, 0), (1, 1), (2, 2)))
    plan = plan_memory([kernel([x], [y]), kernel([y], [z])], {y: layout}, {}, {x, z})
    assert plan.planned_bytes == -(-2 * 7 * 9 * 16 * 4 // ALIGNMENT) * ALIGNMENT


def test_parts_live_as_long_as_the_whole() -> None:
    """Two kernels write the halves of what a third reads; what is made between them must not fall into it."""
    x, whole, between, end = value("x", 64), value("whole", 64), value("between", 64), value("end", 64)
    left, right = value("left", 32), value("right", 32)
    places = Places({}, {left: (whole, 0), right: (whole, 128)})
    kernels = [
        kernel([x], [left]),
        kernel([left], [between], [left]),
        kernel([between], [right], [between]),
        kernel([whole], [end]),
    ]
    plan = plan_memory(kernels, {}, places, {x, end})
    assert plan.inplace == ()  # neither into a part nor out of one
    start, other = plan.offsets[whole], plan.offsets[between]
    assert other + 256 <= start or start + 256 <= other
    assert plan.planned_bytes == 512

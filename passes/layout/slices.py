"""Concatenation and splitting along the outermost axis of memory are no work at all.

    y = concat(a, b), axis 1, one image        a and b are written where they lie in y
    a, b = split(x), axis 1, one image         a and b are read where they lie in x, and so are slices of step 1

It holds where everything outside the axis has size 1 (in channel blocks: one image, and all parts but the last whole
blocks), and all parts share block, margins and what lies in these. Margins are widened to make them equal.

In a step of a stream (``rows``) it holds of rows as well, in every plane: parts lie with room for the rows of others
between their planes. The rows of the last step, which are an input, are copied to theirs.

    all = concat(kept, a), axis 2              a skip waits: its oldest rows are joined with those that are late
    y = concat(up, all[oldest]), axis 1        all lies in the planes of y that these rows have, and goes on behind them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm import sym
from tvm.ir.prim import expr as prim

from ...schedules.dispatch import works_on_plain
from ...schedules.emit.inline import narrow
from ...schedules.operators.kind import facts_of
from ...schedules.words.group import Group, Node, Value, dtype_bytes
from ...schedules.words.layout import Layout
from ...schedules.words.tvm_types import Attrs

ROWS = 2  # the axis of images that streams


@dataclass(frozen=True)
class _Join:
    """``parts`` lie behind one another in ``whole``; ``starts`` are their first indices on ``axis``."""

    group: Group
    whole: Value
    parts: tuple[Value, ...]
    axis: int
    starts: tuple[int, ...]
    within: _Join | None = None  # the join whose parts these are, for a concatenation of a run of them

    @property
    def members(self) -> tuple[Value, ...]:
        return self.whole, *self.parts

    @property
    def waits(self) -> bool:
        """True if the part goes on in the planes of the whole, behind the rows of that."""
        return self.axis == 1 and self.group.nodes[0].operator == "relax.strided_slice" and self.within is not None

    @property
    def is_concat(self) -> bool:
        return self.group.nodes[0].operator == "relax.concat"

    @property
    def apart(self) -> bool:
        """True if other planes lie between the parts' own."""
        return self.axis == ROWS and any(s != 1 for s in self.whole.shape[:ROWS])


def place_slices(
    groups: Sequence[Group], layouts: dict[Value, Layout], views: dict[Value, Value], pinned: set[Value],
    rows: bool = False,
) -> tuple[tuple[Group, ...], dict[Value, Layout], dict[Value, tuple[Value, int]], list[str]]:
    """Groups without the concatenations and splits that became slices, the layouts, the slices, and notes."""
    producers = {v: g for g in groups for v in g.outputs}
    fixed = pinned | set(views) | set(views.values())
    fixed |= {v for g in groups if works_on_plain(g) for v in g.outputs}
    close = fixed | {v for g in groups if works_on_plain(g) for v in g.inputs}
    taken: dict[Value, _Join] = {}
    joins: list[_Join] = []
    bound = pinned | set(views) | set(views.values())
    for group in reversed(groups):
        join = _join(group, layouts, rows)
        if join is None or join.whole.constant is not None or len(set(join.parts)) != len(join.parts):
            continue
        window = _window(join, taken, bound)
        if window is not None:
            joins.append(window)
            taken[join.whole] = window
            continue
        made = all(p in producers for p in join.parts)
        if not made or any(p in bound or p in taken for p in join.parts):
            continue
        joins.append(join)
        taken.update(dict.fromkeys(join.parts, join))
    joins, margins, held = _settled(joins, layouts, fixed, close)
    for waiting in _waiting(groups, taken, joins, set(producers) - bound) if rows else ():
        more, around, planes = _settled([*joins, waiting], layouts, fixed, close)
        if len(more) > len(joins) and _saves(waiting, joins, held, planes):
            joins, margins, held = more, around, planes
    layouts = dict(layouts)
    fills = _fills(joins, layouts)
    for value, wanted in margins.items():
        old = layouts.get(value, Layout.plain(value.shape))
        room = held[value] - _rows(value, wanted) if value in held else 0
        layouts[value] = Layout.blocked(value.shape, old.block, wanted, max(fills[value], default=0), room)
    slices: dict[Value, tuple[Value, int]] = {}
    notes = []
    for join in joins:
        layout = layouts.get(join.whole, Layout.plain(join.whole.shape))
        for part, start in zip(join.parts, join.starts):
            step = start // layout.block if layout.block and join.axis == 1 else start
            slices[part] = (join.whole, step * layout.strides[join.axis] * dtype_bytes(part.dtype))
        where = "what waits lies where it is read" if join.waits else "its parts lie in place"
        notes.append(f"{join.group.nodes[0].operator} ({join.group.nodes[0].place}) vanishes: {where}")
    gone = {id(j.group) for j in joins}
    return tuple(g for g in groups if id(g) not in gone), layouts, slices, notes


def _settled(
    joins: Sequence[_Join], layouts: dict[Value, Layout], fixed: set[Value], close: set[Value]
) -> tuple[list[_Join], dict[Value, tuple[tuple[int, int], ...]], dict[Value, int]]:
    """The joins that are possible together, the margins that they need, and the rows of their planes."""
    joins = list(joins)
    while True:
        margins, fills = _equal_margins(joins, layouts), _fills(joins, layouts)
        held = _rows_held(joins, margins)
        same = [j for j in joins if len(fills[j.whole]) < 2]
        kept = [j for j in same if _legal(j, layouts, margins, fixed) and (j.within is None or j.within in joins)]
        kept = [j for j in kept if _has_room(j, margins, held, close)]
        if len(kept) == len(joins):
            return joins, margins, held
        joins = kept


def _waiting(
    groups: Sequence[Group], taken: dict[Value, _Join], joins: Sequence[_Join], free: set[Value]
) -> Iterator[_Join]:
    """Joins of values whose first rows are a part of a concatenation of channels: the whole value may lie where that
    part does, if the rows of the planes behind it are nobody's."""
    lodged: set[Value] = set()
    roots: set[Value] = set()
    for group in reversed(groups):
        if len(group.nodes) != 1 or group.nodes[0].operator != "relax.strided_slice":
            continue
        (part,), whole = group.nodes[0].results, group.nodes[0].inputs[0]
        outer = taken.get(part)
        if outer is None or outer not in joins or not outer.is_concat or outer.axis != 1 or part not in outer.parts:
            continue
        if whole in taken or whole in lodged or whole not in free or _sliced(group.nodes[0]) != (ROWS, 0):
            continue
        root, at, plain = _place(outer.whole, joins)
        if not plain or at + part.shape[ROWS] != root.shape[ROWS] or root in lodged or whole in roots:
            continue
        lodged.add(whole)
        roots.add(root)
        yield _Join(group, outer.whole, (whole,), 1, (outer.starts[outer.parts.index(part)],), outer)


def _place(value: Value, joins: Sequence[_Join]) -> tuple[Value, int, bool]:
    """The value in which ``value`` lies, from which row on, and whether concatenations alone lead there."""
    at, plain = 0, True
    while True:
        outer = next((j for j in joins if value in j.parts), None)
        if outer is None:
            return value, at, plain
        at += outer.starts[outer.parts.index(value)] if outer.axis == ROWS else 0
        plain = plain and outer.is_concat
        value = outer.whole


def _saves(waiting: _Join, joins: Sequence[_Join], before: dict[Value, int], after: dict[Value, int]) -> bool:
    """True if the two take no more memory together than apart."""
    (value,), root = waiting.parts, _place(waiting.whole, joins)[0]
    own, whole = (before.get(v, v.shape[ROWS]) * v.shape[1] for v in (value, root))
    return after[root] * root.shape[1] <= own + whole


def _join(group: Group, layouts: dict[Value, Layout], rows: bool) -> _Join | None:
    """The concatenation or split that ``group`` consists of."""
    if len(group.nodes) != 1 or group.nodes[0].operator not in ("relax.concat", "relax.split", "relax.strided_slice"):
        return None
    node = group.nodes[0]
    attrs: Attrs = node.call.attrs
    axis: int | None
    if node.operator == "relax.concat":
        operand = node.operands[0]
        parts = tuple(operand) if isinstance(operand, tuple) else ()
        whole, axis, position = node.results[0], int(attrs.axis), 0
    elif node.operator == "relax.split":
        parts, whole, axis, position = node.results, node.inputs[0], int(attrs.axis), 0
    else:
        parts, whole = node.results, node.inputs[0]
        axis, position = _sliced(node)
    if not parts or axis is None or not all(isinstance(p, Value) and p.elements != 0 for p in parts):
        return None
    axis = axis % len(whole.shape)
    starts = []
    for part in parts:
        starts.append(position)
        position += part.shape[axis]
    block = _layout(layouts, whole).block
    same = all(_layout(layouts, p).block == block and p.dtype == whole.dtype for p in parts)
    if same and rows and axis == ROWS and len(whole.shape) > ROWS + 1:
        return _Join(group, whole, parts, axis, tuple(starts))
    if not same or any(s != 1 for s in whole.shape[:axis]):
        return None
    # lanes after a part's last channel must hold zeros: whole blocks, or the end of the whole
    ragged = position != whole.shape[axis] and position % block if block else 0
    if block and (axis != 1 or ragged or any(s % block for s in starts)):
        return None
    return _Join(group, whole, parts, axis, tuple(starts))


def _sliced(node: Node) -> tuple[int | None, int]:
    """The axis that a slice of step 1 cuts, and where; None if it is no such slice."""
    whole, part = node.inputs[0], node.results[0]
    reads = facts_of(node).reads(whole)
    if len(whole.shape) != len(part.shape) or len(reads) != 1:
        return None, 0
    axes, indices = reads[0]
    found: tuple[int | None, int] = (None, 0)
    for d, (axis, index) in enumerate(zip(axes, indices)):
        linear = sym.detect_linear_equation(narrow(index), [axis])
        if len(linear) != 2 or not all(isinstance(c, prim.IntImm) for c in linear) or int(linear[0].value) != 1:
            if part.shape[d] == 1 and whole.shape[d] == 1:
                continue
            return None, 0
        if part.shape[d] != whole.shape[d]:
            if found[0] is not None:
                return None, 0
            found = (d, int(linear[1].value))
    return found


def _window(join: _Join, taken: dict[Value, _Join], bound: set[Value]) -> _Join | None:
    """A concatenation of parts that already lie behind one another in a larger one is a part of that itself (the
    growing concatenations of a dense block)."""
    if join.group.nodes[0].operator != "relax.concat" or join.whole in bound or join.whole in taken:
        return None
    outer = taken.get(join.parts[0])
    if outer is None or outer.within is not None or join.parts[0] not in outer.parts:
        return None
    first = outer.parts.index(join.parts[0])
    if outer.axis != join.axis or outer.parts[first : first + len(join.parts)] != join.parts:
        return None
    return _Join(join.group, outer.whole, (join.whole,), outer.axis, (outer.starts[first],), outer)


def _layout(layouts: dict[Value, Layout], value: Value) -> Layout:
    return layouts.get(value, Layout.plain(value.shape))


def _equal_margins(
    joins: Sequence[_Join], layouts: dict[Value, Layout]
) -> dict[Value, tuple[tuple[int, int], ...]]:
    """The margins that all values of a connected set of joins must have: the widest of each side."""
    margins: dict[Value, tuple[tuple[int, int], ...]] = {}
    for join in joins:
        for value in (join.whole, *join.parts):
            layout = _layout(layouts, value)
            margins[value] = layout.margins or ((0, 0),) * len(value.shape)
    changed = True
    while changed:
        changed = False
        for join in joins:
            members = (join.whole, *join.parts)
            widest = tuple(
                (max(margins[m][i][0] for m in members), max(margins[m][i][1] for m in members))
                for i in range(len(join.whole.shape))
            )
            for member in members:
                if margins[member] != widest:
                    margins[member] = widest
                    changed = True
    return margins


def _rows(value: Value, margins: Sequence[tuple[int, int]]) -> int:
    """Rows of a plane of ``value``."""
    return value.shape[ROWS] + sum(margins[ROWS])


def _rows_held(
    joins: Sequence[_Join], margins: dict[Value, tuple[tuple[int, int], ...]]
) -> dict[Value, int]:
    """The rows that planes have in memory, of all that a join of rows brings together: those of the largest."""
    held = {v: _rows(v, margins[v]) for j in joins if j.apart for v in j.members}
    for join in joins:
        if join.waits:
            (value,) = join.parts
            held[value] = _place(join.whole, [j for j in joins if not j.waits])[1] + _rows(value, margins[value])
    changed = True
    while changed and held:
        changed = False
        for join in joins:
            known = [held[v] for v in join.members if v in held]
            for value in join.members if known else ():
                if held.get(value) != max(known):
                    held[value], changed = max(known), True
    return held


def _has_room(
    join: _Join, margins: dict[Value, tuple[tuple[int, int], ...]], held: dict[Value, int], close: set[Value]
) -> bool:
    """True if nothing that lies close would have room between its planes."""
    if join.whole not in held:
        return True
    if not join.apart and join.axis >= ROWS:
        return False
    return not any(v in close and held[v] != _rows(v, margins[v]) for v in join.members)


def _fills(joins: Sequence[_Join], layouts: dict[Value, Layout]) -> dict[Value, set[int]]:
    """What the margins of all values hold that a connected set of joins brings together."""
    fills: dict[Value, set[int]] = {}
    for join in joins:
        members = (join.whole, *join.parts)
        own = {_layout(layouts, v).fill for v in members if _layout(layouts, v).margins}
        shared = own.union(*(fills.get(v, set()) for v in members))
        for value in [*members, *(v for v, held in fills.items() if any(held is fills.get(m) for m in members))]:
            fills[value] = shared
    return fills


def _legal(
    join: _Join,
    layouts: dict[Value, Layout],
    margins: dict[Value, tuple[tuple[int, int], ...]],
    fixed: set[Value],
) -> bool:
    """True if nothing that can't have margins would get them, and none lie on or before the joined axis."""
    for value in (join.whole, *join.parts):
        wanted = margins[value]
        if any(a or b for a, b in wanted[: join.axis + 1]):
            return False
        old = _layout(layouts, value).margins or ((0, 0),) * len(value.shape)
        if value in fixed and wanted != old:
            return False
    return True

"""Chooses every value's layout for the whole graph, so that conversions happen at its edges only.

1. Convolutions write NCHW[v]c, those of a few outputs plain where nothing beside them is in blocks. Maps, pools and
   per-channel norms stay in it if they can run over channel lanes.
2. A value that padded convolutions read gets margins of zeros, which its producer writes: no copy, no checks.
3. What must be plain (model inputs and outputs, matrix products, views) and must be blocked meets in a conversion, an
   extra group with a note.

    x (plain) -> [convert] -> x' C16 margins 1+1 -> conv -> C16 -> relu -> C16 margins 1+1 -> conv -> ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...schedules.conv import input_needs, supports_conv
from ...schedules.conv.direct.few_outputs import is_few
from ...schedules.conv.facts import FEW_CHANNELS
from ...schedules.dispatch import works_on_plain
from ...schedules.general.channel_lanes import preserves_channels
from ...schedules.general.channel_norm import norms_channels
from ...schedules.general.channel_shuffle import channel_tables, permutes_vectors, shuffles_channels
from ...schedules.matmul.folded_moves import producers
from ...schedules.operators.kind import facts_of
from ...schedules.words.group import Group, Value
from ...schedules.words.layout import Layout
from ...schedules.words.sizes import product, usual
from ...targets.target import Target
from ..fuse.graph import ProgramGraph
from ..fuse.outputs import copy_group, root_of
from .moves import without_moves
from .other_names import blocks_by_other_names, readers_by_any_name, readers_of
from .rename import anchor_reading, reading, result_renamed
from .rows import kept_in_blocks, place_rows
from .sampled import sampled_image
from .slices import place_slices


@dataclass(frozen=True)
class LayoutResult:
    """Groups with conversions added, the ``layouts`` that are not plain, ``views`` that still cost nothing, ``slices``
    (value -> what it lies in, and the offset in bytes), and ``vanished``: first result -> the concatenation or split
    that became slices."""

    groups: tuple[Group, ...]
    layouts: dict[Value, Layout]
    views: dict[Value, Value]
    notes: tuple[str, ...] = ()
    slices: dict[Value, tuple[Value, int]] = field(default_factory=dict)
    vanished: dict[Value, Group] = field(default_factory=dict)  # what became slices, by its first result


@dataclass(frozen=True)
class AssignLayouts:
    """The pass that chooses a layout for every value. ``enabled=False`` leaves all plain: convolutions then run on the
    general generator. ``rows``: concatenations of rows vanish as well, as those in a step of a stream. ``kept`` are
    inputs that are an output of the last run, whose layout is nobody else's matter."""

    enabled: bool = True
    rows: bool = False
    kept: tuple[tuple[Value, Value], ...] = ()
    name: str = "layout"

    def apply(
        self, graph: ProgramGraph, groups: Sequence[Group], views: dict[Value, Value], target: Target
    ) -> LayoutResult:
        if not self.enabled:
            return LayoutResult(tuple(groups), {}, dict(views))
        return _Assigner(graph, list(groups), dict(views), target, self.rows, self.kept).run()


@dataclass
class _Assigner:
    graph: ProgramGraph
    groups: list[Group]
    views: dict[Value, Value]
    target: Target
    rows: bool = False
    kept: tuple[tuple[Value, Value], ...] = ()
    blocks: dict[Value, int] = field(default_factory=dict)
    margins: dict[Value, list[tuple[int, int]]] = field(default_factory=dict)
    fills: dict[Value, int] = field(default_factory=dict)  # what lies in these margins
    converted: dict[tuple[Value, int, bool, int], Value] = field(default_factory=dict)
    plain: set[Value] = field(default_factory=set)  # what convolutions write without channel blocks
    notes: list[str] = field(default_factory=list)

    def run(self) -> LayoutResult:
        self.pinned = {v for v in (*self.graph.inputs, *self.graph.outputs)}
        self.pinned |= {v for v in self.views if root_of(v, self.views) in self.pinned}
        self._choose_plain()
        self._release_outputs()
        self.blocks, self.left = kept_in_blocks(self.kept, self.groups, self.views, self.target)
        self._choose_blocks()
        self._settle_views()
        self._convert_inputs()
        self._convert_in_time()
        if self.rows:
            bound = self.pinned | set(self.views) | set(self.views.values())
            self.groups = place_rows(self.groups, self.blocks, bound)
        layouts = {}
        for value in dict.fromkeys((*self.blocks, *self.margins)):
            block, margins = self.blocks.get(value, 0), self.margins.get(value, [])
            layout = Layout.blocked(value.shape, block, margins, self.fills.get(value, 0))
            if not layout.is_plain:
                layouts[value] = layout
        groups, layouts, slices, notes = place_slices(self.groups, layouts, self.views, self.pinned, self.rows)
        apart = {v for v, layout in layouts.items() if layout.room}  # no tile group copies these
        gone = [g for g in self.groups if g not in groups and apart.isdisjoint((*g.inputs, *g.outputs))]
        vanished = {g.outputs[0]: g for g in gone}
        return LayoutResult(groups, layouts, self.views, (*self.notes, *notes), slices, vanished)

    # -- 1: which values are blocked -------------------------------------------------------------

    def _choose_plain(self) -> None:
        """Convolutions of a few outputs write these plain, where nothing beside them is in channel blocks: a model
        output, or what only maps and reductions of plain values read."""
        flat = set(self.graph.inputs)
        readers = readers_of(self.groups)
        for group in self.groups:
            if not _is_conv(group) or not is_few(group, self._read_in):
                continue
            data = input_needs(group.anchor).data  # type: ignore[arg-type]
            beside = [r for v in group.outputs if v not in self.pinned for r in readers.get(v, [])]
            read = [v for r in beside for v in r.inputs if v not in group.outputs]
            images = [v for v in (*group.inputs, *read) if v is not data and _is_image(v)]
            if not any(_is_conv(r) for r in beside) and flat.issuperset(images):
                self.plain |= set(group.outputs)
                flat |= self.plain

    def _read_in(self, value: Value) -> int:
        """The channel block in which a dense convolution reads ``value``; 0 for what none reads so."""
        few = len(value.shape) < 3 or value.shape[1] <= FEW_CHANNELS
        return 0 if few else self.target.channel_block(value.dtype)

    def _release_outputs(self) -> None:
        """A convolution that writes a model output writes a value of its own, converted on the way out; so does the
        mean of its images, which are in channel blocks and more than their sums."""
        result: list[Group] = []
        images = {v for g in self.groups if _is_conv(g) for v in g.outputs} - self.plain
        for group in self.groups:
            place = len(result)
            result.append(group)
            if not _is_conv(group) and not _sums_images(group, images):
                continue
            for value in group.outputs:
                if value not in self.pinned or value in self.plain:
                    continue
                inner = Value(f"{value.name}.blocked", value.shape, value.dtype)
                result[place] = result_renamed(result[place], value, inner)
                result.append(copy_group(f"convert_{len(result)}", inner, value, "a model output is plain"))
        self.groups = result

    def _choose_blocks(self) -> None:
        readers = readers_by_any_name(self.groups, self.views)
        result: list[Group] = []
        for group in self.groups:
            self.blocks.update(blocks_by_other_names(group, self.views, self.blocks))
            around = self._sampled_in_blocks(group, readers)
            result += around or [group]
            if around:
                continue
            lanes = self.target.channel_block(group.outputs[0].dtype)
            if _is_conv(group):
                assert group.anchor is not None
                lanes = self.target.channel_block(group.anchor.results[0].dtype)
                for value in group.outputs:
                    if value not in self.plain:
                        self.blocks[value] = lanes
                self._choose_inner(group)
                continue
            if any(v in self.pinned for v in group.outputs):
                if group.outputs[0] in self.left:
                    result[-1:] = self._left_in_blocks(group, lanes)
                continue
            wanted = any(self._wants_blocks(r, v) for v in group.outputs for r in readers.get(v, []))
            if not wanted and not any(v in self.blocks for v in group.inputs):
                continue
            if len({self.target.channel_block(v.dtype) for v in group.outputs}) > 1:
                continue
            if all(works_on_plain(reader) for v in group.outputs for reader in readers.get(v, [])):
                continue
            mine = {v: b for v, b in self.blocks.items() if v in group.inputs}
            if not set(mine.values()) <= {lanes} or not _is_staged(group):
                continue
            kept = [group] if _keeps_blocks(group, mine, lanes) else without_moves(group, mine, lanes)
            if kept:
                self.blocks.update({v: lanes for g in kept for v in g.outputs})
                result[-1:] = self._joined_in_blocks(kept, lanes)
        self.groups = result

    def _left_in_blocks(self, group: Group, lanes: int) -> list[Group]:
        """``group``, which makes an output that is kept in blocks, and what converts that, if it has to be plain."""
        (value,) = group.outputs
        self.blocks[value] = lanes
        mine = {v: b for v, b in self.blocks.items() if v in group.inputs}
        if set(mine.values()) <= {lanes} and _is_staged(group) and _keeps_blocks(group, mine, lanes):
            return [group]
        inner = Value(f"{value.name}.plain", value.shape, value.dtype)
        return [result_renamed(group, value, inner), copy_group(f"keep_{value.name}", inner, value, "kept in blocks")]

    def _joined_in_blocks(self, groups: list[Group], lanes: int) -> list[Group]:
        """``groups``, and before them what converts the plain images that permutations of vectors among them read."""
        before, result = [], []
        for group in groups:
            for value in group.inputs if permutes_vectors(group, lanes) else ():
                if value not in self.blocks:
                    fresh, made = self._converted(value, lanes, why="joined to others in channel blocks")
                    before += [] if made is None else [made]
                    group = reading(group, value, fresh)
            result.append(group)
        return before + result

    def _sampled_in_blocks(self, group: Group, readers: dict[Value, list[Group]]) -> list[Group]:
        """A group that reads a plain image between its elements, with its conversions, where channel blocks pay: each
        place that it reads is a vector of channels then, and not an element of each."""
        lanes = self.target.channel_block(group.outputs[0].dtype)
        image = sampled_image(group)
        if image is None or image in self.blocks or image.shape[1] < lanes or not _is_staged(group):
            return []
        if any(v.shape[:2] != image.shape[:2] or v.dtype != image.dtype for v in group.outputs):
            return []
        if not preserves_channels(group, {image: lanes}, lanes):
            return []
        fresh, made = self._converted(image, lanes, why="read between its elements, by vectors of channels")
        inside, after = reading(group, image, fresh), []
        for value in group.outputs:
            if value in self.pinned or not any(self._wants_blocks(r, value) for r in readers.get(value, [])):
                inner = Value(f"{value.name}.blocked", value.shape, value.dtype)
                inside = result_renamed(inside, value, inner)
                after.append(copy_group(f"convert_{value.name}_plain", inner, value, "read plain"))
                value = inner
            self.blocks[value] = lanes
        return [*([] if made is None else [made]), inside, *after]

    def _choose_inner(self, group: Group) -> None:
        """The input of a convolution behind a prologue is in no memory; its block is how the kernel reads: a vector of
        channels at a time, if what the prologue reads lies so."""
        before = _prologue(group)
        if before is None:
            return
        data = before.outputs[0]
        lanes = self.target.channel_block(data.dtype)
        mine = {v: b for v, b in self.blocks.items() if v in before.inputs}
        if mine and set(mine.values()) == {lanes} and preserves_channels(before, mine, lanes):
            self.blocks[data] = lanes

    def _wants_blocks(self, group: Group, value: Value) -> bool:
        """True if ``group`` is a convolution that reads ``value`` in channel blocks, or a shuffle of channels, which
        is a permutation of vectors then."""
        if not _is_conv(group):
            return channel_tables(group) is not None
        assert group.anchor is not None
        needs = input_needs(group.anchor)
        if _prologue(group) is not None:
            return len(value.shape) == len(needs.data.shape) and value.shape[1] == needs.data.shape[1]
        return needs.data is value and (value.shape[1] > FEW_CHANNELS or needs.depthwise)

    # -- 2: views of blocked values --------------------------------------------------------------

    def _settle_views(self) -> None:
        """A view of a blocked value is a copy, unless the block is all there is (1 x 1 maps of whole vectors), or the
        view lies in as many."""
        for value, base in list(self.views.items()):
            block = self.blocks.get(base, 0)
            if not block or _same_as_plain(base, block) or self.blocks.get(value) == block:
                continue
            del self.views[value]
            node = next(n for n in self.graph.nodes if value in n.results)
            group = Group(f"view_{len(self.groups)}", (node,), (base,), (value,), None, ("view of C-blocks",))
            self._insert_after(base, group)
            self.notes.append(f"{node.operator} ({node.place}) copies: its input is blocked")

    def _insert_after(self, value: Value, group: Group) -> None:
        for i, other in enumerate(self.groups):
            if value in other.outputs:
                self.groups.insert(i + 1, group)
                return
        self.groups.insert(0, group)

    # -- 3: what each convolution reads ----------------------------------------------------------

    def _convert_inputs(self) -> None:
        result: list[Group] = []
        producers = {v for g in self.groups for v in g.outputs}
        exact = self._without_margins()
        for group in self.groups:
            if _is_conv(group) and _prologue(group) is None:
                assert group.anchor is not None
                wanted = input_needs(group.anchor)
                data = wanted.data
                few = data.shape[1] <= FEW_CHANNELS and not wanted.depthwise
                block = wanted.few if few else self.target.channel_block(data.dtype)
                movable = data in producers and data not in exact and not self._is_viewed(data)
                if movable and few and self.blocks.get(data):
                    block = self.blocks[data]
                needs = any(a or b for a, b in wanted.margins)
                other = needs and self.fills.get(data, wanted.fill) != wanted.fill
                if self.blocks.get(data, 0) != block or (needs and not movable) or other:
                    data, made = self._converted(data, block, padded=needs, fill=wanted.fill if needs else 0)
                    if made is not None:
                        result.append(made)
                    group = anchor_reading(group, wanted.data, data)
                if needs:
                    self._widen(data, wanted.margins)
                    self.fills[data] = wanted.fill
            elif _is_conv(group):
                group = self._convert_prologue(group, result)
            elif works_on_plain(group):
                for value in group.inputs:
                    if self.blocks.get(value):
                        data, made = self._converted(value, 0)
                        if made is not None:
                            result.append(made)
                        group = reading(group, value, data)
            result.append(group)
        self.groups = result

    def _convert_in_time(self) -> None:
        """What converts a value for several readers comes before the first of them."""
        made = {g.outputs[0]: g for g in self.groups if g.outputs[0] in self.converted.values()}
        result: dict[int, Group] = {}
        for group in self.groups:
            for before in (*(made[v] for v in group.inputs if v in made), group):
                result.setdefault(id(before), before)
        self.groups = list(result.values())

    def _without_margins(self) -> set[Value]:
        """Values that get none: inputs and outputs of the model, and what a generator of plain memory alone writes, or
        reads where it lies."""
        plain = [g for g in self.groups if works_on_plain(g)]
        read = {v for g in plain for v in g.inputs if not self.blocks.get(v)}
        return self.pinned | read | {v for g in plain for v in g.outputs}

    def _convert_prologue(self, group: Group, result: list[Group]) -> Group:
        """``group`` reading what its prologue reads in channel blocks, if its kernel is to compute its input so;
        conversions are added to ``result``."""
        before = _prologue(group)
        assert before is not None
        data = before.outputs[0]
        lanes = self.target.channel_block(data.dtype)
        images = [v for v in before.inputs if v.constant is None and v.shape[:2] == data.shape[:2]]
        plain = [v for v in images if not self.blocks.get(v) and len(v.shape) == len(data.shape)]
        few = data.shape[1] <= FEW_CHANNELS and not input_needs(group.anchor).depthwise  # type: ignore[arg-type]
        mine = {v: lanes for v in before.inputs if v in plain or self.blocks.get(v)}
        if few or not plain or self.blocks.get(data) or not preserves_channels(before, mine, lanes):
            return group
        for value in plain:
            fresh, made = self._converted(value, lanes)
            if made is not None:
                result.append(made)
            group = reading(group, value, fresh)
        self.blocks[data] = lanes
        return group

    def _is_viewed(self, value: Value) -> bool:
        return value in self.views or any(base is value for base in self.views.values())

    def _converted(
        self,
        value: Value,
        block: int,
        padded: bool = False,
        fill: int = 0,
        why: str = "a convolution reads it in channel blocks",
    ) -> tuple[Value, Group | None]:
        key = (value, block, padded and not block, fill)
        if key in self.converted:
            return self.converted[key], None
        fresh = Value(f"{value.name}.c{block}", value.shape, value.dtype)
        self.converted[key] = fresh
        if block:
            self.blocks[fresh] = block
        if not block:
            why = "read plain" if self.blocks.get(value) else "margins for a padded convolution"
        self.notes.append(f"{self._place(value)} is converted: {why}")
        return fresh, copy_group(f"convert_{value.name}_{block}", value, fresh, why)

    def _place(self, value: Value) -> str:
        """Where in the model ``value`` is computed, or its name."""
        value = root_of(value, self.views)
        return next((n.place for g in self.groups for n in g.nodes if value in n.results), value.name)

    def _widen(self, value: Value, margins: tuple[tuple[int, int], ...]) -> None:
        known = self.margins.setdefault(value, [(0, 0)] * len(value.shape))
        self.margins[value] = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(known, margins)]


def _is_conv(group: Group) -> bool:
    return group.anchor is not None and supports_conv(group.anchor)


def _is_image(value: Value) -> bool:
    return value.constant is None and usual(product(value.shape[2:])) > 1


def _prologue(group: Group) -> Group | None:
    """The part of a convolution's group that computes its input, as a group; None if it is read from memory."""
    assert group.anchor is not None
    data = input_needs(group.anchor).data
    nodes = producers(group, data)[::-1]
    if not nodes:
        return None
    made = {r for n in nodes for r in n.results}
    inputs = dict.fromkeys(v for n in nodes for v in n.inputs if v not in made)
    return Group(f"{group.name}_before", tuple(nodes), tuple(inputs), (data,))


def _sums_images(group: Group, images: set[Value]) -> bool:
    """True if ``group`` makes one element a channel of some of ``images``."""
    whole = all(len(v.shape) == 4 and v.shape[2:] == (1, 1) for v in group.outputs)
    read = [v for v in group.inputs if v in images and v.elements != v.shape[0] * v.shape[1]]
    return whole and bool(read) and any(facts_of(n).kind == "reduce" for n in group.nodes) and _is_staged(group)


def _is_staged(group: Group) -> bool:
    kinds = {facts_of(n).kind for n in group.nodes}
    return not kinds & {"opaque", "anchor"}


def _keeps_blocks(group: Group, blocked: dict[Value, int], lanes: int) -> bool:
    """True if a generator writes ``group`` in blocks of ``lanes``: its vectors are made of vectors."""
    by_vectors = shuffles_channels(group, blocked, lanes) or norms_channels(group, blocked, lanes)
    return by_vectors or preserves_channels(group, blocked, lanes)


def _same_as_plain(value: Value, block: int) -> bool:
    return all(s == 1 for s in value.shape[2:]) and value.shape[1] % block == 0

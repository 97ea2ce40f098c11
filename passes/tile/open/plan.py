"""From a run of groups to an open tile plan: who reads whom, how many rows each window holds, how it is filled.

Where the last member has computed up to row b, member m has up to

    end_m(b) = max over its readers r of line(r, m).end(end_r(b)),  rounded up to what m computes at a time
    which lies within   scale_m b + [low_m, high_m]                 whatever b is

and needs to keep what any reader that has computed up to end_r(b - rows) still reads. So the bounds of these two give
rows that suffice in every stripe of every image; edges of the tensor only take away from them.

An image that is one stripe leaves nothing for a next one: windows then lie over each other, as whole values would.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from ....schedules.tiled.box_support import box_alignment
from ....schedules.tiled.core_sharing import WIDE
from ....schedules.words.alignment import ALIGNMENT, aligned
from ....schedules.words.dims import floor_div, is_dim, maximum, minimum
from ....schedules.words.group import Group, Value, dtype_bytes
from ....schedules.words.layout import Layout
from ....schedules.words.open_tile_plan import Images, Link, OpenTilePlan, in_tiles
from ....schedules.words.sizes import product, symbol_atoms, symbols_of, usual, value_of
from ....schedules.words.tile_plan import Window
from ...memory.open_offsets import below
from ...memory.placement import Life, place
from ..plan.form import RING, Untileable
from .lines import Lines

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

PERIOD = 512  # sizes of an image after which remainders repeat
FAR = 1 << 24  # more rows or columns than an image of few positions has
LONGEST = 20_000  # characters of a closed form


@dataclass(frozen=True)
class Tiles:
    """How a tile group is cut: stripes of ``rows``, blocks of ``columns`` (None: all), ``bands`` of rows; each of
    ``cores`` computes a tile at a time, or ``sharing`` of them each step of one. What members compute at a time
    are multiples of ``quanta`` rows (1 where none are said). ``room``: see OpenTilePlan.
    ``kept``: bytes of inner values up to which an image is one tile."""

    rows: int
    columns: int | None
    bands: int = 1
    cores: int = 1
    sharing: int = 1
    quanta: Mapping[Value, int] | None = None
    room: int | None = None
    kept: float = 0.0


@dataclass(frozen=True)
class _Bounds:
    """Where a member ends, as the last member ends at b: within ``scale * b + [low, high]``; where it begins, if the
    last member begins at a: at ``scale * a + first`` or behind."""

    scale: Fraction
    low: Fraction
    high: Fraction
    first: Fraction


def plan_open(
    groups: Sequence[Group],
    layouts: Mapping[Value, Layout],
    tiles: Tiles,
    leaving: frozenset[Value],
    lines: Lines,
    work: Sequence[float],
    images: Images | None = None,
) -> OpenTilePlan:
    """The plan of ``groups``, of which the last one drives. ``leaving`` are values that others read as well; ``work``
    is what a position of each group takes; ``images``: what the groups are one image's of. Raises Untileable with the
    reason."""
    links = _links(groups, lines)
    whole = frozenset(i for i, g in enumerate(groups[:-1]) if any(v in leaving for v in g.outputs))
    if whole and (tiles.columns is not None or tiles.bands > 1):
        name = groups[min(whole)].outputs[0].name
        raise Untileable(f"{name} is read by others as well, and must lie whole: with one band, of all columns, it can")
    alignments = tuple(map(box_alignment, groups))
    rows = -(-tiles.rows // alignments[-1][0]) * alignments[-1][0]
    columns = tiles.columns
    if columns is not None:
        columns = -(-columns // alignments[-1][1]) * alignments[-1][1]
    quanta = tiles.quanta or {}
    own = (max((quanta.get(v, 1) for v in g.outputs), default=1) for g in groups)
    units = [math.lcm(rows_at_once, step) for rows_at_once, (step, _) in zip(own, alignments)]
    if rows % units[-1]:  # else bands and stripes are of whole units
        units[-1] = alignments[-1][0]
    late = [_behind(groups, links[m], m) if m in whole else 0 for m in range(len(groups))]
    high = _bounds(links, units, late, lambda link: link.rows)
    wide = _bounds(links, tuple(step for _, step in alignments), late, lambda link: link.columns)
    held = _held(links, high, rows, alignments)
    warm = max((math.ceil((b.high - b.first) / (b.scale * rows)) for b in high[:-1]), default=0)
    workers = min(tiles.cores, tiles.bands) if columns is None and images is None else tiles.cores
    if tiles.sharing > 1:
        workers = 1
    most = [_everything(groups, links, alignments, axis) for axis in (2, 3)]
    widths: Sequence[SizeLike] = most[1] if columns is None else _widths(wide, columns)
    inner = [i for i in range(len(groups) - 1) if i not in whole]
    small = 0
    if tiles.kept:
        rings = workers * sum(_bytes(groups, layouts, inner, held, widths).values())
        kept = max(tiles.kept, rings)  # beyond, tiles take less than whole values
        small = _positions(groups, links, inner, _bytes(groups, layouts, inner, *most), kept)
    if small:
        once: SizeLike | None = in_tiles(groups[-1], small)
        heights, widths = (_grown(own, all_, once) for own, all_ in zip((held, widths), most))
    else:
        heights, widths = (list(map(minimum, own, all_)) for own, all_ in zip((held, widths), most))
        once = _once(groups[-1].outputs[0].shape[2], rows, most[0], held) if not whole else None
    every = most if small else None
    windows, total = _windows(groups, layouts, links, units, heights, widths, inner, once, every)
    return OpenTilePlan(
        tuple(groups), links, rows, columns, tiles.bands, workers, warm, tuple(units), alignments, windows, total,
        _expected(groups, high, wide, rows, columns, tiles), whole, tiles.sharing, tiles.room,
        images, _extra(groups, work, high, wide, columns, tiles.bands), modes={v: RING for v in windows},
        at_once=once is not None and not small, small=small,
    )  # fmt: skip


def _links(groups: Sequence[Group], lines: Lines) -> tuple[tuple[Link, ...], ...]:
    """The readers of every member but the last."""
    producer = {v: i for i, g in enumerate(groups) for v in g.outputs}
    found: list[list[Link]] = [[] for _ in groups]
    for i, group in enumerate(groups):
        for value in dict.fromkeys(group.inputs):
            made = producer.get(value)
            if made is None:
                continue
            if made >= i:
                raise Untileable(f"{group.name} reads {value.name} before it is made")
            found[made].append(Link(i, value, *lines.between(group, value)))
    for links, group in zip(found[:-1], groups):
        read = {link.value for link in links}
        for value in group.outputs:
            if value not in read:
                raise Untileable(f"{value.name} is read by others alone")
    return tuple(map(tuple, found))


def _behind(groups: Sequence[Group], links: Sequence[Link], member: int) -> int:
    """The most rows at the end of what ``member`` makes that none of its readers needs: it computes them with the last
    that one does. Raises Untileable if that depends on more than remainders of the image's size."""
    height = groups[member].outputs[0].shape[2]
    end: SizeLike = 0
    for link in links:
        read = groups[link.reader].outputs[0].shape[2]
        end = maximum(end, floor_div(link.rows.slope * (read - 1) + link.rows.after, link.rows.divisor))
    rest = height - end
    names = sorted(symbols_of(rest)) if is_dim(rest) else []
    if not names:
        return max(0, usual(rest))
    low, step = next((int(a.low), a.multiple) for a in symbol_atoms(rest))
    first = -(-low // step) * step
    every = range(first, first + 2 * PERIOD * step, step) if len(names) == 1 else ()
    found = [value_of(rest, {names[0]: size}) for size in every]
    if not found or found[-PERIOD // 2 :] != found[-PERIOD : -PERIOD // 2]:
        raise Untileable(f"{groups[member].outputs[0].name} has more rows than its readers take")
    return max(0, *found)


def _bounds(
    links: Sequence[Sequence[Link]], units: Sequence[int], late: Sequence[int], line: SizeLike
) -> list[_Bounds]:
    """The bounds of every member along one axis. Raises Untileable where readers go at different paces."""
    last = _Bounds(Fraction(1), Fraction(0), Fraction(0), Fraction(0))
    found: list[_Bounds] = [last] * len(links)
    for member in reversed(range(len(links) - 1)):
        own = []
        for link in links[member]:
            reader, way = found[link.reader], line(link)
            slope = Fraction(way.slope, way.divisor)
            end = Fraction(way.after - way.slope, way.divisor)
            loss = Fraction(way.divisor - 1, way.divisor)
            own.append(
                _Bounds(
                    reader.scale * slope,
                    slope * reader.low + end - loss,
                    slope * reader.high + end,
                    slope * reader.first + Fraction(way.before, way.divisor) - loss,
                )
            )
        if len({b.scale for b in own}) != 1:
            raise Untileable("members read one value at different scales")
        more = units[member] - 1
        first = min(b.first for b in own) - more
        high = max(b.high for b in own) + more + late[member]
        found[member] = _Bounds(own[0].scale, max(b.low for b in own), high, first)
    return found


def _held(
    links: Sequence[Sequence[Link]], bounds: Sequence[_Bounds], rows: int, alignments: Sequence[tuple[int, int]]
) -> list[int]:
    """The most rows of each member that any stripe has at once: from the first that is new, or that a reader still
    needs, which has computed all of the stripe before, to the end of this one."""
    found = []
    for member, own in enumerate(links):
        needs = [bounds[member].low]
        for link in own:
            reader, way = bounds[link.reader], link.rows
            loss = Fraction(way.divisor - 1, way.divisor)
            needs.append(Fraction(way.slope, way.divisor) * reader.low + Fraction(way.before, way.divisor) - loss)
        most = bounds[member].high + bounds[member].scale * rows - min(needs) + alignments[member][0] - 1
        found.append(max(1, math.floor(most)))
    return found


def _widths(bounds: Sequence[_Bounds], columns: int) -> list[int]:
    """The columns of each member's window: as many as any block needs."""
    return [max(1, math.floor(b.high + b.scale * columns - b.first)) for b in bounds]


def _everything(
    groups: Sequence[Group], links: Sequence[Sequence[Link]], alignments: Sequence[tuple[int, int]], axis: int
) -> list[SizeLike]:
    """All rows (``axis`` 2) or columns (3) that each member makes, with what is read beyond the edges: no window holds
    more of an image."""
    starts = [0] * len(groups)
    found: list[SizeLike] = [g.outputs[0].shape[axis] for g in groups]
    for member in reversed(range(len(groups) - 1)):
        end = groups[member].outputs[0].shape[axis]
        for link in links[member]:
            if link.outside:
                line, read = (link.rows, link.columns)[axis - 2], groups[link.reader].outputs[0].shape[axis]
                step = alignments[member][axis - 2]
                starts[member] = min(starts[member], line.start(0) // step * step)
                end = maximum(end, floor_div(line.slope * (read - 1) + line.after, line.divisor))
        found[member] = maximum(1, end - starts[member])
    return found


def _once(height: SizeLike, rows: int, most: Sequence[SizeLike], held: Sequence[int]) -> SizeLike | None:
    """1 where the last member has more than one stripe, 0 where each member computes all at once: in images in which
    that makes at most ``rows`` rows. None where there are no such, or windows of ``held`` rows do not hold ``most``."""
    names = sorted(symbols_of(height)) if is_dim(height) else []
    if len(names) != 1:
        return None
    low, step = next((int(a.low), a.multiple) for a in symbol_atoms(height))
    first = -(-low // step) * step
    sizes = range(first, first + PERIOD * step * rows, step)
    above = next((n for n, size in enumerate(sizes) if value_of(height, {names[0]: size}) > rows), 0)
    if not above:
        return None
    last = {names[0]: sizes[above - 1]}
    if any((value_of(own, last) if is_dim(own) else own) > window for own, window in zip(most, held)):
        return None
    return maximum(0, minimum(1, floor_div(height - 1, rows)))


def _bytes(
    groups: Sequence[Group],
    layouts: Mapping[Value, Layout],
    inner: Sequence[int],
    rows: Sequence[SizeLike],
    columns: Sequence[SizeLike],
) -> dict[Value, int]:
    """Bytes of windows of ``rows`` and ``columns`` of each ``inner`` member, at the typical sizes."""
    values = [(v, _layout(v, layouts, rows[i], columns[i])) for i in inner for v in groups[i].outputs]
    return {v: usual(layout.elements * dtype_bytes(layout.held(v.dtype))) for v, layout in values}


def _positions(
    groups: Sequence[Group],
    links: Sequence[Sequence[Link]],
    inner: Sequence[int],
    whole: Mapping[Value, int],
    kept: float,
) -> int:
    """The positions that the last member makes of an image whose ``inner`` values take ``kept`` bytes; ``whole``: what
    they take at the typical sizes."""
    lives = [
        Life(max(ALIGNMENT, whole[value]), member, max(link.reader for link in links[member]))
        for member in inner
        for value in groups[member].outputs
    ]
    _, total = place(lives)
    height, width = groups[-1].outputs[0].shape[2:]
    return min(int(kept * usual(height * width) / total), FAR // 4) if total else 0


def _layout(value: Value, layouts: Mapping[Value, Layout], rows: SizeLike, columns: SizeLike) -> Layout:
    """That of a window of ``rows`` and ``columns``."""
    known, shape = layouts.get(value), (*value.shape[:2], rows, columns)
    return known.alike(shape) if known is not None else Layout.blocked(shape, 0)


def _grown(own: Sequence[SizeLike], every: Sequence[SizeLike], once: SizeLike) -> list[SizeLike]:
    """The least of ``own`` and ``every`` where ``once`` is 1, ``every`` where it is 0: single terms, whose products are
    short."""
    return [minimum(maximum(size, FAR - once * FAR), all_) for size, all_ in zip(own, every)]


def _windows(
    groups: Sequence[Group],
    layouts: Mapping[Value, Layout],
    links: Sequence[Sequence[Link]],
    units: Sequence[int],
    held: Sequence[SizeLike],
    widths: Sequence[SizeLike],
    inner: Sequence[int],
    once: SizeLike | None,
    every: Sequence[Sequence[SizeLike]] | None = None,
) -> tuple[dict[Value, Window], SizeLike]:
    """The windows of all values of ``inner`` members, and their bytes together. One that keeps nothing from
    stripe to stripe lives from its producer to its reader, and shares bytes with others; any other has bytes of its
    own. Where ``once`` is 0 there is one stripe, and none keeps anything: windows then hold ``every`` row and column,
    if that is given."""
    shapes: list[Layout] = []
    lives: list[Life] = []
    short: list[Life] = []
    sizes: list[SizeLike] = []
    whole_sizes: list[SizeLike] = []
    values: list[Value] = []
    for member in inner:
        group, own = groups[member], links[member]
        brief = len(own) == 1 and own[0].rows.is_same and units[member] == units[own[0].reader]  # see keeps()
        first, last = (member, own[0].reader) if brief else (0, len(groups))
        for value in group.outputs:
            layout = _layout(value, layouts, held[member], widths[member])
            size = aligned(layout.elements * dtype_bytes(layout.held(value.dtype)))
            shapes.append(layout)
            sizes.append(size)
            values.append(value)
            lives.append(Life(max(ALIGNMENT, usual(size)), first, last))
            if every is not None:
                all_ = _layout(value, layouts, every[0][member], every[1][member])
                size = aligned(all_.elements * dtype_bytes(all_.held(value.dtype)))
            whole_sizes.append(size)
            short.append(Life(max(ALIGNMENT, usual(size)), member, max(link.reader for link in own)))
    offsets, total = _placed(lives, sizes)
    if once is not None:
        low, least = _placed(short, whole_sizes)
        offsets = {i: low[i] + product([once, at - low[i]]) for i, at in offsets.items()}
        total = least + product([once, total - least])
    return {v: Window(v, layout, offsets[i]) for i, (v, layout) in enumerate(zip(values, shapes))}, total


def _placed(lives: Sequence[Life], sizes: Sequence[SizeLike]) -> tuple[dict[int, SizeLike], SizeLike]:
    """Offsets of windows of ``sizes`` with these ``lives``, and the end of the last: closed forms."""
    starts, _ = place(lives)
    under, total = below(lives, starts), 0
    offsets: dict[int, SizeLike] = {}
    for i in sorted(range(len(lives)), key=lambda i: starts[i]):
        offsets[i] = 0
        for j in under[i]:
            offsets[i] = maximum(offsets[i], offsets[j] + sizes[j])
        total = maximum(total, offsets[i] + sizes[i])
        if len(str(total)) > LONGEST:
            return _in_slots(lives, sizes)
    return offsets, total


def _in_slots(lives: Sequence[Life], sizes: Sequence[SizeLike]) -> tuple[dict[int, SizeLike], SizeLike]:
    """The same, of as many slots as windows are in use at a time: a slot begins where the one before ends, and is as
    large as its largest window. Of maxima over maxima, which a place above several windows is, each doubles the form;
    here there is one for each window."""
    slots: list[list[int]] = []
    for i in sorted(range(len(lives)), key=lambda i: -lives[i].bytes):
        free = (s for s in slots if all(lives[j].last < lives[i].first or lives[i].last < lives[j].first for j in s))
        slot = next(free, None)
        if slot is None:
            slots.append(slot := [])
        slot.append(i)
    offsets: dict[int, SizeLike] = {}
    total: SizeLike = 0
    for slot in slots:
        offsets |= dict.fromkeys(slot, total)
        largest: SizeLike = 0
        for i in slot:
            largest = maximum(largest, sizes[i])
        total = total + largest
    return offsets, total


def _expected(
    groups: Sequence[Group],
    high: Sequence[_Bounds],
    wide: Sequence[_Bounds],
    rows: int,
    columns: int | None,
    tiles: Tiles,
) -> tuple[tuple[int, int], ...]:
    """Rows and columns that members compute at a time, at the sizes that are planned for."""
    found = []
    for group, h, w in zip(groups, high, wide):
        height, width = (max(1, usual(d)) for d in group.outputs[0].shape[2:])
        own = max(1, min(round(h.scale * rows), -(-height // tiles.bands)))
        if columns is None:
            across = width
            if tiles.sharing > 1 and width < WIDE * tiles.sharing:
                own = max(1, own // tiles.sharing)
            elif tiles.sharing > 1:
                across = -(-width // tiles.sharing)
        else:
            across = min(width, max(1, math.ceil(w.high + w.scale * columns - w.first)))
        found.append((own, across))
    return tuple(found)


def _extra(
    groups: Sequence[Group],
    work: Sequence[float],
    high: Sequence[_Bounds],
    wide: Sequence[_Bounds],
    columns: int | None,
    bands: int,
) -> float:
    """Work of all computed boxes over that of the untiled groups, about."""
    once = done = 0.0
    blocks = 1 if columns is None else -(-max(1, usual(groups[-1].outputs[0].shape[3])) // columns)
    for group, each, h, w in zip(groups, work, high, wide):
        own, across = (max(1, usual(d)) for d in group.outputs[0].shape[2:])
        halo, beside = float(h.high - h.first) * (bands - 1), float(w.high - w.first) * (blocks - 1)
        once += each * own * across
        done += each * (own + halo) * (across + beside)
    return done / once if once else 1.0

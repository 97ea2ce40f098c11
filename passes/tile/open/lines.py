"""How far the members of a tile group reach, as straight lines that hold at every size.

The lines are read off the exact regions at two sizes, in the middle of large images: a line encloses what is needed at
a whole period of positions, and must be the same at both sizes. Where only the batch is open, an image has one size,
and a line encloses what is needed at all of its positions. What reads at other places when the image grows
(a crop from the middle, resizing by no whole factor, a mirror at the edge) has no such line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from ....schedules.words.dims import is_dim
from ....schedules.words.group import Group, Node, Value
from ....schedules.words.open_tile_plan import ReaderLine
from ....schedules.words.sizes import SYMBOLS, symbol_atoms
from ....schedules.words.tile_plan import Span
from ..plan.form import Untileable
from ..plan.needs import group_needs_of
from .twin import Twins

PROBES = 24  # positions: a multiple of the periods of strides and factors up to 4, 6, 8 and 12
LARGE = 4096  # rows of an image in whose middle nothing is near an edge
LEAST = 3 * PROBES  # positions of an output that has such a middle
PERIODS = (1, 2, 3, 4, 6, 8, 12, PROBES)  # positions after which smaller images may read alike
SLOPES = 64  # the largest factor that a line may have


@dataclass(eq=False)
class Lines:
    """The lines of readers, each found once."""

    twins: tuple[Twins, Twins]
    known: dict[tuple[Group, Value], tuple[ReaderLine, ReaderLine, bool]] = field(default_factory=dict)

    @staticmethod
    def of() -> Lines:
        """The lines of the model whose symbols are known."""
        return Lines((Twins(_sizes(LARGE)), Twins(_sizes(LARGE * 5 // 8))))

    def between(self, group: Group, value: Value) -> tuple[ReaderLine, ReaderLine, bool]:
        """What ``group`` needs of the rows and of the columns of ``value``, and whether it reads beyond its edges,
        where zeros must be. Raises Untileable."""
        key = group, value
        if key not in self.known:
            self.known[key] = self._between(group, value)
        return self.known[key]

    def _between(self, group: Group, value: Value) -> tuple[ReaderLine, ReaderLine, bool]:
        for node in group.nodes:
            why = _moving(node)
            if why is not None:
                raise Untileable(f"{group.name}: {why}")
        found = [tuple(_line(twins, group, value, axis) for axis in (2, 3)) for twins in self.twins]
        if found[0] != found[1]:
            raise Untileable(f"{group.name} reads {value.name} at places that depend on the size of the image")
        (rows, outside), (columns, beside) = found[0]
        return rows, columns, outside or beside


def _line(twins: Twins, group: Group, value: Value, axis: int) -> tuple[ReaderLine, bool]:
    twin, read = twins.group(group), twins.value(value)
    size, beyond = twin.outputs[0].shape[axis], read.shape[axis]
    if size >= LEAST and beyond >= LEAST:
        first = (size - 2 * PROBES) // 2
        spans, outside = _spans(twin, read, axis, range(first, first + 2 * PROBES + 1))
        slope = Fraction(spans[PROBES][1][0] - spans[0][1][0], PROBES)
        return _enclosing(slope, spans, spans, group, value), outside
    if is_dim(group.outputs[0].shape[axis]) or is_dim(value.shape[axis]):
        what = "rows" if axis == 2 else "columns"
        raise Untileable(f"{group.name}: images have too few {what} for tiles")
    spans, outside = _spans(twin, read, axis, range(size))  # of the one size that there is
    inner = [(at, span) for at, span in spans if span[0] > 0 and span[1] < beyond]
    for period in sorted(PERIODS, reverse=True):
        if period < len(inner):
            slope = Fraction(inner[period][1][0] - inner[0][1][0], period)
            try:
                return _enclosing(slope, spans, inner, group, value), outside
            except Untileable:
                continue
    raise Untileable(f"{group.name} reads {value.name} in no straight line")


def _spans(twin: Group, read: Value, axis: int, positions: range) -> tuple[list[tuple[int, Span]], bool]:
    """What a group needs of a value for each of its positions along ``axis``, and whether beyond the edges."""
    sizes = twin.outputs[0].shape
    spans, outside = [], False
    box = [(0, sizes[2]), (0, sizes[3])]
    for at in positions:
        box[axis - 2] = (at, at + 1)
        need = group_needs_of(twin, read, box[0], box[1])
        if need is None:
            raise Untileable(f"{twin.name} reads nothing of {read.name} at some places")
        outside = outside or need.outside is not None
        spans.append((at, need.rows if axis == 2 else need.columns))
    return spans, outside


def _enclosing(
    slope: Fraction, spans: Sequence[tuple[int, Span]], close: Sequence[tuple[int, Span]], group: Group, value: Value
) -> ReaderLine:
    """The line of ``slope`` around ``spans``, no further from those of ``close`` than a step of it. Raises
    Untileable."""
    p, d = slope.numerator, slope.denominator
    if not 0 < max(p, d) <= SLOPES or p <= 0:
        raise Untileable(f"{group.name} reads {value.name} in no straight line")
    before = min(d * low - p * at + d - 1 for at, (low, _) in spans)
    line = ReaderLine(p, d, before, max(d * end - p * at for at, (_, end) in spans))
    if any(line.start(at) + d < low or line.end(at + 1) - d > end for at, (low, end) in close):
        raise Untileable(f"{group.name} reads {value.name} in no straight line")
    return line


def _moving(node: Node) -> str | None:
    """Why what a node reads has no line that holds for every size; None if nothing is known against it."""
    if node.operator == "relax.image.resize2d":
        data, result = node.inputs[0].shape[2:], node.results[0].shape[2:]
        if str(node.call.attrs.coordinate_transformation_mode) == "align_corners":
            return "corners are aligned, so that places depend on the size of the image"
        if not all(_factor(n, m) for n, m in zip(data, result)):
            return "it resizes by no whole factor"
    if node.operator == "relax.nn.pad" and str(node.call.attrs.pad_mode) != "constant":
        return "it pads with what it mirrors"
    if node.operator == "halotile.mirror":
        return "it pads with what it mirrors"
    if node.operator in ("relax.take", "halotile.gather", "halotile.resample", "relax.tile"):
        return "it reads by a table of positions"
    return None


def _factor(size: int, result: int) -> bool:
    """True if ``result`` is a whole multiple of ``size`` at every size."""
    return any(result - size * k == 0 for k in range(1, SLOPES) if not is_dim(result - size * k))


def _sizes(large: int) -> Mapping[str, int]:
    """Sizes of the symbols of about ``large``, whatever the most is that they may be: lines are the same there."""
    found = {}
    for name, dim in SYMBOLS.get().items():
        atom = next(iter(symbol_atoms(dim)), None)
        if atom is None:  # one size is all that it may have
            found[name] = int(dim)
            continue
        found[name] = int(max(large // atom.multiple * atom.multiple, atom.low))
    return found

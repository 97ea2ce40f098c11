"""The members of a tile group, how their values hang together, and what they need of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....schedules.words.group import Group, Value
from ....schedules.words.tile_plan import Span
from .concat_parts import Parts
from .form import MATERIALISE, Form, Needs, Untileable, clip, hull


@dataclass(frozen=True, eq=False)
class Members:
    """The members of a tile group, and what they need of each other. ``whole``: indices of members whose outputs lie
    whole in memory. ``readers``: for every member, the members that read one of its outputs, with that value.
    ``alignments``: for every member, the (rows, columns) that its boxes begin and end at multiples of. ``wholes``:
    value -> the concatenation in whose window it is computed."""

    groups: tuple[Group, ...]
    needs: Needs
    whole: frozenset[int]
    producer: dict[Value, int]
    readers: tuple[tuple[tuple[int, Value], ...], ...]
    alignments: tuple[tuple[int, int], ...]
    wholes: Mapping[Value, Value] = field(default_factory=dict)
    _spans: dict[tuple[int, Value, int, Span], tuple[Span, bool]] = field(default_factory=dict)

    @staticmethod
    def of(parts: Parts, leaving: frozenset[Value], form: Form, needs: Needs) -> Members:
        """The members that ``parts`` has, those with an output in ``leaving`` or materialised being whole. Raises
        Untileable if outputs are not N, C, H, W of one size, or if a value is read before it is made."""
        groups = parts.groups
        producer = {v: i for i, g in enumerate(groups) for v in g.outputs}
        readers: list[list[tuple[int, Value]]] = [[] for _ in groups]
        for i, group in enumerate(groups):
            if len({v.shape[2:] for v in group.outputs}) != 1 or any(len(v.shape) != 4 for v in group.outputs):
                raise Untileable(f"{group.name}: outputs are not N, C, H, W of one size")
            for value in dict.fromkeys(group.inputs):
                made = producer.get(value)
                if made is None:
                    continue
                if made >= i:
                    raise Untileable(f"{group.name} reads {value.name} before it is made")
                readers[made].append((i, value))
        whole = frozenset(
            i
            for i, group in enumerate(groups)
            if any(v in leaving or form.mode(v) == MATERIALISE for v in group.outputs)
            or not all(any(v is read for _, read in readers[i]) for v in group.outputs)
        )
        return Members(
            groups, needs, whole, producer, tuple(tuple(r) for r in readers), tuple(parts.alignments()), parts.wholes
        )

    @property
    def last(self) -> Value:
        """The output that drives the group: its stripes and blocks are everybody's."""
        return self.groups[-1].outputs[-1]

    def size(self, member: int, axis: int) -> int:
        """Length of the outputs of ``member`` along ``axis`` (2: rows, 3: columns)."""
        return self.groups[member].outputs[0].shape[axis]

    def span(self, reader: int, value: Value, axis: int, span: Span) -> tuple[Span, bool]:
        """The span of ``value`` along ``axis`` that ``reader`` needs for ``span`` of its outputs, and whether it reads
        places outside of the tensor; if not, the span lies within it."""
        key = (reader, value, axis, span)
        found = self._spans.get(key)
        if found is None:
            group = self.groups[reader]
            full = [(0, s) for s in group.outputs[0].shape[2:4]]
            full[axis - 2] = span
            need = self.needs(group, value, full[0], full[1])
            if need is None:
                found = (span[0], span[0]), False
            else:
                wanted = need.rows if axis == 2 else need.columns
                outside = need.outside is not None
                found = (wanted if outside else clip(wanted, value.shape[axis])), outside
            self._spans[key] = found
        return found

    def alignment(self, member: int, axis: int) -> int:
        """Number along ``axis`` that boxes of ``member`` begin and end at multiples of."""
        return self.alignments[member][axis - 2]

    def wanted(self, member: int, axis: int, computed: Sequence[Span | None]) -> Span | None:
        """The span along ``axis`` that ``member`` has to provide when each of its readers computes ``computed[reader]``
        of its outputs: the hull of what they need, aligned."""
        result: Span | None = None
        for reader, value in self.readers[member]:
            span = computed[reader]
            if span is not None:
                result = hull(result, self.span(reader, value, axis, span)[0])
        return aligned(result, self.alignment(member, axis), self.size(member, axis))


def aligned(span: Span | None, step: int, size: int) -> Span | None:
    """``span`` with those of its ends that lie within ``[0, size]`` moved outwards to multiples of ``step``."""
    if span is None or step == 1:
        return span
    low, high = span
    low = low // step * step if 0 < low < size else low
    high = -(-high // step) * step if 0 < high < size else high
    return low, high

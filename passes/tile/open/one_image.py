"""Groups of an open batch as they are for one image of it: tiles of one image after the other need no more memory than
those of one, whatever the batch is.

    conv(x[n, 3, h, w]) -> y[n, 16, h, w]        conv(x[1, 3, h, w]) -> y[1, 16, h, w],  image by image

It holds where every value of the groups has the batch first and nowhere else, or not at all, and each image follows
from the same one of what is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ....schedules.operators.regions import BoxRefusal, group_needs
from ....schedules.words.dims import is_dim, to_relax
from ....schedules.words.group import Group, Value
from ....schedules.words.layout import Layout
from ....schedules.words.sizes import dim_of, replaced, symbols_of
from .lines import Lines
from .twin import Twins

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike
    from ....schedules.words.tvm_types import Expr


@dataclass(eq=False)
class OneImage(Twins):
    """The groups of a batch of ``batch`` images for one of them; ``sizes`` is 1 for the batch's symbol, and leaves all
    other symbols open."""

    batch: SizeLike = None
    able: dict[Group, bool] = field(default_factory=dict)

    @staticmethod
    def of(groups: Sequence[Group]) -> OneImage | None:
        """The twins for the batch of ``groups``; None if it is not open, or not one symbol."""
        batches = {v.shape[0] for g in groups for v in g.outputs if len(v.shape) == 4 and is_dim(v.shape[0])}
        if len(batches) != 1:
            return None
        (batch,) = batches
        sizes = dict.fromkeys(symbols_of(batch), 1)
        return OneImage(sizes, batch=batch) if len(sizes) == 1 and replaced(batch, sizes) == 1 else None

    def number(self, dim: SizeLike) -> SizeLike:
        return replaced(dim, self.sizes) if is_dim(dim) else dim

    def _size(self, expr: Expr) -> SizeLike:
        found = self.number(dim_of(expr))
        return to_relax(found) if is_dim(found) else found

    def holds(self, group: Group, layouts: Mapping[Value, Layout], lines: Lines) -> bool:
        """True if an image of what ``group`` makes follows from the same image of what it reads."""
        if group not in self.able:
            self.able[group] = self._holds(group, layouts, lines)
        return self.able[group]

    def _holds(self, group: Group, layouts: Mapping[Value, Layout], lines: Lines) -> bool:
        inner = [v for n in group.nodes for v in (*n.inputs, *n.results)]
        values = dict.fromkeys((*group.inputs, *group.outputs, *inner))
        if not all(map(self._parted, values)) or not all(v.shape[0] == self.batch for v in group.outputs):
            return False
        known = [(v, layouts[v]) for v in (*group.inputs, *group.outputs) if v in layouts and self.is_parted(v)]
        if any(layout.elements != self.batch * self.layout(layout).elements for _, layout in known):
            return False
        twins = lines.twins[0]
        twin, parted = twins.group(group), {twins.value(v) for v in group.inputs if self.is_parted(v)}
        for output in twin.outputs:
            box = ((1, 2), *((0, size) for size in output.shape[1:]))
            needs = group_needs(twin, output, box)
            if isinstance(needs, BoxRefusal) or any(n.value in parted and n.box[0] != (1, 2) for n in needs):
                return False
        return True

    def is_parted(self, value: Value) -> bool:
        """True if each image has a part of ``value`` of its own."""
        return bool(value.shape) and is_dim(value.shape[0]) and value.shape[0] == self.batch

    def _parted(self, value: Value) -> bool:
        rest = value.shape[1:] if self.is_parted(value) else value.shape
        return not any(symbols_of(d) & set(self.sizes) for d in rest if is_dim(d))

    def layout(self, layout: Layout) -> Layout:
        return replace(layout, shape=self.shape(layout.shape))

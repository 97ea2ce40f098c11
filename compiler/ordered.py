"""Rows that a model has put in order (TopK, NonMaxSuppression), compared as a set.

    theirs  [0.91 cat] [0.80 dog] [0.80 cow]            ours  [0.91 cat] [0.80 cow] [0.80 dog]

Scores that differ in the last bit change places with all that belongs to them, in every output that has these rows.
So rows are found again wherever they are, all outputs together. How many moved, and how far, and how many are rows of
no answer of the reference, is what is judged, against the same of its own answers (:mod:`.sensitivity`): the last place
may go to a row that only another of these answers has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

ORDERING = frozenset(("TopK", "NonMaxSuppression"))
FEW = 4  # rows that may change places where some of the reference's own do: two pairs
LARGEST = 1 << 28  # elements of a comparison of all rows with all

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Change:
    """How the rows of one answer differ from another's: how many moved, the farthest, how many are in no known
    answer, and the largest difference of those that were found, for each output."""

    moved: int
    farthest: int
    strange: int
    errors: Mapping[str, float]

    def within(self, times: float, known: Sequence[Change]) -> bool:
        """True if changes of ``known`` explain this one."""
        moved, farthest, strange = (
            max((getattr(c, what) for c in known), default=0) for what in ("moved", "farthest", "strange")
        )
        few = FEW if moved else 0
        near = self.moved <= max(times * moved, few) and self.farthest <= max(times * farthest, few)
        return near and self.strange <= times * strange


def ordered_outputs(model: onnx.ModelProto) -> set[str]:
    """Outputs that depend on what was put in order."""
    reached: set[str] = set()
    for node in model.graph.node:
        if _orders(node) or not reached.isdisjoint(node.input):
            reached.update(node.output)
    return reached & {o.name for o in model.graph.output}


def _orders(node: onnx.NodeProto) -> bool:
    inner = [n for a in node.attribute if a.type == onnx.AttributeProto.GRAPH for n in a.g.node]
    return node.op_type in ORDERING or any(map(_orders, inner))


def row_axis(shape: Sequence[int]) -> int | None:
    """The axis of rows: the longer one of the first two, as batches are few; None where there is none."""
    if not shape:
        return None
    return 0 if len(shape) == 1 or shape[0] > shape[1] else 1


def together(names: Sequence[str], theirs: Arrays) -> list[tuple[int, list[str]]]:
    """Outputs that have the same rows: (axis, names)."""
    found: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        axis = row_axis(theirs[name].shape)
        if axis is not None:
            found.setdefault(theirs[name].shape[: axis + 1], []).append(name)
    return [(len(shape) - 1, group) for shape, group in found.items()]


def change(
    names: Sequence[str],
    axis: int,
    ours: Arrays,
    theirs: Arrays,
    limits: Mapping[str, float],
    more: Sequence[Arrays],
) -> Change | None:
    """How ``theirs`` become ``ours``, rows being equal within ``limits``; None where they can't be compared. ``more``:
    answers that have other rows."""
    mine, wanted = (_table(names, axis, a, theirs) for a in (ours, theirs))
    if mine is None or wanted is None or len(mine) != len(wanted):
        return None
    others = [t for a in more if (t := _table(names, axis, a, theirs)) is not None and len(t) == len(wanted)]
    widths = [int(np.prod(theirs[n].shape[axis + 1 :], dtype=np.int64)) for n in names]
    unit = np.repeat([max(limits[n], 1e-300) for n in names], widths)
    moved = farthest = strange = 0
    errors = np.zeros(len(unit))
    for lead in range(len(wanted)):
        a, b = mine[lead] / unit, wanted[lead] / unit
        pairs, left = _paired(a, b)
        strange += max(0, len(b) - len(a))
        apart = [abs(i - j) for i, j in pairs if i != j]
        moved, farthest = moved + len(apart), max(farthest, *apart, 0)
        if pairs:
            i, j = np.array(pairs).T
            errors = np.maximum(errors, np.abs(mine[lead][i] - wanted[lead][j]).max(axis=0))
        for other in others:
            if left:
                new = other[lead] / unit
                new = new[_paired(new, b)[1]]  # what they have not
                left = [left[i] for i in _paired(a[left], new)[1]]
        strange += len(left)
    largest = {
        n: float(part.max(initial=0.0)) for n, part in zip(names, np.split(errors, np.cumsum(widths)[:-1]))
    }
    return Change(moved, farthest, strange, largest)


def _table(names: Sequence[str], axis: int, answer: Arrays, like: Arrays) -> np.ndarray | None:
    """[batch, rows, all that belongs to a row] in float64; None if the outputs have other rows, or others each."""
    parts = []
    for name in names:
        array, wanted = answer[name], like[name]
        if (
            array.dtype != wanted.dtype
            or array.ndim != wanted.ndim
            or array.shape[axis + 1 :] != wanted.shape[axis + 1 :]
        ):
            return None
        lead, width = (int(np.prod(s, dtype=np.int64)) for s in (array.shape[:axis], array.shape[axis + 1 :]))
        parts.append(array.astype(np.float64).reshape(lead, array.shape[axis], width))
    if len({part.shape[:2] for part in parts}) > 1:
        return None
    return np.nan_to_num(np.concatenate(parts, axis=2))


def _paired(a: np.ndarray, b: np.ndarray) -> tuple[list[tuple[int, int]], list[int]]:
    """Rows of ``a`` and of ``b`` that are at most 1 apart in everything, those in the same place first, then each with
    the nearest that is left; and the rows of ``a`` that have none. Too many to compare count as having none."""
    shared = min(len(a), len(b))
    same = np.abs(a[:shared] - b[:shared]).max(axis=1, initial=0.0) <= 1
    pairs = [(int(i), int(i)) for i in np.flatnonzero(same)]
    left = [int(i) for i in (*np.flatnonzero(~same), *range(shared, len(a)))]
    right = [int(i) for i in (*np.flatnonzero(~same), *range(shared, len(b)))]
    if not right or len(left) * len(right) * max(a.shape[1], 1) > LARGEST:
        return pairs, left
    targets, free, alone = b[right], np.ones(len(right), bool), []
    for i in left:
        apart = np.where(free, np.abs(targets - a[i]).max(axis=1, initial=0.0), np.inf)
        j = int(apart.argmin())
        if apart[j] > 1:
            alone.append(i)
            continue
        free[j] = False
        pairs.append((i, right[j]))
    return pairs, alone

"""Which layer is computed in which precision for an error to be kept: what ``inspect --precision-plan`` prints.

    plan = Planner(shares, times).plan(0.01)

A ladder of assignments, from all in float32 to the fastest, is the same for every limit: of each rung it is known what
rounding does to the outputs, for samples that it was found by and for others (shares.py), and what the model as a whole
is predicted to take (times.py). A limit takes the fastest rung that keeps it, a tenth of it left for other inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from .search import BudgetPoint, UnitForm, curve, ladder
from .shares import Shares
from .times import Pure, Times

if TYPE_CHECKING:
    from ...targets.plain import Json

RUNGS = 12
NEARER = 5  # assignments that are tried beside them for a limit
LEFT = 0.9  # of the limit that the samples may take
GAIN = 0.98  # of float32's time: what takes more is not worth an error
LEAST = 1e-5  # errors below are those of float32 itself
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Rung:
    """An assignment: ``precision`` of the layers that are not in float32; ``errors`` that are expected for the samples
    it was found by, and for those held back; ``cycles`` of the whole model."""

    precision: Mapping[str, str]
    estimate: float
    errors: tuple[float, float]
    cycles: float

    @property
    def error(self) -> float:
        return max(self.errors)


@dataclass(frozen=True)
class Unit:
    """Layers that have one precision, since a kernel computes them together; by their precision, the ``share`` of the
    error and ``cycles``, in float32 ``beside`` float16 others. ``why`` a precision is not among them."""

    names: tuple[str, ...]
    operator: str
    share: Mapping[str, float]
    cycles: Mapping[str, float]
    beside: float
    why: Mapping[str, str]

    def wide(self, kinds: Sequence[str]) -> float:
        """Cycles in float32 where other layers are in ``kinds``."""
        return self.beside if "float16" in kinds else self.cycles["float32"]

    def forms(self, kinds: Sequence[str]) -> list[UnitForm]:
        narrow = [UnitForm(k, self.share[k], self.cycles[k]) for k in kinds if k in self.share]
        return [UnitForm("float32", 0.0, self.wide(kinds)), *narrow]


@dataclass(eq=False)
class Planner:
    """``tell`` is called with ("precision", done, total)."""

    shares: Shares
    times: Times
    tell: Tell | None = None
    done: int = field(default=0)

    @cached_property
    def units(self) -> list[Unit]:
        kinds = [kind for mixed in self.times.kinds for kind in mixed]
        pure = {kind: self.times.layer_by_layer(kind) for kind in ("float32", *kinds)}
        halves = "float16" in kinds
        beside = self.times.layer_by_layer("float32", beside=True) if halves else pure["float32"]
        layers = {n.name: n for n in self.shares.layers}
        joined = _joined(list(layers), [names for p in pure.values() for names in p.together])
        total = len(joined) * len(kinds)
        found = []
        for names in joined:
            share, cycles, why = {"float32": 0.0}, {"float32": _sum(pure["float32"], names)}, {}
            among = _sum(beside, names)
            for kind in kinds:
                self._tell(total)
                taken = _sum(pure[kind], names)
                if not pure[kind].able.issuperset(names):
                    why[kind] = next((pure[kind].why[n] for n in names if n in pure[kind].why), "it can't be")
                elif taken >= GAIN * (among if kind == "float16" else cycles["float32"]):
                    why[kind] = "it is not expected to be faster"
                else:
                    share[kind], cycles[kind] = self.shares.alone(names, kind), taken
            found.append(Unit(names, layers[names[0]].op_type, share, cycles, among, why))
        return found

    @cached_property
    def rungs(self) -> list[Rung]:
        """The choices from all in float32 to the fastest; none is beaten by another in error and time."""
        points = [p for points in self.curves for p in ladder(points, RUNGS)]
        found = []
        for i, point in enumerate(points):
            if self.tell is not None:
                self.tell("precision", i, len(points))
            if not point.error or point.error >= LEAST:
                found.append(self._rung(point))
        return _undominated(found)

    @cached_property
    def curves(self) -> list[list[BudgetPoint]]:
        """The curve of error and time of each set of precisions that go with each other."""
        return [curve([unit.forms(mixed) for unit in self.units]) for mixed in self.times.kinds or [()]]

    def within(self, limit: float) -> Iterator[Rung]:
        """Assignments that are expected to keep the limit, the fastest first; the last is all in float32."""
        found = [r for r in self.rungs if r.error <= LEFT * limit or not r.precision]
        found += [r for points in self.curves for r in self._between(points, LEFT * limit)]
        yield from reversed(_undominated(found))

    def _between(self, points: list[BudgetPoint], limit: float) -> list[Rung]:
        """What lies between the rungs, nearer and nearer to the limit."""
        low = max((i for i, p in enumerate(points) if p.error <= limit / 2), default=0)
        high = min((i for i, p in enumerate(points) if p.error > limit * 2), default=len(points))
        found = []
        for _ in range(NEARER):
            if high - low < 2:
                break
            middle = (low + high) // 2
            rung = self._rung(points[middle])
            if rung.error <= limit:
                low = middle
                found.append(rung)
            else:
                high = middle
        return found

    def _rung(self, point: BudgetPoint) -> Rung:
        precision = {
            name: form.precision
            for unit, form in zip(self.units, point.forms)
            for name in unit.names
            if form.precision != "float32"
        }
        return Rung(precision, point.error, self.shares.errors(precision), self.times.cycles(precision))

    def rows(self, rung: Rung) -> list[Json]:
        """What is told of each unit: layers, precision, shares, cycles, and why."""
        return [
            {
                "layers": list(unit.names), "operator": unit.operator,
                "precision": (own := rung.precision.get(unit.names[0], "float32")),
                "shares": {k: v for k, v in unit.share.items() if k != "float32"}, "cycles": dict(unit.cycles),
                "reason": _reason(unit, own),
            }
            for unit in self.units
        ]  # fmt: skip

    def _tell(self, total: int) -> None:
        if self.tell is not None:
            self.tell("precision", self.done, total)
        self.done += 1


def _undominated(rungs: Sequence[Rung]) -> list[Rung]:
    """Those that no other beats in error and time, the most exact first."""
    found: list[Rung] = []
    for rung in sorted(rungs, key=lambda r: (r.error, r.cycles)):
        if not found or rung.cycles < found[-1].cycles:
            found.append(rung)
    return found


def _reason(unit: Unit, own: str) -> str:
    if own != "float32":
        where = " beside float16" if own == "float16" else ""
        return f"takes {unit.cycles[own] / unit.wide([own]):.2f} of the time in float32{where}"
    parts = [f"{k} alone would be off by {v:.1e}" for k, v in unit.share.items() if k != "float32"]
    parts += [f"not {kind}: {why}" for kind, why in unit.why.items()]
    return "; ".join(parts) or "the target has nothing faster"


def _sum(pure: Pure, names: Sequence[str]) -> float:
    return sum(pure.cycles.get(name, 0.0) for name in names)


def _joined(names: Sequence[str], together: Sequence[frozenset[str]]) -> list[tuple[str, ...]]:
    """The names in order, those in one tuple that some set has together."""
    place = {name: i for i, name in enumerate(names)}
    root = dict(place)
    for group in together:
        first = min(root[name] for name in group)
        others = {root[name] for name in group}
        root = {name: first if at in others else at for name, at in root.items()}
    found: dict[int, list[str]] = {}
    for name in names:
        found.setdefault(root[name], []).append(name)
    return [tuple(members) for members in found.values()]

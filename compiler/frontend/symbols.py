"""Symbols: the open dimensions of the import under way by name, and what is known of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...errors import ShapeError
from ...schedules.words.dims import INFINITY, Dim, Size
from ...schedules.words.sizes import known_limits, replaced
from ..extents import Extent, sizes_text
from ..spec import Condition
from .implied import Assumed, facts, symbol_name, symbols_of
from .learned import Learned

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike


@dataclass
class Known:
    """What is known of a symbol's sizes, and on what grounds, by what these are for; ``typical`` is the user's."""

    low: int = 0
    high: float = INFINITY
    multiple: int = 1
    typical: int | None = None
    why: dict[str, str] = field(default_factory=dict)

    @property
    def least(self) -> int:
        return -(-self.low // self.multiple) * self.multiple

    @property
    def largest(self) -> float:
        return self.high if math.isinf(self.high) else self.high // self.multiple * self.multiple

    @property
    def sizes(self) -> str:
        return sizes_text(self.low, self.high, self.multiple)

    def met(self, other: Known) -> Known:
        """What is known where both hold."""
        typical = self.typical if other.typical is None else other.typical
        multiple = math.lcm(self.multiple, other.multiple)
        return Known(
            max(self.low, other.low), min(self.high, other.high), multiple, typical, {**self.why, **other.why}
        )

    @property
    def possible(self) -> bool:
        return self.least <= self.largest


class Symbols:
    """A name stands for the same Dim everywhere; what is learned changes it for the import that starts again."""

    def __init__(self) -> None:
        self.facts: dict[str, Known] = {}
        self.same: dict[str, SizeLike] = {}  # names that are no symbols of their own: what they are
        self.given: dict[tuple[str, int], str] = {}  # names of those that have none, by input and axis
        self.bounded: dict[str, Known] = {}  # of names that others give: what is asked of them
        self.limits: dict[tuple[SizeLike, str, SizeLike], str] = {}  # of several symbols, and what is told

    def __getitem__(self, name: str) -> Dim | int:
        if name in self.same:
            found: Dim | int = replaced(self.same[name], self.dims)
            return found
        known = self.facts.setdefault(name, Known())
        if known.least == known.largest:
            return known.least
        return Dim.symbol(name, known.least, known.largest, known.multiple)

    @property
    def dims(self) -> dict[str, Size]:
        """Every symbol by name."""
        return {name: self[name] for name in self.facts if name not in self.same}

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What is asked of dimensions that turned out to follow from others."""
        limits = [(replaced(a, self.dims), relation, b, why) for (a, relation, b), why in self.limits.items()]
        found = [Condition(*limit) for limit in limits if isinstance(limit[0], Dim)]
        for name, known in self.bounded.items():
            dim, why = self[name], f"dimension '{name}' is to be {' and '.join(known.why.values())}"
            ends = [("at least", known.least, known.least > 0), ("at most", known.largest, known.high < INFINITY)]
            found += [Condition(dim, relation, int(end), why) for relation, end, asked in ends if asked]
            if known.multiple > 1:
                found.append(Condition(dim, "is", dim // known.multiple * known.multiple, why))
        return tuple(found)

    def name_of(self, taken: Iterable[str | int | None], tensor: str, axis: int) -> str:
        """A name for a dimension without one, which is not ``taken`` by another."""
        if (tensor, axis) not in self.given:
            names = {*taken, *self.given.values(), *self.facts}
            name = f"{tensor}_{axis}"
            while name in names:
                name += "_"
            self.given[tensor, axis] = name
        return self.given[tensor, axis]

    def ask(self, name: str, extent: Extent) -> None:
        """Takes in what the user asks for."""
        told = [f"{extent.sizes}, as asked for"] if extent.bounded else []
        high = INFINITY if extent.high is None else extent.high
        self._hold(name, Known(extent.low, high, extent.multiple, extent.typical, {t: t for t in told}))

    def learn(self, fact: Learned) -> str:
        """Takes ``fact`` in, for the import to start again; what it says, for a note."""
        name, told = fact.symbol, f"{fact.limit}, {fact.reason}"
        if fact.same_as is None:
            self._hold(name, Known(fact.low, fact.high, fact.multiple, None, {fact.kind: told}))
        else:
            self._replace(name, fact, told)
        return f"dimension '{name}' is {told}"

    def conclude(self, assumed: Mapping[tuple[SizeLike, str, SizeLike], Assumed]) -> list[str]:
        """Takes in all that follows from equations that were assumed; what it says, for notes."""
        told: list[str] = []
        while fact := next(facts(assumed, {n: self[n] for n in (*self.same, *self.facts)}), None):
            told.append(self.learn(fact))
        return told

    @property
    def known(self) -> tuple[tuple[SizeLike, float, float], ...]:
        """Bounds of dims of several symbols, for :data:`KNOWN`."""
        return known_limits(self.conditions)

    def bound(self, assumed: Mapping[tuple[Dim, str, Dim], Assumed]) -> bool:
        """Takes in bounds of dims of several symbols that were assumed; whether there are new ones."""
        new = {
            condition: told.what
            for condition, told in assumed.items()
            if condition[1] in ("at least", "at most") and len(symbols_of(condition[0])) > 1
        }
        self.limits = {**self.limits, **new}
        return bool(new)

    def _replace(self, name: str, fact: Learned, told: str) -> None:
        known, other = self.facts.pop(name, Known()), symbol_name(fact.same_as)
        self.same = {n: replaced(d, {name: fact.same_as}) for n, d in self.same.items()}
        self.same[name] = fact.same_as
        if other is not None:
            if known.typical is not None and self.facts[other].typical not in (None, known.typical):
                both = f"{known.typical} and {self.facts[other].typical}"
                raise ShapeError(f"'{name}' and '{other}' are one dimension ({fact.reason}), but planned for {both}")
            self._hold(other, known)
        elif isinstance(fact.same_as, int):
            must = f"dimension '{name}' must be {fact.same_as}, {fact.reason}"
            if not _holds(known, fact.same_as):
                raise ShapeError(f"{must}, but is to be {known.sizes}")
            if known.typical not in (None, fact.same_as):
                raise ShapeError(f"{must}, but is planned for {known.typical}")
        elif known.why:
            self.bounded[name] = known

    def _hold(self, name: str, more: Known) -> None:
        if name in self.same:
            other = symbol_name(self.same[name])
            if other is None:
                raise ShapeError(f"dimension '{name}' is {self.same[name]}, so it can't be {more.sizes}")
            name = other
        old = self.facts.get(name, Known())
        new = old.met(more)
        if not new.possible:
            first, second = (" and ".join(known.why.values()) or known.sizes for known in (old, more))
            raise ShapeError(f"dimension '{name}' would have to be {first}, and {second}")
        self.facts[name] = new


def _holds(known: Known, size: int) -> bool:
    return known.low <= size <= known.high and size % known.multiple == 0


def known_typical(symbols: Symbols, typical: Mapping[str, int] | None) -> None:
    """Takes in the sizes to plan for; ShapeError for a name that is no open dimension, and a size out of its range."""
    for name, size in (typical or {}).items():
        if name not in symbols.facts:
            listed = ", ".join(f"'{n}'" for n in symbols.facts) or "none"
            raise ShapeError(f"a typical size was given for '{name}', but the open dimensions are {listed}")
        symbols.facts[name] = replace(symbols.facts[name], typical=size)
        require_typical(name, symbols.facts[name])


def require_typical(name: str, known: Known) -> None:
    """ShapeError where the user plans for a size that is not allowed."""
    if known.typical is not None and not known.low <= known.typical <= known.high:
        why = f" ({'; '.join(known.why.values())})" if known.why else ""
        raise ShapeError(f"the typical size of '{name}', {known.typical}, is not {known.sizes}{why}")

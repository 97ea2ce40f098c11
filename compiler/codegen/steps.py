"""The steps by which a library makes weights in another form of those in its file; forms.py finds them."""

from __future__ import annotations

from dataclasses import dataclass, field

FILE, MADE, FIRST, SECOND = range(4)  # memory of steps: the file, the level's own, and two for a while


@dataclass(frozen=True)
class FillStep:
    """Fills elements of four bytes from ``target`` on in memory ``to``, from ``source`` on in memory ``of``. ``dims``
    are the nest's, outermost first, with ``strides`` of the source. With ``starts``, where a table is in the file in
    bytes, ``dims`` are (runs, length) and ``strides`` the stride within a run. With ``factors``, rows of a matrix,
    ``dims`` are (rows, terms, elements)."""

    of: int
    to: int
    source: int
    target: int
    dims: tuple[int, ...]
    strides: tuple[int, ...] = ()
    starts: int | None = None
    factors: tuple[float, ...] = ()


@dataclass
class LevelForm:
    """What one level makes of the file: the steps, the bytes of the memory that they fill, and those of the two
    memories that they need for a while."""

    steps: list[FillStep] = field(default_factory=list)
    bytes: int = 0
    first: int = 0
    second: int = 0

"""The boards that ship with Halotile: one TOML file each, read as data.

A file holds the fields of :class:`Target` (sizes may be written ``"32K"``, ``"2M"``; the bandwidth in units of
1000), a one-line ``description``, ``aliases``, and under ``sources`` where its facts come from: the chip's cores and
caches, the core's vectors and multiply-adds, the memory's bandwidth, and the oldest glibc of the systems made for it.
Adding a board means adding a file; no code knows a board's name. A user's own file (``./my-board.toml``) has the same
form; its description and sources may be left out.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from ..errors import TargetError
from .plain import Json
from .target import Target
from .typed import typed, typed_target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FOLDER = Path(__file__).parent / "boards"
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}
_RATES = {"M": 10**6, "G": 10**9}
# Which of the sources must be there for which fact.
_NEED = {"l1_bytes": "chip", "cores": "chip", "fma_ports": "core", "in_order": "core", "bandwidth": "memory",
         "glibc": "glibc"}  # fmt: skip


@dataclass(frozen=True)
class Board:
    """One board: its name, what it is, the facts as a target, and the other names it answers to."""

    name: str
    description: str
    target: Target
    aliases: tuple[str, ...]
    sources: dict[str, str]


@dataclass(frozen=True)
class _BoardFile:
    """What a board file holds."""

    description: str
    target: Json
    sources: dict[str, str]
    aliases: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def boards() -> dict[str, Board]:
    """All boards by name, in alphabetical order."""
    return {path.stem: read_board(path) for path in sorted(_FOLDER.glob("*.toml"))}


def find_board(name: str) -> Board | None:
    """The board called ``name``, or that has it as an alias; case and underscores don't matter."""
    key = name.strip().lower().replace("_", "-")
    for board in boards().values():
        if key == board.name or key in board.aliases:
            return board
    return None


def board_names() -> list[str]:
    """Every board's name and alias."""
    return [n for board in boards().values() for n in (board.name, *board.aliases)]


def is_file(name: str) -> bool:
    """Whether a target's name is that of a board file."""
    return name.strip().lower().endswith(".toml")


def own_board(name: str) -> Board:
    """The board of a user's file."""
    return read_board(Path(name.strip()).expanduser(), own=True)


def read_board(path: Path, own: bool = False) -> Board:
    """Reads one board file; raises :class:`TargetError` that names the file and the field in question. A file of the
    user's ``own`` is called by its path, and may leave out what documents it."""
    called = str(path) if own else path.name
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TargetError(f"board file {called} can't be read: {reason}") from None
    where = f"board file {called}"
    known = [f.name for f in fields(_BoardFile)]
    if unknown := sorted(data.keys() - set(known)):
        fact = unknown[0] in {f.name for f in fields(Target)}
        told = "belongs under [target]" if fact else f"is unknown (known: {', '.join(known)})"
        raise TargetError(f"{where}: {unknown[0]!r} {told}")
    if own:
        data = {"description": path.stem, "sources": {}, **data}
    missing = {"description", "sources", "target"} - data.keys()
    if not missing:
        found = typed(data, _BoardFile, where, TargetError)
        told = "; ".join(f"{group}: {text}" for group, text in found.sources.items())
        facts = {key: _fact(key, value) for key, value in found.target.items()}
        for key, value in facts.items():
            if isinstance(value, str) and (key.endswith("_bytes") or key == "bandwidth"):
                units = "K, M or G (of 1024)" if key != "bandwidth" else "M or G (of 1000)"
                raise TargetError(f"{where}: target.{key}: {value!r} is no whole number, alone or with {units}")
        lacks = [f"target.{fact}" for fact in ("triple", "cpu") if fact not in facts]
        if lacks:
            raise TargetError(f"{where} lacks {', '.join(lacks)}")
        more = {"id": path.stem, "source": told or called, "notes": found.notes}
        target = typed_target(facts, where, TargetError, **more)
        undocumented = {f for f, group in _NEED.items() if f in facts and group not in found.sources}
        missing = set() if own else {f"a source for {f}" for f in undocumented}
    if missing:
        raise TargetError(f"{where} lacks {', '.join(sorted(missing))}")
    return Board(path.stem, found.description, target, found.aliases, found.sources)


def _fact(key: str, value: float | list[str] | str) -> float | list[str] | str:
    """A size or a rate as a number; anything else, and what is written otherwise, as it is."""
    units = _UNITS if key.endswith("_bytes") else _RATES if key == "bandwidth" else {}
    return _scaled(value, units) if units and isinstance(value, str) else value


def size(value: int | str) -> int:
    """``"48K"`` -> 49152; plain numbers pass through."""
    return int(_scaled(value, _UNITS) if isinstance(value, str) else value)


def _scaled(text: str, units: dict[str, int]) -> int | str:
    number, unit = text[:-1], units.get(text[-1:].upper())
    return int(number) * unit if unit and number.isdecimal() else text

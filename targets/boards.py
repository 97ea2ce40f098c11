"""The boards that ship with Halotile: one TOML file each, read as data.

A file holds the fields of :class:`Target` (sizes may be written ``"32K"``, ``"2M"``; the bandwidth in units of
1000), a one-line ``description``, ``aliases``, and under ``sources`` where its facts come from: the chip's cores and
caches, the core's vectors and multiply-adds, the memory's bandwidth, and the oldest glibc of the systems made for it.
Adding a board means adding a file; no code knows a board's name.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import TargetError
from .target import Target

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
_FACTS = {f.name for f in fields(Target)} - {"id", "native", "source", "notes", "weights_stay"}


@dataclass(frozen=True)
class Board:
    """One board: its name, what it is, the facts as a target, and the other names it answers to."""

    name: str
    description: str
    target: Target
    aliases: tuple[str, ...]
    sources: dict[str, str]


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


def read_board(path: Path) -> Board:
    """Reads one board file; raises :class:`TargetError` that names the file and the field in question."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TargetError(f"board file {path.name} can't be read: {error}") from None
    facts: dict[str, Any] = {}
    for key, value in data.get("target", {}).items():
        if key not in _FACTS:
            raise TargetError(
                f"board file {path.name}: unknown fact {key!r} (known: {', '.join(sorted(_FACTS))})"
            )
        facts[key] = _fact(key, value)
    sources = data.get("sources", {})
    missing = {"triple", "cpu"} - facts.keys() or {"description", "sources"} - data.keys()
    missing = missing or {f"a source for {f}" for f, group in _NEED.items() if f in facts and group not in sources}
    if missing:
        raise TargetError(f"board file {path.name} lacks {', '.join(sorted(missing))}")
    told = "; ".join(f"{group}: {text}" for group, text in sources.items())
    target = Target(id=path.stem, source=told, notes=tuple(data.get("notes", ())), **facts)
    return Board(path.stem, data["description"], target, tuple(data.get("aliases", ())), sources)


def _fact(key: str, value: Any) -> Any:
    if key.endswith("_bytes"):
        return size(value)
    if key == "bandwidth" and isinstance(value, str):
        return int(value[:-1]) * _RATES[value[-1]]
    return tuple(value) if isinstance(value, list) else value


def size(value: int | str) -> int:
    """``"48K"`` -> 49152; plain numbers pass through."""
    if isinstance(value, str) and value[-1:].upper() in _UNITS:
        return int(value[:-1]) * _UNITS[value[-1].upper()]
    return int(value)

"""What places and programs in them look like to everybody else: Place, and what a program left, Done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Done:
    """What a program left: its exit code (128 + the signal that ended it), and what it wrote."""

    code: int
    out: str
    err: str


class Place(Protocol):
    """``name`` is what messages call it; ``prefix`` stands before every program."""

    name: str
    prefix: tuple[str, ...]

    def put(self, source: Path, name: str) -> None:
        """Copies a file into the folder; it may be executed there."""

    def get(self, name: str, destination: Path) -> None:
        """Copies a file out of the folder."""

    def run(self, words: Sequence[str]) -> Done:
        """Runs a program in the folder, behind the prefix."""

    def machine(self) -> str:
        """What ``uname -m`` says there, without the prefix; empty when it says nothing."""

    def close(self) -> None:
        """Removes the folder."""

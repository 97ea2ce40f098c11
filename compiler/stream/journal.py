"""A journal beside a target: how far a stream has come and what its next step needs, so that it can go on.

It is written anew every few seconds, behind the rows that it tells of, and put in the place of the last one at once: a
process that is killed at any moment leaves a journal that is true of what the target holds.
"""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.npyio import NpzFile

from ...errors import RunError

if TYPE_CHECKING:
    from ...targets.plain import JsonView

_SELDOM = 20  # times what writing takes, from one time to the next


class Journal:
    """``about`` says what is streamed to where; a journal that says anything else is refused."""

    def __init__(self, path: Path, about: JsonView, seconds: float) -> None:
        self.path, self.about, self.seconds = path, json.dumps(about, sort_keys=True, default=str), seconds
        self._last, self._took = time.monotonic(), 0.0

    def read(self) -> NpzFile | None:
        """What was written last, whose arrays are read when they are asked for; None if nothing was."""
        if not self.path.exists():
            return None
        try:
            found = np.load(self.path, allow_pickle=False)
            whole = found.zip.testzip() is None
        except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile):
            whole = False
        if not whole:
            raise RunError(f"{self.path} is no journal of a stream; remove it to begin anew")
        if "about" not in found or str(found["about"]) != self.about:
            found.close()
            raise RunError(f"{self.path} is of another stream (library, source or target); remove it to begin anew")
        return found

    def write(self, kept: Callable[[], Mapping[str, np.ndarray]], flush: Callable[[], None]) -> None:
        """Writes what is ``kept``, if the last time is long enough ago, for the seconds that were asked for and for the
        twentieth of them that it may cost; ``flush`` brings the target's rows to disk."""
        start = time.monotonic()
        if start - self._last < max(self.seconds, _SELDOM * self._took if self.seconds else 0):
            return
        flush()
        new = self.path.with_name(self.path.name + ".new")
        with open(new, "wb") as file:
            arrays: dict[str, Any] = {"about": np.array(self.about), **kept()}
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.path)
        self._last = time.monotonic()
        self._took = self._last - start

    def remove(self) -> None:
        """Behind the last row."""
        self.path.unlink(missing_ok=True)

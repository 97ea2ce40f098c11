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

from ...errors import RunError

if TYPE_CHECKING:
    from ...targets.plain import JsonView


class Journal:
    """``about`` says what is streamed to where; a journal that says anything else is refused."""

    def __init__(self, path: Path, about: JsonView, seconds: float) -> None:
        self.path, self.about, self.seconds = path, json.dumps(about, sort_keys=True, default=str), seconds
        self._last = time.monotonic()

    def read(self) -> dict[str, np.ndarray] | None:
        """What was written last; None if nothing was."""
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as found:
                kept = {name: found[name] for name in found.files}
        except (ValueError, OSError, EOFError, zipfile.BadZipFile):
            raise RunError(f"{self.path} is no journal of a stream; remove it to begin anew") from None
        if str(kept.pop("about", "")) != self.about:
            raise RunError(f"{self.path} is of another stream (library, source or target); remove it to begin anew")
        return kept

    def write(self, kept: Callable[[], Mapping[str, np.ndarray]], flush: Callable[[], None]) -> None:
        """Writes what is ``kept``, if the last time is long enough ago; ``flush`` brings the target's rows to disk."""
        if time.monotonic() - self._last < self.seconds:
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

    def remove(self) -> None:
        """Behind the last row."""
        self.path.unlink(missing_ok=True)

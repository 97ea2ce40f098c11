"""A folder of this process alone: it goes with its object, and never with a child that was forked."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref


class PrivateFolder:
    """A new folder called ``name``, removed with :meth:`cleanup`, with the object, or when the process ends.

    ``tempfile.TemporaryDirectory`` would be removed by a forked child that ends, too, under the parent's feet.
    """

    def __init__(self, prefix: str = "halotile-") -> None:
        self.name = tempfile.mkdtemp(prefix=prefix)
        self._end = weakref.finalize(self, _remove, self.name, os.getpid())

    def cleanup(self) -> None:
        """Removes the folder now. Harmless when repeated."""
        self._end()


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)

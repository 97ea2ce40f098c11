"""Ctrl-C, a polite kill and a lost terminal end a command promptly and leave nothing behind, whatever it is doing.

Python sees a signal only between its own instructions, and LLVM may work for a minute on one call; an exception
raised there comes back as some other error. So a thread of ours hears of every signal too: it gives the command a
moment to end by itself, then removes what the command has registered and ends the process.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from ..runtime.private import PrivateFolder

GRACE_SECONDS = 1.5

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_received: list[int] = []
_sweeps: list[Callable[[], None]] = []
_endings = itertools.count()


def install() -> None:
    """Handles SIGINT, SIGTERM and, unless nohup ignores it, SIGHUP from now on. Call it once, from the main thread."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in _SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _raise)
    threading.Thread(target=_watch, args=(reader,), name="interrupt", daemon=True).start()


def received() -> int:
    """The exit code of the signal that came (130, 143, 129), or 0."""
    return 128 + _received[0] if _received else 0


@contextlib.contextmanager
def removed_on_exit(destination: Path | None = None) -> Iterator[None]:
    """Temporary files of the enclosed work go into one folder that is removed in any case.

    ``destination`` is the folder that the work will make: what stands there afterwards is left alone, but folders above
    it that were not there before, and staging folders beside it or in it, go when the process has to be ended.
    """
    private = PrivateFolder()
    folder = Path(private.name)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    sweep = _sweep_of(folder, destination)
    _sweeps.append(sweep)
    try:
        yield
    finally:
        _sweeps.remove(sweep)
        tempfile.tempdir = before
        private.cleanup()


def _sweep_of(temporary: Path, destination: Path | None) -> Callable[[], None]:
    """Removes ``temporary``, and what this process has made beside, in and above ``destination``."""
    final = Path(os.path.abspath(destination)) if destination is not None else None
    above = [p for p in final.parents if not p.exists()] if final is not None else []

    def staging() -> set[Path]:
        if final is None:
            return set()
        name = f".{glob.escape(final.name)}.????????"
        return {*final.parent.glob(name), *final.glob(name)}

    others = staging()

    def sweep() -> None:
        for folder in (temporary, *(staging() - others)):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in above:
            with contextlib.suppress(OSError):
                folder.rmdir()

    return sweep


class Interrupted(BaseException):
    """An interrupt on its way out of the command. No KeyboardInterrupt: click would print a blank line for that."""


def _raise(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    if _importing(frame):
        _end(number)
    raise Interrupted


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is half imported: an exception would unload it, and TVM's crash when that happens."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _watch(reader: int) -> None:
    while True:
        numbers = os.read(reader, 1)
        if numbers and numbers[0] in _SIGNALS:
            threading.Event().wait(GRACE_SECONDS)
            _end(numbers[0])


def _end(number: int) -> None:
    """The command did not end by itself: clean up in its place. Where that takes longer than the moment it has, two
    threads do; the first one says so."""
    for sweep in list(_sweeps):
        sweep()
    if next(_endings) == 0:
        with contextlib.suppress(OSError):
            os.write(2, b"interrupted\n")
    with contextlib.suppress(Exception):  # RuntimeError where the signal came in the middle of a write
        sys.stdout.flush()
    os._exit(128 + number)

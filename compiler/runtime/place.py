"""Files that appear under their final names only when whole: made beside the destination, then renamed into it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import OutputError
from ..options import can_be, path_of
from .private import locked, sweep

if TYPE_CHECKING:
    from .recorded import Recorded

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Stage:
    """``work`` is for scratch and vanishes; what is in ``result`` at the end goes to the destination."""

    work: Path
    result: Path


def folder_of(directory: object) -> Path:
    """What was given as a folder, as a path; OutputError for anything that names none."""
    path = path_of(directory)
    if path is None:
        raise OutputError(f"a folder is named by a path, not by {type(directory).__name__}")
    return path


@contextlib.contextmanager
def staged(directory: Path) -> Iterator[Stage]:
    """A stage on the destination's own file system; its ``result`` replaces the files of ``directory`` on leaving.

    A missing folder appears in one step. In one that exists (it may be a mount point in a folder that is closed to us)
    each file is replaced in one step, the manifest last, and files of an earlier library that have no successor go.
    After an exception nothing has changed; what a process that was killed has left goes with the next one. Raises
    OutputError when something can't be written.
    """
    if not can_be(directory):
        raise OutputError(f"can't write a library to {str(directory)!r}: no folder can have that name")
    directory = Path(os.path.abspath(directory))
    made: list[Path] = []
    beside = directory
    try:
        if directory.exists() and not directory.is_dir():
            raise OutputError(f"can't write a library to {directory}: it is a file, name a folder")
        beside = directory if directory.exists() else directory.parent
        made = _make_parents(beside)
        sweep(beside, f".{directory.name}.")
        temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=beside))
        alive = locked(temporary)
    except OSError as error:
        raise OutputError(f"can't write to {beside}: {error.strerror or error}") from error
    placed = False
    try:
        stage = Stage(temporary / "work", temporary / "result")
        stage.work.mkdir()
        stage.result.mkdir()
        yield stage
        _place(stage.result, directory)
        placed = True
    except OSError as error:
        raise OutputError(f"can't write to {directory}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if alive is not None:
            os.close(alive)
        if not placed:
            for folder in made:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _make_parents(folder: Path) -> list[Path]:
    """Makes the folders above the destination and returns the new ones, innermost first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
    return missing


def _place(result: Path, directory: Path) -> None:
    if not directory.exists():
        try:
            os.replace(result, directory)
            return
        except OSError:
            if not directory.is_dir():
                raise  # else another build was first
    with _held(directory):
        _replace(result, directory)


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
    """One build after the other replaces files of a folder, where the file system has locks."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _replace(result: Path, directory: Path) -> None:
    before: Recorded | None = None
    with contextlib.suppress(OutputError):  # a damaged one names nothing
        before = read_manifest(directory)
    names = sorted((p.name for p in result.iterdir()), key=lambda name: name == MANIFEST)
    for name in names:
        os.replace(result / name, directory / name)
    for old in before.file_names.values() if before is not None else ():
        if old not in names:
            (directory / old).unlink(missing_ok=True)


def read_manifest(directory: Path) -> Recorded | None:
    """The manifest of a library's folder, or None when there is none that could be one of ours; OutputError for one of
    ours with a field of the wrong type."""
    from .recorded import read

    return read(directory / MANIFEST)

"""The database of measured choices: one JSON file, kernels by machine.

    {"format": "halotile-tuning", "version": 1,
     "machines": {fingerprint: {"cpu": "znver4", "threads": 2, "kernels": {key: {"chosen": ..., ...}}}}}

The fingerprint is a digest of the target's facts and the number of threads: what was measured on one machine is never
taken on another. Keys and names are those of schedules/words/candidates.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import IO

import msgspec

from ..errors import HalotileError, OutputError
from ..targets.target import Target

FORMAT, VERSION = "halotile-tuning", 1
LARGEST = 64 << 20  # bytes


class Measured(msgspec.Struct, frozen=True):
    """What was found for one kernel: ``chosen`` took ``seconds``, the estimate's ``own`` choice ``own_seconds``."""

    chosen: str
    own: str
    seconds: float
    own_seconds: float


class TunedMachine(msgspec.Struct):
    cpu: str
    threads: int
    kernels: dict[str, Measured]


class Database(msgspec.Struct):
    format: str = FORMAT
    version: int = VERSION
    machines: dict[str, TunedMachine] = {}


def fingerprint(target: Target, threads: int | None) -> str:
    """A digest of everything that the target's generators may read, and of the threads that ran."""
    facts = [(f.name, getattr(target, f.name)) for f in fields(target) if f.compare and f.name != "id"]
    return hashlib.sha256(repr((facts, threads or target.cores)).encode()).hexdigest()[:16]


def read(path: Path) -> Database:
    """The database in ``path``; HalotileError if it can't be read or is none."""
    try:
        if path.exists() and not path.is_file():
            raise HalotileError(f"tuning database {path} is not a file")
        if path.stat().st_size > LARGEST:
            raise HalotileError(f"tuning database {path} has more than {LARGEST} bytes, which none has")
        data = path.read_bytes()
    except OSError as error:
        raise HalotileError(f"tuning database {path}: {error.strerror or error}") from None
    try:
        found = msgspec.json.decode(data, type=Database)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise HalotileError(f"{path} is not a tuning database ({error}); `halotile tune` writes one") from None
    if found.format != FORMAT or found.version != VERSION:
        raise HalotileError(
            f"{path} is {found.format} {found.version}, not {FORMAT} {VERSION}; tune again with this version"
        )
    return found


def choices(path: Path, target: Target, threads: int | None) -> dict[str, str]:
    """Key -> name of what was measured on this very target; empty when nothing was."""
    machine = read(path).machines.get(fingerprint(target, threads))
    return {key: m.chosen for key, m in machine.kernels.items()} if machine is not None else {}


def add(path: Path, target: Target, threads: int | None, kernels: Mapping[str, Measured]) -> None:
    """Enters ``kernels`` into ``path``, which is made if it is not there, and is replaced whole or not at all."""
    database = read(path) if path.exists() else Database()
    mark = fingerprint(target, threads)
    machine = database.machines.setdefault(mark, TunedMachine(target.cpu, threads or target.cores, {}))
    machine.kernels = dict(sorted({**machine.kernels, **kernels}.items()))
    data = msgspec.json.format(msgspec.json.encode(database), indent=1)
    with _new_file(path) as (file, partial):
        file.write(data + b"\n")
        file.close()
        os.chmod(partial, 0o644)
        os.replace(partial, path)


def check(path: Path) -> None:
    """Raises, before anything long begins, what would be raised when ``path`` is read or written at its end."""
    if path.exists():
        read(path)
    with _new_file(path):
        pass


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """A file beside ``path`` and its name, which is gone afterwards unless it was moved; OutputError if it can't be."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
            partial = Path(file.name)
            try:
                yield file, partial
            finally:
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"tuning database {path} can't be written: {error.strerror or error}") from None

"""Where words go: data to stdout, tables and progress to stderr and there only on a terminal."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from .failure import Progress, give_up_stdout, one_line

_volume = 0  # of this command: -1 for errors alone, 1 and 2 for more
EVERY = 10.0  # seconds between two lines about one stage where there is no terminal
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def emit(text: str) -> None:
    """Writes data to stdout. When nobody reads it any more, the program ends quietly."""
    try:
        try:
            sys.stdout.write(text + "\n")
        except UnicodeEncodeError:  # a path that is not UTF-8, or a terminal that isn't
            plain = text.encode(sys.stdout.encoding, "backslashreplace").decode(sys.stdout.encoding)
            sys.stdout.write(plain + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        give_up_stdout()
        sys.exit(141)


def open_streams() -> None:
    """A program may be started with a standard stream closed: nothing is read there, and what is written is lost."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


def emit_json(data: object) -> None:
    """Writes plain data to stdout as JSON; what JSON has no word for (NaN, infinities, our own types) becomes text."""
    emit(json.dumps(_finite(data), indent=2, ensure_ascii=False, default=_plain, allow_nan=False))


def set_volume(level: int) -> None:
    """How much goes to stderr: -1 for errors alone, 0 as usual, 1 and 2 for more."""
    global _volume
    _volume = level


def volume() -> int:
    return _volume


def note(text: str) -> None:
    """A line for the reader on stderr, on a terminal or not; -q leaves it out."""
    if _volume >= 0:
        print(one_line(text), file=sys.stderr, flush=True)


def on_terminal() -> bool:
    """Whether tables and bars have a reader: stderr is a terminal, and nobody asked for quiet."""
    return sys.stderr.isatty() and _volume >= 0


def columns(rows: Iterable[Sequence[object]], indent: int = 0) -> str:
    """Rows as aligned text columns; the last one runs free."""
    cells = [[str(c) for c in row] for row in rows]
    if not cells:
        return ""
    widths = [max(len(row[i]) for row in cells if i < len(row)) for i in range(max(map(len, cells)))]
    lines = (" " * indent + "  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in cells)
    return "\n".join(lines)


def count(value: float) -> str:
    """12345678 -> 12.3 M"""
    for unit in ("", " k", " M", " G"):
        if abs(value) < 1000:
            return f"{value:.3g}{unit}" if unit else f"{value:g}"
        value /= 1000
    return f"{value:.3g} T"


def size(value: float) -> str:
    """5242880 -> 5.00 MiB"""
    for unit in _UNITS[:-1]:
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1024
    return f"{value:.2f} {_UNITS[-1]}"


def seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"


class StageProgress:
    """Shows (stage, done, total): on a terminal as one bar, elsewhere as a line for each stage, and in long ones one
    every ten seconds. The first comes after as long, unless -v asks for all: what is soon done, or refused, is told in
    its own line alone.

    A context manager whose object is the pipeline's ``progress`` callback. ``quiet``: nothing is shown, unless -v asks
    for it, as beside data for another program.
    """

    def __init__(self, quiet: bool = False) -> None:
        wanted = _volume > 0 or (_volume == 0 and not quiet)
        self._shown = wanted and sys.stderr.isatty() and _volume == 0
        self._lines = wanted and not self._shown
        self._begun = self._told = time.monotonic()
        self._stage = ""
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> StageProgress:
        if self._shown:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                SpinnerColumn,
                TextColumn,
                TimeElapsedColumn,
            )

            self._bar = Progress(
                SpinnerColumn(), TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(),
                TimeElapsedColumn(), console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        if kind is None:
            Progress.stage = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        Progress.stage = stage
        if self._bar is not None:
            self._bar.update(self._task, description=stage, completed=done, total=total or None)
        elif self._lines:
            self._line(stage, done, total)

    def _line(self, stage: str, done: int, total: int) -> None:
        """``[  3.2 s] schedule 12/53`` when a stage begins, and now and then while it lasts."""
        now = time.monotonic()
        early = _volume == 0 and now - self._begun < EVERY
        over = done >= total == 1  # the next stage says so
        if early or over or (stage == self._stage and now - self._told < EVERY):
            return
        self._stage, self._told = stage, now
        part = f" {done}/{total}" if total > 1 else ""
        print(f"[{now - self._begun:5.1f} s] {stage}{part}", file=sys.stderr, flush=True)


def _finite(data: object) -> object:
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data


def _plain(value: object) -> object:
    if hasattr(value, "item") and not getattr(value, "shape", None):
        return value.item()
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, (set, frozenset, tuple)) else str(value)

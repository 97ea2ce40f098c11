"""Errors as the user sees them: one line with a code; a defect of ours leaves a report file behind."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from ...errors import HalotileError, InternalError
from ..guard import expected, first_line

_PACKAGES = ("halotile", "halotile-runtime", "apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "numpy",
             "ml_dtypes")  # fmt: skip


class Progress:
    """Where the work is; the report of a defect names it."""

    stage: str | None = None


def report_error(error: HalotileError, *, as_json: bool, debug: bool) -> int:
    """Prints ``error[E300]: ...`` on stderr, and with ``--json`` the same as data on stdout; returns the exit code."""
    if debug:
        traceback.print_exception(error)
    print(f"error[{error.code}]: {_told(error.message)}", file=sys.stderr)
    try:
        if as_json:
            print(json.dumps({"error": {"code": error.code, "message": error.message}}))
        sys.stdout.flush()
    except OSError:
        give_up_stdout()
    return error.exit_code


def give_up_stdout() -> None:
    """What stdout still holds goes nowhere: the interpreter flushes once more at exit, and would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def internal_error(error: Exception, arguments: Sequence[str]) -> HalotileError:
    """What to tell about an exception that nobody expected; writes the report file."""
    if isinstance(error, InternalError) and isinstance(error.__cause__, Exception):  # out of the Python API
        error = error.__cause__
    if (told := expected(error)) is not None:
        told.__cause__ = error
        return told
    where = f" in stage {Progress.stage}" if Progress.stage else ""
    try:
        path = f"; the report is in {_write_report(error, arguments)}, please attach it when you tell us"
    except OSError as failure:
        path = f"; no report could be written ({failure.strerror})"
    told = InternalError(f"internal error{where}: {type(error).__name__}: {first_line(error)}{path}")
    told.__cause__ = error
    return told


def _told(message: str) -> str:
    """A message fit for a terminal: one line, below which a list of offenders, indented, may stand."""
    first, *rest = message.split("\n  ")
    return "\n  ".join([one_line(first), *map(one_line, rest)])


def one_line(text: str) -> str:
    """``text`` with what would break or move the line spelt out: a name in a model may hold anything."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _write_report(error: Exception, arguments: Sequence[str]) -> Path:
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    text = "\n".join(
        [
            f"Halotile internal error, {datetime.now(timezone.utc).isoformat(timespec='seconds')}",
            f"command: halotile {' '.join(arguments)}",
            f"stage: {Progress.stage or 'none'}",
            f"python {platform.python_version()}, {platform.platform()}",
            *versions,
            "",
            "".join(traceback.format_exception(error)),
        ]
    )
    with tempfile.NamedTemporaryFile(
        "w", prefix="halotile-error-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.write(text)
    return Path(file.name)

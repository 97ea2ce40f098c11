"""The closed family of errors that Halotile raises. Imports nothing of ours, so that every room may raise them.

A user error is something the user can mend: one line that says what was asked, where (node, operator, shapes),
why it can't be, and what to do. Its code is stable and may be matched by scripts. Anything else is our own defect and
becomes an :class:`InternalError`.
"""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``; did you mean 'conv_1'?`` where ``name`` is nearly one of ``names``, else nothing."""
    import difflib

    known = {str(n).lower(): str(n) for n in names}
    near = [known[n] for n in difflib.get_close_matches(str(name).lower(), known, n=2, cutoff=0.6)]
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def several(count: object, noun: str) -> str:
    """``1 row``, ``2 rows``: a number of things, which may also be a formula."""
    return f"{count} {noun}" if str(count) == "1" else f"{count} {noun}s"


class HalotileError(Exception):
    """Base of all errors of this package; ``code`` is stable across releases."""

    code = "E000"
    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class BudgetError(HalotileError):
    """A memory budget can't be met. ``least``: the fewest bytes that were found for what it bounds."""

    def __init__(self, message: str, least: int) -> None:
        super().__init__(message)
        self.least = least


class ModelError(HalotileError):
    """The model file can't be read, or is not valid ONNX."""

    code = "E100"


class UnsupportedError(HalotileError):
    """The model is valid, but holds something that Halotile can't compile right. Lists all offenders.

    ``inputs``: those of the model whose values, given at compile time (``fixed``), may settle it.
    """

    code = "E200"

    def __init__(self, message: str, inputs: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.inputs = inputs


class ShapeError(HalotileError):
    """A dimension is open, contradicts the model, or was given for a name that does not exist."""

    code = "E300"


class TargetError(HalotileError):
    """Unknown target, misspelt CPU or feature."""

    code = "E400"


class ToolchainError(HalotileError):
    """No C compiler, or the compiler or linker failed."""

    code = "E500"


class OutputError(HalotileError):
    """A file or folder can't be written or is not a Halotile library."""

    code = "E600"


class RunError(HalotileError):
    """A run-time input has the wrong name, dtype or shape, or the library reported a failure."""

    code = "E700"


class RemoteError(HalotileError):
    """Another machine, or an emulator, can't be reached or can't run what was built."""

    code = "E750"


class VerificationError(HalotileError):
    """The compiled model's outputs differ from the reference by more than the tolerance."""

    code = "E800"
    exit_code = 3


class InternalError(HalotileError):
    """A defect of Halotile itself; the message names the report file that was written."""

    code = "E900"
    exit_code = 70

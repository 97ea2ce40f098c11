"""What leaves the Python API: errors of our family, and whatever the caller's own functions raise, as it is."""

from __future__ import annotations

import errno
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..errors import HalotileError, InternalError, OutputError, did_you_mean
from .needs import missing

Function = TypeVar("Function", bound=Callable[..., object])
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what a write says, which has no file's name


class _Callers(Exception):
    """Carries what a function of the caller's raised."""


def guarded(function: Function) -> Function:
    """``function``, out of which no error comes but of our family: any other is a defect of ours, and named so."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        _check_words(function.__qualname__, signature, kwargs)
        given = signature.bind(*args, **kwargs)  # a wrong call is a TypeError, as of any function
        try:
            return function(*given.args, **given.kwargs)
        except _Callers as carried:
            raise carried.args[0] from None
        except HalotileError:
            raise
        except Exception as error:
            told = expected(error)
            raise told or InternalError(f"internal error: {type(error).__name__}: {first_line(error)}") from error

    return call  # type: ignore[return-value]


def _check_words(name: str, signature: inspect.Signature, given: Iterable[str]) -> None:
    """Raises a TypeError that knows what a misspelt argument may have been."""
    known = signature.parameters
    if any(p.kind is p.VAR_KEYWORD for p in known.values()):
        return
    for word in given:
        if word not in known:
            raise TypeError(f"{name}() got an unexpected keyword argument {word!r}{did_you_mean(word, known)}")


def carried(function: Callable[..., object] | None) -> Callable[..., Any] | None:
    """A function of the caller's, whose errors go through :func:`guarded` as they are."""
    if function is None or not callable(function):
        return function

    def call(*args: object) -> Any:
        try:
            return function(*args)
        except Exception as error:
            raise _Callers(error) from error

    return call


def expected(error: Exception) -> HalotileError | None:
    """What to tell of an error that is none of ours: of a file or disk, too little memory, or a package that is not
    installed; None of a defect."""
    if isinstance(error, ImportError):
        return missing(error)
    if isinstance(error, MemoryError):
        return HalotileError("there is not enough memory; give the process more, or the model smaller shapes")
    if isinstance(error, OSError) and (error.filename is not None or error.errno in _FULL):
        where = "can't write" if error.filename is None else error.filename
        return OutputError(f"{where}: {error.strerror or error}")
    return None


def first_line(error: BaseException) -> str:
    """The telling line of an exception: of a TVM error, which prints its stack first, the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return "no message"
    return (lines[0] if not lines[0].startswith(("Traceback", "File")) else lines[-1])[:200]

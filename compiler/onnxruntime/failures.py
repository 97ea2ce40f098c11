"""Errors of the names and kinds that scripts written for ONNX Runtime catch, with our one-line texts and codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import HalotileError, ModelError, RunError, ShapeError, UnsupportedError


class Fail(HalotileError):
    """Something that has no kind of its own: a target, a tool, a file."""


class InvalidArgument(HalotileError):
    """An input's name, type or shape, or an option's value, is not what the model or the session takes."""

    code = RunError.code


class MissingInput(InvalidArgument, ValueError):
    """An input is missing; ONNX Runtime raises a ValueError."""


class NoSuchFile(HalotileError):
    """There is no such model file."""

    code = ModelError.code


class NoModel(HalotileError):
    """No model was given."""

    code = ModelError.code


class InvalidProtobuf(HalotileError):
    """The model is no ONNX file."""

    code = ModelError.code


class InvalidGraph(HalotileError):
    """The file is ONNX, but not valid."""

    code = ModelError.code


class NotImplemented(HalotileError):
    """The model, or an option, asks for something that Halotile has not."""

    code = UnsupportedError.code


class RuntimeException(HalotileError):
    """A run failed."""

    code = RunError.code


class ModelLoaded(HalotileError):
    """Never raised here; for scripts that catch it."""


class EngineError(HalotileError):
    """Never raised here; for scripts that catch it."""


class EPFail(HalotileError):
    """Never raised here; for scripts that catch it."""


KINDS: tuple[tuple[type[HalotileError], type[HalotileError]], ...] = (
    (ModelError, InvalidGraph),
    (UnsupportedError, NotImplemented),
    (ShapeError, InvalidArgument),
    (RunError, RuntimeException),
    (HalotileError, Fail),
)


@contextmanager
def in_their_kinds(model: type[HalotileError] = InvalidGraph) -> Iterator[None]:
    """Errors of our family leave as ONNX Runtime's kinds with the same text and code; a :class:`ModelError` as
    ``model``."""
    try:
        yield
    except HalotileError as error:
        if type(error).__module__ == __name__:
            raise
        kind = next(theirs for ours, theirs in KINDS if isinstance(error, ours))
        told = (model if kind is InvalidGraph else kind)(error.message)
        told.code = error.code
        raise told from error

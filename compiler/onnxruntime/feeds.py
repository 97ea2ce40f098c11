"""What a call hands over, as arrays by name, or an error that says which input is not as the model states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .failures import InvalidArgument, MissingInput
from .types import NodeArg, dtype_of_text, tensor_text
from .values import OrtValue


class Feeds:
    """Reads the inputs of calls. ``inputs``: the model's, in order. ``constants``: names of initialisers that a caller
    of ONNX Runtime could give other values."""

    def __init__(self, inputs: Sequence[NodeArg], constants: Sequence[str]) -> None:
        self._inputs = {arg.name: arg for arg in inputs}
        self._constants = frozenset(constants)

    def arrays(self, given: Mapping[str, object]) -> dict[str, np.ndarray]:
        """The arrays of a call in the model's order.

        Raises MissingInput (a ValueError) and InvalidArgument for names; types and shapes are for :meth:`check`."""
        found = {}
        for name in self._inputs:
            if name not in given:
                raise self._missing(given)
            value = given[name]
            if not isinstance(value, np.ndarray):
                value = value.numpy() if isinstance(value, OrtValue) else self._array(name, value)
            found[name] = value
        if len(given) != len(found):
            raise self._unknown(given)
        return found

    def check(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Raises InvalidArgument for an array of another type or shape than the model states."""
        for name, arg in self._inputs.items():
            array = arrays[name]
            if tensor_text(array.dtype) != arg.type:
                raise InvalidArgument(
                    f"input {name!r} is {tensor_text(array.dtype)}, the model takes {arg.type}; convert it with .astype"
                )
            fits = len(arg.shape) == array.ndim and all(
                not isinstance(want, int) or want == have for want, have in zip(arg.shape, array.shape)
            )
            if not fits and arg.ranked:
                raise InvalidArgument(f"input {name!r} has shape {list(array.shape)}, the model takes {arg.shape}")

    def _array(self, name: str, value: object) -> np.ndarray:
        """Lists and numbers in the model's type."""
        try:
            return np.asarray(value, dtype_of_text(self._inputs[name].type))
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"input {name!r} is a {type(value).__name__}, expected a numpy array") from error

    def _missing(self, given: Mapping[str, object]) -> MissingInput:
        missing = ", ".join(repr(name) for name in self._inputs if name not in given)
        shown = ", ".join(map(repr, given)) or "nothing"
        return MissingInput(f"required inputs are missing: {missing}; given: {shown}")

    def _unknown(self, given: Mapping[str, object]) -> InvalidArgument:
        name = next(n for n in given if n not in self._inputs)
        if name in self._constants:
            return InvalidArgument(f"input {name!r} is an initialiser, a constant of the library; leave it out")
        listed = ", ".join(map(repr, self._inputs)) or "nothing"
        return InvalidArgument(f"the model has no input {name!r}; it takes {listed}")

"""The libraries of one session: one for every size, or one for each set of shapes that its calls have had.

A model with open dimensions is compiled once, for every size. Where that is refused, it is compiled for the shapes of
the call at hand, and the latest few libraries are kept. Inputs whose *values* decide what is computed (a sampling rate,
the sizes of a reshape) are constants of a library then, as ``fixed`` makes them, and part of what it is found by.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx

from ...errors import UnsupportedError
from ..api import compile
from ..model import Model
from .settings import log

if TYPE_CHECKING:
    from ...targets.plain import JsonView

MOST_VALUES = 256  # elements of an input that may become a constant

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Built:
    """A model and the names of the inputs that it takes."""

    model: Model
    inputs: tuple[str, ...]

    def __call__(self, arrays: Arrays) -> dict[str, np.ndarray]:
        return self.model({name: arrays[name] for name in self.inputs})


class Libraries:
    """Finds or builds the library for a call. Safe to use from several threads."""

    def __init__(
        self, source: str | bytes | onnx.ModelProto, names: Sequence[str], options: JsonView, most: int
    ) -> None:
        """``names``: the model's inputs in order. ``options``: those of :func:`halotile.compile`. ``most``: how many
        libraries are kept; the one that was used longest ago goes first."""
        self._source, self._names, self._options, self._most = source, tuple(names), dict(options), most
        self._built: OrderedDict[object, Built] = OrderedDict()
        self._latest: object = None  # the key of the library that was used last
        self._lock = threading.Lock()
        self._every_size: Built | None = None  # the library of all calls, if there is one
        self._asked = False  # whether there is
        self.deciding: tuple[str, ...] = ()  # inputs whose values are constants of a library

    def __len__(self) -> int:
        return len(self._built)

    def fixed(self, shapes: Mapping[str, tuple[int, ...]], stated: bool) -> Built:
        """The library for shapes that are known before any call. ``stated``: they are those that the model states.

        Raises UnsupportedError, whose ``inputs`` say which values would be needed, as :func:`halotile.compile` does."""
        with self._lock:
            key = (tuple(shapes[name] for name in self._names), ())
            return self._kept(key, self._compiled(None if stated else shapes, {}))

    def for_call(self, arrays: Arrays) -> Built:
        """The library for arrays by name: of every size, or of their shapes and of the values of those that decide."""
        if (built := self._for_every_size()) is not None:
            return built
        key = self._key(arrays)
        found = self._built.get(key)
        if found is not None and key == self._latest:
            return found
        with self._lock:
            while True:
                key = self._key(arrays)
                if (found := self._built.get(key)) is not None:
                    return self._kept(key, found)
                shapes = {n: arrays[n].shape for n in self._names}
                try:
                    return self._kept(key, self._compiled(shapes, {n: arrays[n] for n in self.deciding}))
                except UnsupportedError as error:
                    further = self._further(error, arrays)
                    if not further:
                        raise
                    log.info("values of %s decide what is computed; they are constants of a library", further)
                    self.deciding += further

    def _for_every_size(self) -> Built | None:
        if self._asked:
            return self._every_size
        with self._lock:
            if not self._asked:
                try:
                    self._every_size = self._compiled(None, {})
                except UnsupportedError as error:
                    log.info("there is a library for each shape: %s", error)
                self._asked = True
        return self._every_size

    def _key(self, arrays: Arrays) -> object:
        shapes = tuple([arrays[name].shape for name in self._names])
        return shapes, tuple([arrays[name].tobytes() for name in self.deciding])

    def _further(self, error: UnsupportedError, arrays: Arrays) -> tuple[str, ...]:
        """Inputs that the refusal names and that have not been tried yet; none where one of them is large."""
        names = tuple(n for n in error.inputs if n not in self.deciding)
        return names if all(arrays[n].size <= MOST_VALUES for n in names) else ()

    def _compiled(self, shapes: Mapping[str, tuple[int, ...]] | None, fixed: Arrays) -> Built:
        begun = time.monotonic()
        open_ = None if shapes is None else {n: s for n, s in shapes.items() if n not in fixed}
        model = compile(self._source, shapes=open_, fixed=dict(fixed) or None, **self._options)
        log.info("compiled %r in %.1f s", model, time.monotonic() - begun)
        return Built(model, tuple(spec.name for spec in model.inputs))

    def _kept(self, key: object, built: Built) -> Built:
        """``built``, entered as the latest; the caller holds the lock."""
        self._built[key] = built
        self._built.move_to_end(key)
        self._latest = key
        while len(self._built) > self._most:
            self._built.popitem(last=False)
        return built

"""Shapes that the arrays of a call choose: sizes read off the inputs, checked, and what follows from them.

    Shapes.at([shape of each input]) -> Sized        Shapes.of({"batch": 3}) -> Sized
"""

from __future__ import annotations

import ctypes
import itertools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import RunError, ShapeError
from ..spec import Symbol
from .binding import Binding
from .open_binding import OpenCalls
from .readings import Shape, given_text, readings, shape_text
from .recycled import Outputs

if TYPE_CHECKING:
    from ...targets.plain import JsonView

_MOST_TRIED = 1 << 14  # combinations of sizes
_MOST_NEAR = 1 << 9  # sizes that are looked at for one that would do
_GROWTH = 4  # an arena that turns out too small grows by a quarter of what a size grew to


class Sized:
    """A model's shapes at certain sizes. ``address`` is where the library reads the sizes, ``fresh`` makes outputs."""

    def __init__(self, calls: OpenCalls, sizes: Shape, inputs: tuple[Shape, ...], outputs: Outputs) -> None:
        self.sizes, self.inputs, self.fresh = sizes, inputs, outputs
        self.given = list(inputs)
        self._calls = calls
        self._numbers = calls.shape(sizes)
        self.address = ctypes.addressof(self._numbers)
        self._arenas: dict[int, int] = {}

    def run(self, instance: int, inputs: int, outputs: int) -> int:
        """Runs an instance on addresses of pointers; the error code."""
        return int(self._calls.run(instance, self.address, inputs, outputs))

    def arena_bytes(self, threads: int) -> int:
        """Bytes of the arena for a number of threads; 0 for a number that can't be."""
        if threads not in self._arenas:
            self._arenas[threads] = self._calls.arena_bytes(self.address, threads)
        return self._arenas[threads]


class Shapes:
    """The shapes that a library's runs may have. Keeps what follows from the sizes of the last call."""

    def __init__(self, binding: Binding, dtypes: Sequence[np.dtype]) -> None:
        if binding.open is None:
            raise ValueError(f"all shapes of {binding.name} are fixed")
        self._binding, self._calls, self._dtypes = binding, binding.open, tuple(dtypes)
        self.symbols, self._inputs = self._calls.symbols, self._calls.inputs
        self._readings = [next(readings(symbol, self._inputs), None) for symbol in self.symbols]
        self._held: dict[int, Sized] = {}  # what the instance of so many threads was made for
        self._known = tuple(symbol.typical for symbol in self.symbols)  # sizes that go together, if any are known to
        self.typical = self._possible()
        self._known = self.typical.sizes
        self._last = self.typical

    def _possible(self) -> Sized:
        """The typical sizes, or where these do not go together some that do: what every model can be loaded with."""
        typical = tuple(symbol.typical for symbol in self.symbols)
        for sizes in itertools.islice(itertools.product(*map(_candidates, self.symbols)), _MOST_TRIED):
            if self._calls.dims(sizes)[0] == 0:
                return self._sized(sizes)
        try:
            return self._sized(typical)  # which says what is wrong with them
        except RunError as error:
            others = ",".join(f"{symbol.name}=SIZE" for symbol in self.symbols)
            raise RunError(f"{error}; build it for sizes that go together (--typical {others})") from None

    def at(self, given: list[Shape]) -> Sized:
        """What follows from the inputs' shapes; RunError for shapes that the model does not take."""
        last = self._last
        if given == last.given:
            return last
        sizes = tuple(self._size(i, given) for i in range(len(self.symbols)))
        if sizes != last.sizes:
            for symbol, size, where in zip(self.symbols, sizes, self._readings, strict=True):
                if where is not None and (refusal := symbol.refusal(size)):
                    raise RunError(f"{given_text(self._inputs[where.tensor], given[where.tensor])}: {refusal}")
            last = self._sized(sizes)
        for i, (shape, wanted) in enumerate(zip(given, last.inputs, strict=True)):
            if shape != wanted:
                raise RunError(self._differs(i, given, last))
        if last is not self._last:
            self._last.fresh.forget()
            self._last = last
        return last

    def of(self, sizes: JsonView) -> Sized:
        """What follows from sizes by name; those that are not given are the typical ones. ShapeError for others than
        the model takes."""
        known = {symbol.name: symbol for symbol in self.symbols}
        for name in sizes:
            if name not in known:
                raise ShapeError(f"the model has no open dimension {name!r}; it has {', '.join(map(repr, known))}")
        numbers = tuple(_whole(name, sizes.get(name, symbol.typical)) for name, symbol in known.items())
        for symbol, size in zip(self.symbols, numbers, strict=True):
            if refusal := symbol.refusal(size):
                raise ShapeError(refusal)
        return self._sized(numbers, ShapeError)

    def fits(self, threads: int, sized: Sized | None) -> bool:
        """Whether the instance of so many threads has room for the arena at these sizes (None: at any)."""
        held = self._held[threads]
        return sized is None or sized is held or sized.arena_bytes(threads) <= held.arena_bytes(threads)

    def create(self, threads: int, sized: Sized | None) -> int:
        """A new instance for these sizes (None: the typical ones), in place of one that was too small for them."""
        wanted, before = sized or self.typical, self._held.pop(threads, None)
        held = wanted if before is None else self._room(wanted, before)
        if held.arena_bytes(threads) < wanted.arena_bytes(threads):  # plans of larger sizes may take less
            held = wanted
        made = self._calls.create(threads, held.address)
        if made[0] and held is not wanted:
            held, made = wanted, self._calls.create(threads, wanted.address)
        instance = self._binding.checked(made, threads)
        self._held[int(self._binding.threads(instance))] = held
        return instance

    def forget(self) -> None:
        """Keeps no memory of results from now on."""
        self._last.fresh.forget()

    def _room(self, wanted: Sized, before: Sized) -> Sized:
        """Sizes with room for what has grown to grow on, so that a sequence of longer and longer inputs does not make
        an instance at every step. Memory that no run touches is none that the system gives."""
        sizes = tuple(
            size if size <= old else min(symbol.most, _rounded_up(size + size // _GROWTH, symbol.multiple))
            for symbol, size, old in zip(self.symbols, wanted.sizes, before.sizes, strict=True)
        )
        try:
            return self._sized(sizes)
        except RunError:  # a tensor that kernels could not count
            return wanted

    def _sized(self, sizes: Shape, error: type[RunError | ShapeError] = RunError) -> Sized:
        code, shapes = self._calls.dims(sizes)
        if code:
            named = ", ".join(f"{s.name} {size}" for s, size in zip(self.symbols, sizes, strict=True))
            raise error(f"{self._binding.error_text(code)}: {named}{self._near(sizes)}")
        count = len(self._inputs)
        made = tuple(zip(shapes[count:], self._dtypes, strict=True))
        return Sized(self._calls, sizes, shapes[:count], Outputs(made))

    def _near(self, sizes: Shape) -> str:
        """The nearest sizes that would do, of one symbol where that is enough, or of each that can't be what it is."""
        for others, joint in ((sizes, ", or "), (self._known, ", ")):
            found = []
            for i, (symbol, size) in enumerate(zip(self.symbols, sizes, strict=True)):
                ways = _outward(symbol, size)
                near = [next((str(n) for n in way if self._goes(others, i, n)), "") for way in ways]
                if any(near) and not self._goes(others, i, size):
                    found.append(f"{symbol.name} {' or '.join(filter(None, near))}")
            if found:
                return f"; the nearest that would do: {joint.join(found)}"
        return ""

    def _goes(self, others: Shape, number: int, size: int) -> bool:
        return bool(self._calls.dims((*others[:number], size, *others[number + 1 :]))[0] == 0)

    def _size(self, number: int, given: list[Shape]) -> int:
        where = self._readings[number]
        if where is None:
            raise RunError(f"no input of the model says by itself what {self.symbols[number].name} is")
        return where.size(given[where.tensor], self._inputs[where.tensor])

    def _differs(self, tensor: int, given: list[Shape], sized: Sized) -> str:
        """What to say of an input whose shape is not what the sizes make of it, which others may have told."""
        formula, wanted = self._inputs[tensor].shape, sized.inputs[tensor]
        text = f"{given_text(self._inputs[tensor], given[tensor])}, expected {shape_text(formula)}"
        if formula == wanted or len(formula) != len(given[tensor]):
            return text
        wrong = [str(f) for f, a, b in zip(formula, given[tensor], wanted, strict=True) if a != b]
        told = [
            f"{symbol.name} is {size} in input {self._inputs[where.tensor].name!r}"
            for symbol, size, where in zip(self.symbols, sized.sizes, self._readings, strict=True)
            if where is not None and any(symbol.name in dim for dim in wrong)
        ]
        return f"{text}, which is {shape_text(wanted)}" + (f": {', '.join(told)}" if told else "")


def _candidates(symbol: Symbol) -> list[int]:
    """Sizes of a symbol to try, the typical one first."""
    powers = (_rounded_up(1 << bits, symbol.multiple) for bits in range(12))
    return list(dict.fromkeys((symbol.typical, symbol.least, *(p for p in powers if not symbol.refusal(p)))))


def _outward(symbol: Symbol, size: int) -> tuple[range, range]:
    """The allowed sizes below a size and above it, the nearest first."""
    step = symbol.multiple
    below, above = _rounded_up(size, step) - step, size // step * step + step
    least, most = max(symbol.least, below - _MOST_NEAR * step), min(symbol.most, above + _MOST_NEAR * step)
    return range(below, least - 1, -step), range(above, most + 1, step)


def _rounded_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _whole(name: str, size: int) -> int:
    try:
        return operator.index(size)
    except TypeError:
        raise ShapeError(f"{name}={size!r}: give a whole number") from None

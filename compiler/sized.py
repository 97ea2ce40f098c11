"""A model with open dimensions at certain sizes: those that were asked for, those that given arrays say, typical ones.

    chosen_sizes(model, arrays, {"batch": 3}) -> {"batch": 3, "width": 10}
    inputs_at(model, sizes)                   -> TensorSpecs with numbers alone
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ..errors import RunError, ShapeError
from .runtime.readings import sizes_of
from .spec import Symbol, TensorSpec


class Sizable(Protocol):
    """A built model, here or elsewhere."""

    @property
    def symbols(self) -> tuple[Symbol, ...]: ...

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    def input_shapes(self, shape: Mapping[str, int] | None = None) -> dict[str, tuple[int, ...]]: ...


def chosen_sizes(model: Sizable, arrays: Mapping[str, Any], wanted: Mapping[str, int] | None = None) -> dict[str, int]:
    """The size of every symbol: as ``wanted``, or by the shapes of ``arrays``, or the typical one. ShapeError for a
    size that is not allowed or is nobody's; RunError for arrays that say another than is wanted."""
    known = {symbol.name: symbol for symbol in model.symbols}
    for name, size in (wanted or {}).items():
        if name not in known:
            there = f"it has {', '.join(map(repr, known))}" if known else "all its shapes are fixed"
            raise ShapeError(f"the model has no open dimension {name!r}; {there}")
        if refusal := known[name].refusal(size):
            raise ShapeError(refusal)
    read = sizes_of(model.symbols, model.inputs, {name: np.shape(array) for name, array in arrays.items()})
    for name, size in read.items():
        if wanted and wanted.get(name, size) != size:
            raise RunError(f"{name} is {size} in the inputs that were given, and {wanted[name]} was asked for")
    return {name: {**read, **(wanted or {})}.get(name, symbol.typical) for name, symbol in known.items()}


def inputs_at(model: Sizable, sizes: Mapping[str, int]) -> tuple[TensorSpec, ...]:
    """The model's inputs at these sizes; as they are where all shapes are fixed."""
    if not model.symbols:
        return model.inputs
    shapes = model.input_shapes(sizes)
    return tuple(replace(spec, shape=shapes[spec.name]) for spec in model.inputs)


def shapes_at(shapes: Mapping[str, Sequence[Any]], sizes: Mapping[str, int]) -> dict[str, tuple[Any, ...]]:
    """Shapes with the sizes for the dimensions that are symbols by themselves; others stay."""
    return {name: tuple(sizes.get(dim, dim) for dim in shape) for name, shape in shapes.items()}

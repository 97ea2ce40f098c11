"""A model with open dimensions at certain sizes: those that were asked for, those that given arrays say, typical ones.

    chosen_sizes(model, arrays, {"batch": 3}) -> {"batch": 3, "width": 10}
    inputs_at(model, sizes)                   -> TensorSpecs with numbers alone
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import HalotileError, RunError, ShapeError
from .runtime.readings import sizes_of
from .spec import Symbol, TensorSpec
from .verify import Verification, verify

if TYPE_CHECKING:
    from .runtime.loader import LoadedModel


class Sizable(Protocol):
    """A built model, here or elsewhere."""

    @property
    def symbols(self) -> tuple[Symbol, ...]: ...

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    def input_shapes(self, shape: Mapping[str, int] | None = None) -> dict[str, tuple[int, ...]]: ...


def chosen_sizes(
    model: Sizable, arrays: Mapping[str, np.ndarray], wanted: Mapping[str, int] | None = None
) -> dict[str, int]:
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


def verify_at(
    model: LoadedModel, source: Any, arrays: Mapping[str, np.ndarray] | None, wanted: Mapping[str, int] | None,
    *, run: Callable[..., Any] | None = None, dropped: Mapping[str, Sequence[int]] | None, **options: Any,
) -> Verification:  # fmt: skip
    """Compares a built model with ONNX Runtime on ``source`` (:func:`halotile.compiler.verify.verify`, which has the
    ``options``) at the sizes that are ``wanted``, or that ``arrays`` say, or that are typical. ``run`` calls it, where
    that is not the model itself."""
    sizes = chosen_sizes(model, arrays if isinstance(arrays, Mapping) else {}, wanted)
    left = None if dropped is None else shapes_at(dropped, sizes)
    found = verify(run or model, source, inputs_at(model, sizes), arrays, dropped=left, **options)
    return replace(found, sizes=sizes)


def verify_built(model: Any, source: Any, **options: Any) -> Verification:
    """The comparison at the end of a build: at the typical sizes, and where these agree, at small odd ones."""
    for sizes in compared_sizes(model):
        found = verify_at(model, source, {}, sizes, **options)
        if not found.ok:
            break
    return found


def compared_sizes(model: Sizable) -> list[dict[str, int]]:
    """The sizes that a build is compared at: small ones that are multiples of little, then the typical ones; without
    those that do not go together, unless none does."""
    typical = chosen_sizes(model, {})
    small = {symbol.name: _odd(symbol) for symbol in model.symbols}
    tried = [small, typical] if small != typical else [typical]
    return [sizes for sizes in tried if possible(model, sizes)] or [typical]


def possible(model: Sizable, sizes: Mapping[str, int]) -> bool:
    """Whether the model takes these sizes together."""
    try:
        model.input_shapes(sizes)
    except HalotileError:
        return False
    return True


def _odd(symbol: Symbol) -> int:
    """A size a little above the least, as odd as the symbol's multiple allows; the typical one where that is less."""
    size = (max(symbol.least, 2 * symbol.multiple) // symbol.multiple | 1) * symbol.multiple
    return min(size, symbol.typical)


def inputs_at(model: Sizable, sizes: Mapping[str, int]) -> tuple[TensorSpec, ...]:
    """The model's inputs at these sizes; as they are where all shapes are fixed."""
    if not model.symbols:
        return model.inputs
    shapes = model.input_shapes(sizes)
    return tuple(replace(spec, shape=shapes[spec.name]) for spec in model.inputs)


def shapes_at(shapes: Mapping[str, Sequence[object]], sizes: Mapping[str, int]) -> dict[str, tuple[object, ...]]:
    """Shapes with the sizes for the dimensions that are symbols by themselves; others stay."""
    return {name: tuple(sizes.get(str(dim), dim) for dim in shape) for name, shape in shapes.items()}

"""Inputs whose value is known at compile time, because the user gives it: constants, and no inputs of the library.

    fixed={"orig_im_size": [1200, 1800]}     main(image, points, orig_im_size) -> main(image, points)

Whatever a graph computes from such an input, lengths above all, is then known to the import as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ...errors import ModelError, ShapeError, did_you_mean
from ..options import Fixed, Shapes
from ..sample import dtype_of
from ..spec import TensorSpec
from .shapes import declared_shape, run_time_inputs


def with_their_shapes(
    graph: onnx.GraphProto, shapes: Shapes | None, fixed: Mapping[str, Fixed] | None
) -> Shapes | None:
    """``shapes``, and of every input that is fixed the shape of its value.

    A name that the model lacks and a shape that contradicts the model's or the one given are ShapeErrors.
    """
    if not fixed:
        return shapes
    inputs = {i.name: i for i in run_time_inputs(graph)}
    found: dict[str, tuple[int | str, ...]] = dict(shapes or {})
    for name, value in fixed.items():
        if name not in inputs:
            listed = ", ".join(f"'{n}'" for n in inputs) or "none"
            near = did_you_mean(name, inputs)
            raise ShapeError(f"a value was given for '{name}', but the model's inputs are {listed}{near}")
        wanted: Sequence[Any] | None = found.get(name, declared_shape(inputs[name]))
        found[name] = _shape(name, value, wanted)
    return found


def constants(specs: Sequence[TensorSpec], fixed: Mapping[str, Fixed] | None) -> dict[str, np.ndarray]:
    """The value of every input that is fixed, by name, in the type of the model.

    Numbers that this type does not hold are a ModelError; floats are rounded to it.
    """
    wanted = {s.name: s for s in specs}
    return {name: _array(wanted[name], value.values) for name, value in (fixed or {}).items()}


def _shape(name: str, value: Fixed, wanted: Sequence[int] | None) -> tuple[int, ...]:
    """The shape of a value; that of one without (a list of numbers) is the wanted one, if it can be told from it."""
    count = len(value.values)
    if value.shape is not None:
        shape = value.shape
        fits = wanted is None or (
            len(wanted) == len(shape) and all(not isinstance(a, int) or a == b for a, b in zip(wanted, shape))
        )
        given = f"has the shape {list(shape)}"
    else:
        dims = ["?"] if wanted is None else wanted
        rest = math.prod(d for d in dims if isinstance(d, int))
        unknown = sum(not isinstance(d, int) for d in dims)
        fits = (unknown == 0 and rest == count) or (unknown == 1 and rest > 0 and count % rest == 0)
        shape = tuple(d if isinstance(d, int) else count // max(rest, 1) for d in dims)
        given = f"is {count} number{'s' if count != 1 else ''}"
    if not fits:
        listed = ", ".join("?" if d is None else str(d) for d in wanted or ())
        raise ShapeError(f"the value given for input '{name}' {given}, which does not fit the model's [{listed}]")
    return shape


def _array(spec: TensorSpec, values: Sequence[float]) -> np.ndarray:
    wanted = dtype_of(spec.dtype)
    if not values:
        return np.empty(spec.shape, wanted)
    found = np.asarray(values)
    if found.dtype == object:  # whole numbers beyond 64 bits
        odd = max(values, key=abs)
        raise ModelError(f"the value given for input '{spec.name}' holds {odd!r}, which is too large for {spec.dtype}")
    kind = "b" if spec.dtype == "bool" else "f" if "float" in spec.dtype else "i"
    with np.errstate(all="ignore"):
        cast = found.astype(wanted)
    if kind == "f":
        held = found.dtype.kind in "iuf" and bool((np.isinf(cast.astype("f8")) == np.isinf(found.astype("f8"))).all())
    elif kind == "i":
        held = found.dtype.kind in "iu" and [int(v) for v in cast] == [int(v) for v in values]
    else:
        held = found.dtype.kind == "b" or (found.dtype.kind in "iu" and set(found.tolist()) <= {0, 1})
    if not held:
        odd = next((v for v, c in zip(values, cast) if v != c.item()), values[0])
        raise ModelError(f"the value given for input '{spec.name}' holds {odd!r}, but the input holds {spec.dtype}")
    return cast.reshape(spec.shape)

"""Models of the node tests with the dimensions of their inputs opened, as far as the import keeps them open."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

Dims = dict[tuple[str, int], str]  # (input, axis) -> the symbol that it is


def opened(model: object, arrays: dict[str, np.ndarray]) -> tuple[onnx.ModelProto, dict[str, np.ndarray], str]:
    """The model with the dims of its inputs open, the inputs that it has, and what the import said of symbols of their
    own for all.

    All are tried at once; where the import refuses that, the inputs whose values it needs become constants. Then dims
    are opened one after the other, as symbols of their own or ones of dims that are as long; those of which the import
    accepts neither stay fixed.
    """
    given = dict(arrays)
    dims = _every(given)
    objection, needed = _objection(with_dims(model, given, dims))
    while needed:
        model, given = _with_constants(model, given, needed)
        dims = _every(given)
        objection, needed = _objection(with_dims(model, given, dims))
    if objection:
        dims = _accepted(model, given)
    return with_dims(model, given, dims), given, objection


def has_open_dims(model: onnx.ModelProto) -> bool:
    """True if a dim of an input is a symbol."""
    return any(d.HasField("dim_param") for i in model.graph.input for d in i.type.tensor_type.shape.dim)


def with_dims(model: object, given: dict[str, np.ndarray], dims: Dims) -> onnx.ModelProto:
    """The model with these dims of its inputs open, and all others as the arrays have them."""
    import onnx

    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for info in changed.graph.input:
        shape = onnx.TensorShapeProto()
        for axis, length in enumerate(given[info.name].shape):
            symbol = dims.get((info.name, axis))
            if symbol is None:
                shape.dim.add().dim_value = length
            else:
                shape.dim.add().dim_param = symbol
        info.type.tensor_type.shape.CopyFrom(shape)
    for info in changed.graph.output:  # what the test states holds for its own sizes
        info.type.tensor_type.ClearField("shape")
    return changed


def _every(given: dict[str, np.ndarray]) -> Dims:
    """A symbol of its own for every dim."""
    return {(n, axis): f"{re.sub('[^a-zA-Z0-9]', '_', n)}_{axis}" for n, a in given.items() for axis in range(a.ndim)}


def _accepted(model: object, given: dict[str, np.ndarray]) -> Dims:
    """The dims that the import accepts when they are opened one after the other."""
    found: Dims = {}
    for (name, axis), own in _every(given).items():
        length = given[name].shape[axis]
        equal = dict.fromkeys(symbol for (n, a), symbol in found.items() if given[n].shape[a] == length)
        for symbol in (own, *equal):
            if not _objection(with_dims(model, given, {**found, (name, axis): symbol}))[0]:
                found[name, axis] = symbol
                break
    return found


def _objection(model: onnx.ModelProto) -> tuple[str, list[str]]:
    """What the import says against a model, and the inputs whose values it asks for."""
    from halotile.compiler.frontend import import_model
    from halotile.errors import HalotileError

    names = {i.name for i in model.graph.input}
    try:
        import_model(model, symbolic=True)
    except HalotileError as error:
        return " ".join(str(error).split()), [n for n in getattr(error, "inputs", ()) if n in names]
    return "", []


def _with_constants(
    model: object, given: dict[str, np.ndarray], names: list[str]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model with these inputs as constants, and the inputs left."""
    import onnx
    from onnx import numpy_helper

    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    changed.graph.initializer.extend(numpy_helper.from_array(given[n], n) for n in names)
    left = [i for i in changed.graph.input if i.name not in names]
    del changed.graph.input[:]
    changed.graph.input.extend(left)
    return changed, {n: a for n, a in given.items() if n not in names}

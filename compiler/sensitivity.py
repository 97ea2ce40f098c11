"""How far the reference's own answer moves when what it computes from moves by what rounding does to it.

    x, constants                   ->  theirs
    x', constants'                 ->  answers of equal right        (1 + e), (1 - e) at random, e = 1e-7, 1e-6, 1e-5

A model that rounds to integers, takes a maximum's place or sorts may answer otherwise for that, as far off as these
answers are from one another: neither is wrong. What moves nothing there excuses nothing here. A difference is
explained if the largest of it and its mean are within twice those of the answers (:mod:`.distances`); of numbers
without steps, how many are in none of the answers; of rows that were put in order (:mod:`.ordered`), how many changed
places, and how many are rows of none.

Nothing of this is done, and no memory taken, unless the plain comparison failed; then one model more is held at a time,
for :data:`LONGEST` seconds and the last run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from .distances import Arrays
from .ties import SCALE

SIZES = (2.0**-23, 1e-6, 1e-5)  # an ulp, sums in another order, and Winograd's algorithm
EXACT_SIZES = SIZES[:2]
DRAWS = 4
LONGEST = 120
LEAST = 16  # elements: smaller constants may be shapes, limits and thresholds
FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)

Run = Callable[[onnx.ModelProto, Arrays], Arrays]


def answers(
    model: onnx.ModelProto, arrays: Arrays, theirs: Arrays, run: Run, exact: bool = False
) -> Iterator[tuple[float, list[Arrays]]]:
    """For each size of what rounding does, the smallest first: ``theirs``, and what else the reference answers so far.
    Whoever has found an explanation asks for no more."""
    found, end = [theirs], time.monotonic() + LONGEST
    for number, size in enumerate(EXACT_SIZES if exact else SIZES):
        for draw in range(DRAWS):
            if time.monotonic() > end:
                return
            random = np.random.default_rng((number, draw))
            try:
                found.append(run(moved(model, size, random), _moved_inputs(arrays, size, random)))
            except Exception:  # noqa: S112  a model that does not bear it says nothing
                continue
        yield size, found


def moved(model: onnx.ModelProto, size: float, random: np.random.Generator) -> onnx.ModelProto:
    """``model`` with each of its constants of floats times ``1 + size`` or ``1 - size``."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    _move_graph(other.graph, size, random)
    for function in other.functions:
        _move_nodes(function.node, size, random, frozenset())
    return other


def _move_graph(graph: onnx.GraphProto, size: float, random: np.random.Generator) -> None:
    scales = frozenset(
        n.input[at] for n in graph.node if (at := SCALE.get(n.op_type, len(n.input))) < len(n.input)
    )
    for tensor in graph.initializer:
        _move(tensor, size, random, 1 if tensor.name in scales else LEAST)
    _move_nodes(graph.node, size, random, scales)


def _move_nodes(
    nodes: Sequence[onnx.NodeProto], size: float, random: np.random.Generator, scales: frozenset[str]
) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _move_graph(attribute.g, size, random)
            elif attribute.type == onnx.AttributeProto.TENSOR and node.op_type == "Constant":
                _move(attribute.t, size, random, 1 if node.output[0] in scales else LEAST)


def _move(tensor: onnx.TensorProto, size: float, random: np.random.Generator, least: int) -> None:
    if tensor.data_type in FLOATS and int(np.prod(tensor.dims, dtype=np.int64)) >= least:
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(_near(array, size, random), tensor.name))


def _moved_inputs(arrays: Arrays, size: float, random: np.random.Generator) -> dict[str, np.ndarray]:
    return {n: _near(a, size, random) if np.asarray(a).dtype.kind == "f" else a for n, a in arrays.items()}


def _near(array: np.ndarray, size: float, random: np.random.Generator) -> np.ndarray:
    """Each element moved up or down by ``size`` of itself, or by an ulp of its type."""
    step = max(size, float(np.finfo(array.dtype).eps) / 2) if array.dtype == np.float16 else size
    signs = random.integers(0, 2, array.shape) * 2 - 1
    with np.errstate(all="ignore"):
        return np.asarray((array.astype(np.float64) * (1 + step * signs)).astype(array.dtype))

"""How large the numbers around each node of a model are, by which layers may be in float16 (passes/halves).

    largest_of("m.onnx", "float16", "samples.npz") -> {node: largest magnitude that it reads or makes,
                                                       node + READ: the same of what a product multiplies by weights}

ONNX Runtime computes the model in float32 for the samples; without any, for the random inputs that a comparison with it
takes, or for those of the smallest integers, whichever leave more numbers finite: a mask of twos makes NaN of all. What
it can't tell (nodes of loops, open shapes without samples) is not in the result, and stays in float32.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import HalotileError, UnsupportedError
from ..cache.keys import key_of
from ..cache.store import Cache
from ..options import Fixed, Shapes
from ..recipe import describe_model
from ..spec import TensorSpec

if TYPE_CHECKING:
    import onnx

    from ..given import ModelGiven

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
FORM = "4"  # of what the cache keeps


def largest_of(
    model: ModelGiven,
    precision: str,
    calibrate: object = None,
    *,
    fixed: Mapping[str, Fixed] | None = None,
    shapes: Shapes | None = None,
    cache: Cache | None = None,
) -> dict[str, float] | None:
    """The magnitudes for a build with ``precision="float16"``; None for any other precision. Raises HalotileError for
    samples that don't fit the model, and says what to install where ONNX Runtime is missing."""
    if precision != "float16":
        return None
    samples = samples_of(model, calibrate, fixed, shapes)
    if not samples:
        return {}

    def make() -> bytes:
        tries = [samples] if calibrate is not None else [[sample] for sample in samples]
        return json.dumps(max((_measured(model, t) for t in tries), key=len)).encode()

    key = key_of_samples("halves", model, samples)
    found: dict[str, float] = json.loads(make() if cache is None else cache.entry(key, make))
    return found


def samples_of(
    model: ModelGiven, calibrate: object, fixed: Mapping[str, Fixed] | None, shapes: Shapes | None
) -> list[dict[str, np.ndarray]]:
    """Those in ``calibrate``, all inputs of a model, or random ones of which any may do; none where sizes are open."""
    from ..frontend.load import load
    from ..sample import random_inputs
    from .prepare import onnxruntime
    from .samples import read_samples
    from .wish import inputs_of, values_of

    onnxruntime()
    proto = load(model).model
    specs = inputs_of(proto.graph, fixed or {})
    if calibrate is not None:
        samples = read_samples(calibrate, specs)
    else:
        specs = [_sized(spec, shapes or {}) for spec in specs]
        if any(not isinstance(d, int) for spec in specs for d in spec.shape):
            return []
        samples = [random_inputs(specs, proto)]
        if any(spec.dtype.startswith(("int", "uint")) for spec in specs):
            samples.append(random_inputs(specs))  # integers of 0 and 1 alone, which masks need
    return [{**sample, **values_of(fixed or {}, proto.graph)} for sample in samples]


def _sized(spec: TensorSpec, shapes: Mapping[str, Sequence[int | str]]) -> TensorSpec:
    return TensorSpec(spec.name, spec.dtype, tuple(shapes.get(spec.name, spec.shape)))


def _measured(source: ModelGiven, samples: list[dict[str, np.ndarray]]) -> dict[str, float]:
    import onnx

    from .ranges import ranges

    try:
        model = onnx.shape_inference.infer_shapes(whole_model(source))
        found = ranges(model, samples, finite=False)
    except HalotileError:
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise UnsupportedError(
            f"precision float16: ONNX Runtime can't tell how large the model's numbers are: {reason}"
        ) from None
    return _by_node(model, found)


def whole_model(source: ModelGiven) -> onnx.ModelProto:
    """A copy with all of its data inside."""
    import onnx

    from ..frontend.load import load

    loaded = load(source)
    model = onnx.ModelProto()
    model.CopyFrom(loaded.model)
    if loaded.folder is not None:
        onnx.load_external_data_for_model(model, str(loaded.folder))
    return model


def name_of(node: onnx.NodeProto) -> str:
    """By which a node of the model is known to the compiler."""
    return node.name or next(filter(None, node.output), "")


def largest_in(model: onnx.ModelProto, samples: list[dict[str, np.ndarray]]) -> dict[str, float]:
    """The same for a ModelProto whose shapes are inferred, over these samples; nothing is raised."""
    from .ranges import ranges

    return _by_node(model, ranges(model, samples, finite=False))


def _by_node(model: onnx.ModelProto, found: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    # Here, since it comes with TVM, which finding a library in the cache does without.
    from ...passes.halves.partial_sums import READ

    result: dict[str, float] = {}
    for node in model.graph.node:
        sizes = [max(abs(v) for v in found[name]) for name in (*node.input, *node.output) if name in found]
        if sizes and all(map(math.isfinite, sizes)):  # what is infinite is not told, and so stays in float32
            name = name_of(node)
            result[name] = max(sizes)
            if node.op_type in PRODUCTS and node.input[0] in found:
                result[name + READ] = max(abs(v) for v in found[node.input[0]])
    return result


def key_of_samples(what: str, model: object, samples: list[dict[str, np.ndarray]], *more: str) -> str:
    """The key in the cache of ``what`` is found for a model by samples."""
    import onnxruntime

    digest = hashlib.sha256()
    for sample in samples:
        for name, array in sorted(sample.items()):
            digest.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array).data)
    described = json.dumps(describe_model(model), sort_keys=True)
    return key_of(what, FORM, *more, onnxruntime.__version__, described, digest.hexdigest())

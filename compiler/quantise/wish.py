"""What a caller asks of bytes, checked, and the plan that comes of it, from the cache where it was made before.

    int8_plan("m.onnx", "int8", "samples.npz", error=0.02) -> plan (plan.py), or None where nothing is asked
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import HalotileError
from ..cache.keys import key_of
from ..cache.store import Cache
from ..given import ModelGiven
from ..options import Fixed
from ..recipe import describe_model
from ..spec import TensorSpec

if TYPE_CHECKING:
    import onnx

    from ...targets.plain import Json

FORM = "1"  # of a plan in the cache


def int8_plan(
    model: ModelGiven,
    precision: str,
    calibrate: object = None,
    error: object = None,
    *,
    exact: bool = False,
    fixed: Mapping[str, Fixed] | None = None,
    cache: Cache | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Json | None:
    """The plan of a build with ``precision="int8"``; None for any other precision, of which float16 alone takes
    ``calibrate`` (:mod:`.halves`) and ``error``. Inputs that are ``fixed`` need no samples. Raises
    HalotileError for what can't be."""
    if precision == "auto":
        return None  # compiler/budget has a plan of its own
    if precision != "int8":
        if calibrate is not None and precision != "float16":
            raise HalotileError(f"calibrate is for precision int8, float16 and auto; the precision is {precision}")
        if error is not None and precision != "float16":
            raise HalotileError(f"error is for precision int8 and auto, and for float16; the precision is {precision}")
        return None
    if exact:
        raise HalotileError("precision int8 rounds to bytes, which exact forbids: choose one of them")
    if calibrate is None:
        raise HalotileError(
            "precision int8 needs sample inputs, from which ranges are taken: give an .npz file, or a folder of them, "
            "to calibrate (--calibrate FILE)"
        )
    if error is not None and (isinstance(error, bool) or not isinstance(error, Real) or not 0 < float(error) < 1):
        raise HalotileError(f"error={error!r}: give what outputs may be off by, as a part of their largest value: 0.02")
    from ..frontend.load import load
    from .prepare import onnxruntime
    from .samples import read_samples

    onnxruntime()
    graph = load(model).model.graph
    samples = read_samples(calibrate, inputs_of(graph, fixed or {}))
    samples = [{**sample, **values_of(fixed or {}, graph)} for sample in samples]

    def make() -> bytes:
        from .plan import plan_of

        return json.dumps(plan_of(model, samples, None if error is None else float(error), progress)).encode()

    if cache is None:
        return json.loads(make())
    return json.loads(cache.entry(_key(model, samples, error), make))


def inputs_of(graph: onnx.GraphProto, fixed: Mapping[str, Fixed]) -> list[TensorSpec]:
    """The inputs that samples are to be of."""
    from onnx import helper

    found = []
    constants = {t.name for t in graph.initializer}
    for info in graph.input:
        if info.name in constants or info.name in fixed:
            continue
        kind = info.type.tensor_type
        shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim)
        found.append(TensorSpec(info.name, str(helper.tensor_dtype_to_np_dtype(kind.elem_type)), shape))
    return found


def values_of(fixed: Mapping[str, Fixed], graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """The arrays of inputs that became constants."""
    from onnx import helper

    found = {}
    for info in graph.input:
        if info.name in fixed:
            kind = info.type.tensor_type
            value = fixed[info.name]
            shape = value.shape or tuple(d.dim_value for d in kind.shape.dim)
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            found[info.name] = np.asarray(value.values, dtype).reshape(shape)
    return found


def _key(model: ModelGiven, samples: list[dict[str, np.ndarray]], error: object) -> str:
    from importlib.metadata import PackageNotFoundError, version

    digest = hashlib.sha256()
    for sample in samples:
        for name, array in sorted(sample.items()):
            digest.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array).data)
    try:
        runtime = version("onnxruntime")
    except PackageNotFoundError:
        runtime = "?"
    own = [file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py"))]
    described = json.dumps(describe_model(model), sort_keys=True)
    return key_of("int8", FORM, runtime, described, digest.hexdigest(), repr(error), *own)

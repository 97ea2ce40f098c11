"""Models with loops and branches as text, and their comparison with ONNX Runtime at many sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser

RNG = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


def model_of(text: str, opset: int = 17, **constants: Any) -> onnx.ModelProto:
    """``text`` is a graph as ONNX writes it; ``constants`` are its initialisers."""
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items())
    return model


def peer(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def agree(model: onnx.ModelProto, feeds: Iterable[Mapping[str, Any]], **options: Any) -> halotile.Model:
    """Builds the model once and compares it on every feed; one thread and two give the same bits. Gives the build."""
    built = halotile.compile(model, **options)
    session = peer(model)
    names = [o.name for o in model.graph.output]
    for feed in feeds:
        given = {name: np.asarray(a) for name, a in feed.items()}
        found, alone = built(given, threads=2), built(given, threads=1)
        assert all(found[n].tobytes() == alone[n].tobytes() for n in found)
        for name, wanted in zip(names, session.run(None, given)):
            assert found[name].shape == wanted.shape and found[name].dtype == wanted.dtype, (name, found[name].shape)
            np.testing.assert_allclose(found[name], wanted, rtol=2e-5, atol=2e-6, err_msg=name)
    return built


def kernels(built: halotile.Model) -> list[str]:
    """How every kernel of a build is computed."""
    return [k["schedule"] for k in built.report["kernels"]]

"""A model made ready for the quantiser: opset 13 or newer, batch norms folded, shapes inferred.

    prepared(model) -> ModelProto
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import onnx

from ...errors import ModelError, ToolchainError, UnsupportedError
from ..frontend.load import load

if TYPE_CHECKING:
    pass

OPSET = 13  # the first with scales for each channel
_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")


def prepared(source: Any, named: bool = False) -> onnx.ModelProto:
    """The model with folded constants and norms, as ONNX Runtime's optimiser leaves it, and inferred shapes. Equal
    models give equal ones; where they are ``named``, products keep their names. Raises UnsupportedError for one in
    bytes already, and for one that ONNX Runtime can't load.
    """
    runtime = onnxruntime()
    loaded = load(source)
    model = onnx.ModelProto()
    model.CopyFrom(loaded.model)
    quantised = [n for n in model.graph.node if n.op_type in _QUANTISED]
    if quantised:
        raise UnsupportedError(
            f"node '{quantised[0].name}' ({quantised[0].op_type}): the model is quantised already; build it without "
            "precision int8 or auto, it keeps its bytes"
        )
    if loaded.folder is not None:
        onnx.load_external_data_for_model(model, str(loaded.folder))
    own = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    try:
        if own < OPSET:
            model = onnx.version_converter.convert_version(model, OPSET)
        with tempfile.TemporaryDirectory() as folder:
            before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
            onnx.save(model, before)
            options = runtime.SessionOptions()
            options.optimized_model_filepath = str(after)
            options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
            options.log_severity_level = 3
            left = ["MatMulAddFusion"] if named else None  # its results have other names
            runtime.InferenceSession(before, options, providers=["CPUExecutionProvider"], disabled_optimizers=left)
            model = onnx.load(after)
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise UnsupportedError(f"ONNX Runtime's quantiser can't take the model: {reason}") from None
    _name_nodes(model)
    return onnx.shape_inference.infer_shapes(model)


def onnxruntime() -> ModuleType:
    """The package; ToolchainError says how to get it."""
    try:
        import onnxruntime
    except ImportError:
        raise ToolchainError(
            "precisions int8 and auto need onnxruntime, whose quantiser they use: pip install onnxruntime"
        ) from None
    return onnxruntime


def _name_nodes(model: onnx.ModelProto) -> None:
    """Nodes are left out by their names: each gets one, and none has another's."""
    seen: set[str] = set()
    for i, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{i}"
            while node.name in seen:
                node.name += "_"
        seen.add(node.name)
    if not model.graph.node:
        raise ModelError("the model has no nodes")

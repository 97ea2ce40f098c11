"""``import halotile.onnxruntime as ort``: ONNX Runtime's names on libraries that Halotile compiles."""

from halotile.compiler.onnxruntime.binding import IOBinding
from halotile.compiler.onnxruntime.providers import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)
from halotile.compiler.onnxruntime.session import InferenceSession
from halotile.compiler.onnxruntime.settings import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from halotile.compiler.onnxruntime.types import ModelMetadata, NodeArg
from halotile.compiler.onnxruntime.values import OrtDevice, OrtValue
from halotile.version import __version__

from . import capi

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtDevice",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "__version__",
    "capi",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

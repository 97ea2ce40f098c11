"""``halotile.onnx_backend``: ONNX's backend interface, as ``onnx.backend.test`` and its like take it."""

from halotile.compiler.onnxruntime.onnx_backend import HalotileBackend, HalotileBackendRep, Refused

is_compatible = HalotileBackend.is_compatible
prepare = HalotileBackend.prepare
run = run_model = HalotileBackend.run_model
run_node = HalotileBackend.run_node
supports_device = HalotileBackend.supports_device

__all__ = [
    "HalotileBackend",
    "HalotileBackendRep",
    "Refused",
    "is_compatible",
    "prepare",
    "run",
    "run_model",
    "run_node",
    "supports_device",
]

"""Where scripts find the errors of ONNX Runtime."""

from . import onnxruntime_pybind11_state

__all__ = ["onnxruntime_pybind11_state"]

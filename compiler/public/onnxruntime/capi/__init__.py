"""Where scripts find the errors of ONNX Runtime."""

from . import _pybind_state, onnxruntime_pybind11_state

__all__ = ["_pybind_state", "onnxruntime_pybind11_state"]

"""ONNX Runtime's Python interface on our libraries; users import it as ``halotile.onnxruntime``.

A script written for ONNX Runtime runs with its import changed: sessions, IO bindings, values, options, and errors of
the types that it may catch. What asks for something that we have not is refused by name, or logged where it changes no
result.
"""

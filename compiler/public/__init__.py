"""Modules under the names that users import: ``halotile.onnxruntime`` is ``onnxruntime`` in this folder.

They lie here and not at the root, since the root of a checkout is on the path of whoever works there, where
``import onnxruntime`` must find the real one. The package looks for its modules in this folder as well.
"""

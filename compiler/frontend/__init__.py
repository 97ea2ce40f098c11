"""ONNX -> Relax: load, check, fix the shapes, and walk the nodes once. See importer.py for the road."""

from __future__ import annotations

from .importer import ImportedModel, import_model
from .inspect import inspect_model

__all__ = ["ImportedModel", "import_model", "inspect_model"]

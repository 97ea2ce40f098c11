"""ONNX -> Relax, right or refused. The road, top to bottom:

load        path, bytes or ModelProto -> ModelProto (load.py)
check       structure, versions, and ONNX's own checker, in errors that name nodes (check.py)
shapes      every input dimension fixed, from the model and the user (shapes.py)
walk        one pass over the nodes: convert (converters/), which computes what is known (ahead.py), expand
            (functions.py), unroll (control.py), or record as an offender (walk.py)
importer    the above, in order, and the verdict (importer.py)
"""

from __future__ import annotations

from .importer import ImportedModel, import_model

__all__ = ["ImportedModel", "import_model"]

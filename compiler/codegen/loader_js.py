"""The JavaScript module beside a WebAssembly library: what the model takes and gives, and how to run it.

    loader_text(spec, file) -> text of <name>.mjs
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..spec import TensorSpec
from .link import RUNTIME

if TYPE_CHECKING:
    from .spec import LibrarySpec


def loader_text(spec: LibrarySpec, file: str) -> str:
    """The loader of the module in ``file``."""
    about = {"name": spec.name, "version": spec.version, "target": spec.target.id, **spec.metadata}
    texts = {
        "INPUTS": _tensors(spec.inputs), "OUTPUTS": _tensors(spec.outputs), "ABOUT": _json(about),
        "FILE": f"./{file}", "NAME": spec.identifier,
    }  # fmt: skip
    text = (RUNTIME / "web" / "loader.mjs").read_text(encoding="utf-8")
    head, *parts = text.split("@")  # a placeholder is between two signs, and there are no others
    for i in range(0, len(parts), 2):
        head += texts[parts[i]] + parts[i + 1]
    return head


def _tensors(tensors: tuple[TensorSpec, ...]) -> str:
    rows = [
        {"name": t.name, "dtype": t.dtype, "shape": list(t.shape), "elements": t.elements, "bytes": t.nbytes}
        for t in tensors
    ]
    return "[" + "".join(f"\n    {_json(row)}," for row in rows) + "\n]"


def _json(value: object) -> str:
    """JSON, which is JavaScript when its two line separators are escaped."""
    return json.dumps(value, ensure_ascii=True)

"""manifest.json: what a folder holds, for whom it was made, and from what it can be made again.

Two builds of one model with the same options and compiler give the same manifest: no times, no paths.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ...targets.typed import target_facts
from ..runtime.digest import digest
from ..runtime.recorded import content_digest
from ..spec import TensorSpec
from .spec import ABI, ABI_OF_SHAPES

if TYPE_CHECKING:
    from ...targets.plain import Json
    from .spec import LibrarySpec

_VOLATILE = ("seconds", "verification")


def manifest_text(
    spec: LibrarySpec, files: dict[str, str], folder: Path, fingerprint: str, facts: Json, known: dict[str, str]
) -> str:
    """The manifest of the finished ``files`` (kind -> name) in ``folder``; ``facts`` are what was found in them, and
    ``known`` are the SHA-256 of some (name -> digits)."""
    hashes = {name: _hash(folder / name, known.get(name)) for name in sorted(files.values())}
    data = {
        "format": "halotile",
        "abi": ABI_OF_SHAPES if spec.symbols else ABI,
        "version": spec.version,
        "name": spec.name,
        "prefix": spec.identifier,
        **files,
        "fingerprint": fingerprint,
        "target": target_facts(spec.target),
        "inputs": [_tensor(t) for t in spec.inputs],
        "outputs": [_tensor(t) for t in spec.outputs],
        **(_sizes(spec) if spec.symbols else {}),
        **({"reach": list(spec.reach)} if spec.reach else {}),
        "weight_bytes": spec.weight_bytes,
        "planned_bytes": spec.planned_bytes,
        "workspace_bytes": spec.workspace_bytes,
        "arena_bytes": spec.arena_bytes(spec.default_threads or 1),
        "max_threads": spec.max_threads,
        "default_threads": spec.default_threads,
        "metadata": spec.metadata,
        "model": spec.model,
        "options": spec.options,
        "files": hashes,
        "linked": facts,
        "report": {key: value for key, value in spec.report.items() if key not in _VOLATILE},
    }
    plain = json.loads(json.dumps(data, default=_plain))
    return json.dumps({**plain, "sha256": content_digest(plain)}, indent=1, ensure_ascii=False) + "\n"


def _hash(path: Path, known: str | None) -> Json:
    return {"sha256": known or digest(path), "bytes": path.stat().st_size}


def _sizes(spec: LibrarySpec) -> Json:
    """What the sizes of a run may be."""
    told = [{"left": str(c.left), "relation": c.relation, "right": str(c.right), "why": c.why} for c in spec.conditions]
    return {"symbols": [asdict(symbol) for symbol in spec.symbols], "conditions": told}


def _tensor(tensor: TensorSpec) -> Json:
    shape = [dim if isinstance(dim, int) else str(dim) for dim in tensor.shape]
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": shape}


def _plain(value: object) -> object:
    """numpy's numbers and paths in a report as JSON's."""
    return value.item() if hasattr(value, "item") else str(value)

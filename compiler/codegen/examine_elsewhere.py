"""Libraries for other systems than Linux are examined before they are done: format, exports, imports, weights."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from ...errors import ToolchainError
from ...targets.target import Target
from .elsewhere import ALLOCATE, INITIALISE
from .wasm import read_wasm


def examine_elsewhere(path: Path, target: Target, functions: Collection[str], weights: int = 0) -> dict[str, Any]:
    """Facts of a library for the manifest; ToolchainError when nothing could load it."""
    return _wasm(path, set(functions), weights)


def _wasm(path: Path, functions: set[str], weights: int) -> dict[str, Any]:
    facts = read_wasm(path)
    if facts.imports:
        raise ToolchainError(f"{path.name} would need {', '.join(facts.imports)}, which no page has")
    _exports(path, facts.exports, functions | {"memory", INITIALISE, *ALLOCATE})
    if facts.data_bytes < weights:
        raise ToolchainError(f"{path.name} lost some of its {weights} bytes of weights")
    return {"machine": "wasm32", "bits": 32, "needs": [], "code_bytes": facts.code_bytes}


def _exports(path: Path, found: Collection[str], wanted: set[str]) -> None:
    more, less = sorted(set(found) - wanted), sorted(wanted - set(found))
    if more or less:
        wrong = f"exports {', '.join(more)}" if more else f"lacks {', '.join(less)}"
        raise ToolchainError(f"{path.name} {wrong}: the linker did not keep to the list of exports")

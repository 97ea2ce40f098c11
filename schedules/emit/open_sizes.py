"""The sizes that a kernel of open dimensions takes: its last parameters, int32, one for each symbol that it uses."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ..words.dims import variable
from ..words.sizes import is_symbol

SIZES = "halotile.sizes"  # attribute of a function: the names of its symbols


def sizes_of(function: Any) -> list[Any]:
    """The sizes that a function takes as its last parameters."""
    return [variable(str(name), "int32") for name in (function.attrs or {}).get(SIZES, ())]


def symbols_in(statement: Any) -> list[str]:
    """The symbols whose variables a statement uses and does not make."""
    return sorted(v.name for v in tirx.analysis.undefined_vars(statement) if is_symbol(v))

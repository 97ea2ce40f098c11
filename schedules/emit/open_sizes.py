"""The sizes that a kernel of open dimensions takes: its last parameters, int32, one for each symbol that it uses."""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from ..words.atoms import variable
from ..words.sizes import has_symbols, is_symbol
from ..words.tvm_types import Expr, PrimFunc, Stmt

SIZES = "halotile.sizes"  # attribute of a function: the names of its symbols


def sizes_of(function: PrimFunc) -> list[Expr]:
    """The sizes that a function takes as its last parameters."""
    return [variable(str(name), "int32") for name in (function.attrs or {}).get(SIZES, ())]


def symbols_in(statement: Stmt) -> list[str]:
    """The symbols whose variables a statement uses. (No statement makes one. Others may be bound in several places:
    a kernel has the same expression for full and for short rows.)"""
    found: set[str] = set()
    if not has_symbols():
        return []

    def note(variable_: Expr) -> None:
        if is_symbol(variable_):
            found.add(variable_.name)

    tvm_ffi.structural_walk(statement, (tirx.Var, note))
    return sorted(found)

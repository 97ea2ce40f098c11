"""Which of the model's inputs decides a value of run time, where giving that input a value would settle it.

    If(equal(sr, 16000))      is decided by input 'sr': --fix sr=VALUE
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tvm import relax

from ...schedules.words.tvm_types import Expr

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike
    from ..spec import TensorSpec

SETTING = 16  # elements that an input, a scalar or a list, has which is a choice and no data


@dataclass(frozen=True)
class Inputs:
    """The inputs of the import under way, by Relax variable, and the builder that knows what else stands for what."""

    builder: Any
    names: Mapping[Expr, TensorSpec] = field(default_factory=dict)  # variable -> TensorSpec


#: Of the import under way.
INPUTS: ContextVar[Inputs | None] = ContextVar("inputs", default=None)


def deciding(expr: Expr) -> tuple[str, ...]:
    """The names of the inputs that a Relax expression is computed from, in the model's order; none where one of them
    is more than a setting."""
    known = INPUTS.get()
    if known is None or expr is None:
        return ()
    seen: set[Expr] = set()
    pending = [*relax.analysis.free_vars(expr)]
    while pending:
        variable = pending.pop()
        if variable in seen:
            continue
        seen.add(variable)
        bound = known.builder.lookup_binding(variable)
        if bound is not None:
            pending.extend(relax.analysis.free_vars(bound))
    found = [spec for variable, spec in known.names.items() if variable in seen]
    settings = all(s.shape == () or len(s.shape) == 1 and _few(s) for s in found)
    return tuple(spec.name for spec in found) if settings else ()


def _few(listed: TensorSpec) -> bool:
    """Whether a list is short, or is of whole numbers and of any length, as exporters leave a size's two."""
    length: SizeLike = listed.shape[0]
    return length <= SETTING if isinstance(length, int) else listed.dtype in ("int32", "int64")


def flags(names: tuple[str, ...]) -> str:
    """How inputs are given values: ``--fix sr=VALUE (from Python fixed={'sr': VALUE})``."""
    given = " ".join(f"--fix {name}=VALUE" for name in names)
    return f"{given} (from Python fixed={{{', '.join(f'{name!r}: VALUE' for name in names)}}})"

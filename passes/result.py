"""What every pass returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from ..targets.plain import Json


@dataclass(frozen=True)
class Result:
    """The module after a pass, whether it differs from the one before, and what is worth telling.

    ``notes`` are sentences for people; ``details`` holds the same facts as plain data for ``--json``.
    """

    module: IRModule
    changed: bool
    notes: tuple[str, ...] = ()
    details: Json = field(default_factory=dict)

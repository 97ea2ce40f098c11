"""What every pass returns, and what every pass is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from ..targets.target import Target


@dataclass(frozen=True)
class Result:
    """The module after a pass, whether it differs from the one before, and what is worth telling.

    ``notes`` are sentences for people; ``details`` holds the same facts as plain data for ``--json``.
    """

    module: IRModule
    changed: bool
    notes: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


class Pass(Protocol):
    """A frozen dataclass with its options as fields; ``apply`` is pure and deterministic."""

    @property
    def name(self) -> str: ...

    def apply(self, module: IRModule, target: Target | None = None) -> Result: ...

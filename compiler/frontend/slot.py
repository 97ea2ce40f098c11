"""What a name of an ONNX graph may stand for while it is imported: a tensor, or a sequence of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from .value import OnnxValue, Poison


class TensorSequence:
    """An ONNX sequence whose length is known: a list of values, and no tensor itself. It lives at import only."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[OnnxValue]) -> None:
        self.items = tuple(items)

    def __str__(self) -> str:
        return f"sequence({', '.join(map(str, self.items))})"


class Growing(TensorSequence):
    """A sequence that a loop of run time makes longer by one tensor a round. In the loop it is known by what the round
    has ``added`` to it; behind the loop ``rows`` has its tensors side by side, of which a part may be there."""

    __slots__ = ("added", "rows")

    def __init__(self, added: Sequence[OnnxValue] = (), rows: OnnxValue | None = None) -> None:
        super().__init__(())
        self.added = tuple(added)
        self.rows = rows

    def __str__(self) -> str:
        return "a sequence whose length is known at run time"


Slot = OnnxValue | TensorSequence | Poison | None  # Poison after an error, None for an operand left out

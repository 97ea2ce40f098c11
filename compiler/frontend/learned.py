"""Learned: a fact about an open dimension that every run of the model which succeeds implies."""

from __future__ import annotations

from contextvars import ContextVar

from ...schedules.words.dims import INFINITY, Dim

#: The node that is converted.
AT: ContextVar[str] = ContextVar("at", default="")


class Learned(Exception):
    """A symbol turned out to be what other symbols or a number give (``same_as``), to lie within bounds, or to be a
    multiple of something. It carries the fact out of the import, which starts again with it.

    ``why`` says on what grounds: by itself or, with nothing said, that a node can't run otherwise. ``node`` is the
    node that is converted when it is made.
    """

    def __init__(
        self,
        symbol: str,
        same_as: Dim | None = None,
        low: int = 0,
        high: float = INFINITY,
        why: str = "",
        multiple: int = 1,
    ) -> None:
        super().__init__(symbol)
        self.symbol, self.same_as, self.low, self.high, self.multiple = symbol, same_as, low, high, multiple
        self.why, self.node = why, AT.get()

    @property
    def reason(self) -> str:
        if self.why:
            return f"{self.why} ({self.node})" if self.node else self.why
        return f"since {self.node or 'the model'} can't run otherwise"

    @property
    def kind(self) -> str:
        """What it limits: of two facts of one kind, the later says more."""
        return "multiple" if self.multiple > 1 else "low" if self.high == INFINITY else "high"

    @property
    def limit(self) -> str:
        """What of the size is learned, in words."""
        if self.same_as is not None:
            return f"taken to be {self.same_as}"
        if self.multiple > 1:
            return f"a multiple of {self.multiple}"
        return f"at least {self.low}" if self.high == INFINITY else f"at most {self.high}"

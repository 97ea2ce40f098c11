"""Which nodes of the model an operator comes from, carried by the spans of Relax bindings.

A span names one node; an operator that simplification made of several has the names of all, in the order in which
they came. Names are those of the ONNX nodes, or of their first outputs where nodes have none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tvm.ir import SequentialSpan, SourceName, Span

if TYPE_CHECKING:
    from .tvm_types import Expr


def span_of(names: Iterable[str]) -> Expr:
    """The span of a binding that stands for the model's nodes ``names``; None for no names."""
    spans = [Span(SourceName(name), 0, 0, 0, 0) for name in names]
    return SequentialSpan(spans) if len(spans) > 1 else next(iter(spans), None)


def names_of(span: Expr) -> tuple[str, ...]:
    """The names that :func:`span_of` was given; none for None."""
    if span is None:
        return ()
    spans = span.spans if isinstance(span, SequentialSpan) else (span,)
    return tuple(dict.fromkeys(str(s.source_name.name) for s in spans))

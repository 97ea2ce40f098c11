"""The table of converters: (domain, operator, first opset) -> the function that writes it in Relax."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from .node import OnnxNode
    from .value import OnnxValue

Converter = Callable[["OnnxNode"], "OnnxValue | list[OnnxValue | None]"]
Written = TypeVar("Written", bound=Converter)  # so that a converter that another one calls keeps its own type

_TABLE: dict[tuple[str, str], list[tuple[int, Converter]]] = {}


def converts(*operators: str, since: int = 1, domain: str = "") -> Callable[[Written], Written]:
    """Registers the decorated function for ``operators`` from opset ``since`` on (until a later entry)."""

    def register(function: Written) -> Written:
        for operator in operators:
            entries = _TABLE.setdefault((domain, operator), [])
            if any(s == since for s, _ in entries):
                raise ValueError(f"{operator} since {since} has two converters")
            entries.append((since, function))
            entries.sort(key=lambda e: e[0], reverse=True)
        return function

    return register


def converter(domain: str, operator: str, opset: int) -> Converter | None:
    """The converter in force at ``opset``, or None."""
    for since, function in _TABLE.get((domain, operator), ()):
        if since <= opset:
            return function
    return None

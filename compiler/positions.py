"""Operators that make positions of rows from sizes, before any image is there, and what they compute in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..schedules.words.tvm_types import Expr

POSITIONS: dict[str, Callable[..., Expr]] = {
    "relax.arange": np.arange,
    "relax.abs": np.abs,
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
}

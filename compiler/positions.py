"""Operators that make positions of rows from sizes, before any image is there, and what they compute in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

POSITIONS: dict[str, Callable[..., Any]] = {
    "relax.arange": np.arange,
    "relax.abs": np.abs,
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
}

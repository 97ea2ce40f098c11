"""The matrix multiplication family."""

from __future__ import annotations

from .estimate import product_cycles
from .family import (
    PRODUCTS,
    is_plain_product,
    is_product,
    moves_problem,
)

__all__ = [
    "PRODUCTS",
    "is_plain_product",
    "is_product",
    "moves_problem",
    "product_cycles",
]

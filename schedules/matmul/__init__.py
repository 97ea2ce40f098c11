"""The matrix multiplication family."""

from __future__ import annotations

from .estimate import product_cycles
from .family import (
    build_matmul,
    considered_matmuls,
    is_product,
    makes_one_column,
    moves_problem,
    select_matmul,
)

__all__ = [
    "build_matmul",
    "considered_matmuls",
    "is_product",
    "makes_one_column",
    "moves_problem",
    "product_cycles",
    "select_matmul",
]

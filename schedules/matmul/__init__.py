"""The matrix multiplication family."""

from __future__ import annotations

from .build import build_matmul, makes_one_column, moves_problem, supports_matmul
from .estimate import product_cycles

__all__ = ["build_matmul", "makes_one_column", "moves_problem", "product_cycles", "supports_matmul"]

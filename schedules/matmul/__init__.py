"""The matrix multiplication family."""

from __future__ import annotations

from .estimate import product_cycles
from .family import build_matmul, makes_one_column, moves_problem, supports_matmul

__all__ = ["build_matmul", "makes_one_column", "moves_problem", "product_cycles", "supports_matmul"]

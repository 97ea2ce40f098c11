"""The matrix multiplication family."""

from __future__ import annotations

from .build import build_matmul, moves_problem, supports_matmul
from .estimate import product_cycles

__all__ = ["build_matmul", "moves_problem", "product_cycles", "supports_matmul"]

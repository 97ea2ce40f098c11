"""What a product with constant weights will take, for passes that choose between forms of a graph."""

from __future__ import annotations

from ...targets.target import Target
from .blocking import PARALLEL_FLOPS
from .choose import least_cost
from .strassen import seven_cycles

LAUNCH_CYCLES = 4000  # a parallel loop: cores are woken, and the last one waited for


def product_cycles(
    target: Target, images: int, rows: int, depth: int, columns: int, dtype: str, threads: int, seven: bool
) -> float:
    """Cycles for ``images`` times ``rows x depth`` by one ``depth x columns``, on ``threads`` cores. ``seven``: by
    seven products of halves, where the kernel family would take those."""
    fewer = seven_cycles(target, rows, depth, columns, dtype) if seven else None
    if fewer is not None:
        cycles = images * fewer
    else:
        vectors = -(-columns // target.lanes(dtype))
        row_bytes = depth * (8 if dtype == "float64" else 4)
        cycles = depth * least_cost(target, images * rows, vectors, row_bytes)
    if threads > 1 and 2 * images * rows * depth * columns >= PARALLEL_FLOPS:
        return cycles / threads + LAUNCH_CYCLES
    return cycles

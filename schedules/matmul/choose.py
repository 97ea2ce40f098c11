"""Chooses the register tile of a matrix multiplication: rows of A by vectors of B.

Each step of K takes ``rows * vectors`` multiply-adds, ``vectors`` loads of B and ``rows`` broadcasts of A. As for
convolutions, the tile with the fewest cycles over the whole output wins, waste at the edges included. With few rows
(one, for a fully connected layer) more vectors hide the latency of the multiply-add, and B's bandwidth is the limit.
"""

from __future__ import annotations

from ...targets.target import Target


def choose_tile(target: Target, rows: int, vectors: int) -> tuple[int, int]:
    """(rows, vectors) of the register tile for an output of ``rows`` by ``vectors`` vectors."""
    best, best_cost = (1, 1), float("inf")
    for width in range(1, min(8, vectors) + 1):
        most = max(1, (target.vector_registers - width - 1) // width)
        for height in range(1, min(rows, most) + 1):
            steps = -(-rows // height) * -(-vectors // width)
            fmas = height * width / target.fma_ports
            loads = (height + width) / 2
            cost = steps * (max(fmas, loads, float(target.fma_latency)) + 0.5)
            if cost < best_cost - 1e-9:
                best, best_cost = (height, width), cost
    return best

"""How many bytes a process holds more after a thousand runs no larger than the two before, of x and m at open sizes.

    python tests/support/flat_largest.py FOLDER

A process of its own: what other tests have left in theirs moves by megabytes. The allocator is as users have it.
"""

from __future__ import annotations

import sys

import numpy as np
import psutil
from halotile.compiler.runtime.loader import load


def grown(folder: str) -> int:
    """The resident bytes after the runs less those before."""
    rng, process = np.random.default_rng(0), psutil.Process()
    x, m = np.ones((64, 20_000, 3), np.float32), np.ones(20_000, np.float32)
    with load(folder) as model:

        def run(batch: int, width: int) -> None:
            model({"x": np.ascontiguousarray(x[:batch, :width]), "m": m[:width]})

        run(64, 20_000)
        run(64, 20_000)
        before = process.memory_info().rss
        for _ in range(1000):
            run(int(rng.integers(1, 65)), 2 * int(rng.integers(0, 10_001) ** 0.5) * 2)
        run(64, 20_000)
        return process.memory_info().rss - before


if __name__ == "__main__":
    print(grown(sys.argv[1]))

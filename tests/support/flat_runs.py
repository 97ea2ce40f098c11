"""How many bytes a process holds more after 300 runs at random sizes, when it has settled.

    python tests/support/flat_runs.py FOLDER LARGEST...     of each symbol

A process of its own: what other tests have left in theirs moves by megabytes.
"""

from __future__ import annotations

import sys

import numpy as np
import psutil
from halotile.compiler.runtime.loader import load
from halotile.compiler.sized import inputs_at


def grown(folder: str, most: list[int]) -> int:
    """The resident bytes after the runs less those before."""
    rng, process, top = np.random.default_rng(0), psutil.Process(), np.array(most)
    with load(folder) as model:
        names = [s.name for s in model.symbols]

        def run(numbers: np.ndarray) -> None:
            (given,) = inputs_at(model, dict(zip(names, map(int, numbers), strict=True)))
            model({"x": np.zeros(given.shape, np.float32)}, threads=2)

        for _ in range(100):  # what the process keeps of freed memory settles first
            run(rng.integers(1, top + 1))
        run(top)
        before = process.memory_info().rss
        for _ in range(300):
            run(rng.integers(1, top + 1))
        run(top)
        return process.memory_info().rss - before


if __name__ == "__main__":
    print(grown(sys.argv[1], [int(n) for n in sys.argv[2:]]))

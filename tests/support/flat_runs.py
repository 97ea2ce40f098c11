"""How many bytes a process holds more after runs at random sizes, when it has settled.

    python tests/support/flat_runs.py FOLDER RUNS LARGEST...     of each symbol

A process of its own: what other tests have left in theirs moves by megabytes. Arrays go back to the system when they
are freed, so that none of theirs count.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import psutil
from halotile.compiler.runtime.loader import load
from halotile.compiler.sized import inputs_at


def grown(folder: str, runs: int, most: list[int]) -> int:
    """The resident bytes after ``runs`` less those before."""
    rng, process, top = np.random.default_rng(0), psutil.Process(), np.array(most)
    with load(folder) as model:
        symbols = model.symbols

        def run(numbers: np.ndarray) -> None:
            sizes = (max(s.low, int(n) // s.multiple * s.multiple) for s, n in zip(symbols, numbers, strict=True))
            given = inputs_at(model, dict(zip((s.name for s in symbols), sizes, strict=True)))
            model({spec.name: np.zeros(spec.shape, np.float32) for spec in given}, threads=2)

        for _ in range(100):  # what the process keeps of freed memory settles first
            run(rng.integers(1, top + 1))
        run(top)
        before = process.memory_info().rss
        for _ in range(runs):
            run(rng.integers(1, top + 1))
        run(top)
        return process.memory_info().rss - before


def grown_alone(folder: Path, runs: int, most: Iterable[int]) -> int:
    """The same in a process of its own."""
    command = [sys.executable, __file__, str(folder), str(runs), *map(str, most)]
    given_back = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # of glibc
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **given_back})
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


if __name__ == "__main__":
    print(grown(sys.argv[1], int(sys.argv[2]), [int(n) for n in sys.argv[3:]]))

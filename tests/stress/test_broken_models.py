"""Broken models are compiled or refused in one line, in bounded time and memory, without an internal error.

python tests/stress/test_broken_models.py 1000 [SEED]        the whole: prints what went wrong, with the model's number
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from broken import models, mutated, outcome


def compiles(data: bytes) -> None:
    """What ``inspect`` and ``build`` do with a model, up to the object file."""
    from halotile.compiler.inspection import inspect_file
    from halotile.compiler.pipeline import run_pipeline
    from halotile.compiler.state import Options
    from halotile.targets.resolve import resolve

    inspect_file(data)
    run_pipeline(data, Options(target=resolve("x86-64-v4"), stop_after="assemble"))


def variant(seed: int) -> bytes:
    draw = random.Random(seed)
    return mutated(draw.choice(models()), draw)


@pytest.mark.parametrize("seed", range(0, 10, 5))
def test_broken_models_end_in_one_line(seed: int) -> None:
    for number in range(seed, seed + 5):
        assert outcome(variant(number), compiles) in ("fine", "refused"), number


def test_the_models_that_are_broken_compile() -> None:
    from halotile.compiler.frontend import import_model

    for model in models():
        import_model(model)


if __name__ == "__main__":
    import halotile.compiler.frontend.importer  # noqa: F401  (once, in the parent of all)
    import halotile.passes.simplify  # noqa: F401

    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    ends: Counter[str] = Counter()
    for number in range(first, first + count):
        end = outcome(variant(number), compiles)
        ends[end if end in ("fine", "refused") else "wrong"] += 1
        if end not in ("fine", "refused"):
            print(f"--- {number}: {end}", flush=True)
    print(dict(ends))
    sys.exit(ends["wrong"] > 0)

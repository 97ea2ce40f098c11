"""Each test draws the numbers that it draws alone, whatever ran before it in the same process.

Modules of tests keep a generator of random numbers for all their tests. Which of these share a process, and in which
order, differs from run to run; so generators go back to where they stood when all modules were imported.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
Restore = Callable[[], None]


def restorers() -> list[Restore]:
    """For each generator of the tests' imported modules a function that puts it back to where it stands now."""
    found: dict[int, object] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).is_relative_to(TESTS):
            found.update({id(value): value for value in _generators(module)})
    return [_back_to_now(value) for value in found.values()]


def _generators(module: ModuleType) -> Iterator[object]:
    for value in vars(module).values():
        if isinstance(value, (np.random.Generator, np.random.RandomState, random.Random)):
            yield value


def _back_to_now(generator: object) -> Restore:
    if isinstance(generator, np.random.Generator):
        bits, state = generator.bit_generator, copy.deepcopy(generator.bit_generator.state)

        def restore() -> None:
            bits.state = state

    elif isinstance(generator, np.random.RandomState):
        legacy, kept = generator, generator.get_state()

        def restore() -> None:
            legacy.set_state(kept)

    else:
        assert isinstance(generator, random.Random)
        plain, place = generator, generator.getstate()

        def restore() -> None:
            plain.setstate(place)

    return restore

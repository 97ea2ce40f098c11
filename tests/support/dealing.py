"""The order of tests for several workers: whole files, the most expensive first, dealt to the workers like cards.

pytest-xdist's work stealing gives each worker as many tests as the others, in their order, and lets who has done take
half of what another has left, from its end. In the order of paths, a worker would end with whatever files come last.
Dealt, all begin with what takes longest and end with what takes no time, and little is stolen: fixtures of a module are
rarely made twice. Costs are those of an earlier run (costs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item")
UNKNOWN = 20.0  # seconds of a file that has never been measured


def dealt(
    items: Sequence[Item], file_of: Callable[[Item], str], costs: Mapping[str, tuple[float, int]], workers: int
) -> list[Item]:
    """All ``items``, so that equal parts of them, in order, are fair shares for ``workers``. Those of a file stay
    together, as they were."""
    files: dict[str, list[Item]] = {}
    for item in items:
        files.setdefault(file_of(item), []).append(item)
    seconds = {name: costs[name][0] if name in costs else UNKNOWN for name in files}
    hands: list[list[str]] = [[] for _ in range(workers)]
    loads = [0.0] * workers
    for name in sorted(files, key=lambda name: (-seconds[name], name)):
        least = loads.index(min(loads))
        hands[least].append(name)
        loads[least] += seconds[name]
    return [item for hand in hands for name in hand for item in files[name]]

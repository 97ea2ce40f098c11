"""One library at many sizes: the smallest, the largest, ones, primes, sizes around tiles; beside ONNX Runtime.

    sizes = drawn(model, most={"h": 224, "w": 224}, count=40)
    agree(entry, count=40) -> Agreement: how many sizes agree, the largest error, what differs, what is refused
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from ..compiler.distances import Arrays
from ..compiler.model import Model
from ..compiler.sample import random_inputs
from ..compiler.sized import Sizable, inputs_at, possible
from ..compiler.spec import Symbol
from ..compiler.verify import NoReference, Reference, there
from ..errors import HalotileError
from .check_models import TOLERANCE, compare, largest, largest_difference
from .open_models import OpenEntry

PRIMES = (1, 2, 3, 5, 7, 11, 13, 17, 23, 29, 31, 37, 41, 53, 61, 67, 79, 97, 101, 127, 131, 151, 193, 211, 499, 997,
          1997, 4999, 9973, 19997, 39989)  # fmt: skip
TILES = tuple(factor << k for k in range(2, 16) for factor in (1, 3))
BATCHES = 5  # the most of a symbol that is one at every size of the entry


@dataclass
class Agreement:
    """Of one model: sizes that ran, the largest error over the largest number, and what did not agree."""

    name: str
    ran: int = 0
    error: float = 0.0
    smallest: Mapping[str, int] = field(default_factory=dict)
    largest: Mapping[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # sizes that ONNX Runtime takes


def most_of(entry: OpenEntry) -> dict[str, int]:
    """The largest size of each symbol that an entry is measured at."""
    return {name: size if size > 1 else BATCHES for name, size in entry.large.items()}


def drawn(model: Sizable, most: Mapping[str, int], count: int, seed: int = 0) -> list[dict[str, int]]:
    """Different sizes of all symbols that go together: the smallest, the largest, then each from primes and from sizes
    around tiles.

    None is 0: recurrent layers of ONNX Runtime end the process there.
    """
    rng, every = random.Random(seed), {s.name: _candidates(s, most.get(s.name, BATCHES)) for s in model.symbols}
    steps = range(max(map(len, every.values()), default=1))
    alike = [{name: own[min(k, len(own) - 1)] for name, own in every.items()} for k in steps]
    ends = [next((at for at in way if possible(model, at)), None) for way in (alike, alike[::-1])]
    found = list({str(at): at for at in ends if at is not None}.values())
    return _filled(found, model, every, count, rng)[:count]


def between(entry: OpenEntry, model: Sizable, count: int, seed: int = 1) -> list[dict[str, int]]:
    """Sizes to time at: the entry's own, then each between its smallest and its largest, primes as often as not."""
    rng, most, least = random.Random(seed), most_of(entry), entry.small
    every = {s.name: [c for c in _candidates(s, most[s.name]) if c >= least[s.name]] for s in model.symbols}
    found = [dict(sizes) for sizes in dict.fromkeys(tuple(s.items()) for s in entry.sizes)][:count]
    return _filled(found, model, every, count, rng)


def _filled(
    found: list[dict[str, int]], model: Sizable, every: Mapping[str, list[int]], count: int, rng: random.Random
) -> list[dict[str, int]]:
    """``found`` and as many other sizes of ``every`` that go together as make ``count``, where there are so many."""
    for _ in range(50 * count):
        if len(found) >= count:
            break
        at = {name: rng.choice(own) for name, own in every.items()}
        if at not in found and possible(model, at):
            found.append(at)
    return found


def _candidates(symbol: Symbol, most: int) -> list[int]:
    """Sizes that a symbol may have, up to ``most``: the ends and what lies beside them, primes, those around tiles."""
    m, least = symbol.multiple, symbol.least or symbol.multiple
    most = most if symbol.high is None else min(most, symbol.high)
    limit = max(least, most // m * m)
    near = {n * m for n in PRIMES} | {t + d for t in TILES for d in (-m, 0, m)} | {least, least + m, limit - m, limit}
    return sorted(n for n in near if least <= n <= limit and n % m == 0)


def feeds_at(model: Any, entry: OpenEntry, proto: onnx.ModelProto, sizes: Mapping[str, int], seed: int) -> Arrays:
    """Random inputs of these sizes; integers within the ranges of the entry."""
    given = random_inputs(inputs_at(model, sizes), proto, seed)
    rng = np.random.default_rng(seed)
    for name, (low, high) in entry.ranges.items():
        given[name] = rng.integers(low, high, given[name].shape).astype(given[name].dtype)
    return given


def agree(entry: OpenEntry, model: Model, proto: onnx.ModelProto, count: int) -> Agreement:
    """The model at so many sizes, on one and on two threads, against ONNX Runtime, which takes them all."""
    found, reference = Agreement(entry.name), Reference(proto)
    for seed, sizes in enumerate(drawn(model, most_of(entry), 2 * count)):
        if found.ran + len(found.refused) == count:
            break
        at = " ".join(f"{name}={size}" for name, size in sizes.items())
        given = feeds_at(model, entry, proto, sizes, seed)
        try:
            theirs = reference(given, 0)
        except NoReference:
            continue
        try:
            one, two = (as_there(model(given, threads=threads), theirs) for threads in (1, 2))
        except HalotileError as error:
            found.refused.append(f"{at}: {' '.join(str(error).split())}")
            continue
        found.ran += 1
        found.smallest, found.largest = found.smallest or sizes, max(found.largest or sizes, sizes, key=_elements)
        found.wrong += [f"{at}: {line}" for line in compare(two, theirs, TOLERANCE)]
        found.wrong += [f"{at}: {n}: other bits on two threads" for n in one if one[n].tobytes() != two[n].tobytes()]
        for name, wanted in theirs.items():
            if wanted.shape == two[name].shape:
                found.error = max(found.error, largest_difference(two[name], wanted) / max(largest(wanted), 1e-30))
    return found


def as_there(found: dict[str, np.ndarray], wanted: Arrays) -> dict[str, np.ndarray]:
    """The model's outputs without the room behind lengths that the data decide."""
    return {name: there(found, name, wanted) for name in wanted}


def _elements(sizes: Mapping[str, int]) -> int:
    return math.prod(sizes.values())

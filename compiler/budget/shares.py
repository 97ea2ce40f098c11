"""What rounding moves the outputs by: of a layer alone, which is its share, and of all layers as they are assigned.

ONNX Runtime computes models that round as our kernels do (rounding.py; compiler/quantise for bytes) beside the model
itself. An error is the largest difference of an output over its largest value, of the worst output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx

from ..quantise.apply import products, quantised
from ..quantise.plan import error_of, outputs_of
from ..quantise.ranges import Ranges
from .rounding import rounded

Precisions = Mapping[str, str]
Samples = Sequence[Mapping[str, np.ndarray]]
MOST_ALONE = 4  # samples that shares are measured on
MOST = 8  # of each half, that an assignment is
ROOM = 1.2  # times the least and the largest value that samples have
END = float(np.finfo(np.float32).max)  # which masks hold


def with_room(ranges: Ranges) -> Ranges:
    """The ranges, a little wider at both ends: other inputs reach farther than samples, and bytes end where theirs do,
    so that one number beyond costs more than all others lose by wider steps."""
    return {name: (max(ROOM * low, -END), min(ROOM * high, END)) for name, (low, high) in ranges.items()}


@dataclass(frozen=True)
class Split:
    """The samples in two: those that an assignment is found by, and those that it is held to afterwards."""

    used: list[Mapping[str, np.ndarray]]
    held: list[Mapping[str, np.ndarray]]

    @staticmethod
    def of(samples: Samples) -> Split:
        """The samples to choose by and those to judge by: every fourth is held back, or every second of few; a single
        one is both."""
        every = 4 if len(samples) >= 8 else 2
        held = [s for i, s in enumerate(samples) if i % every == every - 1]
        return Split([s for i, s in enumerate(samples) if i % every != every - 1], held or list(samples))


@dataclass(eq=False)
class Shares:
    """``model`` is one of compiler/quantise/prepare.py, ``ranges`` are those of its tensors."""

    model: onnx.ModelProto
    ranges: Ranges
    split: Split
    known: dict[frozenset[tuple[str, str]], tuple[float, float]] = field(default_factory=dict)

    @cached_property
    def layers(self) -> list[onnx.NodeProto]:
        """The nodes that have a precision."""
        return products(self.model)

    @cached_property
    def used(self) -> list[Mapping[str, np.ndarray]]:
        return spread(self.split.used, MOST)

    @cached_property
    def held(self) -> list[Mapping[str, np.ndarray]]:
        return spread(self.split.held, MOST)

    @cached_property
    def wanted(self) -> tuple[list[list[np.ndarray]], list[list[np.ndarray]]]:
        """What the model itself answers for the used samples, and for those held back."""
        found = outputs_of(self.model, [*self.used, *self.held])
        return found[: len(self.used)], found[len(self.used) :]

    def in_bytes(self, precision: Precisions) -> onnx.ModelProto:
        """The model with the layers in bytes that ``precision`` has so; all others are as they were."""
        left = [n.name for n in self.layers if precision.get(n.name) != "int8"]
        return self.model if len(left) == len(self.layers) else quantised(self.model, self.ranges, left)

    def simulated(self, precision: Precisions) -> onnx.ModelProto:
        """The model with the roundings of ``precision``."""
        return rounded(self.in_bytes(precision), precision)

    def alone(self, names: Sequence[str], kind: str) -> float:
        """What the outputs are off by where these layers alone are in ``kind``."""
        few = spread(range(len(self.used)), MOST_ALONE)
        found = outputs_of(self.simulated(dict.fromkeys(names, kind)), [self.used[i] for i in few])
        return error_of([self.wanted[0][i] for i in few], found)

    def errors(self, precision: Precisions) -> tuple[float, float]:
        """What the outputs are off by for the used samples, and for those held back, as far as rounding says."""
        key = frozenset((n, p) for n, p in precision.items() if p != "float32")
        if key not in self.known:
            found = outputs_of(self.simulated(precision), [*self.used, *self.held]) if key else None
            self.known[key] = (0.0, 0.0) if found is None else self.off(found)
        return self.known[key]

    def off(self, found: list[list[np.ndarray]]) -> tuple[float, float]:
        """What outputs for the used samples and, behind these, those held back are off by."""
        count = len(self.used)
        return error_of(self.wanted[0], found[:count]), error_of(self.wanted[1], found[count:])


def spread(items: Sequence, most: int) -> list:
    """At most so many of the items, from all over."""
    count = min(len(items), most)
    return [items[i * len(items) // count] for i in range(count)]

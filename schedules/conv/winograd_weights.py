"""Where the products of a Winograd convolution find their weights U = G w GT: made at compile time, or as they run.

``Ready``: U lies in the order it is read, [chunk][matrix][channel][vector][lane].

``Made``: w lies as [chunk][channel][vector][tap][lane], nine numbers where F(4x4) has 36, for cores that multiply by an
element of U in less time than it takes to arrive. For each segment of a chunk's channels

    for xi
      for register tile                               M[xi] += V[xi] * U[xi], which asks for w of the segment after next
      for channel, vector: a share of them            U' = G w GT of the next segment, into the second-level cache

The two segments take turns; stores into that cache take longer than the arithmetic, and end beside the products. U's
matrices are a vector more than a segment apart: at a power of two, all would fall into one set of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from .prefetch import prefetch
from .tile import ConvKernel
from .winograd_choose import Plan
from .winograd_math import TAPS, Transform

FAR = 1 << 30  # more than any position


@dataclass(frozen=True)
class Run:
    """Input channels whose products are made together, from channel block ``block`` on; their matrices lie from
    ``source`` on. ``more``: M has sums already.

    Where weights are made: ``vectors`` of the run behind this one go to ``target``; their taps begin at ``taps``, those
    to be asked for at ``ask``."""

    block: Any
    channels: int
    more: bool
    source: Any
    vectors: Any = 0
    target: Any = 0
    taps: Any = 0
    ask: Any = 0


@dataclass
class Ready:
    """Weights that were transformed at compile time, rounded to float32 once."""

    conv: ConvKernel
    plan: Plan
    given: Any = None

    @property
    def source(self) -> Any:
        return self.given

    def pack(self, weight: np.ndarray) -> np.ndarray:
        plan = self.plan
        return pack_weights(
            weight, plan.transform, plan.chunks_per_group * plan.groups, plan.vectors * self.conv.lanes
        )

    def begin(self, first: Any) -> None:
        """What a task does before its first chunk."""

    def runs(self, chunk: Any, within: Any) -> Iterator[Run]:
        """All channels at once."""
        yield Run(0, self.conv.facts.channels, False, chunk * self.plan.transform.matrices)

    def fill(self, run: Run, xi: Any) -> None:
        """What is done beside the products ``xi``."""

    def matrix(self, run: Run, number: Any) -> Any:
        return self.conv.bind(run.source + number, 1 << 24)

    def at(self, matrix: Any, channel: Any) -> Any:
        return (matrix * self.conv.facts.channels + channel) * (self.plan.vectors * self.conv.lanes)

    def hints(self, run: Run, xi: Any, panel: Any, matrix: Any) -> Callable[[Any, Any], None]:
        """Hints for the weights that follow, once a step of the reduction. Where several register tiles share a matrix
        of weights, they ask for the next one line by line, each for its part, so that it arrives at an even rate: a
        line's neighbour comes with it, and lines two apart would all come in the first half of the time."""
        conv, vectors, lanes, tiles = self.conv, self.plan.vectors, self.conv.lanes, self.plan.row_tiles
        channels = conv.facts.channels
        size = channels * vectors * lanes
        if tiles == 1 or size * 4 > conv.request.target.l2_bytes // 4:
            return lambda step, channel: prefetch(conv.k, self.given, step, vectors, lanes)
        each = -(-vectors // tiles)
        begin = conv.bind(self.at(matrix, 0) + size, FAR)

        def ask(step: Any, channel: Any) -> None:
            line = tirx.floordiv((panel * channels + channel) * vectors, tiles)
            prefetch(conv.k, self.given, begin + line * lanes, each, lanes, ahead=0)

        return ask


@dataclass
class Made:
    """Weights that are transformed before each segment's products, in scratch of each core's own."""

    conv: ConvKernel
    plan: Plan
    given: Any = None
    made: Any = None
    base: Any = 0

    def __post_init__(self) -> None:
        self.width = self.plan.vectors * self.conv.lanes
        self.plane = self.plan.made * self.width + self.conv.lanes

    @property
    def elements(self) -> int:
        """Of the scratch, for a segment in use and one on its way."""
        return 2 * self.plan.transform.matrices * self.plane

    @property
    def source(self) -> Any:
        return self.made

    def pack(self, weight: np.ndarray) -> np.ndarray:
        return pack_taps(weight, self.plan.chunks_per_group * self.plan.groups, self.width, self.conv.lanes)

    def begin(self, first: Any) -> None:
        """The weights of the first segment of a task's ``first`` chunk."""
        vectors = min(self.plan.made, self.conv.facts.channels) * self.plan.vectors
        begin = self.conv.bind(first * (self.conv.facts.channels * TAPS * self.width), FAR)
        with self.conv.k.loop(vectors, name="u") as vector:
            self.conv.ctx.ranged(vector, vectors)
            self._make(begin, vector, self.base)

    def runs(self, chunk: Any, within: Any) -> Iterator[Run]:
        """One for each segment. A group's last makes nothing, and asks for its first, where the next strip begins."""
        conv, size, channels, taps = self.conv, self.plan.made, self.conv.facts.channels, TAPS * self.width
        whole, rest = divmod(channels, size)
        segments = whole + bool(rest)
        for first, count, depth in ((0, min(1, whole), size), (1, whole - 1, size), (whole, 1, rest)):
            if count < 1 or not depth:
                continue
            with conv.k.loop(count, name="s", begin=first) as segment:
                conv.ctx.ranged(segment, segments)
                number = conv.bind(within * segments + segment, self.plan.chunks_per_group * segments)
                last = tirx.EQ(number, tirx.IntImm("int32", self.plan.chunks_per_group * segments - 1))
                follows: Any = size
                if rest:  # the last segment of a chunk has fewer channels
                    at_rest = tirx.EQ(tirx.floormod(segment + 1, segments), tirx.IntImm("int32", whole))
                    follows = tirx.Select(at_rest, tirx.IntImm("int32", rest), tirx.IntImm("int32", size))
                behind = chunk * channels + segment * size + depth
                ask = tirx.Select(last, (chunk - within) * channels, behind + follows)
                vectors = tirx.Select(last, tirx.IntImm("int32", 0), follows * self.plan.vectors)
                parity = tirx.floormod(number, 2)
                yield Run(
                    segment * (size // conv.lanes),
                    depth,
                    first > 0,
                    conv.bind(self.base + parity * (self.elements // 2), FAR),
                    conv.bind(vectors, FAR),
                    conv.bind(self.base + (1 - parity) * (self.elements // 2), FAR),
                    conv.bind(behind * taps, FAR),
                    conv.bind(ask * taps, FAR),
                )

    def fill(self, run: Run, xi: Any) -> None:
        """A share of the next run's weights: their stores end while the products behind them are made."""
        k, products = self.conv.k, self.plan.transform.products
        part = -(-self.plan.made * self.plan.vectors // products)
        with k.loop(part, name="u") as i:
            vector = self.conv.bind(xi * part + i, FAR)
            with k.when(vector < run.vectors):
                self._make(run.taps, vector, run.target)

    def _make(self, begin: Any, vector: Any, target: Any) -> None:
        """U = G w GT for one vector of outputs of one channel."""
        k, lanes, t = self.conv.k, self.conv.lanes, self.plan.transform
        held = k.local("t", "float32", t.rows * 3 * lanes)
        for j in range(3):
            with k.loop(lanes, "vectorized", "v") as v:
                at = begin + vector * (TAPS * lanes) + j * lanes + v
                given = [k.bind(self.given[at + i * (3 * lanes)]) for i in range(3)]
                for i, value in enumerate(t.apply_weights(given, _constant, k.bind)):
                    k.store(held, (i * 3 + j) * lanes + v, value)
        for i in range(t.rows):
            with k.loop(lanes, "vectorized", "v") as v:
                values = [held[(i * 3 + j) * lanes + v] for j in range(3)]
                for j, value in enumerate(t.apply_weights(values, _constant, k.bind)):
                    k.store(self.made, target + (i * t.rows + j) * self.plane + vector * lanes + v, value)

    def matrix(self, run: Run, number: Any) -> Any:
        return self.conv.bind(run.source + number * self.plane, FAR)

    def at(self, matrix: Any, channel: Any) -> Any:
        return matrix + channel * self.width

    def hints(self, run: Run, xi: Any, panel: Any, matrix: Any) -> Callable[[Any, Any], None]:
        """The lines of the next segment's taps, spread evenly over all steps of this one's products."""
        conv, lanes, plan = self.conv, self.conv.lanes, self.plan
        lines, tiles = TAPS * plan.vectors, plan.transform.products * plan.row_tiles
        number = xi * plan.row_tiles + panel
        part = -(-lines // tiles)
        line = tirx.floordiv(number * lines, tiles) if part == 1 else number * part
        begin = conv.bind(run.ask + line * (run.channels * lanes), FAR)

        def ask(step: Any, channel: Any) -> None:
            for i in range(part):
                prefetch(conv.k, self.given, begin + (i * run.channels + channel) * lanes, 1, lanes, ahead=0)

        return ask


def pack_weights(weight: np.ndarray, transform: Transform, chunks: int, width: int) -> np.ndarray:
    """[O, I, 3, 3] -> [chunk][matrix][channel][width], rounded to float32 once; zero for outputs past the last."""
    outputs, channels = weight.shape[:2]
    packed = np.zeros((chunks, transform.matrices, channels, width), np.float32)
    for chunk in range(chunks):
        part = weight[chunk * width : (chunk + 1) * width]
        if len(part):
            packed[chunk, :, :, : len(part)] = transform.transform_weights(part)
    return packed


def pack_taps(weight: np.ndarray, chunks: int, width: int, lanes: int) -> np.ndarray:
    """[O, I, 3, 3] -> [chunk][channel][vector][tap][lane]; zero for outputs past the last."""
    outputs, channels = weight.shape[:2]
    padded = np.zeros((chunks * width, channels, TAPS), np.float32)
    padded[:outputs] = weight.reshape(outputs, channels, TAPS)
    lines = padded.reshape(chunks, width // lanes, lanes, channels, TAPS)
    return np.ascontiguousarray(lines.transpose(0, 3, 1, 4, 2))


def _constant(number: float) -> Any:
    return tirx.FloatImm("float32", float(number))

"""The numbers of a convolution, read once off its node."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ..operators.registry import attributes
from ..words.dims import INFINITY, Open, bounds
from ..words.group import Node, Value
from ..words.sizes import usual

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

BYTES = "halotile.dot_conv"
OPERATORS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
FEW_CHANNELS = 4  # inputs with no more channels than this are read plain: a broadcast needs no lanes
SKIPPED = 0.85  # the share of taps inside the image below which those outside are passed over


Pair = tuple[int, int]


class Plane(NamedTuple):
    """A convolution's rows and columns: one row of one tap, where it has one spatial axis."""

    kernel: Pair
    strides: Pair
    dilation: Pair
    before: Pair
    outputs: Pair


@dataclass(frozen=True)
class ConvFacts:
    """N, C, spatial... -> N, O, spatial...; all tuples have one entry a spatial axis. ``edges`` are the margins of the
    whole convolution where this is a part of one: its outputs may lie anywhere. ``fill`` is what lies outside of the
    data. ``empty``: there is one tap for the form's sake, which no output takes. ``sizes``: the open extents of the
    spatial axes, for each of which ``output`` has the one that the build plans for."""

    data: Value
    weight: Value
    output: Value
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    groups: int
    edges: tuple[tuple[int, int], ...] | None = None
    fill: int = 0
    empty: bool = False
    sizes: tuple[SizeLike, ...] | None = None

    @staticmethod
    def of(node: Node) -> ConvFacts:
        data, weight = node.operands[0], node.operands[1]
        if node.operator == BYTES:
            return _of_bytes(node, data, weight)
        attrs = node.call.attrs
        rank = len(data.shape) - 2
        pads = [int(p) for p in attrs.padding]
        return ConvFacts(
            data=data,
            weight=weight,
            output=node.results[0],
            kernel=tuple(weight.shape[2:]),
            strides=tuple(int(s) for s in attrs.strides),
            dilation=tuple(int(d) for d in attrs.dilation),
            before=tuple(pads[:rank]),
            after=tuple(pads[rank:]),
            groups=int(attrs.groups),
        )

    def cut(self, rows: int, columns: int) -> ConvFacts:
        """The same convolution with only ``rows x columns`` outputs."""
        output = Value(self.output.name, (*self.output.shape[:2], rows, columns), self.output.dtype)
        return replace(self, output=output, edges=self.margins())

    def usually(self) -> ConvFacts:
        """This convolution at its usual size, by which its plans are chosen; its own extents, which may be open, are
        its ``sizes``."""
        output = Value(self.output.name, tuple(map(usual, self.output.shape)), self.output.dtype)
        return replace(self, output=output, edges=self.margins(), sizes=self.out_spatial)

    @property
    def batch(self) -> int:
        """Images, as many as the build plans for."""
        return usual(self.data.shape[0])

    @property
    def channels(self) -> int:
        return self.data.shape[1]

    @property
    def outputs(self) -> int:
        return self.weight.shape[0]

    @property
    def group_in(self) -> int:
        return self.weight.shape[1]

    @property
    def group_out(self) -> int:
        return self.outputs // self.groups

    @property
    def out_spatial(self) -> tuple[int, ...]:
        return self.output.shape[2:]

    @property
    def plane(self) -> Plane:
        return Plane(
            _last_two(self.kernel, 1),
            _last_two(self.strides, 1),
            _last_two(self.dilation, 1),
            _last_two(self.before, 0),
            _last_two(self.out_spatial, 1),
        )

    @property
    def of_bytes(self) -> bool:
        """True for bytes that are summed in 32 bits."""
        return self.weight.dtype == "int8"

    @property
    def is_plain(self) -> bool:
        """True where the data has too few channels for blocks of them, unless something else put it in such."""
        return self.channels <= FEW_CHANNELS and self.groups == 1

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.group_in == 1 and self.group_out == 1

    @property
    def taps(self) -> int:
        total = 1
        for k in self.kernel:
            total *= k
        return total

    @property
    def planes(self) -> int:
        """Taps along all axes but rows and columns."""
        return math.prod(self.kernel[:-2])

    @property
    def flops(self) -> int:
        return usual(2 * self.output.elements * self.group_in * self.taps)

    @property
    def inside(self) -> float:
        """The share of all taps of all outputs that lie in the image, not in the padding around it: far apart, most
        don't."""
        share = 1.0
        for i, size in enumerate(self.data.shape[2:]):
            first = range(-self.before[i], self.kernel[i] * self.dilation[i] - self.before[i], self.dilation[i])
            span = (self.out_spatial[i] - 1) * self.strides[i]
            reached = sum(max(0, min(size - 1, t + span) - max(0, t) + 1) / (span + 1) for t in first)
            share *= min(1.0, reached / self.kernel[i])
        return share

    @property
    def skips(self) -> bool:
        """True if the direct kernel passes over taps in the padding: enough lie there, and it computes the whole."""
        return len(self.out_spatial) == 2 and self.edges is None and self.inside < SKIPPED

    def margins(self) -> tuple[tuple[int, int], ...]:
        """Border that the input needs so that no read leaves it: the padding, as far as the last window reaches."""
        if self.edges is not None:
            return self.edges
        needed = []
        for i, size in enumerate(self.data.shape[2:]):
            last = (self.out_spatial[i] - 1) * self.strides[i] + self.dilation[i] * (self.kernel[i] - 1)
            behind = last - self.before[i] - size + 1  # of open sizes, the most that any has
            most = bounds(behind)[1]
            if most == INFINITY:
                raise Open(f"how far windows reach behind {self.data.name} depends on {size}")
            needed.append((max(0, self.before[i]), max(0, int(most))))
        return ((0, 0), (0, 0), *needed)


def _of_bytes(node: Node, data: Value, weight: Value) -> ConvFacts:
    own = attributes(node.call)
    strides, dilation, before = (tuple(int(n) for n in own[name]) for name in ("strides", "dilations", "begin"))
    output, kernel = node.results[0], tuple(weight.shape[2:])
    last = [(o - 1) * s + d * (k - 1) for o, s, d, k in zip(output.shape[2:], strides, dilation, kernel)]
    behind = [reach - b - n + 1 for reach, b, n in zip(last, before, data.shape[2:])]
    after = tuple(max(0, int(bounds(n)[1])) for n in behind)  # of open sizes, the most that any has
    groups, fill = int(own["groups"]), int(own["fill"])
    return ConvFacts(data, weight, output, kernel, strides, dilation, before, after, groups, fill=fill)


def _last_two(values: tuple[int, ...], missing: int) -> Pair:
    return (values[-2] if len(values) > 1 else missing), values[-1]

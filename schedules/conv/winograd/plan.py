"""How a convolution is computed by Winograd's algorithm, and the bytes that it takes.

Only rows and columns are transformed. Along further axes (depth) outputs count as images of a batch, and a kernel's
planes as further channels: sums of several planes are made before the products are transformed back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from ...instructions.amx import REGISTER_BYTES
from ...instructions.bf16_parts import SIX, THREE, parts_of
from ..facts import ConvFacts
from .transform import F2, Transform, transforms
from .whole_transform import LayerMagnitudes, reach_of, whole_transforms

STACK_BYTES = 64 * 1024  # scratch up to this lies on the stack; larger one in the memory plan

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class WinogradPlan:
    """How one convolution is computed. ``rows x vectors`` is the register tile of the products: tiles by vectors of
    output channels; ``strip`` tiles are transformed together, ``strips`` cover all; ``chunks`` of ``vectors`` cover
    the output channels, split in ``groups``, each of which transforms the data anew. Each sum goes over the channels of
    ``planes`` planes of the kernel, and parts of these. ``products``: those of parts of numbers that the matrix unit
    makes; none where it does not, and multiply-adds do. ``plain`` data is not in blocks of channels. ``half``: in
    float16; ``whole``: in whole numbers, of int16, whose pairs are summed."""

    transform: Transform
    tiles: tuple[int, int]
    rows: int
    vectors: int
    strip: int
    strips: int
    chunks: int
    groups: int
    cycles: float
    planes: int = 1
    products: Pairs = ()
    plain: bool = False
    half: bool = False
    whole: bool = False

    @property
    def row_tiles(self) -> int:
        return -(-self.strip // self.rows)

    @property
    def chunks_per_group(self) -> int:
        return -(-self.chunks // self.groups)

    @property
    def column(self) -> int:
        """Floats of a transformed column of plain data: quarters of vectors, as many as hold it."""
        return -(-self.transform.down.extent // 4) * 4

    @property
    def element_bytes(self) -> int:
        return 2 if self.half else 4

    @property
    def data_bytes(self) -> int:
        """Of an element of transformed data."""
        return 2 if self.half or self.whole else 4

    @property
    def tasks(self) -> int:
        return self.strips * self.groups

    def __str__(self) -> str:
        text = f"winograd {self.transform}, strip {self.strip}, tile {self.rows}x{self.vectors}"
        text += f", {len(self.products)} matrix products" if self.products else ""
        text += ", few channels" if self.plain else ""
        text += ", float16" if self.half else ", int16" if self.whole else ""
        return text + (f", {self.groups} channel groups" if self.groups > 1 else "")


class Layer(NamedTuple):
    """What plans of a convolution depend on: those of equal layers are equal. ``batch`` counts planes of outputs,
    ``planes`` those of the kernel; the tuples are of rows and columns. The kernel of a layer of ``plain`` data
    has taps of zeros at its end where the stride doesn't divide it. ``half``: in float16; ``whole``: in whole numbers,
    whose sums stay within that."""

    batch: int
    channels: int
    outputs: int
    out_spatial: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    planes: int = 1
    kernel: tuple[int, int] = (3, 3)
    plain: bool = False
    half: bool = False
    whole: LayerMagnitudes | None = None

    @staticmethod
    def of(facts: ConvFacts) -> Layer:
        plane, batch = facts.plane, facts.batch * math.prod(facts.out_spatial[:-2])
        (rows, columns), (down, across) = plane.kernel, plane.strides
        if facts.is_plain and plane.dilation == (1, 1):
            rows, columns = _up(rows, down), _up(columns, across)
        sizes = plane.outputs, plane.strides, plane.dilation, facts.planes, (rows, columns)
        half = facts.output.dtype == "float16"
        whole = reach_of(facts.weight) if facts.of_bytes else None
        return Layer(batch, facts.channels, facts.outputs, *sizes, facts.is_plain, half, whole)

    @staticmethod
    def of_images(facts: ConvFacts, images: int) -> Layer:
        """That of so many images of the size of ``facts``."""
        layer = Layer.of(facts)
        return layer._replace(batch=layer.batch // facts.batch * images)

    @property
    def dtype(self) -> str:
        return "float16" if self.half else "int32" if self.whole else "float32"


def _up(taps: int, stride: int) -> int:
    return taps if (taps, stride) == (3, 2) else -(-taps // stride) * stride


def all_transforms(layer: Layer) -> list[Transform]:
    """The transforms of which the outputs have room for a tile."""
    if layer.whole is not None:
        return [t for t in whole_transforms(layer.kernel, layer.strides, layer.whole) if fits(layer, t)]
    return [t for t in transforms(layer.kernel, layer.strides, layer.half) if fits(layer, t)]


def products_for(transform: Transform) -> Pairs:
    """The bf16 products that a transform takes: those that multiply errors need parts as exact as float32."""
    return THREE if transform.growth <= F2.growth else SIX


def fits(layer: Layer, transform: Transform) -> bool:
    """True if the outputs that are a convolution without dilation, the fewest of all such, fill a tile."""
    phases = (extent // d for extent, d in zip(layer.out_spatial, layer.dilation))
    return all(phase >= m for phase, m in zip(phases, transform.tile))


def scratch_bytes(lanes: int, channels: int, plan: WinogradPlan) -> tuple[int, int]:
    """Bytes of a core's scratch: (transformed data, products of one chunk of output channels)."""
    padded = plan.row_tiles * plan.rows
    vectors = plan.planes * -(-channels // lanes)
    if plan.products:
        vectors = -(-vectors // 2) * parts_of(plan.products)
    data = plan.transform.products * (vectors * padded * lanes + lanes)
    if plan.plain:
        data = plan.transform.across.extent * (plan.planes * channels * padded * plan.column + lanes)
    products = plan.transform.products * (padded * plan.vectors * lanes + lanes)
    return plan.data_bytes * data, plan.element_bytes * products


def held_bytes(lanes: int, channels: int, plan: WinogradPlan) -> int:
    """Bytes of a core's scratch that lie in the memory plan."""
    return sum(-(-size // 64) * 64 * (size > STACK_BYTES) for size in scratch_bytes(lanes, channels, plan))


def weight_bytes(lanes: int, channels: int, plan: WinogradPlan) -> int:
    """Bytes of the weights as the kernel reads them."""
    return plan.transform.matrices * plan.chunks * plan.vectors * vector_bytes(lanes, channels, plan)


def vector_bytes(lanes: int, channels: int, plan: WinogradPlan) -> int:
    """Bytes of one matrix of weights, for one vector of outputs."""
    if plan.products:
        steps = -(-plan.planes * -(-channels // lanes) // 2)
        return steps * parts_of(plan.products) * REGISTER_BYTES
    return plan.element_bytes * plan.planes * terms(channels, plan) * lanes


def terms(channels: int, plan: WinogradPlan) -> int:
    """Multiply-adds of a sum in each plane: one for each channel, or for each pair of them."""
    return -(-channels // 2) if plan.whole else channels

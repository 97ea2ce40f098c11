"""Small networks of open images for tile groups: strides, residuals, pools, resizing, transposed layers, skips."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx
from halotile.compiler import pipeline
from halotile.compiler.state import STAGES, Build, Options
from halotile.passes.tile.open.plan import Tiles
from halotile.passes.tile.open.tile import TwinSource
from halotile.passes.tile.open.twin import Twins
from halotile.passes.tile.plan.form import Untileable
from halotile.passes.tile.search.program import Program
from halotile.schedules.words.open_tile_plan import OpenTilePlan
from halotile.targets.resolve import resolve

from .open_models import Drawing


def chain(channels: int = 16, depth: int = 4) -> onnx.ModelProto:
    """Layers of 3x3, one after the other."""
    g = Drawing(1)
    x = g("Relu", g.conv(g.input("x", 1, 3, "h", "w"), 3, channels, 3))
    for _ in range(depth):
        x = g("Relu", g.conv(x, channels, channels, 3))
    g.output(x, 4)
    return g.model()


def residual() -> onnx.ModelProto:
    """Strides, residuals, a depthwise layer, a pool and a projection, of an open batch."""
    g = Drawing(2)
    x = g("Relu", g.conv(g.input("x", "n", 3, "h", "w"), 3, 16, 3, strides=[2, 2]))
    for _ in range(2):
        y = g("Relu", g.conv(x, 16, 16, 3))
        x = g("Relu", g("Add", x, g.conv(y, 16, 16, 3)))
    x = g("Relu", g.conv(x, 16, 16, 3, groups=16, strides=[2, 1]))
    x = g("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    g.output(g.conv(x, 16, 20, 1), 4)
    return g.model()


def enlarging() -> onnx.ModelProto:
    """A dilated layer beside a skip, then twice as large by copies, and again by a transposed layer."""
    g = Drawing(3)
    a = g("Relu", g.conv(g.input("x", 1, 3, "h", "w"), 3, 16, 5))
    b = g("Relu", g.conv(a, 16, 16, 3, dilations=[2, 2], pads=[2] * 4))
    x = g("Resize", g("Concat", b, a, axis=1), "", g.constant([1, 1, 2, 2]), mode="nearest",
          coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    x = g("Relu", g.conv(x, 32, 16, 3))
    x = g("ConvTranspose", x, g.drawn(16, 12, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    g.output(g("Sigmoid", g.conv(x, 12, 3, 3)), 4)
    return g.model()


def crossing() -> onnx.ModelProto:
    """What the first layer makes is an output as well; then halves of it, of which odd sizes leave a row."""
    g = Drawing(5)
    a = g("Relu", g.conv(g.input("x", 1, 3, "h", "w"), 3, 16, 3))
    b = g("Relu", g.conv(g("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), 16, 24, 3))
    g.output(a, 4)
    g.output(g("Relu", g.conv(b, 24, 24, 3)), 4)
    return g.model()


MODELS = {"chain": chain, "residual": residual, "enlarging": enlarging}


@dataclass
class Prepared:
    """A model up to the tile stage, whose groups from ``first`` to ``last`` can be one tile group."""

    build: Build
    source: TwinSource
    program: Program
    first: int
    last: int

    def plan(self, rows: int, columns: int | None, bands: int, quantum: int = 1) -> OpenTilePlan:
        """The plan of its groups."""
        quanta = {v: quantum for g in self.program.groups for v in g.outputs}
        tiles = Tiles(rows, columns, bands, cores=2, quanta=quanta, kept=self.source.kept)
        return self.source.of(self.program, self.first, self.last, tiles)

    def sizes(self, random: Any, most: int) -> dict[str, int]:
        """Random sizes of the symbols."""
        assert self.build.imported is not None
        return {s.name: random.randint(max(1, s.least), most) for s in self.build.imported.symbols}


def prepared(model: onnx.ModelProto) -> Iterator[Prepared]:
    """The model up to the tile stage, for as long as its symbols are known."""
    build = Build(model, Options(target=resolve("x86-64-v3"), threads=2), None, 0, None, None)
    with pipeline.no_symbols():
        for stage in STAGES[: STAGES.index("tile")]:
            pipeline._STAGE_FUNCTIONS[stage](build)
        assert build.imported is not None
        twins = Twins({s.name: s.typical for s in build.imported.symbols})
        source = TwinSource(twins, build.layouts, build.places, build.target, build.options.policy, 2)
        program = source.program(build.groups, (*build.graph.inputs, *build.graph.outputs))
        last = len(build.groups) - 1
        first = min(f for f in range(last + 1) if _plans(source, program, f, last))
        yield Prepared(build, source, program, first, last)


def _plans(source: TwinSource, program: Program, first: int, last: int) -> bool:
    try:
        source.of(program, first, last, Tiles(4, None))
    except Untileable:
        return False
    return True

"""The direct convolution in register tiles as a choice: whatever no other algorithm computes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...words.choice import AlgorithmRefusal, Choice
from ...words.group import Kernel, Request, Value
from ..algorithm import ConvAlgorithm
from ..facts import ConvFacts
from ..register_tile import Tile, best_tiles
from ..residual_in_place import taken_over
from ..winograd.cost import direct_cycles
from ..winograd.plan import Layer
from .kernel import (
    build_direct,
    has_left_over,
    has_narrow,
    own_tile,
    own_window,
    rest_of,
    shared_space,
    tile_space,
)
from .tile_set import tile_set


class Direct(ConvAlgorithm):
    name = "direct"
    any_size = True
    boxes_in_place = True

    def offers(self, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
        return self.choice(own_tile(request, facts))

    def build(self, request: Request, facts: ConvFacts, plan: Tile) -> Kernel:
        return replace(build_direct(request, facts, plan), inplace=self.overwrites(request, facts, plan))

    def label(self, plan: Tile) -> str:
        return f"direct {plan}"

    def smaller(self, plan: Tile, least: tuple[int, int], times: int) -> Tile | None:
        return plan.smaller(times)

    def peers(self, request: Request, facts: ConvFacts, plan: Tile) -> Sequence[tuple[Tile, float]]:
        box = request.box
        if box is None or not box.spread or request.limits.once or plan.parts > 1:
            return ()
        space = shared_space(request, facts)
        return tile_set(request.target, space, box.spread_of(space.height, space.width), plan)

    def expected(self, request: Request, facts: ConvFacts, plan: Tile, images: int) -> float:
        return direct_cycles(request.target, facts, Layer.of_images(facts, images))

    def candidates(self, request: Request, facts: ConvFacts) -> Iterable[Sequence[Tile]]:
        space = replace(tile_space(request, facts), window=own_window(request, facts))
        return (best_tiles(request.target, space),)

    def overwrites(self, request: Request, facts: ConvFacts, plan: Tile) -> tuple[Value, ...]:
        if facts.sizes is not None:
            return ()  # the last tile of a row computes some outputs again
        rows = 1 if has_left_over(request, facts) else plan.rows  # none is computed again
        rest = rest_of(request, facts, plan)
        columns = math.lcm(plan.columns, rest.columns if rest is not None else 1)
        return taken_over(request, facts, (rows, 1 if has_narrow(request, facts) else columns))

"""The pass: linear maps change places where that saves work, until none does; with a target, where it fills lanes.

Results differ by rounding. A value that is infinite or NaN leaves a value that is one or the other, but which can
change, as it can in Winograd's algorithm: `exact` turns both off.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial

from tvm.ir import IRModule

from ...targets.target import Target
from ..result import Result
from ..sweep import Rule, closed, opened, sweep
from .compose import WeightProducts, compose
from .extremes import extreme_as_it_lies
from .group_norms import groups_by_channels
from .images import as_image
from .lines import gains, line_as_image
from .resizes import resize_later
from .shuffles import phases_side_by_side, whole_blocks
from .tokens import before_tokens, image_of_tokens, tokens_of_image

_RULES: dict[str, Rule] = {
    "resize-later": resize_later,
    "extreme-as-it-lies": extreme_as_it_lies,
    "groups-by-channels": groups_by_channels,
    "as-image": as_image,
}
_RULES_OF_BLOCKS: dict[str, Rule] = {
    "tokens-of-image": tokens_of_image,
    "before-tokens": before_tokens,
    "image-of-tokens": image_of_tokens,
}
_RULES_OF_LANES = {"phases-side-by-side": phases_side_by_side, "whole-blocks": whole_blocks}


@dataclass(frozen=True)
class Reassociate:
    """The pass that changes the order of linear maps. ``enabled=False`` leaves all as they are."""

    enabled: bool = True
    name: str = "reassociate"

    def apply(self, module: IRModule, target: Target | None = None) -> Result:
        """``module`` with linear maps in the order of the least work; with ``target``, also with channels in the order
        that fills its vectors, and images turned where they lie in blocks of these."""
        if not self.enabled or (found := opened(module)) is None:
            return Result(module, False)
        function, graph = found
        done: Counter[str] = Counter()
        rules: dict[str, Rule] = {**_RULES, "compose": partial(compose, products=WeightProducts())}
        if gains(graph.order()):
            rules["line-as-image"] = line_as_image
        if target is not None:
            rules |= {name: partial(rule, target=target) for name, rule in _RULES_OF_LANES.items()} | _RULES_OF_BLOCKS
        while sweep(graph, rules, done):  # each saves multiply-adds, transposes or puts channels in order, so this ends
            pass
        return closed(module, function, graph, self.name, done)

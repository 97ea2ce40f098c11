"""The pass: sums of products of bytes, which models compute in float32 between scales, become sums in int32.

Nothing is known of where numbers come from: whatever is bytes less a whole number, times weights that are multiples of
few steps, is such a sum. Where the target has no instruction for it (:mod:`...schedules.instructions.int8_dot`),
nothing is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tvm.ir import IRModule

from ...schedules.instructions.int8_dot import data_dtype
from ...targets.target import Target
from ..result import Result
from ..simplify.common import share_common
from ..simplify.graph import GraphNode
from ..sweep import Build, Rule, closed, opened, sweep
from .convolutions import dot_conv, joined_conv
from .products import product_of_bytes
from .quotients import moved, quotient, rounded
from .tables import byte_table
from .whole import parts_together, whole_again

#: What to build in a node's place; ``exact``: only where every bit stays as it is.
_Rule = Callable[[Target, bool, GraphNode], "Build | None"]
_CONVOLUTIONS = {"joined convolutions": joined_conv, "convolutions": dot_conv}
_RULES: dict[str, _Rule] = {
    **_CONVOLUTIONS,
    "products": product_of_bytes,
    "joined products": parts_together,
    "whole sums": whole_again,
    "tables": byte_table,
    "quotients": quotient,
    "rounded": rounded,
    "moved": moved,
}


@dataclass(frozen=True)
class Dots:
    """``enabled=False`` leaves all sums in float32. ``exact``: only sums that are whole numbers as they are, for scales
    that move out of sums round otherwise. ``borders``: also convolutions around whose data lies another byte than 0,
    which are computed whole: no tile group has them. ``winograd``: what its algorithm computes faster in float32 is
    left to it."""

    enabled: bool = True
    exact: bool = False
    borders: bool = True
    winograd: bool = False
    name: str = "dots"

    def apply(self, module: IRModule, target: Target | None = None) -> Result:
        """``module`` with its sums of quantised data as sums of products of bytes in int32."""
        if not self.enabled or target is None or data_dtype(target) is None or (found := opened(module)) is None:
            return Result(module, False)
        function, graph = found
        done: Counter[str] = Counter()
        rules: dict[str, Rule] = {name: partial(rule, target, self.exact) for name, rule in _RULES.items()}
        for name, rule in _CONVOLUTIONS.items():
            rules[name] = partial(rule, target, self.exact, borders=self.borders)
        if self.winograd and not self.exact:
            rules["convolutions"] = partial(dot_conv, target, False, borders=self.borders, winograd=True)
        while sweep(graph, rules, done):  # nothing that is made matches again
            share_common(graph)  # zero points that several products read
        return closed(module, function, graph, self.name, done)

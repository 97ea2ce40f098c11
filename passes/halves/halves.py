"""The pass: products, and what runs beside them, in float16; casts where float32 begins.

    x -> conv -> relu -> softmax            ->     cast16 -> conv16 -> relu16 -> cast32 -> softmax

- Convolutions and products by constant matrices become products of float16 numbers (their sums: schedules/kernel/
  half_sums.py).
- Both products of an attention do where its queries or keys are float16 numbers (:mod:`.attentions`).
- Sums, products and extremes of a few values, pools of the largest and moves follow what they read.
- All else stays in float32: norms, softmax, exponentials, means. It reads casts, which fusion computes in its loads or
  in the stores before it, so that float16 is what lies in memory.

A layer stays in float32 where a number that it reads, sums or makes may leave float16's range, whose end is 65,504:
``largest`` knows by a node of the model the largest magnitude around it, of which ROOM times as much has to fit, and
what sums of a product's terms can become by it (:mod:`.partial_sums`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from ...schedules.conv.winograd.transform import HALF2
from ...schedules.math.float16 import ERROR
from ...schedules.words.half_error import HalfError
from ...schedules.words.policy import ANY, Policy
from ...targets.target import Target
from ..result import Result
from ..simplify.convert import replace_main, write
from ..simplify.graph import CONST, INPUT, GraphNode
from ..simplify.rule import RewriteBuilder
from ..sweep import opened
from .attentions import WeighedValues, weighed_values
from .partial_sums import SEVEN, most_of_sums
from .pays import slower
from .spread import most_growth

HALF, WIDE = "float16", "float32"
END = 65504.0  # of the range
ROOM = 16.0  # times the largest magnitude that was seen has to lie in the range
PRODUCTS = frozenset(
    ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d", "halotile.conv_transpose", "relax.matmul")
)
MAPS = frozenset(
    (
        *("relax.add", "relax.subtract", "relax.multiply", "relax.maximum", "relax.minimum"),
        *("relax.nn.relu", "relax.nn.leakyrelu"),
    )
)
MOVES = frozenset(
    (
        *("relax.reshape", "relax.permute_dims", "relax.expand_dims", "relax.squeeze", "relax.concat"),
        *("relax.strided_slice", "relax.nn.max_pool1d", "relax.nn.max_pool2d", "relax.nn.max_pool3d"),
    )
)
BYTES = frozenset(("halotile.dot_conv",))


@dataclass(frozen=True)
class Halves:
    """``largest``: the largest magnitude of what a node of the model reads and makes, by its name; None where nothing
    was measured, so that nothing is computed in float16. ``policy``: what float32 may do to be as fast. ``error``: what
    outputs are expected to be off by, and what stays more exact for it, where that is known."""

    largest: Mapping[str, float] | None = None
    policy: Policy = ANY
    error: HalfError | None = None
    name: str = "halves"

    def apply(self, module: IRModule, target: Target | None = None) -> Result:
        """``module`` with layers in float16, where ``target`` computes in it."""
        if target is None or (found := opened(module)) is None:
            return Result(module, False)
        if not target.has_halves:
            return Result(module, False, (f"all layers stay in float32: {target.id} does not compute in float16",))
        function, graph = found
        if any(n.op in BYTES or n.dtype == "int8" and n.op == CONST for n in graph.order()):
            return Result(module, False, ("all layers stay in float32: some are in bytes already",))
        known, error = self.largest or {}, self.error
        if error is not None and (why := error.why_none):
            return Result(module, False, (f"all layers stay in float32: {why}",))
        order = graph.order()
        attentions = {} if self.policy.layers is not None else weighed_values(order)
        work = _HalvesWork(graph, known, self.policy, attentions, error)
        able = [n for n in order if is_product(n) and work.why_not(n, True) is None]
        chosen = self.policy.layers is not None  # by what layers without transforms round
        growth = 0.0 if chosen else most_growth(order, graph.outputs, able, work.has_room_for_seven(able))
        small = error is not None and error.small
        target = replace(target, half_growth=min(growth, HALF2.growth) if small else growth)
        if why := slower(able, target, self.policy, chosen):
            return Result(module, False, (f"all layers stay in float32: {why}",))
        for node in order:
            work.visit(node)
        if not work.made:
            return Result(module, False, tuple(work.notes))
        work.close()
        count, of = work.done["products"], work.done["products"] + work.done["left"]
        details = {"in_float16": count, "products": of, "left": dict(work.left), "growth": target.half_growth}
        if attentions:
            details["attentions"] = work.done["attentions"]
            work.notes.insert(0, f"so are those of {work.done['attentions']} of {len(attentions)} attentions")
        if error is not None:
            details |= {"expected": error.expected, "allowed": error.allowed, "of_all": error.throughout or 0.0}
        if error is not None and error.throughout is not None:
            told = f"outputs would be off by about {error.throughout:.1e}, {error.allowed:g} is allowed"
            work.notes.insert(0, f"no transform is larger than {HALF2}: {told}")
        notes = (f"{count} of {of} products are computed in float16", *work.notes)
        return Result(replace_main(module, write(graph, function)), True, notes, details)


@dataclass
class _HalvesWork:
    graph: Any
    largest: Mapping[str, float]
    policy: Policy
    attentions: Mapping[GraphNode, WeighedValues]  # by their scores
    error: HalfError | None = None
    mixed: set[GraphNode] = field(default_factory=set)  # products of weights and values, in float16
    half: dict[GraphNode, GraphNode] = field(default_factory=dict)  # of a value in float32: the same in float16
    made: list[GraphNode] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def visit(self, node: GraphNode) -> None:
        """``node`` in float16, if it may be; else reading casts of what is."""
        if node.op in (INPUT, CONST, "removed"):
            return
        if node in self.attentions and self._weighs(self.attentions[node]):
            self._narrow_scores(node)
            return
        if node in self.mixed:
            self._narrow(node)
            return
        product = is_product(node)
        why = self.why_not(node, product)
        if why is None:
            self._narrow(node)
            self.done["products"] += product
            return
        if product:
            self.done["left"] += 1
            self.left[node.place] = why
            self.notes.append(f"{node.place} stays in float32: {why}")
        if any(map(self._is_made, node.inputs)):
            self._widen(node)

    def _weighs(self, attention: WeighedValues) -> bool:
        """Whether the products of ``attention``, the first of which is visited, are in float16."""
        if not any(map(self._is_made, attention.scores.inputs)):
            return False
        why = attention.why_not(self.largest, ROOM, END)
        if why:
            self.notes.append(f"the attention at {attention.mixed.place} stays in float32: {why}")
            return False
        self.mixed.add(attention.mixed)
        self.done["attentions"] += 1
        return True

    def _narrow_scores(self, node: GraphNode) -> None:
        """Lets all that reads the product ``node`` read one of float16, widened."""
        b = RewriteBuilder(self.graph, node)
        made = b.same(node, *(self._in_half(b, i) for i in node.inputs))
        wide = _cast(b, made, WIDE)
        made.sources = wide.sources = node.sources
        self.graph.substitute(node, wide)
        self.made += [*b.created, node]

    def why_not(self, node: GraphNode, product: bool) -> str | None:
        """Why ``node`` stays in float32; None if it does not. (Empty: it is none of those that could.)"""
        if not product and node.op not in MAPS and node.op not in MOVES:
            return ""
        if node.dtype != WIDE or any(i.dtype != WIDE for i in node.inputs):
            return ""
        if product and self.policy.layers is not None and self.policy.precision_of(node.sources) != HALF:
            return "the error's limit leaves it so"
        if product and self.error is not None and not set(node.sources).isdisjoint(self.error.stay):
            return self.error.why_some
        if not node.static:
            return "its shape is open"
        if not product and not any(map(self._is_made, node.inputs)):
            return ""
        if node.op == "relax.matmul" and (node.inputs[1].rank != 2 or node.inputs[0].rank < 2):
            return "its weights are no matrix"
        if any(i.op == CONST and not _fits(i.array) for i in node.inputs):
            return "its constants leave float16's range, or lose digits in it"
        names = [n for i in (node, *node.inputs) for n in i.sources] if node.op in MAPS else list(node.sources)
        seen = [self.largest[n] for n in names if n in self.largest]
        if not seen and node.op not in MOVES:
            return "nothing is known of the size of its numbers"
        if seen and not ROOM * max(seen) <= END:
            return f"its numbers reach {max(seen):.3g}, and float16's range ends at {END:,.0f}"
        if product and (sums := most_of_sums(node, self.largest)) > END:
            return f"sums of some of its terms could reach {sums:.3g}, and float16's range ends at {END:,.0f}"
        return None

    def has_room_for_seven(self, products: Sequence[GraphNode]) -> bool:
        """True if the sums of seven products of halves stay in the range in all of ``products``, which are able to be
        in float16."""
        return all(SEVEN * most_of_sums(node, self.largest) <= END for node in products)

    def _narrow(self, node: GraphNode) -> None:
        b = RewriteBuilder(self.graph, node)
        inputs = [self._in_half(b, i) for i in node.inputs]
        made = b.same(node, *inputs)
        made.sources = node.sources
        self.made += b.created
        self.half[node] = made

    def _in_half(self, b: RewriteBuilder, value: GraphNode) -> GraphNode:
        if value not in self.half:
            fresh = b.const(value.array.astype(np.float16)) if value.op == CONST else _cast(b, value, HALF)
            if value.op != CONST:
                fresh.sources = value.sources
            self.half[value] = fresh
        return self.half[value]

    def _widen(self, node: GraphNode) -> None:
        """Lets ``node``, which stays in float32, read casts of its own."""
        b = RewriteBuilder(self.graph, node)
        fresh = {}
        for value in dict.fromkeys(node.inputs):
            if self._is_made(value):
                fresh[value] = _cast(b, self.half[value], WIDE)
                fresh[value].sources = value.sources
        for old, new in fresh.items():
            _read_instead(node, old, new)
        self.made += b.created

    def _is_made(self, value: GraphNode) -> bool:
        """True for a value whose float16 form is computed as such, rather than cast from it."""
        return value in self.half and self.half[value].op not in ("relax.astype", CONST)

    def close(self) -> None:
        """Lets outputs be casts, and removes what nobody reads."""
        for value in list(dict.fromkeys(self.graph.outputs)):
            if self._is_made(value):
                b = RewriteBuilder(self.graph, value)
                wide = _cast(b, self.half[value], WIDE)
                wide.sources, wide.name = value.sources, value.name
                self.graph.outputs = [wide if o is value else o for o in self.graph.outputs]
                wide.outputs, value.outputs = value.outputs, 0
                self.made += b.created
        self.graph.remove_unused([*self.half, *self.made])


def is_product(node: GraphNode) -> bool:
    """True for a product of floats by constants."""
    if node.op not in PRODUCTS or len(node.inputs) != 2:
        return False
    weight = node.inputs[1]
    return node.dtype == WIDE and weight.op == CONST and weight.dtype == WIDE


def _read_instead(node: GraphNode, old: GraphNode, new: GraphNode) -> None:
    """Makes ``node`` read ``new`` where it read ``old``."""
    node.inputs = [new if i is old else i for i in node.inputs]
    new.users[node] = new.users.get(node, 0) + old.users.pop(node)


def _cast(b: RewriteBuilder, value: GraphNode, dtype: str) -> GraphNode:
    return b.call(relax.op.astype, value, dtype)


def _fits(array: np.ndarray) -> bool:
    """True for constants that float16 holds to the last of its digits, those near zero beside larger ones aside."""
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    if array.size == 0 or not np.isfinite(half).all():
        return array.size == 0
    return float(np.abs(half.astype(np.float32) - array).max()) <= ERROR * float(np.abs(array).max())



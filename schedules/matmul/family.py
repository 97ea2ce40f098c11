"""The family of matrix products, and what passes ask about them."""

from __future__ import annotations

from dataclasses import replace

from ..instructions.int8_dot import PAIRS
from ..words.candidates import conditions, decide, own_first
from ..words.choice import AlgorithmRefusal, Choice
from ..words.family import Family
from ..words.group import Group, Kernel, Node, Request
from ..words.sizes import usual
from .facts import MatmulFacts
from .folded_moves import along_memory, moved_only, outgoing, producers
from .select import algorithm_of, candidates, considered, select

FLOATS = ("float32", "float64", "float16")


def is_product(node: Node) -> bool:
    """True for floating-point operands of one dtype, or bytes by constant bytes, at least 2-D, none of them empty."""
    if node.operator != "relax.matmul":
        return False
    facts = MatmulFacts.of(node)
    return (
        len(facts.a.shape) >= 2
        and len(facts.b.shape) >= 2
        and (_floats(facts) or _bytes(facts))
        and facts.output.elements != 0
        and facts.k != 0
        and len(facts.output.shape) == max(len(facts.a.shape), len(facts.b.shape))
    )


def _floats(facts: MatmulFacts) -> bool:
    return facts.a.dtype == facts.b.dtype == facts.output.dtype and facts.output.dtype in FLOATS


def _bytes(facts: MatmulFacts) -> bool:
    """Which type of data a target takes, the pass that makes such products knows."""
    narrow = facts.a.dtype in ("int8", "uint8", PAIRS) and facts.b.dtype == "int8" and facts.output.dtype == "int32"
    return narrow and facts.packs and facts.flat


def moves_problem(group: Group) -> str:
    """Why a group around one product can't be one kernel; empty if it can: only moves lie before the left operand, and
    what lies behind the result still runs along memory."""
    anchor = group.anchor
    assert anchor is not None
    facts = MatmulFacts.of(anchor)
    before = producers(group, facts.a)
    if producers(group, facts.b):
        return "the right operand is read in place or packed ahead"
    if any(v in group.outputs for n in before for v in n.results):
        return "what is moved is used elsewhere"
    if before and facts.of_bytes:
        return "words of bytes are read where they lie"
    if before and not moved_only(group, anchor, facts.a):
        return "the left operand is computed, or its elements lie apart"
    places = outgoing(group, anchor)
    if places is None:
        return "the elements behind it mix"
    if not all(along_memory(facts.output, places[v], v) for v in group.outputs):
        return "the last axis would lie apart"
    return ""


def makes_one_column(request: Request) -> bool:
    """True if the right operand is one column and the left one lies along it: sums along memory, for which the general
    generator fills its vectors. Register tiles would use one lane of each: 256x64x1 takes 0.15 of the time so."""
    assert request.group.anchor is not None
    facts = MatmulFacts.of(request.group.anchor)
    long = usual(facts.k) >= 2 * request.target.lanes(facts.output.dtype)
    return facts.n == 1 and long and not facts.of_bytes and not producers(request.group, facts.a)


class PlainProducts(Family):
    """One product of plain operands whose result is plain. The first algorithm that offers to computes it, or what was
    measured to be faster."""

    name = "matrix product"

    def takes(self, request: Request) -> bool:
        return is_plain_product(request) and not makes_one_column(request)

    def select(self, request: Request) -> Choice:
        facts = _facts(request)
        own = select(request, facts)
        if request.policy.tuning is None:
            return own
        return decide(request, _key(request, facts), own_first(own, candidates(request, facts)))

    def considered(self, request: Request) -> list[Choice | AlgorithmRefusal]:
        return considered(request, _facts(request))

    def build(self, request: Request) -> Kernel:
        facts = _facts(request)
        choice = request.choice or self.select(request)
        kernel = algorithm_of(choice, facts).build(request, facts, choice.plan)
        return replace(kernel, decision=choice.decision, notes=(*kernel.notes, *choice.notes))


def is_plain_product(request: Request) -> bool:
    """True for a group around a product that reads and writes plain memory only."""
    group = request.group
    values = (*group.inputs, *group.outputs)
    return group.anchor is not None and is_product(group.anchor) and all(request.layout(v).is_plain for v in values)


PRODUCTS = PlainProducts()


def _facts(request: Request) -> MatmulFacts:
    assert request.group.anchor is not None
    return MatmulFacts.of(request.group.anchor)


def _key(request: Request, facts: MatmulFacts) -> str:
    """Everything about the product that its time depends on, but for what is fused around it."""
    shapes = ("x".join(map(str, v.shape)) for v in (facts.a, facts.b, facts.output))
    kind = "constant" if facts.b.constant is not None else "variable"
    moved = ", moved" if producers(request.group, facts.a) else ""
    dtype = f"{facts.a.dtype} to int32" if facts.of_bytes else facts.output.dtype
    return f"matmul {dtype} {' '.join(shapes)} {kind}{moved}, {conditions(request)}"

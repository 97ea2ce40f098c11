"""The families of convolutions and of transposed ones, and what layouts, estimates and boxes ask about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..instructions.int8_dot import FEW as FEW_CHANNELS
from ..words.candidates import decide
from ..words.choice import AlgorithmRefusal, Choice
from ..words.dims import is_open
from ..words.family import Family, OneWay
from ..words.group import Box, Group, Kernel, Node, Request, Value
from .box_cost import Costing, MemberCost, direct_cost
from .candidates import candidates, decision_key
from .direct.algorithm import Direct
from .direct.few_outputs import writes_plain
from .direct.kernel import once_pays, own_tile
from .facts import BYTES, OPERATORS, ConvFacts
from .residual_in_place import has_residual
from .select import algorithm_of, considered, select
from .transposed import build_transposed, margins_of

TRANSPOSED = "halotile.conv_transpose"
BOX_ROWS = 4  # of the boxes by which it is decided whether they write over what they read


@dataclass(frozen=True)
class InputNeeds:
    """What a convolution wants of the tensor it reads: margins that hold ``fill``, and channel blocks, where there are
    ``few`` channels, of so many (0: none)."""

    data: Value
    depthwise: bool
    margins: tuple[tuple[int, int], ...]
    fill: int = 0
    few: int = 0


def supports_conv(node: Node) -> bool:
    """True for a floating-point convolution, transposed or not, or one of bytes, with constant weights and a non-empty
    output."""
    if node.operator == BYTES:
        return node.operands[1].constant is not None and all(v.elements != 0 for v in (*node.inputs, *node.results))
    if node.operator not in (*OPERATORS, TRANSPOSED) or len(node.operands) != 2:
        return False
    data, weight, output = node.operands[0], node.operands[1], node.results[0]
    return (
        weight.constant is not None
        and data.dtype == weight.dtype == output.dtype
        and output.dtype in ("float32", "float64", "float16")
        and 0 not in (output.elements, weight.elements, data.elements)
        and (node.operator == TRANSPOSED or str(node.call.attrs.data_layout).startswith("NC"))
    )


def builds_conv(group: Group, block: Callable[[Value], int]) -> bool:
    """True if a kernel of a family here computes the group in layouts of so many lanes (0: plain)."""
    if group.anchor is None or not supports_conv(group.anchor):
        return False
    return block(group.outputs[0]) > 0 or writes_plain(group, block)


def input_needs(node: Node) -> InputNeeds:
    """What a node that :func:`supports_conv` asks of its input's layout: margins, and blocks or not."""
    if node.operator == TRANSPOSED:
        return InputNeeds(node.operands[0], False, margins_of(node))
    facts = ConvFacts.of(node)
    few = FEW_CHANNELS if facts.of_bytes else 0
    return InputNeeds(facts.data, facts.is_depthwise, facts.margins(), facts.fill, few)


class Convolutions(Family):
    """Convolutions in layouts that :func:`builds_conv` accepts, whose input has the margins of :func:`input_needs`. The
    algorithm of the fewest cycles computes one, or what was measured to be faster."""

    name = "convolution"

    def takes(self, request: Request) -> bool:
        group = request.group
        return not _is_transposed(group) and builds_conv(group, lambda v: request.layout(v).block)

    def select(self, request: Request) -> Choice:
        facts = _facts(request)
        own = select(request, facts)
        if request.box is None and request.policy.tuning is not None:
            return decide(request, decision_key(request, facts), candidates(request, facts, own))
        return own

    def considered(self, request: Request) -> list[Choice | AlgorithmRefusal]:
        return considered(request, _facts(request))

    def build(self, request: Request) -> Kernel:
        choice = request.choice or self.select(request)
        kernel = algorithm_of(choice).build(request, _facts(request), choice.plan)
        return replace(kernel, decision=choice.decision, notes=(*kernel.notes, *choice.notes))

    def smaller(self, choice: Choice, least: tuple[int, int], times: int) -> Choice | None:
        plan = algorithm_of(choice).smaller(choice.plan, least, times)
        return None if plan is None else replace(choice, plan=plan)

    def peers(self, request: Request, choice: Choice) -> list[tuple[Choice, float]]:
        found = algorithm_of(choice).peers(request, _facts(request), choice.plan)
        return [(replace(choice, plan=plan), cycles) for plan, cycles in found]

    def larger(self, request: Request, choice: Choice) -> Choice:
        return replace(choice, plan=algorithm_of(choice).larger(request, _facts(request), choice.plan))

    def pays(self, request: Request, choice: Choice, images: int) -> bool:
        return algorithm_of(choice).pays(request, _facts(request), choice.plan, images)

    def expected(self, request: Request, choice: Choice, images: int) -> float | None:
        return algorithm_of(choice).expected(request, _facts(request), choice.plan, images)

    def transforms(self, choice: Choice, other: Choice) -> bool:
        one, two = (algorithm_of(c).form(c.plan) for c in (choice, other))
        return one not in (two, algorithm_of(choice).name)


def _is_transposed(group: Group) -> bool:
    return group.anchor is not None and group.anchor.operator == TRANSPOSED


def _takes_transposed(request: Request) -> bool:
    group = request.group
    return _is_transposed(group) and builds_conv(group, lambda v: request.layout(v).block)


CONVOLUTIONS = Convolutions()
TRANSPOSED_CONVOLUTIONS = OneWay("phases of a transposed convolution", _takes_transposed, build_transposed)


def _facts(request: Request) -> ConvFacts:
    assert request.group.anchor is not None
    facts = ConvFacts.of(request.group.anchor)
    if request.box is not None:
        return facts.cut(request.box.rows, request.box.columns)
    return facts.usually() if is_open(facts.output.shape) else facts


def chosen(request: Request) -> Choice | None:
    """What an estimate takes of the algorithms for convolutions: the request's choice, else that of the fewest cycles;
    None for a group that none of them computes."""
    anchor = request.group.anchor
    if anchor is None or anchor.operator == TRANSPOSED:
        return None
    if not builds_conv(request.group, lambda v: request.layout(v).block):
        return None
    return request.choice or select(request, _facts(request))


def times_loaded(request: Request) -> float | None:
    """How often the kernel loads an element of the convolution's data as a part of a vector of channels, on average;
    None where it loads single elements, or no algorithm of the list computes the request."""
    choice = chosen(request)
    return None if choice is None else algorithm_of(choice).loads(_facts(request), choice.plan)


def overwritten(request: Request) -> tuple[Value, ...]:
    """The inputs whose memory the output of a group that :func:`supports_conv` may take, without building it."""
    anchor = request.group.anchor
    assert anchor is not None
    if not _may_overwrite(request):
        return ()
    facts = ConvFacts.of(anchor)
    choice = select(request, facts)
    return algorithm_of(choice).overwrites(request, facts, choice.plan)


def _may_overwrite(request: Request) -> bool:
    """False where no kernel of the request writes its output over an input: plain outputs, which other threads than
    those that add the residual write; phases of a transposed convolution; no residual."""
    group = request.group
    assert group.anchor is not None
    blocked = request.layout(group.outputs[0]).block > 0
    return blocked and group.anchor.operator != TRANSPOSED and has_residual(request)


def overwritten_in_boxes(request: Request, unit: int | None = None) -> tuple[Value, ...]:
    """The inputs whose windows the output's may be, in a tile group whose boxes have multiples of ``unit`` columns
    (None: all): where register tiles that compute no output twice take hardly longer."""
    group, anchor = request.group, request.group.anchor
    if anchor is None or not builds_conv(group, lambda v: request.layout(v).block) or not _may_overwrite(request):
        return ()
    if len(group.outputs[0].shape) != 4:
        return ()
    height, width = group.outputs[0].shape[2:]
    box = Box(max(1, min(BOX_ROWS, height)), width, frozenset(group.outputs), True)
    request = replace(request, box=box, limits=replace(request.limits, once=unit or width))
    facts = ConvFacts.of(anchor).cut(box.rows, box.columns)
    choice = select(request, facts)
    if not algorithm_of(choice).boxes_in_place:
        return ()
    direct = Choice(Direct.name, own_tile(request, facts))  # which lower boxes may be computed by
    if choice.algorithm == Direct.name and not once_pays(request, facts):
        return ()
    fitting = [algorithm_of(c).overwrites(request, facts, c.plan) for c in (choice, direct)]
    return tuple(v for v in group.inputs if all(v in f for f in fitting))


def conv_cost(request: Request, ask: Costing) -> MemberCost:
    """What the convolution costs by the algorithm that :class:`Convolutions` takes; register tiles stand for the
    general generator, which builds the others."""
    choice = chosen(request)
    if choice is None:
        return direct_cost(ask)
    return replace(algorithm_of(choice).cost(ask, choice.plan), algorithm=choice.algorithm)

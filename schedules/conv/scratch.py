"""How much memory a convolution that is computed whole holds beside what it reads and writes, and what less costs.

``room`` of a request's limits is the most bytes that each core may hold so: of the transform's plans the fastest that
fits is taken (smaller strips, smaller tiles), products of halves if their left operands fit, and the direct
convolution, which holds nothing, where neither does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..words.group import Request, Value
from .algorithm import Held
from .amx.transposed import together_bytes
from .facts import ConvFacts
from .family import TRANSPOSED, builds_conv, overwritten, supports_conv
from .select import algorithm_of, select
from .transposed import on_matrix_unit, phase_plans

PHASES = 2.0  # times as long as on a matrix unit, phases by multiply-adds


@dataclass(frozen=True)
class Beside:
    """What a layer holds and how long it takes with at most ``room`` bytes a core: ``bytes`` on all cores together, and
    ``share`` of the time with any number of them (for products of halves: of the direct form's time). Its output may
    take over ``overwritten``."""

    room: int | None = None
    bytes: int = 0
    share: float = 1.0
    overwritten: tuple[Value, ...] = ()


def besides(request: Request, less: bool) -> tuple[Beside, ...]:
    """What the kernel of a whole group holds; and if ``less``, what it would with less and less room."""
    anchor = request.group.anchor
    if anchor is None or not supports_conv(anchor):
        return (Beside(),)
    if anchor.operator == TRANSPOSED:
        return _phases(request, less)
    if not request.layout(request.group.outputs[0]).block or len(request.group.outputs[0].shape) < 4:
        return (Beside(),)  # it is left to the general generator
    facts = ConvFacts.of(anchor)
    choice = select(request, facts)
    found = algorithm_of(choice).holds(request, facts, choice.plan, less)
    return tuple(_with(request, held) for held in found)


def held_in_box(request: Request) -> int | None:
    """What the kernel of a box holds; None if only the kernel itself tells."""
    anchor = request.group.anchor
    assert request.box is not None
    if anchor is None or not builds_conv(request.group, lambda v: request.layout(v).block):
        return None
    if anchor.operator == TRANSPOSED:
        return 0
    facts = ConvFacts.of(anchor).cut(request.box.rows, request.box.columns)
    choice = select(request, facts)
    return algorithm_of(choice).held(request, facts, choice.plan)


def _phases(request: Request, less: bool) -> tuple[Beside, ...]:
    """Of a transposed convolution: phases on a matrix unit hold a strip, those by Winograd's algorithm its scratch,
    others nothing."""
    planned = on_matrix_unit(request)
    if planned is None:
        plans = phase_plans(request)
        if plans is None:
            return (Beside(),)
        found = Beside(bytes=plans.bytes, share=min(1.0, plans.share))
        return (found, _with(request, Held(0))) if less and plans.bytes else (found,)
    own = Beside(bytes=together_bytes(request, *planned))
    return (own, Beside(0, 0, PHASES)) if less else (own,)


def _with(request: Request, held: Held) -> Beside:
    limited = replace(request, limits=replace(request.limits, room=held.room))
    return Beside(held.room, held.bytes, held.share, overwritten(limited))

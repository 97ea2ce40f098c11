"""How much memory a convolution that is computed whole holds beside what it reads and writes, and what less costs.

``room`` of a request's limits is the most bytes that each core may hold so: of the transform's plans the fastest that
fits is taken (smaller strips, smaller tiles), products of halves if their left operands fit, and the direct
convolution, which holds nothing, where neither does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..instructions.amx import may_split
from ..words.group import Request, Value
from .amx.choose import MatrixPlan, float_cycles
from .amx.choose import held_bytes as matrix_bytes
from .amx.choose import smaller_plans as smaller_strips
from .amx.choose import workers_of as matrix_workers
from .amx.int8_choose import BytesPlan, vector_cycles
from .amx.int8_choose import held_bytes as bytes_held
from .amx.int8_choose import workers_of as bytes_workers
from .amx.transposed import together_bytes
from .candidates import HALVES
from .facts import ConvFacts
from .family import TRANSPOSED, builds_conv, overwritten, own_way, supports_conv
from .strassen import halves_bytes, halves_share
from .transposed import on_matrix_unit, phase_plans
from .winograd.choose import smaller_plans
from .winograd.cost import direct_cycles
from .winograd.kernel import workers_of
from .winograd.plan import Plan, held_bytes

PHASES = 2.0  # times as long as on a matrix unit, phases by multiply-adds
CLOSE = 0.9  # of the bytes of a faster way: nearer than that, a slower one is not worth a look


@dataclass(frozen=True)
class Beside:
    """With ``room`` a layer holds ``bytes`` on all cores together and takes ``share`` of what it takes with any number
    (for products of halves: of the direct form); its output may take over ``overwritten``."""

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
    way = own_way(request, facts)
    found = [Beside(None, overwritten=overwritten(request))]
    if way == HALVES:
        held, share = halves_bytes(request, facts), halves_share(request, facts)
        found = [replace(found[0], bytes=held, share=min(1.0, share or 1.0))]
        if less:
            found.append(_with(request, 0, 0, 1.0))
    if isinstance(way, MatrixPlan):
        return tuple(_strips(request, facts, way, found[0], less))
    if isinstance(way, BytesPlan):
        held = bytes_held(way) * bytes_workers(facts, way, request.workers)
        share = vector_cycles(request.target, facts, request.workers) / way.cycles
        return (replace(found[0], bytes=held), *([_with(request, 0, 0, share)] if less else []))
    if not isinstance(way, Plan):
        return tuple(found)
    lanes, target = request.layout(request.group.outputs[0]).block, request.target
    held = held_bytes(lanes, facts.channels, way)
    found = [replace(found[0], bytes=held * workers_of(request, facts, way))]
    if not less or not held:
        return tuple(found)
    last = held
    for held, plan in smaller_plans(target, facts, may_split(request)):
        if held <= CLOSE * last:
            last = held
            found.append(_with(request, held, held * workers_of(request, facts, plan), plan.cycles / way.cycles))
    if last:
        found.append(_with(request, 0, 0, direct_cycles(target, facts) / way.cycles))
    return tuple(found)


def held_in_box(request: Request) -> int | None:
    """What the kernel of a box holds; None if only the kernel itself tells."""
    anchor = request.group.anchor
    assert request.box is not None
    if anchor is None or not builds_conv(request.group, lambda v: request.layout(v).block):
        return None
    if anchor.operator == TRANSPOSED:
        return 0
    facts = ConvFacts.of(anchor).cut(request.box.rows, request.box.columns)
    way = own_way(request, facts)
    lanes = request.layout(request.group.outputs[0]).block
    if isinstance(way, MatrixPlan):
        return matrix_bytes(facts.channels, way)
    return held_bytes(lanes, facts.channels, way) if isinstance(way, Plan) else 0


def _phases(request: Request, less: bool) -> tuple[Beside, ...]:
    """Of a transposed convolution: phases on a matrix unit hold a strip, those by Winograd's algorithm its scratch,
    others nothing."""
    planned = on_matrix_unit(request)
    if planned is None:
        plans = phase_plans(request)
        if plans is None:
            return (Beside(),)
        found = Beside(bytes=plans.bytes, share=min(1.0, plans.share))
        return (found, _with(request, 0, 0, 1.0)) if less and plans.bytes else (found,)
    own = Beside(bytes=together_bytes(request, *planned))
    return (own, Beside(0, 0, PHASES)) if less else (own,)


def _strips(request: Request, facts: ConvFacts, plan: MatrixPlan, own: Beside, less: bool) -> list[Beside]:
    """On a matrix unit: with the strips it likes, and if ``less``, with smaller and smaller ones, and without."""

    def held(plan: MatrixPlan) -> int:
        return matrix_bytes(facts.channels, plan) * matrix_workers(facts, plan, request.workers)

    found = [replace(own, bytes=held(plan))]
    if not less:
        return found
    for smaller in smaller_strips(request.target, facts, request.workers, matrix_bytes(facts.channels, plan)):
        room = matrix_bytes(facts.channels, smaller)
        found.append(_with(request, room, held(smaller), smaller.cycles / plan.cycles))
    share = float_cycles(request.target, facts) * request.target.cores / request.workers / plan.cycles
    return [*found, _with(request, 0, 0, share)]


def _with(request: Request, room: int, held: int, share: float) -> Beside:
    limited = replace(request, limits=replace(request.limits, room=room))
    return Beside(room, held, share, overwritten(limited))

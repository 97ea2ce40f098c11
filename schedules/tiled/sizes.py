"""The memory that the kernel of a tile group takes, without building it: a budget is met by looking at many plans.

A part's own scratch follows from its box; where only the kernel of a part tells, it is built, once for all plans.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..conv import held_in_box
from ..dispatch import build_kernel
from ..words.alignment import aligned
from ..words.dims import maximum
from ..words.group import Box, Kernel, Packed, Request, Scratch, Value
from ..words.open_tile_plan import OpenTilePlan
from ..words.tile_plan import TilePlan
from .box_support import box_opens
from .kernel import GroupBuilder
from .open_tiles import open_requests

if TYPE_CHECKING:
    from ..words.tvm_types import Expr


@dataclass
class PartSizes:
    """(bytes of scratch, bytes of workspace) of kernels of parts by request, each found once."""

    known: dict[Request, tuple[int, int]] = field(default_factory=dict)

    def of(self, request: Request) -> tuple[int, int]:
        """(bytes of scratch, bytes of workspace) of the kernel that ``request`` asks for."""
        if request not in self.known:
            held = held_in_box(request)
            if held is None:
                kernel = build_kernel(request)
                each = [aligned(o.bytes) for o in kernel.operands if isinstance(o, Scratch)]
                self.known[request] = sum(each), kernel.workspace
            else:
                self.known[request] = held, 0
        return self.known[request]


def sized_tiled(plan: TilePlan, whole: Request, workers: int, sizes: PartSizes) -> Kernel:
    """The kernel that :func:`build_tiled` makes, as far as a memory plan looks at it: operands and bytes, but no
    function."""
    builder = GroupBuilder(plan, whole, workers)
    builder.prepare()
    most = workspace = 0
    for request, boxes, usual, steps in zip(builder.requests, builder.boxes, builder.usual, builder.steps):
        member = request.group
        windowed = frozenset(v for v in (*member.inputs, *member.outputs) if v in plan.windows)
        opens = len(boxes) > 1 and box_opens(request)
        parts = [Box(*usual, windowed, True)] if opens else [Box(*box, windowed, steps=steps) for box in boxes]
        for box in parts:
            scratch, work = sizes.of(replace(request, box=box))
            most, workspace = max(most, scratch), max(workspace, work)
    bytes_ = (aligned(plan.task_bytes) + most) * max(1, min(workers, len(plan.tasks)))
    if plan.sharing > 1:
        bytes_ = aligned(plan.task_bytes) + most * plan.sharing
    operands: tuple[Value | Packed | Scratch, ...] = (*plan.inputs, *plan.outputs, Scratch(bytes_))
    return Kernel(None, operands, plan.outputs, "sized", workspace=workspace, takes=plan.takes)


def sized_open_tiled(plan: OpenTilePlan, whole: Request, sizes: PartSizes) -> Kernel:
    """The kernel that :func:`.open_tiles.build_open_tiled` makes, as far as a memory plan looks at it: of the members'
    kernels, those for large boxes count."""
    most: Expr = 0
    workspace: Expr = 0
    for request in open_requests(plan, whole):
        scratch, work = sizes.of(request)
        most, workspace = maximum(most, scratch), maximum(workspace, work)
    operands: tuple[Value | Packed | Scratch, ...] = (*plan.inputs, *plan.outputs, Scratch(plan.bytes_with(most)))
    return Kernel(None, operands, plan.outputs, "sized", workspace=workspace)

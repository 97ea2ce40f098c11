"""A plan as plain data: what ``halotile inspect --plan`` prints and reports hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import several
from ...schedules.words.tile_plan import Compute, Copy, Fill, Shift, TilePlan

if TYPE_CHECKING:
    from ...schedules.words.group import Value
    from ...schedules.words.tvm_types import Attribute
    from ...targets.plain import Json


def plan_data(name: str, plan: TilePlan) -> Json:
    """``plan`` as plain data: members with the boxes they compute, values with their windows and modes, and the
    sums."""
    boxes: list[dict[tuple[int, int], int]] = [{} for _ in plan.members]
    fills = shifts = copies = 0
    for task in plan.tasks:
        for stripe in task.stripes:
            for step in stripe:
                if isinstance(step, Compute) and not plan.is_done(step):
                    size = step.rows[1] - step.rows[0], step.columns[1] - step.columns[0]
                    boxes[step.member][size] = boxes[step.member].get(size, 0) + 1
                fills += isinstance(step, Fill)
                shifts += isinstance(step, Shift)
                copies += isinstance(step, Copy)
    return {
        "name": name,
        "tasks": len(plan.tasks),
        "stripes": max((len(t.stripes) for t in plan.tasks), default=0),
        "tile": list(_tile(plan)),
        "bytes_per_task": plan.task_bytes,
        "extra_work": plan.extra_work,
        "fills": fills,
        "shifts": shifts,
        "copies": copies,
        "takes": [{"name": output.name, "over": value.name} for output, value in plan.takes.items()],
        "members": [
            {
                "name": g.name,
                "nodes": list(g.sources),
                "boxes": [{"rows": r, "columns": c, "count": n} for (r, c), n in sorted(b.items())],
            }
            for g, b in zip(plan.members, boxes)
        ],
        "values": [
            {
                "name": v.name,
                "node": next((n.place for n in g.nodes if v in n.results), v.name),
                "shape": list(v.shape),
                "mode": plan.modes.get(v, "whole"),
                **_window(plan, v),
            }
            for g in plan.members
            for v in g.outputs
        ],
    }


def _window(plan: TilePlan, value: Value) -> dict[str, Attribute]:
    window = plan.windows.get(value)
    if window is None:
        return {}
    n, c, rows, columns = window.layout.shape
    found = {"window": [n, c, rows, columns], "offset": window.offset}
    whole = plan.wholes.get(value)
    return found if whole is None else {**found, "part_of": whole.name}


def _tile(plan: TilePlan) -> tuple[int, int]:
    """The most frequent box of the last member."""
    counts: dict[tuple[int, int], int] = {}
    last = len(plan.members) - 1
    for task in plan.tasks:
        for stripe in task.stripes:
            for step in stripe:
                if isinstance(step, Compute) and step.member == last:
                    size = step.rows[1] - step.rows[0], step.columns[1] - step.columns[0]
                    counts[size] = counts.get(size, 0) + 1
    return max(counts, key=lambda s: (counts[s], s), default=(0, 0))


def plan_text(data: Json) -> str:
    """One plan, given as :func:`plan_data` has it, in lines for the terminal."""
    rows, columns = data["tile"]
    lines = [
        f"{data['name']}: tiles of {rows} x {columns}, {several(data['tasks'], 'task')} of up to "
        f"{several(data['stripes'], 'stripe')}, "
        f"{data['bytes_per_task']} bytes a task, work x {data['extra_work']:.3f}, {several(data['fills'], 'fill')}, "
        f"{several(data['shifts'], 'shift')}"
    ]
    for member in data["members"]:
        boxes = ", ".join(f"{b['count']} of {b['rows']} x {b['columns']}" for b in member["boxes"][:4])
        boxes = boxes or "its parts are computed in its window"
        more = len(member["boxes"]) - 4
        lines.append(f"  {member['name']}: {boxes}" + (f" and {more} other sizes" if more > 0 else ""))
        if member["nodes"]:
            lines.append(f"    of {', '.join(member['nodes'])}")
    for value in data["values"]:
        shape = ", ".join(map(str, value["shape"]))
        of = f" of {value['node']}" if value["node"] != value["name"] else ""
        text = f"  {value['name']}{of} [{shape}] {value['mode']}"
        if "window" in value:
            text += f", window {value['window'][2]} x {value['window'][3]} at byte {value['offset']}"
        if "part_of" in value:
            text += f", a part of {value['part_of']}'s"
        lines.append(text)
    lines += [f"  {taken['name']} may lie where {taken['over']} lies" for taken in data["takes"]]
    return "\n".join(lines)

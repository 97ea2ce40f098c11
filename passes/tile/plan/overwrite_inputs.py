"""Results of tile groups that lie where an input lay, which nobody reads afterwards.

    x -> conv -> conv -> y          in stripes from the top: rows 0 to 16 of y need rows 0 to 18 of x, rows 16 to 32
                                    only rows from 16 on, since rings have what lies above: y lies where x lies

(Known for offsets between both as "diagonal memory optimisation": Blacker, Bridges and Hadfield, 2020. Here both begin
at the same byte, since values in channel blocks have all rows of a block before those of the next one.)

That needs one task, which goes through all rows from the top; values of one shape and layout; and rows that nobody
reads any more once they are written. The layer that writes them may read them itself, at its own place, if its kernel
reads each element before it writes it: a residual that it adds. The plan only says that it may be so: the memory plan
decides, which knows what else lies in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....schedules.words.group import Group, Value
from ....schedules.words.layout import Layout
from ....schedules.words.tile_plan import Compute, Task
from .form import Form, Needs, clip


def takes_of(
    groups: Sequence[Group],
    outputs: Sequence[Value],
    tasks: Sequence[Task],
    layouts: Mapping[Value, Layout],
    form: Form,
    needs: Needs,
) -> dict[Value, Value]:
    """Output -> the input in whose memory it may lie, for outputs that lie whole: nobody reads the input afterwards
    (``form.dying``), both have the same layout, and no row is written before it was read for the last time."""
    found: dict[Value, Value] = {}
    if len(tasks) != 1:
        return found
    for output in outputs:
        for value in dict.fromkeys(v for g in groups for v in g.inputs):
            able = value in form.dying and value not in found.values() and alike(output, value, layouts)
            own = form.over.get(output) is value
            if able and _behind(groups, tasks[0], output, value, own, needs):
                found[output] = value
                break
    return found


def alike(one: Value, other: Value, layouts: Mapping[Value, Layout]) -> bool:
    """True if equal elements of both lie at equal bytes, and zeros between them as well: same shape, dtype and
    layout."""
    return one.shape == other.shape and one.dtype == other.dtype and layouts.get(one) == layouts.get(other)


def _behind(groups: Sequence[Group], task: Task, output: Value, value: Value, own: bool, needs: Needs) -> bool:
    """True if no row of ``output`` is written before ``value`` was read there for the last time. ``own``: the kernel
    that writes ``output`` may read ``value`` at its own place."""
    lowest = height = value.shape[2]  # of the rows that are read from a step on
    for step in (s for stripe in reversed(task.stripes) for s in reversed(stripe)):
        if not isinstance(step, Compute):
            continue
        group = groups[step.member]
        need = needs(group, value, step.rows, step.columns) if value in group.inputs else None
        if need is not None and output in group.outputs:  # its kernel must know, wherever it reads
            same = (need.rows, need.columns) == (step.rows, step.columns)
            if not own or not same or step.rows[1] > lowest:
                return False
            lowest = min(lowest, step.rows[0])
            continue
        if need is not None:
            lowest = min(lowest, clip(need.rows, height)[0])
        if output in group.outputs and step.rows[1] > lowest:
            return False
    return True

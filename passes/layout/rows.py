"""Rows that a step of a stream has kept: in channel blocks where they lie, and copied to those that follow them.

    all = concat(kept, new), axis 2        kept, an input, is plain     ->     kept' in channel blocks lies in all

Of a concatenation of rows the parts that are written elsewhere get a copy of their own: these are few, and what is
computed is many, which is written where it lies in the whole (:mod:`.slices`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...schedules.dispatch import works_on_plain
from ...schedules.words.group import Group, Value
from ...targets.target import Target
from ..fuse.outputs import copy_group
from .rename import reading
from .slices import ROWS


def place_rows(groups: Sequence[Group], blocks: dict[Value, int], bound: set[Value]) -> list[Group]:
    """``groups`` with such copies, whose channel blocks are noted; values in ``bound`` lie where they are."""
    bound = bound | {v for g in groups if works_on_plain(g) for v in g.outputs}
    close = {v for g in groups if works_on_plain(g) for v in g.inputs}
    made = {v for g in groups for v in g.outputs} - bound
    result: list[Group] = []
    placed: set[Value] = set()
    for group in groups:
        whole = _whole(group)
        if whole is None or whole in bound or whole in close:
            result.append(group)
            continue
        for part in dict.fromkeys(group.inputs):
            fits = blocks.get(part, 0) == blocks.get(whole, 0) and part in made - placed - close
            if fits and group.nodes[0].inputs.count(part) == 1:
                placed.add(part)
                continue
            fresh = Value(f"{part.name}.placed", part.shape, part.dtype)
            if blocks.get(whole, 0):
                blocks[fresh] = blocks[whole]
            result.append(copy_group(f"place_{part.name}", part, fresh, "rows that were kept, beside the new ones"))
            group = reading(group, part, fresh)
        result.append(group)
    return result


def kept_in_blocks(
    kept: Sequence[tuple[Value, Value]], groups: Sequence[Group], views: dict[Value, Value], target: Target
) -> tuple[dict[Value, int], set[Value]]:
    """Of inputs, each with the output of the last run that it is, those that lie in channel blocks, with their lanes,
    and these outputs: images of whole blocks that nobody reads or writes as plain memory."""
    fixed = {*views, *views.values()}
    fixed |= {v for g in groups if works_on_plain(g) for v in (*g.inputs, *g.outputs)}
    alone = {g.outputs[0] for g in groups if len(g.outputs) == 1 and g.anchor is None}
    blocks: dict[Value, int] = {}
    left: set[Value] = set()
    for given, output in kept:
        lanes = target.channel_block(given.dtype)
        same = given.shape == output.shape and given.dtype == output.dtype
        if same and len(given.shape) > ROWS + 1 and lanes and given.shape[1] % lanes == 0 and output in alone:
            if given not in fixed and output not in fixed:
                blocks[given] = lanes
                left.add(output)
    return blocks, left


def _whole(group: Group) -> Value | None:
    """What ``group`` joins rows to, if it does nothing else."""
    if group.operators != ("relax.concat",) or not isinstance(group.nodes[0].operands[0], tuple):
        return None
    (whole,) = group.nodes[0].results
    rank = len(whole.shape)
    return whole if rank > ROWS + 1 and int(group.nodes[0].call.attrs.axis) % rank == ROWS else None

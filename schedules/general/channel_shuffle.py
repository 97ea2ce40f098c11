"""Channels that move from place to place, in NCHW[v]c: channel shuffles with the concatenations before them and the
slices behind, and concatenations and slices alone whose parts are no whole blocks.

    y = slice(reshape(transpose(reshape(concat(a, b)))))        y[c] = a or b at a channel known for every c

A vector of outputs is a permutation of as many vectors as its channels come from; nothing is computed, and no plain
copy is made between. Eight channels of ``a`` and eight of ``b`` alternating are two loads, one permutation and a store:

    for n, rows (in bands)
      for block of y                                 unrolled: each has an order of its own
        for column
          y[block] = permute(a[i], b[j], ...)
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from tvm import tirx

from ..kernel.context import Context
from ..kernel.work_sharing import has_bands, image_rows
from ..math.bfloat16 import memory_type
from ..operators.regions.attributes import integer, ints
from ..operators.te_graph import GroupGraph
from ..words.dims import is_open
from ..words.group import Group, Kernel, Node, Request, Value
from ..words.sizes import same_where_it_runs, usual
from ..words.tvm_types import Buffer, Expr
from .loop_nest import LOCAL_WORK, PARALLEL_WORK

MOVES = {
    "relax.concat", "relax.reshape", "relax.permute_dims", "relax.strided_slice", "relax.split", "relax.squeeze",
    "relax.expand_dims",
}  # fmt: skip
CUTS = {"relax.concat", "relax.strided_slice", "relax.split"}
MOST_VECTORS = 1024  # loads written out in one kernel
MOST_ELEMENTS = 1 << 23  # of a group's inputs: each is followed through the moves at compile time
Table = tuple[tuple[Value, int], ...]  # for each channel of an output, where it comes from

_TABLES: WeakKeyDictionary[Group, dict[Value, Table] | None] = WeakKeyDictionary()


def channel_tables(group: Group) -> dict[Value, Table] | None:
    """The input and channel that each channel of every output of a shuffle comes from; None if anything else than
    channels moves, or nothing but whole tensors does."""
    return _known_tables(group) if "relax.permute_dims" in group.operators else None


def _known_tables(group: Group) -> dict[Value, Table] | None:
    if group not in _TABLES:
        _TABLES[group] = _tables(group)
    return _TABLES[group]


def _tables(group: Group) -> dict[Value, Table] | None:
    if not set(group.operators) <= MOVES:
        return None
    if any(len(v.shape) != 4 or v.constant is not None for v in (*group.inputs, *group.outputs)):
        return None
    shape = group.outputs[0].shape
    others = (0, 2, 3)
    if any(not same_where_it_runs(v.shape[a], shape[a]) for v in (*group.inputs, *group.outputs) for a in others):
        return None
    cuts = all(_cuts_channels(n) for n in group.nodes)
    if not cuts and (is_open(shape) or sum(v.elements for v in group.inputs) > MOST_ELEMENTS):
        return None
    if len({v.dtype for v in (*group.inputs, *group.outputs)}) > 1 or any(v.shape[1] == 0 for v in group.outputs):
        return None
    names: dict[Value, np.ndarray] = {}  # the number of every element, counted through all inputs
    place, start = [], 0
    for value in group.inputs:
        followed = (1, value.shape[1], 1, 1) if cuts else value.shape
        count = int(np.prod(followed))
        names[value] = start + np.arange(count, dtype=np.int64).reshape(followed)
        place += [(value, c) for c in range(value.shape[1])]
        start += count
    firsts = np.concatenate([names[v][0, :, 0, 0] for v in group.inputs])
    for node in group.nodes:
        names.update(zip(node.results, _moved(node, names)))
    found: dict[Value, Table] = {}
    for output in group.outputs:
        which = np.searchsorted(firsts, names[output][0, :, 0, 0])
        if (which == len(firsts)).any() or (firsts[which] != names[output][0, :, 0, 0]).any():
            return None
        found[output] = tuple(place[i] for i in which)
        wanted = np.stack([names[v][:, c] for v, c in found[output]], 1)
        if (wanted != names[output]).any():
            return None
    return found


def _cuts_channels(node: Node) -> bool:
    """True if ``node`` joins or cuts along the channels alone: one element of each stands for all."""
    if node.operator not in CUTS:
        return False
    if node.operator == "relax.strided_slice":
        return ints(node.operands[1]) == [1]
    axis = node.call.attrs.axis
    return axis is not None and integer(axis) % 4 == 1


def _moved(node: Node, names: dict[Value, np.ndarray]) -> list[np.ndarray]:
    """What a move makes of arrays, in NumPy."""
    data, attrs = names[node.inputs[0]], node.call.attrs
    if node.operator == "relax.concat":
        return [np.concatenate([names[v] for v in node.inputs], 0 if attrs.axis is None else integer(attrs.axis))]
    if node.operator == "relax.permute_dims":
        return [data.transpose(None if attrs.axes is None else ints(attrs.axes))]
    if node.operator == "relax.split":
        axis = int(attrs.axis)
        return np.split(data, np.cumsum([r.shape[axis] for r in node.results])[:-1], axis)
    if node.operator == "relax.strided_slice":
        axes, begin, end = (ints(b) for b in node.operands[1:4])
        steps = ints(node.operands[4]) if len(node.operands) > 4 else [1] * len(axes)
        cut = [slice(None)] * data.ndim
        for axis, *bounds in zip(axes, begin, end, steps):
            cut[axis] = slice(*bounds)
        part = data[tuple(cut)]
        fits = all(part.shape[a] == node.results[0].shape[a] for a in axes)
        return [part if fits else np.full(node.results[0].shape, -1)]
    return [data.reshape(node.results[0].shape)]


def shuffles_channels(group: Group, blocked: dict[Value, int], lanes: int) -> bool:
    """True if :func:`build_shuffle` computes ``group``, all of whose inputs are ``blocked``, in blocks of ``lanes``:
    shuffles, and what moves other channels than whole blocks."""
    return all(blocked.get(v) == lanes for v in group.inputs) and permutes_vectors(group, lanes)


def permutes_vectors(group: Group, lanes: int) -> bool:
    """True if :func:`build_shuffle` is for ``group`` where all values of it lie in blocks of ``lanes``."""
    tables = _known_tables(group)
    if tables is None or sum(len(s) for t in tables.values() for s in _vectors(t, lanes)) > MOST_VECTORS:
        return False
    shuffled = "relax.permute_dims" in group.operators
    return shuffled or any(c % lanes != i % lanes for t in tables.values() for i, (_, c) in enumerate(t))


def _vectors(table: Table, lanes: int) -> list[list[tuple[Value, int]]]:
    """For every block of outputs the blocks that it is made of, in the order met."""
    blocks = (table[i : i + lanes] for i in range(0, len(table), lanes))
    return [list(dict.fromkeys((v, c // lanes) for v, c in block)) for block in blocks]


def build_shuffle(request: Request) -> Kernel:
    """One kernel for ``request.group``, every value of which lies in channel blocks."""
    group, ctx = request.group, Context(request, GroupGraph(request.group), request.group.name)
    tables = _known_tables(group)
    assert tables is not None
    k, shape, boxed = ctx.k, group.outputs[0].shape, request.box is not None
    rows, columns = ctx.size if boxed else shape[2:4]
    work = usual(sum(v.elements for v in group.outputs))
    parallel = not boxed and work >= (LOCAL_WORK if has_bands(shape[2], request.workers) else PARALLEL_WORK)
    types = {request.layout(v).stored for v in (*group.inputs, *group.outputs)}
    stored = len(types) == 1 and "" not in types  # are moved as they are
    held = memory_type(types.pop()) if stored else ""
    with image_rows(ctx, shape[0], rows, parallel) as (n, y):
        for output, table in tables.items():
            lanes = request.layout(output).block
            for block, sources in enumerate(_vectors(table, lanes)):
                with k.loop(columns, name="x") as column:
                    ctx.ranged(column, columns)
                    x = column if ctx.origin is None else column + ctx.origin[1]
                    read = [_vector(_memory(ctx, v, stored), ctx, v, [n, b * lanes, y, x], lanes) for v, b in sources]
                    part = table[block * lanes : (block + 1) * lanes]
                    picks = [(sources.index((v, c // lanes)), c % lanes) for v, c in part]
                    to = tirx.Ramp(ctx.offset(output, [n, block * lanes, y, x]), 1, lanes)
                    made = _permuted(ctx, read, picks, lanes, held or output.dtype)
                    k.store(_memory(ctx, output, stored), to, made)
    return Kernel(
        function=k.finish(),
        operands=tuple(ctx.operands),
        outputs=group.outputs,
        schedule=f"shuffle of channels, lanes {request.layout(group.outputs[0]).block}",
        flops=work,
        scalars=tuple(ctx.scalars),
    )


def _memory(ctx: Context, value: Value, stored: bool) -> Buffer:
    """The buffer of ``value``; where it is ``stored`` in fewer bits, of these."""
    return ctx.buffer(value).stored if stored else ctx.buffer(value)


def _vector(memory: Buffer, ctx: Context, value: Value, indices: list[Expr], lanes: int) -> Expr:
    return memory[tirx.Ramp(ctx.offset(value, indices), 1, lanes)]


def _permuted(ctx: Context, read: list[Expr], picks: list[tuple[int, int]], lanes: int, dtype: str) -> Expr:
    """Lane i is ``read[picks[i][0]]`` at lane ``picks[i][1]``; lanes past the last pick are zero."""
    if len(picks) == lanes and picks == [(0, i) for i in range(lanes)]:
        return read[0]
    made = None
    for which, vector in enumerate(read):
        own = {i: lane for i, (source, lane) in enumerate(picks) if source == which}
        if made is None:
            made = vector if len(read) > 1 else tirx.Shuffle([vector, vector], [own.get(i, 0) for i in range(lanes)])
            order = own  # where the lanes of the first vector go: the first permutation of two does it as well
            continue
        before = order if which == 1 else {i: i for i in range(lanes)}
        made = tirx.Shuffle([made, vector], [lanes + own[i] if i in own else before.get(i, 0) for i in range(lanes)])
    if len(picks) == lanes:
        return made
    zero = tirx.Broadcast(tirx.const(0, dtype), lanes)
    held = ctx.k.local("held", dtype, lanes)
    ctx.k.store(held, tirx.Ramp(0, 1, lanes), made)
    return tirx.Shuffle([held[tirx.Ramp(0, 1, lanes)], zero], [i if i < len(picks) else lanes for i in range(lanes)])

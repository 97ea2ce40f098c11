"""Norms over the channels of images in NCHW[v]c (layer norms of ConvNeXt and its kind), with maps before and behind.

    m, r = mean of x over the channels of a place, and what its rounding lost (operators/standardised.py)
    s = 1 / sqrt(mean of (x - m)^2 - r^2 + eps)                     y = (x - m) * s - r * s

A place's channels are as many vectors as there are blocks. Some neighbours take turns, so that sums do not wait for
each other, and the lanes of each are combined at the end, always in the same order:

    for n, rows (in bands)
      for some places
        for block:   total += x[block] - x[0]           then the lanes in halves: m, r
        for block:   square += (x[block] - m)^2         then the lanes in halves: s
        for block:   y[block] = f((x[block] - m) * s - r * s)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import te, tirx

from ..emit.inline import Inliner, key
from ..kernel.context import Channel, Context
from ..kernel.work_sharing import has_bands, image_rows
from ..operators.regions.attributes import ints, own
from ..operators.te_graph import GroupGraph
from ..operators.te_stages import is_reduce
from ..words.dims import is_open
from ..words.group import Group, Kernel, Node, Request, Value
from ..words.sizes import dim_of, usual
from ..words.tvm_types import Buffer, Expr, Operation
from .axes import is_axis
from .channel_lanes import reads_own_channels
from .loop_nest import LOCAL_WORK, PARALLEL_WORK

if TYPE_CHECKING:
    from typing import Any

HELD = 4  # vectors for each place that takes turns: m, s, r s and x (eight places of 32 registers, four of 16)
DTYPES = ("float32", "float16")  # of results: the norm itself is computed in float32
WORK = 8  # operations for each element


def norms_channels(group: Group, blocked: dict[Value, int], lanes: int) -> bool:
    """True if :func:`build_channel_norm` computes ``group`` in blocks of ``lanes``, given what is ``blocked``."""
    norm = _norm(group)
    if norm is None or any(v.shape != norm.results[0].shape or v.dtype not in DTYPES for v in group.outputs):
        return False
    graph, x = GroupGraph(group, [norm]), norm.inputs[0]
    blocked = {v: b for v, b in blocked.items() if b and v in group.inputs}
    if set(blocked.values()) != {lanes} or (x in group.inputs and x not in blocked):
        return False
    result = graph.tensors[norm.results[0]]
    return all(_is_map(graph, graph.tensors[v], result, blocked, lanes) for v in (x, *group.outputs))


def _norm(group: Group) -> Node | None:
    found = [n for n in group.nodes if n.operator == "halotile.standardise"]
    if len(found) != 1 or group.anchor not in (None, found[0]) or found[0].results[0].dtype != "float32":
        return None
    axes, shape = ints(own(found[0])["axes"]), found[0].results[0].shape
    return found[0] if axes == [1] and len(shape) == 4 and 0 not in shape else None


def _is_map(graph: GroupGraph, tensor: te.Tensor, norm: te.Tensor, blocked: dict[Value, int], lanes: int) -> bool:
    """True if an element of ``tensor`` is made of such ones as its vector's others are, and of ``norm`` where it is."""
    if isinstance(tensor.op, te.PlaceholderOp):
        return True
    value = next(v for v, t in graph.tensors.items() if key(t) == key(tensor))
    stages = graph.stages([value])
    if any(not isinstance(t.op, te.ComputeOp) or is_reduce(t) for t in stages):
        return False
    axes = [tirx.Var(f"a{i}", "int32") for i in range(4)]
    there = True

    def read(indices: tuple[Expr, ...]) -> Expr:
        nonlocal there
        there = there and all(is_axis(i, a) for i, a, e in zip(indices, axes, tensor.shape) if dim_of(e) != 1)
        return tirx.Var("read", norm.expr_ty())

    sources: dict[tuple[Operation, int], Any] = {key(norm): read}
    for like in (graph.tensors[v] for v in graph.group.inputs):
        sources[key(like)] = lambda _, like=like: tirx.Var("read", like.expr_ty())
    Inliner(sources).at(tensor, axes)
    return there and reads_own_channels(graph, tensor, {key(norm)}, blocked, lanes)


def build_channel_norm(request: Request) -> Kernel:
    """One kernel for ``request.group``, whose image lies in channel blocks."""
    return _ChannelNorm(request).build()


class _ChannelNorm:
    def __init__(self, request: Request) -> None:
        group, norm = request.group, _norm(request.group)
        assert norm is not None
        self.request, self.norm, self.graph = request, norm, GroupGraph(group, [norm])
        self.ctx = Context(request, self.graph, group.name)
        self.k = self.ctx.k
        self.channels = norm.results[0].shape[1]
        self.lanes = request.layout(group.outputs[0]).block
        self.full, self.rest = divmod(self.channels, self.lanes)
        parts = max(1, self.lanes // request.target.lanes("float32"))  # vectors of a block, of float16 numbers two
        self.side = max(1, request.target.vector_registers // (HELD * parts))

    def build(self) -> Kernel:
        group, ctx, k = self.request.group, self.ctx, self.k
        shape, box = self.norm.results[0].shape, self.request.box
        rows, columns = ctx.size if box is not None else shape[2:4]
        work = usual(WORK * shape[0] * self.channels * shape[2] * shape[3])
        least = LOCAL_WORK if has_bands(shape[2], self.request.workers) else PARALLEL_WORK

        with image_rows(ctx, shape[0], rows, work >= least) as (n, y):
            left = 0 if ctx.origin is None else ctx.origin[1]
            strips, rest = divmod(columns, self.side)
            last = (rest, 1) if is_open([columns]) else (1, rest)
            for count, side, begin in ((strips, self.side, 0), (*last, strips * self.side)):
                if is_open([count]) or (count and side):
                    with k.loop(count, name="x") as strip:
                        ctx.ranged(strip, count)
                        self._places(n, y, strip * side + begin + left, side)
        return Kernel(
            function=k.finish(),
            operands=tuple(ctx.operands),
            outputs=group.outputs,
            schedule=f"norm over channels, lanes {self.lanes}",
            flops=work,
            scalars=tuple(ctx.scalars),
        )

    def _places(self, n: Expr, y: Expr, x: Expr, side: int) -> None:
        """``side`` places from column ``x`` on."""
        k, data = self.k, self.graph.tensors[self.norm.inputs[0]]
        scale = tirx.FloatImm("float32", 1.0 / self.channels)
        epsilon = tirx.FloatImm("float32", float(own(self.norm)["epsilon"]))
        one, zero = tirx.FloatImm("float32", 1.0), tirx.FloatImm("float32", 0.0)

        def value(inliner: Inliner, indices: list[Expr]) -> Expr:
            return inliner.at(data, indices)

        def counted(element: Expr, inside: Expr | None) -> Expr:
            return element if inside is None else tirx.Select(inside, element, zero)  # no lanes past the last channel

        def shifted(inliner: Inliner, indices: list[Expr], u: Expr, inside: Expr | None) -> Expr:
            return counted(value(inliner, indices) - first[u], inside)

        def squared(inliner: Inliner, indices: list[Expr], u: Expr, inside: Expr | None) -> Expr:
            near = k.bind(value(inliner, indices) - middle[u])
            return counted(near * near, inside)

        first = self._firsts(n, y, x, side, value)
        middle, rest, inverse, shift = (k.local(name, "float32", side) for name in ("m", "r", "s", "rs"))

        def mean(u: Expr, total: Expr) -> None:
            k.store(middle, u, first[u] + total * scale)
            k.store(rest, u, total * scale - (middle[u] - first[u]))

        def deviation(u: Expr, total: Expr) -> None:
            k.store(inverse, u, one / tirx.sqrt(tirx.max(zero, total * scale - rest[u] * rest[u]) + epsilon))
            k.store(shift, u, rest[u] * inverse[u])

        self._summed(n, y, x, side, shifted, mean)
        self._summed(n, y, x, side, squared, deviation)

        def normalised(indices: list[Expr], u: Expr) -> None:
            inliner = self.ctx.inliner()
            result = k.bind((value(inliner, indices) - middle[u]) * inverse[u] - shift[u])
            inliner.sources[key(self.graph.tensors[self.norm.results[0]])] = lambda _: result
            for output in self.request.group.outputs:
                self.ctx.write(output, indices, inliner.at(self.graph.tensors[output], indices))

        self._over_blocks(n, y, x, side, lambda indices, u, _v, _inside: normalised(indices, u))

    def _firsts(self, n: Expr, y: Expr, x: Expr, side: int, value: Callable[..., Expr]) -> Buffer:
        """The first channel of each of the places."""
        k, ctx, block = self.k, self.ctx, tirx.IntImm("int32", 0)
        found = k.local("first", "float32", side)
        with k.loop(side, "unroll", "u") as u:
            ctx.ranged(u, side)
            ctx.channel = Channel(block, block, block, self.lanes, self.channels)
            k.store(found, u, value(ctx.inliner(), [n, block, y, x + u]))
        return found

    def _summed(
        self, n: Expr, y: Expr, x: Expr, side: int, term: Callable[..., Expr], close: Callable[[Expr, Expr], None]
    ) -> None:
        """``close(place, sum)`` of the sum of ``term`` over all channels, for each of the places."""
        k, lanes = self.k, self.lanes
        sums = k.local("sums", "float32", side * lanes)
        with k.loop(side, "unroll", "u") as u, k.loop(lanes, "vectorized", "v") as v:
            k.store(sums, u * lanes + v, tirx.FloatImm("float32", 0.0))

        def add(indices: list[Expr], u: Expr, v: Expr, inside: Expr | None) -> None:
            k.store(sums, u * lanes + v, sums[u * lanes + v] + term(self.ctx.inliner(), indices, u, inside))

        self._over_blocks(n, y, x, side, add)
        width = lanes
        while width > 1:
            width //= 2
            with k.loop(side, "unroll", "u") as u, k.loop(width, "vectorized" if width > 1 else "serial", "v") as v:
                k.store(sums, u * lanes + v, sums[u * lanes + v] + sums[u * lanes + width + v])
        with k.loop(side, "unroll", "u") as u:
            close(u, sums[u * lanes])

    def _over_blocks(self, n: Expr, y: Expr, x: Expr, side: int, body: Callable[..., None]) -> None:
        """``body`` at the indices of every channel of the places, with the place, the lane, and what holds for lanes of
        channels that there are (None where there are all)."""
        k, ctx, lanes = self.k, self.ctx, self.lanes
        for first, count in ((0, self.full), (self.full, 1 if self.rest else 0)):
            if not count:
                continue
            with k.loop(count, name="g") as g, k.loop(side, "unroll", "u") as u, k.loop(lanes, "vectorized", "v") as v:
                for var, extent in ((g, count), (u, side), (v, lanes)):
                    ctx.ranged(var, extent)
                block = g + first
                channel = block * lanes + v
                ctx.channel = Channel(channel, block, v, lanes, self.channels)
                inside = channel < self.channels if first == self.full else None
                body([n, channel, y, x + u], u, v, inside)

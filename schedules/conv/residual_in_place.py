"""Residuals that a convolution may overwrite with its result.

    x -> conv -> conv -> conv + x -> y          y takes over the memory of x, which nobody reads afterwards

That needs every element of x to be read just once, right before the same element of y is written: by an epilogue that
reads x at its own place, in a kernel that computes no output twice. Boxes of a tile group have register tiles of one
row, whose width divides theirs, if the option ``once`` has the number of columns that theirs are multiples of.
"""

from __future__ import annotations

from tvm import tirx

from ..emit.inline import Inliner, Source, key
from ..general.axes import is_axis
from ..matmul.folded_moves import producers
from ..operators.te_graph import GroupGraph
from ..words.group import Request, Value
from ..words.tvm_types import Expr
from .facts import ConvFacts


def has_residual(request: Request) -> bool:
    """False if the output can certainly not overwrite an input: a quick test before :func:`taken_over`."""
    group, output = request.group, request.group.outputs[0]
    own = group.anchor.inputs if group.anchor is not None else ()
    others = [v for v in group.inputs if v not in own and v.constant is None]
    return len(group.outputs) == 1 and any(v.shape == output.shape for v in others)


def taken_over(request: Request, facts: ConvFacts, tile: tuple[int, int] | None) -> tuple[Value, ...]:
    """The inputs whose memory the output may take: those that the epilogue reads at its own place. ``tile``: (rows,
    columns) that a direct convolution computes at a time; its last tile moves back where they don't divide, and
    computes outputs again, which must not be. None for algorithms that store each output once. An open box has any
    number of rows, and of columns too, unless the option ``once`` has a number that they are multiples of, or it is
    always as wide as the image."""
    group = request.group
    if len(group.outputs) != 1 or len(facts.out_spatial) != 2:
        return ()
    box = request.box
    if box is not None and box.open and tile is not None:
        divides = tile[1] == 1 or request.limits.once or box.columns == group.outputs[0].shape[3]
        if tile[0] > 1 or not divides:
            return ()
    lanes = request.layout(group.outputs[0]).block
    sizes = facts.out_spatial[0], request.limits.once or facts.out_spatial[1], facts.outputs
    if tile is not None and any(size % step for size, step in zip(sizes, (*tile, lanes))):
        return ()
    assert group.anchor is not None
    output = group.outputs[0]
    before = {*group.anchor.inputs, *(v for node in producers(group, facts.data) for v in node.inputs)}
    fitting = [
        v
        for v in group.inputs
        if v not in before and v.constant is None and v.shape == output.shape and v.dtype == output.dtype
        and request.layout(v) == request.layout(output)
    ]  # fmt: skip
    if not fitting:
        return ()
    graph = GroupGraph(group, [group.anchor])
    axes = [tirx.Var(f"a{i}", "int32") for i in range(len(output.shape))]
    own = dict.fromkeys(fitting, True)

    def watch(value: Value) -> Source:
        def read(indices: tuple[Expr, ...]) -> Expr:
            if value in own:
                same = all(e == 1 or is_axis(i, a) for i, a, e in zip(indices, axes, output.shape))
                own[value] = own[value] and same
            return tirx.Var("read", graph.tensors[value].expr_ty())

        return read

    sources = {key(graph.tensors[v]): watch(v) for v in (*group.inputs, *group.anchor.results) if v in graph.tensors}
    Inliner(sources).at(graph.tensors[output], axes)
    return tuple(v for v, same in own.items() if same)

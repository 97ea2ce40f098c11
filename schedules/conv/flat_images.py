"""Images whose rows lie end to end, of which a layer of 1x1 taps computes pixel after pixel, through the rows.

    7 rows of 7: tiles of 1 x 12 pixels take 5, those of 3 x 4 take 6
    4 rows of 3: one tile of 1 x 12

In images of any size a tile that moves back wastes less than a tile so, once an image; of rows and columns that don't
divide it wastes some in every row, and cores share pixels more evenly than rows. Results may have margins, so that
their rows don't lie end to end: a tile then counts for each of its pixels in which row it is (:func:`rows_of`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from ..emit.builder import KernelBuilder
from ..emit.inline import Inliner, Source, key
from ..general.axes import is_axis
from ..matmul.folded_moves import producers
from ..operators.te_graph import GroupGraph
from ..words.dims import to_index
from ..words.group import Request, Value
from ..words.sizes import product
from ..words.tvm_types import Buffer, Expr, Tensor
from .facts import OPERATORS, ConvFacts

if TYPE_CHECKING:
    from ..words.size_like import SizeLike


def has_flat_images(request: Request) -> bool:
    """True for a layer of 1x1 taps that reads every pixel of data whose rows lie end to end, and beside them only what
    has one number for all pixels or one for each."""
    group, anchor = request.group, request.group.anchor
    if anchor is None or anchor.operator not in OPERATORS or any(len(v.shape) != 4 for v in group.outputs):
        return False
    facts = ConvFacts.of(anchor)
    if len(facts.kernel) != 2 or facts.taps > 1 or facts.strides != (1, 1) or any((*facts.before, *facts.after)):
        return False
    size = facts.output.shape[2:]
    if facts.data.shape[2:] != size or any(v.shape[2:] != size for v in group.outputs):
        return False
    before = producers(group, facts.data)
    read = [facts.data, *(v for node in before for v in node.inputs)]
    if not all(request.layout(v).ends_meet for v in read if v in group.inputs and v.shape[2:] == size):
        return False
    graph = GroupGraph(group, [anchor])
    made = [*(v for v in group.outputs if v not in anchor.results), *([facts.data] if before else [])]
    return all(_reads_own_pixels(request, graph, value, size) for value in made)


def _reads_own_pixels(request: Request, graph: GroupGraph, made: Value, size: tuple[SizeLike, ...]) -> bool:
    """True if each element of ``made`` takes of values of as many pixels its own one, and of others one for all,
    wherever these have their axes."""
    axes = [tirx.Var(f"a{i}", "int32") for i in range(4)]
    own = True

    def moves(index: Expr, extent: SizeLike) -> bool:
        """True if it follows the pixels, whose row is 0 and whose column is their number."""
        used = [] if isinstance(index, int) else tirx.analysis.undefined_vars(index)
        row, column = (any(v.same_as(a) for v in used) for a in axes[2:])
        return column or (row and not (extent == 1 and is_axis(index, axes[2])))

    def watch(tensor: Tensor, shape: tuple[SizeLike, ...]) -> Source:
        def read(indices: tuple[Expr, ...]) -> Expr:
            nonlocal own
            same = shape[-2:] == size and all(is_axis(i, a) for i, a in zip(indices[-2:], axes[2:]))
            own = own and (same or not any(map(moves, indices, shape)))
            return tirx.Var("read", tensor.expr_ty())

        return read

    group = request.group
    assert group.anchor is not None
    values = [v for v in (*group.inputs, *group.anchor.results) if v in graph.tensors]
    sources = {key(graph.tensors[v]): watch(graph.tensors[v], v.shape) for v in values}
    Inliner(sources).at(graph.tensors[made], axes)
    return own


def pixels_across(request: Request) -> SizeLike:
    """Columns that a box of the request has at most: those of the image, or its pixels."""
    box, size = request.box, request.group.outputs[-1].shape[2:]
    return product(size) if box is not None and box.flat else size[-1]


def rows_of(k: KernelBuilder, request: Request, data: Value, first: Expr, count: int) -> Buffer | None:
    """The row of each of ``count`` pixels from ``first`` on; None where a pixel's number says where its results lie, of
    a layer that reads ``data``."""
    group = request.group
    behind = [v for v in (*group.inputs, *group.outputs) if v is not data and v.constant is None]
    if request.box is None or not request.box.flat or all(request.layout(v).ends_meet for v in behind):
        return None
    width = to_index(group.outputs[-1].shape[3])
    rows, end = k.local("row", "int32", count), k.local("end", "int32", 1)
    k.store(rows, 0, tirx.floordiv(first, width))
    k.store(end, 0, (rows[0] + 1) * width)
    for number in range(1, count):
        beyond = first + number >= end[0]
        k.store(rows, number, rows[number - 1] + tirx.Cast("int32", beyond))
        k.store(end, 0, tirx.Select(beyond, end[0] + width, end[0]))
    return rows


def in_rows(rows: Buffer, number: Expr, pixel: Expr, shape: tuple[SizeLike, ...]) -> list[Expr]:
    """Row and column of a ``pixel`` of an image, the one of this ``number`` in ``rows``."""
    return [rows[number], pixel - rows[number] * to_index(shape[3])]

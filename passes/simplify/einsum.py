"""Einsum of two operands as the matrix product it is, and products of a column and a row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import relax

from .graph import CONST, Graph, GraphNode
from .identity import RESHAPES
from .patterns import is_float
from .positions import is_one
from .requantised import BYTES
from .rule import STRICT, Declined, Rewrite, RewriteBuilder, Rule
from .size_tables import of_sizes

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

op = relax.op
_FROM_BYTES = RESHAPES | {
    f"relax.{n}" for n in "astype add subtract multiply permute_dims strided_slice".split()
}  # fmt: skip

@dataclass(frozen=True)
class Contraction:
    """The letters of ``a, b -> out`` by what they do: kept in both, kept from one, summed over."""

    a: str
    b: str
    out: str
    batch: str
    rows: str
    columns: str
    summed: str

    @staticmethod
    def parse(equation: str) -> Contraction | str:
        """Reads an equation without ellipsis; a sentence when it is no plain contraction of two operands."""
        terms, _, out = equation.replace(" ", "").partition("->")
        operands = terms.split(",")
        if len(operands) != 2 or "->" not in equation or "." in equation:
            return "it is not an equation of two operands with a written result"
        a, b = operands
        if any(len(set(t)) != len(t) for t in (a, b, out)):
            return "a letter stands twice in one operand"
        if any(x not in out and x not in b for x in a) or any(x not in out and x not in a for x in b):
            return "a letter is summed over within one operand"
        batch = "".join(x for x in out if x in a and x in b)
        rows = "".join(x for x in out if x in a and x not in b)
        columns = "".join(x for x in out if x in b and x not in a)
        summed = "".join(x for x in a if x in b and x not in out)
        return Contraction(a, b, out, batch, rows, columns, summed)


class EinsumAsMatmul(Rule):
    """einsum('bhid,bhjd->bhij', q, k)    ->    matmul(q, permute(k))

    Two operands, each letter once in each: letters of both and the result are batch dims, letters of both only are
    summed over. Several columns or summed letters are flattened to one, and several rows where there is a batch. Where
    nothing is summed over, a table of open sizes is a product of elements. An einsum counts as several operators.
    """

    name = "einsum-as-matmul"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("halotile.einsum",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        plan = Contraction.parse(str(node.attr("equation")))
        if isinstance(plan, str):
            return Declined(plan)
        a, b = node.inputs
        if a.shape is None or b.shape is None:
            return Declined("a rank is open")
        if plan.columns and plan.rows and plan.out.index(plan.columns[0]) < plan.out.index(plan.rows[0]):
            plan = Contraction(plan.b, plan.a, plan.out, plan.batch, plan.columns, plan.rows, plan.summed)
            a, b = b, a
        letters, dims = plan.a + plan.b, (a.shape or ()) + (b.shape or ())
        size = dict(zip(letters, dims))
        if any(not graph.same_dim(size[x], d) for x, d in zip(letters, dims)):
            return Declined("a dim of one is broadcast")
        if not plan.summed:
            if not all(i.op == CONST or of_sizes(i) for i in node.inputs):
                return Declined("nothing is summed over")
            return Rewrite(lambda builder: _each_by_each(builder, plan, a, b, size))
        flattened = (plan.rows if plan.batch else "") + plan.columns + plan.summed
        if any(not isinstance(size[x], int) for x in flattened):
            return Declined("a dim that is no batch dim is open")
        return Rewrite(lambda builder: _product(builder, plan, a, b, size))


def _product(
    b: RewriteBuilder, plan: Contraction, left: GraphNode, right: GraphNode, size: dict[str, SizeLike]
) -> GraphNode:
    batch = [size[x] for x in plan.batch]
    n, k = (math.prod(size[x] for x in letters) for letters in (plan.columns, plan.summed))
    rows = [size[x] for x in plan.rows]
    rows = [math.prod(rows)] if plan.batch or not rows else rows
    x = _arranged(b, left, plan.a, plan.batch + plan.rows + plan.summed, [*batch, *rows, k])
    y = _arranged(b, right, plan.b, plan.batch + plan.summed + plan.columns, [*batch, k, n])
    letters = plan.batch + plan.rows + plan.columns
    product = b.call(op.matmul, x, y)
    shape = [size[c] for c in letters]
    if list(product.shape or ()) != shape:
        product = b.call(op.reshape, product, shape)
    return _arranged(b, product, letters, plan.out, [size[c] for c in plan.out])


def _each_by_each(
    b: RewriteBuilder, plan: Contraction, left: GraphNode, right: GraphNode, size: dict[str, SizeLike]
) -> GraphNode:
    """The product of elements, each operand with dims of one for the letters that it lacks."""
    operands = []
    for x, have in ((left, plan.a), (right, plan.b)):
        want = "".join(c for c in plan.out if c in have)
        operands.append(_arranged(b, x, have, want, [size[c] if c in have else 1 for c in plan.out]))
    return b.call(op.multiply, *operands)


def _arranged(b: RewriteBuilder, x: GraphNode, have: str, want: str, shape: list[SizeLike]) -> GraphNode:
    """``x`` with its letters in the order ``want``, seen as ``shape``."""
    if have != want:
        x = b.call(op.permute_dims, x, [have.index(c) for c in want])
    return x if list(x.shape or ()) == shape else b.call(op.reshape, x, shape)


class OuterProduct(Rule):
    """matmul(x: [..., m, 1], y: [..., 1, n])    ->    x * y

    Nothing is added up; batch dims broadcast alike. One of them is a constant, repeated or seen in another shape:
    of two computed ones the product may be an attention's. Numbers that were bytes stay a product: of bytes, as all
    others of a quantised model are.
    """

    name = "outer-product"
    family = "strength"
    modes = STRICT
    roots = frozenset(("relax.matmul",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        x, y = node.inputs
        if not is_float(node) or {x.dtype, y.dtype} != {node.dtype} or min(x.rank, y.rank) < 2:
            return None
        if x.shape is None or y.shape is None or not (is_one(x.shape[-1]) and is_one(y.shape[-2])):
            return None
        if not (_is_constant(x) or _is_constant(y)) or _were_bytes(x) or _were_bytes(y):
            return None
        return Rewrite(lambda b: b.call(op.multiply, x, y))


def _is_constant(node: GraphNode) -> bool:
    """True for a constant, by way of reshapes and repetitions."""
    while node.op in RESHAPES or node.op == "relax.broadcast_to":
        node = node.inputs[0]
    return node.op == CONST


def _were_bytes(node: GraphNode) -> bool:
    """True if ``node`` is a tensor of bytes by way of a cast, an offset, a scale and moves."""
    while node.dtype not in BYTES:
        if node.op not in _FROM_BYTES:
            return False
        node = next((i for i in node.inputs if i.op != CONST), node.inputs[0])
    return True

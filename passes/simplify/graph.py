"""A light view of a Relax function: nodes with inputs, users and types, cheap to match and to rewrite.

Relax expressions are immutable and reached through a foreign-function interface, so matching on them directly costs
far more than the rules themselves. Here a function becomes a graph once, the rules work on Python objects, and a Relax
function is built once at the end (:mod:`.convert`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import tvm_ffi
from tvm import relax
from tvm.ir import Range
from tvm.sym.analyzer import Analyzer

from ...schedules.words.dims import Open
from ...schedules.words.sizes import dim_of
from ...schedules.words.tvm_types import Attribute, Expr, RuntimeTensor, Type

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

INPUT, CONST, ITEM, TUPLE, OPAQUE = "input", "const", "item", "tuple", "opaque"
#: An operand of a call: the index of an input, a tuple of such indices, or an expression that is no tensor.
Operand = Attribute
#: No axis is this long, so that the 2^31 - 1 of an open slice lies behind every sum of a few lengths.
LONGEST_AXIS = 1 << 28


class GraphNode:
    """One value of the graph: an input, a constant, or what an operator computes.

    ``op`` is the Relax name (``relax.add``) or one of the kinds above. ``operands`` is the argument list of the Relax
    call, in which tensors are given as indices into ``inputs``; ``attrs`` is the attributes object of the call, the
    index for an ``item``, and the original expression for an ``opaque`` node.
    """

    __slots__ = (
        *("op", "inputs", "operands", "attrs", "ty", "value"),
        *("name", "order", "users", "outputs", "sources", "level", "_var", "_array", "_shape"),
    )

    def __init__(
        self, op: str, inputs: list[GraphNode], operands: tuple[Operand, ...], attrs: Attribute, ty: Type
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.operands = operands
        self.attrs = attrs
        self.ty = ty
        self.value: SizeLike = None
        self.name = ""
        self.order: tuple[float, ...] = (0.0,)
        self.users: dict[GraphNode, int] = {}
        self.outputs = 0
        #: The nodes of the model that the value comes from.
        self.sources: tuple[str, ...] = ()
        #: The longest way from an input, at the beginning of the sweep or when the node was made.
        self.level = 0
        self._var: Expr | None = None
        self._array: np.ndarray | None = None
        self._shape: SizeLike = False

    @property
    def var(self) -> relax.Var:
        """A variable of the node's type that stands for it in expressions."""
        if self._var is None:
            self._var = relax.DataflowVar(self.name or "v", self.ty)
        return self._var

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.ty, relax.TensorType)

    @property
    def shape(self) -> tuple[Expr, ...] | None:
        """The dims, as ints where they are known, else as expressions; None when even the rank is open."""
        if self._shape is False:
            known = self.is_tensor and isinstance(self.ty.shape, relax.ShapeExpr)
            self._shape = tuple(plain_dim(d) for d in self.ty.shape.values) if known else None
        return self._shape

    @property
    def static(self) -> bool:
        """Whether the shape is known to the last number."""
        shape = self.shape
        return shape is not None and all(isinstance(d, int) for d in shape)

    @property
    def rank(self) -> int:
        return int(self.ty.ndim) if self.is_tensor else -1

    @property
    def dtype(self) -> str:
        return str(self.ty.dtype.dtype) if self.is_tensor and self.ty.dtype is not None else ""

    @property
    def array_dtype(self) -> np.dtype:
        """The dtype as numpy knows it."""
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, self.dtype, None) or self.dtype)

    @property
    def uses(self) -> int:
        """How often the value is read, graph outputs included."""
        return sum(self.users.values()) + self.outputs

    @property
    def array(self) -> np.ndarray:
        """The value of a constant (a read-only view where TVM allows it)."""
        if self._array is None:
            self._array = self.value if isinstance(self.value, np.ndarray) else _as_numpy(self.value)
        return self._array

    @property
    def nbytes(self) -> int:
        if not self.static:
            return 0
        bits = (
            8
            if self.dtype == "bool"
            else int("".join(c for c in self.dtype.split("_")[0] if c.isdigit())[:2] or 8)
        )
        return int(np.prod(self.shape or (), dtype=np.int64)) * max(bits, 8) // 8

    def raw(self, index: int) -> Attribute:
        """Argument ``index`` of the call when it is no tensor, as plain Python (ints, floats, lists), else None."""
        operand = self.operands[index] if index < len(self.operands) else None
        return None if operand is None or isinstance(operand, (int, tuple)) else plain(operand)

    def attr(self, name: str) -> Attribute:
        """An attribute as plain Python, None when the operator has none of that name."""
        return plain(getattr(self.attrs, name, None))

    def arg(self, index: int) -> GraphNode | None:
        """Argument ``index`` of the call when it is one tensor."""
        operand = self.operands[index] if index < len(self.operands) else None
        return self.inputs[operand] if isinstance(operand, int) else None

    @property
    def place(self) -> str:
        """Where in the model it stands: the last of its sources, or its name."""
        return self.sources[-1] if self.sources else self.name

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(i.name or i.op for i in self.inputs)}) -> {self.ty}"


class Graph:
    """The nodes of one function; every mutation keeps ``users`` and ``outputs`` right."""

    def __init__(self, inputs: list[GraphNode]) -> None:
        self.inputs = inputs
        self.outputs: list[GraphNode] = []
        self.pinned: list[GraphNode] = []
        self.returns_tuple = True
        #: How many operators the function held that nobody reads.
        self.dead = 0
        self.analyzer = Analyzer()
        #: Infers the types of new nodes; within its scope the symbols of the inputs are known not to be negative.
        self.normalizer = relax.BlockBuilder()
        self.normalizer.begin_scope([i.var for i in inputs])
        #: The variables of open dims by name.
        self.symbols = {s.name: s for i in inputs for s in relax.analysis.tir_vars_in_type(i.ty)}
        for symbol in self.symbols.values():
            self.analyzer.bind(symbol, Range.from_min_extent(0, LONGEST_AXIS))

    def link(self, node: GraphNode) -> GraphNode:
        """Enters ``node`` as a user of its inputs."""
        for i in node.inputs:
            i.users[node] = i.users.get(node, 0) + 1
            node.level = max(node.level, i.level + 1)
        return node

    def unlink(self, node: GraphNode) -> None:
        for i in node.inputs:
            left = i.users[node] - 1
            if left:
                i.users[node] = left
            else:
                del i.users[node]

    def set_outputs(self, outputs: Iterable[GraphNode]) -> None:
        self.outputs = list(outputs)
        for node in self.outputs:
            node.outputs += 1

    def substitute(self, old: GraphNode, new: GraphNode) -> None:
        """Makes everything that reads ``old`` read ``new``; ``old`` itself stays, unread."""
        for user, count in list(old.users.items()):
            user.inputs = [new if i is old else i for i in user.inputs]
            new.users[user] = new.users.get(user, 0) + count
        old.users.clear()
        self.outputs = [new if o is old else o for o in self.outputs]
        new.outputs += old.outputs
        old.outputs = 0

    def remove_unused(self, candidates: Iterable[GraphNode]) -> list[GraphNode]:
        """Unlinks those of ``candidates`` that nobody reads, and whatever only they kept alive."""
        removed: list[GraphNode] = []
        stack = list(candidates)
        while stack:
            node = stack.pop()
            if node.users or node.outputs or node.op in (INPUT, OPAQUE, "removed"):
                continue
            inputs = list(dict.fromkeys(node.inputs))
            self.unlink(node)
            node.inputs = []
            removed.append(node)
            node.op, node.attrs = "removed", node.op
            stack.extend(inputs)
        return removed

    def order(self) -> list[GraphNode]:
        """All live nodes, inputs first, in the order of their creation as far as dependences allow."""
        seen: set[GraphNode] = set()
        result: list[GraphNode] = []
        for root in sorted([*self.pinned, *self.outputs], key=lambda n: n.order):
            stack: list[tuple[GraphNode, Iterator[GraphNode]]] = []
            if root not in seen:
                seen.add(root)
                stack.append((root, iter(sorted(root.inputs, key=lambda n: n.order))))
            while stack:
                node, rest = stack[-1]
                for child in rest:
                    if child not in seen:
                        seen.add(child)
                        stack.append((child, iter(sorted(child.inputs, key=lambda n: n.order))))
                        break
                else:
                    stack.pop()
                    result.append(node)
        return stable_topological(result)

    def same_dim(self, a: Expr, b: Expr) -> bool:
        """Whether two dims are equal for every value of the symbols."""
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        if isinstance(a, int) or isinstance(b, int) or not tvm_ffi.structural_equal(a, b):
            return same_value(a, b) or bool(self.analyzer.can_prove_equal(as_expr(a), as_expr(b)))
        return True

    def same_shape(self, a: tuple[Expr, ...] | None, b: tuple[Expr, ...] | None) -> bool:
        return a is not None and b is not None and len(a) == len(b) and all(map(self.same_dim, a, b))

    def same_type(self, a: GraphNode, b: GraphNode) -> bool:
        """Whether two nodes have provably equal dtypes and shapes."""
        if a.is_tensor and b.is_tensor:
            if a.shape is None or b.shape is None:
                return bool(tvm_ffi.structural_equal(a.ty, b.ty))
            return a.dtype == b.dtype and self.same_shape(a.shape, b.shape)
        return bool(tvm_ffi.structural_equal(a.ty, b.ty))


def stable_topological(nodes: list[GraphNode]) -> list[GraphNode]:
    """``nodes`` sorted by their order keys, with every input before its users."""
    import heapq

    missing = {n: len(set(n.inputs)) for n in nodes}
    heap = [(n.order, k, n) for k, n in enumerate(nodes) if not missing[n]]
    heapq.heapify(heap)
    rank = {n: k for k, n in enumerate(nodes)}
    result = []
    while heap:
        _, _, node = heapq.heappop(heap)
        result.append(node)
        for user in node.users:
            if user in missing:
                missing[user] -= 1
                if not missing[user]:
                    heapq.heappush(heap, (user.order, rank[user], user))
    return result


def same_value(a: Expr, b: Expr) -> bool:
    """Whether two dims are one as the front end counts, with what it learned of the symbols."""
    try:
        return bool(dim_of(a) == dim_of(b))
    except Open:
        return False


def plain_dim(dim: Expr) -> Expr:
    value = getattr(dim, "value", None)
    return int(value) if isinstance(value, int) else dim


def as_expr(dim: Expr) -> Expr:
    from tvm.tirx import IntImm

    return IntImm("int64", dim) if isinstance(dim, int) else dim


def plain(value: Attribute) -> Attribute:
    """Relax literals, shapes, arrays and attribute values as plain Python; what is symbolic stays as it is."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, relax.ShapeExpr):
        return [plain(v) for v in value.values]
    if hasattr(value, "fields"):
        return [plain(v) for v in value.fields]
    literal = getattr(value, "value", None)
    if isinstance(literal, (bool, int, float, str)):
        return literal
    if isinstance(value, (list, tuple)) or type(value).__name__ in ("Array", "ConstList", "List"):
        return [plain(v) for v in value]
    return value


def _as_numpy(tensor: RuntimeTensor) -> np.ndarray:
    try:
        return np.from_dlpack(tensor)
    except (TypeError, BufferError, RuntimeError, ValueError):
        return tensor.numpy()

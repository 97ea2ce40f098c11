"""Operators that Relax has no single name for: a convolution with its bias, an attention, a pixel shuffle.

Simplification leaves each of them in one canonical form; the later stages turn that form into one kernel. Here the
form gets its name, so that a listing shows what a person would count. Nothing is rewritten.

    matmul, add                                      linear
    permute, matmul, multiply, add, softmax, matmul  attention
    reshape, permute, reshape                        depth_to_space, space_to_depth, channel_shuffle
    reshape, layer_norm, reshape, multiply, add      group_norm
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...schedules.operators.of_sizes import TABLE
from ...schedules.words.tvm_types import Attribute
from .anchors import CONVOLUTIONS, TRANSPOSED
from .broadcasts import BROADCASTING
from .graph import CONST, INPUT, ITEM, Graph, GraphNode
from .identity import RESHAPES, permutation
from .patterns import UNARY, scalar, split_constant
from .space import space_to_depth

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

#: Steps between the scores of an attention and their softmax.
_LONGEST = 8


@dataclass(frozen=True)
class Composite:
    """``members`` in program order; the last one gives the result."""

    operator: str
    members: tuple[GraphNode, ...]
    attributes: dict[str, Attribute] = field(default_factory=dict)

    @property
    def result(self) -> GraphNode:
        return self.members[-1]

    @property
    def inputs(self) -> list[GraphNode]:
        """What the members read that is none of them, each once."""
        return list(dict.fromkeys(i for m in self.members for i in m.inputs if i not in self.members))


Found = tuple[str, list[GraphNode], dict[str, Attribute]]
Recogniser = Callable[[GraphNode, Graph], "Found | None"]


def composites(graph: Graph) -> list[Composite]:
    """Disjoint composites of ``graph``, the larger kinds first; every member but the last is read by members only."""
    order = graph.order()
    place = {n: k for k, n in enumerate(order)}
    taken: set[GraphNode] = set()
    found: list[Composite] = []
    for recognise in (_attention, _norm, _moves, _select, _length, _anchor):
        for node in reversed(order):
            if node in taken or node.op in (INPUT, CONST, ITEM):
                continue
            match = recognise(node, graph)
            if match is None:
                continue
            operator, nodes, attributes = match
            members = sorted(dict.fromkeys(nodes), key=place.__getitem__)
            if len(members) > 1 and taken.isdisjoint(members):
                taken.update(members)
                found.append(Composite(operator, tuple(members), attributes))
    found = _with_tables(found, order, place)
    return sorted(found, key=lambda c: place[c.result])


def _with_tables(found: list[Composite], order: list[GraphNode], place: dict[GraphNode, int]) -> list[Composite]:
    """The composites, and readers that are none, with the tables of open sizes that only they read: these are constants
    where the sizes are known."""
    of: dict[GraphNode, Composite] = {m: c for c in found for m in c.members}
    for node in reversed(order):
        reader = _only_reader(node)
        if node in of or reader is None or not _own(node) or node.op != TABLE:
            continue
        whole = of.get(reader) or Composite(reader.op, (reader,))
        members = tuple(sorted((*whole.members, node), key=place.__getitem__))
        joined = Composite(whole.operator, members, whole.attributes)
        of.update(dict.fromkeys(members, joined))
    return list({id(c): c for c in of.values()}.values())


def _own(node: GraphNode) -> bool:
    """Whether the value serves its one reader only."""
    return node.uses == 1 and node.op not in (INPUT, CONST)


def _only_reader(node: GraphNode) -> GraphNode | None:
    return next(iter(node.users)) if node.uses == 1 and node.users else None


# ---------------------------------------------------------------------- convolutions and products


def _anchor(node: GraphNode, graph: Graph) -> Found | None:
    """anchor(x, W) [* scale] [+ bias], where a matrix product may read transposed operands."""
    members: list[GraphNode] = [node]
    current = node
    attributes: dict[str, Attribute] = {}
    if current.op == "relax.add":
        pair = split_constant(current)
        if pair is None or not _own(pair[0]) or not graph.same_type(pair[0], node):
            return None
        current, attributes = pair[0], {"bias": True}
        members.append(current)
    if current.op in CONVOLUTIONS | TRANSPOSED:
        return (current.op, members, attributes) if len(members) > 1 else None
    if current.op == "relax.multiply":
        pair = split_constant(current)
        alpha = scalar(pair[1]) if pair else None
        if pair is None or alpha is None or pair[0].op != "relax.matmul" or not _own(pair[0]):
            return None
        current = pair[0]
        members.append(current)
        attributes["alpha"] = float(alpha)
    if current.op != "relax.matmul":
        return None
    for name, operand in zip(("transpose_a", "transpose_b"), current.inputs):
        if _is_transposed(operand) and _own(operand):
            members.append(operand)
            attributes[name] = True
    return "halotile.linear" if "bias" in attributes else "relax.matmul", members, attributes


def _is_transposed(node: GraphNode) -> bool:
    """Whether the node swaps the last two axes, and no others."""
    if node.op != "relax.permute_dims":
        return False
    axes = permutation(node)
    n = len(axes)
    return n > 1 and axes == [*range(n - 2), n - 1, n - 2]


# ---------------------------------------------------------------------- attention


def _attention(node: GraphNode, graph: Graph) -> Found | None:
    """softmax(scale * (q @ k) + mask) @ v, with the transposes that only bring q, k, v and the result into place."""
    if node.op != "relax.matmul" or node.inputs[0].op == CONST:
        return None
    members = [node]
    weights = node.inputs[0]
    while weights.op in RESHAPES | {"relax.astype"} and _own(weights):
        members.append(weights)
        weights = weights.inputs[0]
    if weights.op != "relax.nn.softmax" or not _own(weights) or int(weights.attrs.axis) not in (-1, weights.rank - 1):
        return None
    members.append(weights)
    way = _way_to_product(weights.inputs[0])
    if way is None:
        return None
    product = way[-1]
    members += way
    if any(i.op == CONST for i in product.inputs):
        return None
    for operand in (*product.inputs, node.inputs[1]):
        if operand.op == "relax.permute_dims" and _own(operand):
            members.append(operand)
    after = _only_reader(node)
    if after is not None and after.op == "relax.permute_dims":
        members.append(after)
    return "halotile.attention", members, {"masked": any(len(n.inputs) > 1 and _masks(n) for n in way[:-1])}


def _way_to_product(scores: GraphNode) -> list[GraphNode] | None:
    """The elementwise operators from the softmax up to a matrix product, the product last."""
    way: list[GraphNode] = []
    current = scores
    while len(way) < _LONGEST and _own(current):
        way.append(current)
        if current.op == "relax.matmul":
            return way
        if current.op in UNARY or current.op in RESHAPES:
            current = current.inputs[0]
        elif current.op in BROADCASTING:
            above = [i for i in current.inputs if _leads_to_product(i, _LONGEST - len(way))]
            if len(above) != 1:
                return None
            current = above[0]
        else:
            return None
    return None


def _leads_to_product(node: GraphNode, depth: int) -> bool:
    if depth == 0 or not _own(node) or not node.is_tensor or "float" not in node.dtype:
        return False
    if node.op == "relax.matmul":
        return True
    if node.op in UNARY or node.op in RESHAPES or node.op in BROADCASTING:
        return any(_leads_to_product(i, depth - 1) for i in node.inputs)
    return False


def _masks(node: GraphNode) -> bool:
    return node.op == "relax.where" or node.op == "relax.add" or node.op == "relax.subtract"


# ---------------------------------------------------------------------- norms and moves


def _norm(node: GraphNode, graph: Graph) -> Found | None:
    """A norm in groups of channels, or along axes that its weights don't vary along, with those weights behind it."""
    members: list[GraphNode] = []
    current = node
    for kind in ("relax.add", "relax.multiply"):
        if current.op == kind:
            pair = split_constant(current)
            if pair is None or not _own(pair[0]):
                return None
            members.append(current)
            current = pair[0]
    outside = current.op in RESHAPES
    if outside:
        members.append(current)
        current = current.inputs[0]
        if not _own(current):
            return None
    if current.op not in ("relax.nn.layer_norm", "halotile.standardise"):
        return None
    members.append(current)
    before = current.inputs[0]
    if not outside:
        return ("halotile.instance_norm", members, {}) if len(members) > 1 else None
    if before.op not in RESHAPES or not _own(before) or not graph.same_shape(before.inputs[0].shape, members[-2].shape):
        return None
    groups = (before.shape or (0, 0))[1]
    return "halotile.group_norm", [*members, before], {"groups": groups if isinstance(groups, int) else str(groups)}


def _moves(node: GraphNode, graph: Graph) -> Found | None:
    """reshape, permute, reshape of an image that is a pixel shuffle, its inverse, or a channel shuffle; and an image
    resized along its rows, then along its columns."""
    if node.op == "halotile.resample" and node.inputs[0].op == node.op and _own(node.inputs[0]):
        return "halotile.resize", [node.inputs[0], node], {}
    if node.op not in RESHAPES or node.rank != 4:
        return None
    moved = node.inputs[0]
    if moved.op != "relax.permute_dims" or not _own(moved):
        return None
    parts = moved.inputs[0]
    if parts.op not in RESHAPES or not _own(parts) or parts.inputs[0].rank != 4:
        return None
    x, shape, axes = parts.inputs[0], parts.shape or (), permutation(moved)
    members = [parts, moved, node]
    if space_to_depth(node, graph) is not None:
        return "halotile.space_to_depth", members, {"blocksize": shape[3]}
    if axes in ([0, 1, 3, 2, 4, 5], [0, 1, 3, 4, 2, 5]) and _shuffles_nhwc(x, shape, node, graph):
        return "halotile.space_to_depth", members, {"blocksize": shape[2], "layout": "NHWC"}
    if axes == [0, 2, 1, 3, 4] and len(shape) == 5 and graph.same_shape(x.shape, node.shape):
        return "halotile.channel_shuffle", members, {"groups": shape[1]}
    if axes in ([0, 1, 4, 2, 5, 3], [0, 3, 4, 1, 5, 2]) and len(shape) == 6:
        crd = axes[1] == 1
        r = shape[2]
        channels, height, width = shape[1 if crd else 3], shape[4], shape[5]
        if shape[3 if crd else 1] == r and graph.same_shape(node.shape, (shape[0], channels, height * r, width * r)):
            return "halotile.depth_to_space", members, {"blocksize": r, "mode": "CRD" if crd else "DCR"}
    return None


def _select(node: GraphNode, graph: Graph) -> Found | None:
    """x[:, 2], a slice of one whose axis is dropped."""
    cut = node.inputs[0] if node.op in RESHAPES else node
    if cut.op != "relax.strided_slice" or not _own(cut) or cut.shape is None or cut.inputs[0].shape is None:
        return None
    changed = [a for a, (d, s) in enumerate(zip(cut.shape, cut.inputs[0].shape)) if not graph.same_dim(d, s)]
    if len(changed) != 1 or not graph.same_dim(cut.shape[changed[0]], 1):
        return None
    axis = changed[0]
    if not graph.same_shape(node.shape, cut.shape[:axis] + cut.shape[axis + 1 :]):
        return None
    return "halotile.select", [cut, node], {"axis": axis}


def _length(node: GraphNode, graph: Graph) -> Found | None:
    """sqrt(sum(x * x)), the Euclidean length."""
    if node.op != "relax.sqrt" or node.inputs[0].op != "relax.sum" or not _own(node.inputs[0]):
        return None
    total = node.inputs[0]
    square = total.inputs[0]
    if square.op != "relax.multiply" or square.inputs[0] is not square.inputs[1] or not _own(square):
        return None
    return "halotile.reduce_l2", [square, total, node], {"axis": total.attr("axis")}


def _shuffles_nhwc(x: GraphNode, shape: tuple[SizeLike, ...], node: GraphNode, graph: Graph) -> bool:
    n, h, r, w, q, c = shape
    return r == q and isinstance(r, int) and graph.same_shape(node.shape, (n, h, w, c * r * r))

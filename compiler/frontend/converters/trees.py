"""Ensembles of decision trees (``ai.onnx.ml``): the leaf of each tree, then what the leaves weigh.

    result[row] = sum over trees of weight[the leaf that the row comes to]      (schedules/operators/trees.py)

Nodes are numbered anew, the leaves first, so that weights are a table of leaves. For the kernel they are numbered once
more, tree by tree and level by level, so that the two children of a node lie side by side and near their parent, and
comparisons become three: what is greater is not less or equal, with the children exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ....schedules.operators.trees import LARGEST, packed
from ....schedules.operators.trees import MODES as TESTS
from ....schedules.words.refusal import Refusal
from ..node import OnnxNode
from ..registry import converts
from ..value import OnnxValue
from .scores import chosen, either, labels, of_two, regressed, rows, transformed

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op
ML = "ai.onnx.ml"
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")  # of BRANCH_..., in the order of TreeEnsemble's numbers (opset 5)
MOST_COPIES = 4  # nodes of the kernel's table to one of the model: more only where many lead to the same ones
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True)
class Forest:
    """Nodes by number, the leaves first: ``feature``, ``split``, ``mode`` (places in MODES), ``children`` ([nodes, 2],
    where the comparison holds and where not), ``nan`` (whether it holds for a NaN). ``roots``: one for each tree.
    ``weights``: [leaves, results], NaN where a leaf has none."""

    feature: np.ndarray
    split: np.ndarray
    mode: np.ndarray
    children: np.ndarray
    nan: np.ndarray
    roots: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class TreeTable:
    """Nodes tree by tree and level by level, the children of each side by side: ``child`` is the first, which follows
    where the comparison ``test`` (a place in the kernel's MODES) holds, ``nan`` whether it holds for a NaN. ``leaf``: a
    leaf's number, -1 for an inner node. ``roots``: int32, a place for each tree."""

    tree: np.ndarray
    split: np.ndarray
    feature: np.ndarray
    child: np.ndarray
    test: np.ndarray
    nan: np.ndarray
    leaf: np.ndarray
    roots: np.ndarray


def _level_by_level(forest: Forest) -> TreeTable:
    """The table of a forest. A node to which several lead is written once for each of them."""
    leaves, most = len(forest.weights), MOST_COPIES * len(forest.feature)
    tests, nan, ways = _three_tests(forest)
    level, tree = forest.roots.astype("int64"), np.arange(len(forest.roots))
    old, trees, parents = [level], [tree], [np.full(level.size, -1)]
    first = total = 0
    while level.size:
        total = first + level.size
        if total > most or len(old) > len(forest.feature):
            raise Refusal("its nodes lead back to themselves, or many lead to the same ones")
        inner = np.flatnonzero(level >= leaves)
        parents.append(np.repeat(first + inner, 2))
        level, tree, first = ways[level[inner]].reshape(-1).astype("int64"), np.repeat(tree[inner], 2), total
        old.append(level)
        trees.append(tree)
    if total >= LARGEST:
        raise Refusal(f"it has {total} nodes, more than {LARGEST}")
    nodes, of, above = map(np.concatenate, (old, trees, parents))
    order = np.argsort(of, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    child = np.zeros(order.size, "int64")
    child[place[above[above >= 0][::2]]] = place[np.flatnonzero(above >= 0)[::2]]
    nodes = nodes[order]
    return TreeTable(
        of[order], forest.split[nodes], forest.feature[nodes], child, tests[nodes], nan[nodes],
        np.where(nodes < leaves, nodes, -1), place[: len(forest.roots)].astype("int32"),
    )  # fmt: skip


def _three_tests(forest: Forest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each node's place in the kernel's MODES, whether that holds for a NaN, and its children in that order: GTE, GT
    and NEQ are the opposites of LT, LEQ and EQ, and of the six NEQ alone holds for a NaN."""
    opposite = {"GT": "LEQ", "GTE": "LT", "NEQ": "EQ"}
    turned = np.array([m in opposite for m in MODES])[forest.mode]
    tests = np.array([TESTS.index(opposite.get(m, m)) for m in MODES])[forest.mode]
    holds = forest.nan | (forest.mode == MODES.index("NEQ"))
    return tests, holds ^ turned, np.where(turned[:, None], forest.children[:, ::-1], forest.children)


@converts("TreeEnsembleRegressor", domain=ML)
def regressor(node: OnnxNode) -> OnnxValue:
    forest = _numbered(node, "target", node.attr("n_targets", 1))
    y = _aggregate(node, forest, node.attr("aggregate_function", "SUM"))
    return regressed(node, node.cast(_shifted(node, y, forest.weights.shape[1]), "float32"))


@converts("TreeEnsembleClassifier", domain=ML)
def classifier(node: OnnxNode) -> list[OnnxValue | None]:
    """Labels and scores. Of two classes, the leaves weigh the second alone, and say so by the first one's number."""
    classes = labels(node, "classlabels_int64s")
    weighed = set(node.attr("class_ids", []))
    if classes.size == 2 and weighed == {0}:
        forest = _numbered(node, "class", 1)
        score = node.cast(_shifted(node, _aggregate(node, forest, "SUM"), 1), "float32")
        positive = bool(np.nanmin(forest.weights) >= 0)
        return [either(node, score, 0.5 if positive else 0.0, classes), of_two(node, score, positive)]
    if classes.size < 3:
        raise Refusal(f"it has {classes.size} classes, and its leaves weigh the classes {sorted(weighed)}; of two "
                      "classes leaves can weigh one alone, by the number 0")  # fmt: skip
    scores = _aggregate(node, _numbered(node, "class", classes.size), "SUM")
    scores = node.cast(_shifted(node, scores, classes.size), "float32")
    return [chosen(node, scores, classes), transformed(node, scores)]


@converts("TreeEnsemble", domain=ML, since=5)
def ensemble(node: OnnxNode) -> OnnxValue:
    if node.attr("post_transform", 0) != 0:
        raise Refusal("its post_transform is not supported")
    y = _aggregate(node, _tabled(node), AGGREGATES[node.attr("aggregate_function", 1)])
    return node.cast(y, node.need(0).dtype)


# ---------------------------------------------------------------------- evaluation


def _aggregate(node: OnnxNode, forest: Forest, function: str) -> OnnxValue:
    """What the trees say of each row, [rows, results]."""
    x = rows(node, node.need(0))
    if forest.feature.size and not 0 <= forest.feature.min() <= forest.feature.max() < x.shape[1]:
        raise Refusal(f"it reads feature {forest.feature.max()}; its operand is {x}")
    lacking = np.isnan(forest.weights)
    least = "SUM" if function == "AVERAGE" else function
    if least != "SUM" and lacking.any():
        raise Refusal(f"it takes the {function} of trees some of whose leaves have no weight for a result")
    table = _level_by_level(forest)
    weights = np.where(lacking, 0, forest.weights).astype(forest.weights.dtype)
    more = [table.split.astype("float64")] if x.dtype == "float64" else []
    alone = _result_of_each(table, ~lacking) if least == "SUM" and weights.shape[1] > 1 else None
    if alone is not None:
        weights = weights.sum(1, dtype=weights.dtype)  # of one that is not zero
        more.append(alone)
    nodes = packed(table.split.astype(x.dtype), table.feature, table.child, table.test, table.nan, table.leaf)
    inner = table.leaf < 0
    y = node.own(
        "halotile.forest", x, *map(node.const, (nodes, table.roots, weights, *more)),
        mode=_one(table.test[inner]), nan=_one(table.nan[inner]), function=least, results=forest.weights.shape[1],
    )  # fmt: skip
    return node.do(R.divide, y, node.scalar(len(forest.roots), y)) if function == "AVERAGE" else y


def _one(values: np.ndarray) -> int:
    """What all are; -1 if they differ, 0 if there are none."""
    return int(values[0]) if values.size and (values == values[0]).all() else -1 if values.size else 0


def _result_of_each(table: TreeTable, weighed: np.ndarray) -> np.ndarray | None:
    """The one result (int32) that each tree's leaves weigh; None if some tree's weigh several."""
    leaves = table.leaf >= 0
    found = np.zeros((len(table.roots), weighed.shape[1]), bool)
    np.logical_or.at(found, table.tree[leaves], weighed[table.leaf[leaves]])
    return found.argmax(1).astype("int32") if (found.sum(1) <= 1).all() else None


def _shifted(node: OnnxNode, y: OnnxValue, results: int) -> OnnxValue:
    """With the base values added."""
    given = node.attr("base_values_as_tensor")
    base = np.array(node.attr("base_values", []) if given is None else given.array, y.dtype).reshape(-1)
    if base.size not in (0, results):
        raise Refusal(f"it has {base.size} base values for {results} results")
    return node.do(R.add, y, node.const(base)) if base.size else y


# ---------------------------------------------------------------------- tables


def _numbered(node: OnnxNode, kind: str, results: int) -> Forest:
    """The forest of attributes whose nodes are named by their tree and their number in it."""

    def numbers(name: str) -> np.ndarray:
        given = node.attr(f"{name}_as_tensor")
        return np.array(node.attr(name, []) if given is None else given.array)

    names = [*zip(node.attr("nodes_treeids", []), node.attr("nodes_nodeids", []))]
    mode = node.attr("nodes_modes", [])
    unknown = {*mode} - {*(f"BRANCH_{m}" for m in MODES), "LEAF"}
    if unknown:
        raise Refusal(f"its modes {sorted(unknown)} are not supported")
    if len({*names}) < len(names) or not names:
        raise Refusal("two of its nodes have one name" if names else "it has no nodes")
    leaf = np.array([m == "LEAF" for m in mode])
    order = np.argsort(~leaf, kind="stable")
    place = {names[old]: new for new, old in enumerate(order)}
    ways = [numbers(f"nodes_{side}nodeids")[order] for side in ("true", "false")]
    tree = np.array([t for t, _ in names])[order]
    count = int(leaf.sum())
    nodes = np.arange(len(names), dtype="int32")
    children = np.stack([nodes, nodes], 1)
    for index in range(count, len(names)):
        children[index] = [_known(place, (int(tree[index]), int(w[index]))) for w in ways]
    parents = {*children[count:].reshape(-1).tolist()}
    first: dict[int, SizeLike] = {}
    for name in names:  # in the model's order
        if place[name] not in parents:
            first.setdefault(name[0], place[name])
    wide = node.attr(f"{kind}_weights_as_tensor") is not None
    weights = np.full((count, results), np.nan, numbers(f"{kind}_weights").dtype if wide else "float32")
    where = zip(*(node.attr(f"{kind}_{n}", []) for n in ("treeids", "nodeids", "ids")))
    for (t, n, result), weight in zip(where, numbers(f"{kind}_weights")):
        leaf_ = _known(place, (t, n))
        if leaf_ >= count or not 0 <= result < results:
            raise Refusal(f"node {n} of tree {t}, which has a weight for result {result}, is no leaf or has no such")
        weights[leaf_, result] = np.nansum([weights[leaf_, result], weight])
    missing = node.attr("nodes_missing_value_tracks_true") or [0] * len(names)
    numbered = np.array([0 if m == "LEAF" else MODES.index(m[7:]) for m in mode], "int32")
    feature = np.where(leaf, 0, numbers("nodes_featureids")).astype("int32")
    nan = np.array(missing, bool) & ~leaf
    return Forest(feature[order], numbers("nodes_values")[order], numbered[order], children, nan[order],
                  np.array([*first.values()], "int32"), weights)  # fmt: skip


def _known(place: dict[tuple[int, int], int], name: tuple[int, int]) -> int:
    if name not in place:
        raise Refusal(f"node {name[1]} of tree {name[0]}, which another names, is not there")
    return place[name]


def _tabled(node: OnnxNode) -> Forest:
    """The forest of TreeEnsemble, whose nodes and leaves are tables of their own."""
    if "membership_values" in node.attributes:
        raise Refusal("membership in sets is not supported")
    split, given = (node.attr(n).array for n in ("nodes_splits", "leaf_weights"))
    mode = node.attr("nodes_modes").array.astype("int32")
    count = given.size
    weights = np.full((count, node.attr("n_targets", 1)), np.nan, given.dtype)
    weights[np.arange(count), node.attr("leaf_targetids")] = given

    def behind(table: Sequence[object], head: object, dtype: str) -> np.ndarray:
        return np.concatenate([np.full(count, head), np.array(table)]).astype(dtype)

    sides = [(node.attr(f"nodes_{s}leafs"), np.array(node.attr(f"nodes_{s}nodeids"))) for s in ("true", "false")]
    ways = [np.where(leaf, way, way + count) for leaf, way in sides]
    own = np.arange(count, dtype="int32")
    children = np.concatenate([np.stack([own, own], 1), np.stack(ways, 1)]).astype("int32")
    missing = node.attr("nodes_missing_value_tracks_true") or [0] * split.size
    return Forest(behind(node.attr("nodes_featureids"), 0, "int32"), behind(split, 0, split.dtype.name),
                  behind(mode, 0, "int32"), children, behind(missing, 0, "bool"),
                  np.array(node.attr("tree_roots"), "int32") + np.int32(count), weights)  # fmt: skip

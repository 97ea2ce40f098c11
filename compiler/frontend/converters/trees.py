"""Ensembles of decision trees (``ai.onnx.ml``): the leaf of each tree, then what the leaves weigh.

    leaf[row, tree] = the leaf that the row comes to      (schedules/operators/trees.py)
    result[row]     = sum over trees of weight[leaf]

Nodes are numbered anew, the leaves first, so that weights are a table of leaves; leaves are their own children, so that
shallow trees wait for deep ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from ..node import Node
from ..registry import Refusal, converts
from ..value import Value
from .indexing import read
from .scores import chosen, either, labels, of_two, regressed, rows, transformed

R = relax.op
ML = "ai.onnx.ml"
MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")  # of BRANCH_..., in the order of TreeEnsemble's numbers (opset 5)
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

    def depth(self) -> int:
        """Comparisons on the longest way from a root to a leaf."""
        leaves, level, steps = len(self.weights), np.unique(self.roots), 0
        while (level := level[level >= leaves]).size:
            level, steps = np.unique(self.children[level]), steps + 1
            if steps > len(self.feature):
                raise Refusal("its nodes lead back to themselves")
        return steps


@converts("TreeEnsembleRegressor", domain=ML)
def regressor(node: Node) -> Value:
    forest = _numbered(node, "target", node.attr("n_targets", 1))
    y = _aggregate(node, forest, node.attr("aggregate_function", "SUM"))
    return regressed(node, node.cast(_shifted(node, y, forest.weights.shape[1]), "float32"))


@converts("TreeEnsembleClassifier", domain=ML)
def classifier(node: Node) -> list[Value | None]:
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
def ensemble(node: Node) -> Value:
    if node.attr("post_transform", 0) != 0:
        raise Refusal("its post_transform is not supported")
    y = _aggregate(node, _tabled(node), AGGREGATES[node.attr("aggregate_function", 1)])
    return node.cast(y, node.need(0).dtype)


# ---------------------------------------------------------------------- evaluation


def _aggregate(node: Node, forest: Forest, function: str) -> Value:
    """What the trees say of each row, [rows, results]."""
    leaves = _leaves(node, forest, rows(node, node.need(0)))
    rest = {"MIN": np.inf, "MAX": -np.inf}.get(function, 0.0)
    lacking = np.isnan(forest.weights)
    if rest and lacking.any():
        raise Refusal(f"it takes the {function} of trees some of whose leaves have no weight for a result")
    table = np.where(lacking, rest, forest.weights).astype(forest.weights.dtype)
    said = read(node, node.const(table), leaves, 0)
    if function in ("MIN", "MAX"):
        return node.do(R.min if function == "MIN" else R.max, said, axis=[1])
    y = node.do(R.sum, said, axis=[1])
    return y if function == "SUM" else node.do(R.divide, y, node.scalar(len(forest.roots), y))


def _leaves(node: Node, forest: Forest, x: Value) -> Value:
    """The leaf (int32 [rows, trees]) that each row comes to in each tree."""
    if forest.feature.size and not 0 <= forest.feature.min() <= forest.feature.max() < x.shape[1]:
        raise Refusal(f"it reads feature {forest.feature.max()}; its operand is {x}")
    inner = np.arange(len(forest.feature)) >= len(forest.weights)
    modes = np.unique(forest.mode[inner]) if inner.any() else np.zeros(1, "int32")
    more = [node.const(np.searchsorted(modes, forest.mode).astype("int32"))] if modes.size > 1 else []
    more += [node.const(forest.nan.astype("int8"))] if forest.nan.any() else []
    tables = (forest.feature, forest.split.astype(x.dtype), forest.children.T.reshape(-1), forest.roots)
    return node.own(
        "halotile.leaves", x, *map(node.const, tables), *more,
        depth=forest.depth(), modes=[MODES[m] for m in modes], nan=bool(forest.nan.any()),
    )  # fmt: skip


def _shifted(node: Node, y: Value, results: int) -> Value:
    """With the base values added."""
    given = node.attr("base_values_as_tensor")
    base = np.array(node.attr("base_values", []) if given is None else given.array, y.dtype).reshape(-1)
    if base.size not in (0, results):
        raise Refusal(f"it has {base.size} base values for {results} results")
    return node.do(R.add, y, node.const(base)) if base.size else y


# ---------------------------------------------------------------------- tables


def _numbered(node: Node, kind: str, results: int) -> Forest:
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
    first: dict[Any, int] = {}
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


def _known(place: dict[Any, int], name: tuple[int, int]) -> int:
    if name not in place:
        raise Refusal(f"node {name[1]} of tree {name[0]}, which another names, is not there")
    return place[name]


def _tabled(node: Node) -> Forest:
    """The forest of TreeEnsemble, whose nodes and leaves are tables of their own."""
    if "membership_values" in node.attributes:
        raise Refusal("membership in sets is not supported")
    split, given = (node.attr(n).array for n in ("nodes_splits", "leaf_weights"))
    mode = node.attr("nodes_modes").array.astype("int32")
    count = given.size
    weights = np.full((count, node.attr("n_targets", 1)), np.nan, given.dtype)
    weights[np.arange(count), node.attr("leaf_targetids")] = given

    def behind(table: Sequence[Any], head: Any, dtype: str) -> np.ndarray:
        return np.concatenate([np.full(count, head), np.array(table)]).astype(dtype)

    sides = [(node.attr(f"nodes_{s}leafs"), np.array(node.attr(f"nodes_{s}nodeids"))) for s in ("true", "false")]
    ways = [np.where(leaf, way, way + count) for leaf, way in sides]
    own = np.arange(count, dtype="int32")
    children = np.concatenate([np.stack([own, own], 1), np.stack(ways, 1)]).astype("int32")
    missing = node.attr("nodes_missing_value_tracks_true") or [0] * split.size
    return Forest(behind(node.attr("nodes_featureids"), 0, "int32"), behind(split, 0, split.dtype.name),
                  behind(mode, 0, "int32"), children, behind(missing, 0, "bool"),
                  np.array(node.attr("tree_roots"), "int32") + np.int32(count), weights)  # fmt: skip

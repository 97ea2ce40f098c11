"""What classifiers and regressors of ``ai.onnx.ml`` do with their scores, as ONNX Runtime does it."""

from __future__ import annotations

import numpy as np
from tvm import relax

from ....schedules.words.refusal import Refusal
from ..node import OnnxNode
from ..value import OnnxValue
from .indexing import read

R = relax.op


def transformed(node: OnnxNode, scores: OnnxValue) -> OnnxValue:
    """``post_transform`` of [rows, 2 or more] scores."""
    kind = _kind(node, ("NONE", "SOFTMAX", "LOGISTIC"))
    if kind == "SOFTMAX":
        return node.do(R.nn.softmax, scores, axis=-1)
    return node.do(R.sigmoid, scores) if kind == "LOGISTIC" else scores


def regressed(node: OnnxNode, scores: OnnxValue) -> OnnxValue:
    """What a regressor gives for [rows, targets] scores. A transform of one score is refused: the standard and ONNX
    Runtime read it differently."""
    if scores.shape[1] > 1:
        return transformed(node, scores)
    _kind(node, ("NONE",))
    return scores


def of_two(node: OnnxNode, score: OnnxValue, complement: bool) -> OnnxValue:
    """[rows, 1] scores of the second of two classes as [rows, 2]; the first has one less it, or its opposite."""
    if _kind(node, ("NONE", "LOGISTIC")) == "LOGISTIC":
        score, complement = node.do(R.sigmoid, score), True
    other = node.do(R.subtract, node.scalar(1 if complement else 0, score), score)
    return node.do(R.concat, [other, score], axis=1)


def labels(node: OnnxNode, attribute: str) -> np.ndarray:
    """The classes (int64)."""
    found = node.attr(attribute)
    if not found:
        raise Refusal("its classes are named by strings, which are not supported; train it on numbered classes")
    return np.array(found, "int64")


def chosen(node: OnnxNode, scores: OnnxValue, classes: np.ndarray) -> OnnxValue:
    """The label (int64 [rows]) of the first of the largest scores [rows, classes]."""
    place = node.own("halotile.argmax", scores, axis=1, keepdims=False, last=False)
    return place if np.array_equal(classes, np.arange(classes.size)) else read(node, node.const(classes), place, 0)


def either(node: OnnxNode, score: OnnxValue, above: float, classes: np.ndarray) -> OnnxValue:
    """The label (int64 [rows]) by whether [rows, 1] scores are above a number."""
    hit = node.do(R.greater, node.reshape(score, (score.shape[0],)), node.scalar(above, score))
    return node.do(R.where, hit, node.const(classes[1]), node.const(classes[0]))


def rows(node: OnnxNode, x: OnnxValue) -> OnnxValue:
    """The operand as floats [rows, features]; one row may come as a vector."""
    if x.rank not in (1, 2):
        raise Refusal(f"its operand is {x}; it takes rows of features")
    x = x if x.rank == 2 else node.reshape(x, (1, *x.shape))
    return x if x.dtype in ("float32", "float64") else node.cast(x, "float32")


def _kind(node: OnnxNode, taken: tuple[str, ...]) -> str:
    kind: str = node.attr("post_transform", "NONE")
    if kind not in taken:
        raise Refusal(f"its post_transform {kind} is not supported for these scores; {' and '.join(taken)} are")
    return kind

"""``ai.onnx.ml``: features scaled, filled in, encoded, and linear models of them, as converters of scikit-learn write
them. Results are float32 whatever the features are, as the standard says."""

from __future__ import annotations

import numpy as np
from tvm import relax

from ....schedules.words.refusal import Refusal
from ..node import OnnxNode
from ..registry import converts
from ..value import OnnxValue
from .indexing import read
from .matmul import product
from .scores import chosen, either, labels, of_two, regressed, rows, transformed

R = relax.op
ML = "ai.onnx.ml"


@converts("Scaler", domain=ML)
def scaler(node: OnnxNode) -> OnnxValue:
    """(x - offset) * scale, one number of each for all features or for each."""
    x = _float(node, node.need(0))
    offset, scale = (np.array(node.attr(n, [d]), "float32") for n, d in (("offset", 0.0), ("scale", 1.0)))
    return node.do(R.multiply, node.do(R.subtract, x, node.const(offset)), node.const(scale))


@converts("Normalizer", domain=ML)
def normalizer(node: OnnxNode) -> OnnxValue:
    """Rows divided by their largest element, or by the sum or the root of the squares; rows of zeros stay."""
    x, kind = _float(node, rows(node, node.need(0))), node.attr("norm", "MAX")
    if kind == "MAX":
        size = node.do(R.max, x, axis=[1], keepdims=True)
    elif kind == "L1":
        size = node.do(R.sum, node.do(R.abs, x), axis=[1], keepdims=True)
    else:
        size = node.do(R.sqrt, node.do(R.sum, node.do(R.multiply, x, x), axis=[1], keepdims=True))
    zero = node.do(R.equal, size, node.scalar(0, x))
    return node.do(R.divide, x, node.do(R.where, zero, node.scalar(1, x), size))


@converts("Binarizer", domain=ML)
def binarizer(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    return node.cast(node.do(R.greater, x, node.scalar(node.attr("threshold", 0.0), x)), x.dtype)


@converts("Imputer", domain=ML)
def imputer(node: OnnxNode) -> OnnxValue:
    """What equals the value that is to be replaced (NaN, as a rule) becomes the number of its feature."""
    x = node.need(0)
    kind = "int64" if x.is_integer else "float"
    fills = np.array(node.attr(f"imputed_value_{kind}s", []), x.dtype)
    if fills.size not in (1, x.shape[-1]):
        raise Refusal(f"it has {fills.size} values to put in; its operand is {x}")
    old = node.attr(f"replaced_value_{kind}", 0)
    missing = node.do(R.isnan, x) if old != old else node.do(R.equal, x, node.scalar(old, x))
    return node.do(R.where, missing, node.const(fills), x)


@converts("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: OnnxNode) -> OnnxValue:
    """The columns of the last axis that the second operand lists."""
    x, wanted = node.need(0), node.need(1)
    x = x if x.rank > 1 else node.reshape(x, (1, *x.shape))
    return read(node, x, node.reshape(wanted, (wanted.size,)), x.rank - 1)


@converts("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: OnnxNode) -> OnnxValue:
    """All operands side by side."""
    parts = [_float(node, rows(node, node.need(i))) for i in range(len(node.inputs))]
    sizes = node.attr("inputdimensions") or [p.shape[1] for p in parts]
    if [p.shape[1] for p in parts] != list(sizes):
        raise Refusal(f"its operands have {[p.shape[1] for p in parts]} features, and it takes {list(sizes)}")
    return node.do(R.concat, parts, axis=1)


@converts("OneHotEncoder", domain=ML)
def one_hot_encoder(node: OnnxNode) -> OnnxValue:
    """1 at the category that it is; nowhere when it is none (which ``zeros`` = 0 says must not be)."""
    x, known = node.need(0), node.attr("cats_int64s")
    if not known or not node.attr("zeros", 1):
        raise Refusal("only numbered categories are supported, with zeros for what is in none")
    column = node.reshape(node.cast(x, "int64"), (*x.shape, 1))
    return node.cast(node.do(R.equal, column, node.const(np.array(known, "int64"))), "float32")


@converts("LabelEncoder", domain=ML, since=2)
def label_encoder(node: OnnxNode) -> OnnxValue:
    """The value beside the key that the element equals, else the default; a NaN is a key since version 4."""
    x = node.need(0)
    keys, _ = _table(node, "keys")
    values, kind = _table(node, "values")
    fallback: object = node.attr(f"default_{kind}", -1 if kind == "int64" else 0.0)
    fallback = node.attr("default_tensor").array if "default_tensor" in node.attributes else fallback
    last = np.append(values, np.array(fallback, values.dtype).reshape(-1)[:1])
    column = node.reshape(x, (*x.shape, 1))
    hit = node.do(R.equal, column, node.const(keys.astype(x.dtype)))
    if (keys != keys).any() and node.opset >= 4:
        hit = node.do(R.logical_or, hit, node.do(R.logical_and, node.do(R.isnan, column), node.const(keys != keys)))
    none = node.broadcast(node.const(np.ones((), "uint8")), (*x.shape, 1))
    row = node.do(R.concat, [node.cast(hit, "uint8"), none], axis=x.rank)
    place = node.own("halotile.argmax", row, axis=x.rank, keepdims=False, last=False)
    return read(node, node.const(last), place, 0)


@converts("LinearRegressor", domain=ML)
def linear_regressor(node: OnnxNode) -> OnnxValue:
    return regressed(node, _linear(node, node.attr("targets", 1)))


@converts("LinearClassifier", domain=ML)
def linear_classifier(node: OnnxNode) -> list[OnnxValue | None]:
    """Labels and scores; a single score is that of the second of two classes."""
    classes = labels(node, "classlabels_ints")
    scores = _linear(node, len(node.attr("intercepts") or classes))
    if scores.shape[1] == 1 and classes.size == 2:
        return [either(node, scores, 0.0, classes), of_two(node, scores, True)]
    if scores.shape[1] != classes.size or classes.size < 2:
        raise Refusal(f"it has {scores.shape[1]} scores for {classes.size} classes")
    return [chosen(node, scores, classes), transformed(node, scores)]


def _linear(node: OnnxNode, targets: int) -> OnnxValue:
    """x coefficients' + intercepts, [rows, targets]."""
    x = _float(node, rows(node, node.need(0)))
    weights = np.array(node.attr("coefficients"), "float32")
    if weights.size != targets * x.shape[1]:
        raise Refusal(f"it has {weights.size} coefficients for {targets} results; its operand is {x}")
    y = product(node, x, node.const(np.ascontiguousarray(weights.reshape(targets, -1).T)))
    bias = node.attr("intercepts")
    return y if not bias else node.do(R.add, y, node.const(np.array(bias, "float32")))


def _table(node: OnnxNode, side: str) -> tuple[np.ndarray, str]:
    """The keys or values of a LabelEncoder, and the name of their type."""
    for kind, dtype in (("int64", "int64"), ("float", "float32")):
        if f"{side}_{kind}s" in node.attributes:
            return np.array(node.attr(f"{side}_{kind}s"), dtype), kind
    given = node.attr(f"{side}_tensor")
    if isinstance(given, OnnxValue) and given.array is not None and given.dtype.startswith(("int", "float")):
        return given.array.reshape(-1), "int64" if given.is_integer else "float"
    raise Refusal("strings are not supported")


def _float(node: OnnxNode, x: OnnxValue) -> OnnxValue:
    return node.cast(x, "float32")

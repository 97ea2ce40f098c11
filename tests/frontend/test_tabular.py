"""``ai.onnx.ml`` but trees: ONNX Runtime's answers, or a refusal that says why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError
from tabular_models import agrees, model_of

X = np.array([[1, -2, 0.5], [0, 0, 0], [-3, -1, -2], [2, 2, 1]], "float32")
LOST = np.where(X == 2, np.nan, X).astype("float32")
WHOLE = np.array([[1, 5, 7], [2, 7, 9]])
ROW = [0.5, -1.0, 2.0]
ROWS = [*ROW, -0.5, 1.0, -2.0, 1.0, 1.0, 0.0]

CASES: dict[str, tuple[str, np.ndarray, dict[str, Any]]] = {
    "scaled": ("Scaler", X, dict(offset=[1.0, 2.0, 3.0], scale=[2.0, 0.5, 1.0])),
    "scaled alike": ("Scaler", X.astype("float64"), dict(offset=[1.0], scale=[2.0])),
    "scaled whole": ("Scaler", WHOLE, dict(offset=[1.0], scale=[0.5])),
    "by the largest": ("Normalizer", X, dict(norm="MAX")),
    "by the sum": ("Normalizer", X, dict(norm="L1")),
    "by the root": ("Normalizer", X, dict(norm="L2")),
    "binary": ("Binarizer", X, dict(threshold=0.6)),
    "filled in": ("Imputer", LOST, dict(imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=float("nan"))),
    "filled in alike": ("Imputer", X, dict(imputed_value_floats=[9.0])),
    "filled in whole": ("Imputer", WHOLE, dict(imputed_value_int64s=[4], replaced_value_int64=7)),
    "one hot": ("OneHotEncoder", WHOLE, dict(cats_int64s=[1, 2, 7])),
    "one hot of floats": ("OneHotEncoder", WHOLE.astype("float32"), dict(cats_int64s=[1, 2, 7])),
    "encoded": ("LabelEncoder", WHOLE, dict(keys_int64s=[1, 2, 7], values_int64s=[10, 20, 70])),
    "encoded wide": ("LabelEncoder", WHOLE, dict(keys_int64s=[7, 2], values_floats=[7.0, 0.2], default_float=-3.0)),
    "encoded NaN": ("LabelEncoder", LOST, dict(keys_floats=[1.0, float("nan")], values_int64s=[5, 6], default_int64=2)),
    "linear": ("LinearRegressor", X, dict(coefficients=ROW, intercepts=[0.1])),
    "linear twice": ("LinearRegressor", X, dict(coefficients=ROWS[:6], intercepts=[0.1, 0.2], targets=2)),
    "linear softmax": ("LinearRegressor", X, dict(coefficients=ROWS[:6], targets=2, post_transform="SOFTMAX")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", [2, 4])
def test_features_and_regressors(case: str, version: int) -> None:
    operator, x, attributes = CASES[case]
    agrees(operator, [x], 1, version, **attributes)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("classes", [[3, 7], [3, 7, 9], [0, 1, 2]])
def test_classifiers(classes: list[int], transform: str) -> None:
    count = len(classes)
    at = dict(coefficients=ROWS[: 3 * count], intercepts=[0.1, -0.1, 0.0][:count], classlabels_ints=classes)
    agrees("LinearClassifier", [X], 2, post_transform=transform, **at)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_one_score_of_two_classes(transform: str) -> None:
    at = dict(coefficients=ROW, intercepts=[0.1], classlabels_ints=[4, 9], post_transform=transform)
    agrees("LinearClassifier", [X], 2, **at)


def test_columns() -> None:
    agrees("ArrayFeatureExtractor", [X, np.array([2, 0])], 1)
    agrees("ArrayFeatureExtractor", [X[0], np.array([[1]])], 1)
    agrees("FeatureVectorizer", [X, X[:, :2]], 1, inputdimensions=[3, 2])


@pytest.mark.parametrize(
    ("operator", "attributes", "reason"),
    [
        ("LinearClassifier", dict(coefficients=ROW, intercepts=[0.1], classlabels_strings=["a", "b"]), "by strings"),
        ("LinearRegressor", dict(coefficients=ROW, post_transform="PROBIT"), "PROBIT is not supported"),
        ("LinearRegressor", dict(coefficients=[0.5]), "1 coefficients for 1 results"),
        ("OneHotEncoder", dict(cats_strings=["a"]), "only numbered categories"),
        ("LabelEncoder", dict(keys_floats=[1.0], values_strings=["a"]), "strings are not supported"),
        ("Imputer", dict(imputed_value_floats=[1.0, 2.0]), "2 values to put in"),
        ("FeatureVectorizer", dict(inputdimensions=[4]), "3"),
    ],
)
def test_refusals(operator: str, attributes: dict[str, Any], reason: str) -> None:
    model, _ = model_of(operator, [X], 2 if operator == "LinearClassifier" else 1, **attributes)
    with pytest.raises(UnsupportedError, match=reason):
        import_model(model)


def test_dictionaries_are_refused_with_advice() -> None:
    model, _ = model_of("ZipMap", [X], 1, classlabels_int64s=[0, 1, 2])
    with pytest.raises(UnsupportedError, match="zipmap=False"):
        import_model(model)

"""Ensembles of trees: ONNX Runtime's answers for every comparison, NaNs, aggregates and forms of scores."""

from __future__ import annotations

from typing import Any

import halotile
import numpy as np
import pytest
from halotile.benchmarks import node_tests
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError
from tabular_models import agrees, forest, model_of

RNG = np.random.default_rng(4)
X = (np.round(2 * RNG.standard_normal((40, 6))) / 2).astype("float32")  # on the splits as often as not
LOST = np.where(RNG.random(X.shape) < 0.2, np.nan, X).astype("float32")
MODES = [f"BRANCH_{m}" for m in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")]


@pytest.mark.parametrize("mode", [*MODES, "all"])
def test_comparisons(mode: str) -> None:
    modes = MODES if mode == "all" else [mode]
    agrees("TreeEnsembleRegressor", [X], 1, n_targets=2, **forest(12, 5, 6, [0, 1], modes=modes))


@pytest.mark.parametrize("missing", [False, True])
def test_missing_values_go_where_they_are_sent(missing: bool) -> None:
    agrees("TreeEnsembleRegressor", [LOST], 1, n_targets=1, **forest(12, 5, 6, [0], missing=missing))


@pytest.mark.parametrize("function", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("results", [1, 3])
def test_aggregates(function: str, results: int) -> None:
    at = dict(aggregate_function=function, base_values=[0.1, -0.2, 0.3][:results])
    agrees("TreeEnsembleRegressor", [X], 1, n_targets=results, **at, **forest(9, 4, 6, range(results)))


def test_depth_and_doubles() -> None:
    agrees("TreeEnsembleRegressor", [X], 1, n_targets=1, **forest(3, 12, 6, [0]))
    agrees("TreeEnsembleRegressor", [X.astype("float64")], 1, n_targets=1, **forest(5, 4, 6, [0]))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("base", [{}, {"base_values": [0.3]}])
def test_two_classes(transform: str, positive: bool, base: dict[str, Any]) -> None:
    trees = forest(20, 5, 6, [0], side="class", positive=positive)
    agrees("TreeEnsembleClassifier", [X], 2, classlabels_int64s=[4, 8], post_transform=transform, **base, **trees)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("per_tree", [False, True])
def test_three_classes(transform: str, per_tree: bool) -> None:
    trees = forest(21, 5, 6, [0, 1, 2], side="class", per_tree=per_tree)
    agrees("TreeEnsembleClassifier", [X], 2, classlabels_int64s=[4, 8, 1], post_transform=transform, **trees)


def test_a_library_gives_the_same_for_every_number_of_threads() -> None:
    at = forest(30, 6, 6, [0, 1, 2], side="class", per_tree=True)
    model, feeds = model_of("TreeEnsembleClassifier", [X], 2, classlabels_int64s=[0, 1, 2], **at)
    compiled = halotile.compile(model)
    assert compiled.verify().ok
    label, scores = compiled(feeds).values()
    assert (label == scores.argmax(1)).all()


def test_the_newer_form() -> None:
    name = "test_ai_onnx_ml_tree_ensemble_single_tree"
    assert node_tests.run_case(node_tests.load_cases()[name], "te").verdict == "pass"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (dict(classlabels_int64s=[4, 8], class_ids=1), "by the number 0"),
        (dict(classlabels_strings=["a", "b"]), "by strings"),
        (dict(post_transform="SOFTMAX"), "SOFTMAX is not supported"),
        (dict(base_values=[0.1, 0.2]), "2 base values for 1 results"),
        (dict(nodes_featureids=6), "reads feature 6"),
        (dict(nodes_truenodeids=99), "which another names, is not there"),
        (dict(nodes_truenodeids=0), "lead back to themselves"),
    ],
)
def test_refusals(change: dict[str, Any], reason: str) -> None:
    at = forest(3, 3, 6, [0], side="class") | {"classlabels_int64s": [4, 8]}
    for name, value in change.items():
        at[name] = [value] * len(at[name]) if isinstance(value, int) else value
    if "classlabels_strings" in change:
        del at["classlabels_int64s"]
    model, _ = model_of("TreeEnsembleClassifier", [X], 2, **at)
    with pytest.raises(UnsupportedError, match=reason):
        import_model(model)

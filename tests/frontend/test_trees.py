"""Ensembles of trees: ONNX Runtime's answers for every comparison, NaNs, aggregates and forms of scores."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import pytest
from evaluate import peer
from halotile.benchmarks import node_tests
from halotile.compiler.frontend import import_model
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import UnsupportedError
from halotile.schedules.operators.trees import LANES
from halotile.targets.resolve import resolve
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


def _many(rows: int, dtype: str = "float32") -> np.ndarray:
    """Rows of features on the splits as often as not, a fifth of them lost, some infinite."""
    rng = np.random.default_rng(rows)
    x = np.round(2 * rng.standard_normal((rows, 6))) / 2
    x[rng.random(x.shape) < 0.2] = np.nan
    x[rng.random(x.shape) < 0.05] = np.inf
    return x.astype(dtype)


@pytest.mark.parametrize(
    ("rows", "trees", "results", "dtype", "modes", "missing"),
    [  # fewer rows than lanes, as many, tasks with a tail; fewer trees than lanes, a tail of trees
        (1, 1, 1, "float32", MODES[:1], False),
        (1, 16, 3, "float32", MODES[1:2], True),
        (3, 37, 1, "float64", MODES, True),
        (15, 5, 2, "float32", MODES, False),
        (16, 17, 1, "float32", MODES[4:], True),
        (17, 33, 3, "float64", MODES[:2], False),
        (131, 19, 5, "float32", MODES, True),
        (300, 40, 1, "float32", MODES[2:4], True),
    ],
)
@pytest.mark.parametrize("per_tree", [False, True])
def test_libraries_of_any_number_of_rows_and_trees(
    rows: int, trees: int, results: int, dtype: str, modes: list[str], missing: bool, per_tree: bool
) -> None:
    at = forest(trees, 6, 6, range(results), rows, modes=modes, missing=missing, per_tree=per_tree)
    model, feeds = model_of("TreeEnsembleRegressor", [_many(rows, dtype)], 1, n_targets=results, **at)
    compiled = halotile.compile(model, threads=2)
    assert "halotile.forest" in compiled.report["kernels"][0]["operators"]
    (ours,), (theirs,) = compiled(feeds).values(), peer(model, feeds)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_sums_that_are_too_large_for_the_stack() -> None:
    """Sixteen rows of 1,201 results at a time."""
    at = forest(40, 4, 6, range(0, 1201, 7), per_tree=True)
    model, feeds = model_of("TreeEnsembleRegressor", [_many(37)], 1, n_targets=1201, **at)
    compiled = halotile.compile(model, threads=2)
    assert compiled.report["workspace_bytes"] >= 16 * 1201 * 4
    (ours,), (theirs,) = compiled(feeds).values(), peer(model, feeds)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="NOT RUN: needs objdump")
def test_no_step_of_a_way_down_branches(tmp_path: Path) -> None:
    """Of a choice LLVM made a branch, foretold wrongly half of the time: a third of the speed."""
    model, _ = model_of("TreeEnsembleRegressor", [_many(64)], 1, n_targets=1, **forest(20, 6, 6, [0], missing=True))
    build = run_pipeline(model, Options(resolve("x86-64-v3"), stop_after="assemble"))
    (tmp_path / "trees.o").write_bytes(b"".join(build.library.kernel_objects))
    command = ["objdump", "-d", "--no-show-raw-insn", "trees.o"]
    code = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    code = re.split("<halotile_k_[0-9a-f]{16}>:", code)[1].split("\n\n")[0]
    lanes = {"ss": 1, "ps": 4}  # that an instruction compares, where LLVM puts four side by side
    compares = sum(lanes[kind] for kind in re.findall(r"\tv?(?:u?comi|cmp\w+)(ss|ps) ", code))
    assert compares >= LANES > len(re.findall(r"\tj(?!mp)\w+ ", code))


def test_a_tree_of_one_leaf_and_nodes_to_which_two_lead() -> None:
    at = {
        "nodes_treeids": [0, 1, 1, 1, 1], "nodes_nodeids": [0, 0, 1, 2, 3], "nodes_featureids": [0, 2, 1, 0, 0],
        "nodes_values": [0.0, 0.5, 0.0, 0.0, 0.0], "nodes_modes": ["LEAF", *MODES[:2], "LEAF", "LEAF"],
        "nodes_truenodeids": [0, 1, 2, 0, 0], "nodes_falsenodeids": [0, 2, 3, 0, 0],
        "target_treeids": [0, 1, 1], "target_nodeids": [0, 2, 3], "target_ids": [0] * 3,
        "target_weights": [0.5, 2.0, 8.0],
    }  # fmt: skip
    model, feeds = model_of("TreeEnsembleRegressor", [X], 1, n_targets=1, **at)
    low = np.where(X[:, 1] < 0, 2.0, 8.0)
    want = 0.5 + np.where(X[:, 2] <= 0.5, low, 2.0)
    np.testing.assert_array_equal(*halotile.compile(model)(feeds).values(), want[:, None].astype("float32"))


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

"""What users read of a build: each line in one language, and no word without its meaning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from halotile.compiler.cli.inspect import _stage_text
from halotile.compiler.cli.main import run
from halotile.compiler.cli.summary import explanation, rows
from halotile.compiler.inspection import inspect_stage
from halotile.compiler.legend import LEGEND, legend
from halotile.compiler.verify import OutputCheck, Verification, compare
from halotile.errors import several
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def residual() -> onnx.ModelProto:
    """relu(conv(h) + h) with h = relu(conv(x)): the sum is the second convolution's epilogue."""
    rng = np.random.default_rng(2)
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.1, (16, n, 3, 3)).astype(np.float32), f"w{i}")
        for i, n in enumerate((3, 16))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], name="conv0", pads=[1] * 4),
        helper.make_node("Relu", ["c0"], ["h"], name="relu0"),
        helper.make_node("Conv", ["h", "w1"], ["c1"], name="conv1", pads=[1] * 4),
        helper.make_node("Add", ["c1", "h"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["r"], name="relu1"),
        helper.make_node("GlobalAveragePool", ["r"], ["y"], name="mean"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 1, 1])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def explained(residual: onnx.ModelProto) -> dict[str, Any]:
    return inspect_stage(residual, "plan", None, "x86-64-v3")


def test_what_is_an_epilogue_is_not_said_to_be_left_out(explained: dict[str, Any]) -> None:
    assert any({"conv1", "sum"} <= set(k["nodes"]) for k in explained["kernels"])  # the sum is in the kernel
    assert not [n for n in explained["notes"].get("fuse", ()) if "(sum)" in n]
    assert "(sum) not fused" not in explanation(explained)


def test_no_line_says_its_stage_twice(explained: dict[str, Any]) -> None:
    for stage, notes in explained["notes"].items():
        assert not [n for n in notes if n.startswith(f"{stage}:") or f": {stage}:" in n], notes
    assert not re.search(r"because +\w+: ", "\n".join(explanation(explained).splitlines()))


def test_every_short_word_of_a_schedule_has_its_meaning(explained: dict[str, Any]) -> None:
    text = explanation(explained)
    schedules = " ".join(k["schedule"] for k in explained["kernels"])
    assert re.search(r"C8, tile \d", schedules) and "prefix" in schedules
    meanings = text.split("words of schedules:\n")[1].splitlines()
    for word in ("C16:", "tile 2x3x2:", "staged:", "prefix 2:"):
        assert any(m.strip().startswith(word) for m in meanings), (word, meanings)
    said = [m.split(":")[0] for m in legend("matrix conv, strip 8x16 C16, 3 products")]
    assert said == ["C16", "strip 8x16", "3 products"]
    for schedule, kind in (
        ("direct conv C16, tile 1x13x2", "rows by 3 columns"), ("matmul packed, tile 4x5x16", "vectors of 16 columns"),
        ("winograd F(4x4,3x3), strip 16, tile 8x2", "vectors of output channels"),
    ):  # fmt: skip
        (tile,) = [m for m in legend(schedule) if m.startswith("tile ")]
        assert kind in tile, (schedule, tile)
    assert legend("nothing of the kind") == []
    (loop,) = [meaning for pattern, meaning in LEGEND if meaning.startswith("loop over")]
    assert loop in legend("map\nloop over 3 kernels"), "in a schedule that is not the first"


def test_every_short_word_of_a_plan_has_its_meaning(
    residual: onnx.ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(residual, tmp_path / "m.onnx")
    assert run(["inspect", str(tmp_path / "m.onnx"), "--plan", "--optimize", "memory", "-t", "x86-64-v3"]) == 0
    plans, _, meanings = capsys.readouterr().out.partition("words of plans:\n")
    words = [line.strip().partition(":")[0] for line in meanings.splitlines()]
    assert len(set(words)) == len(words) > 4
    for word in ("task", "stripe", "fill", "shift", "ring", "recompute", "window"):
        told = re.search(rf"\b{word}s?\b", re.sub(rf"\b0 {word}s", "", plans)) is not None
        assert told == any(w.split()[0] == word for w in words), (word, plans)
    tiled = "tiled, 6 members, 16 tasks of up to 546 stripes, 5 rings, 18 parts, work x 1.04"
    assert [m.split(":")[0].split()[0] for m in legend(tiled)] == ["tiled", "parts", "task", "stripe", "work", "ring"]
    assert not legend("no tile groups")


def test_a_table_counts_in_one_language(explained: dict[str, Any], residual: onnx.ModelProto) -> None:
    report = {"operators_before": explained["operators_before"], "operators_after": 9, "kernels": explained["kernels"]}
    said = dict(rows(report, Path("m.onnx"), None))
    assert said["nodes of the model"].startswith("6 (2 Conv, 2 Relu")
    assert said["kernels made of them"] == str(len(explained["kernels"]))
    assert not [k for k in said if "before" in k or "after" in k]
    text = _stage_text(explained)
    assert re.search(r"^nodes of the model +6$", text, re.M) and re.search(r"^operators after plan +\d+$", text, re.M)


def test_nouns_agree_with_their_numbers(explained: dict[str, Any]) -> None:
    assert [several(n, "phase") for n in (0, 1, 2, "h")] == ["0 phases", "1 phase", "2 phases", "h phases"]
    text = explanation(explained)
    assert re.findall(r"\b1 [a-z]+s\b", text) == []


def test_one_thread_is_no_threads() -> None:
    rooms = [ROOT / room for room in ("benchmarks", "compiler", "passes", "schedules", "targets")]
    texts = {path: path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py")}
    assert len(texts) > 500
    assert [path for path, text in texts.items() if re.search(r"f\".*\{[\w.]+\} threads\b", text)] == []


def test_what_is_nowhere_a_number_proves_little() -> None:
    nothing = np.full((2, 3), np.nan, np.float32)
    check = compare("y", nothing, nothing, 1e-3, 1e-5)
    assert check.ok and check.constant
    assert "one value everywhere" in Verification((check,), 1e-3, 1e-5, "it", "random", 0).message()


@pytest.mark.parametrize("count, said", [(1, "1 output agrees with"), (2, "2 outputs agree with")])
def test_counts_and_verbs_agree(count: int, said: str) -> None:
    checks = tuple(OutputCheck(f"y{i}", 4, 0.0, 1.0, 1e-3, 0, "", False, 0.0) for i in range(count))
    found = Verification(checks, 1e-3, 1e-5, "ONNX Runtime", "random", 0).message()
    assert found.startswith(said)
    weak = Verification((OutputCheck("y", 4, 0.0, 1.0, 1e-3, 0, "", True, 0.0),), 1e-3, 1e-5, "it", "random", 0)
    assert "1 of them has one value" in weak.message()

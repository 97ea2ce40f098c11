"""``halotile inspect --timeline``: text, JSON and SVG, and what it refuses; ``--pareto`` where there is no curve."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import onnx
import pytest
from halotile.compiler.cli.main import run
from onnx import TensorProto, helper, numpy_helper
from pictures import paper, words_outside


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions that need several stripes."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(s).astype("float32"), n)
        for n, s in (("w", (16, 3, 3, 3)), ("v", (4, 16, 3, 3)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "v"], ["y"], pads=[1] * 4),
    ]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 3, 90, 128]), ("y", None))]
    graph = helper.make_graph(nodes, "two", infos[:1], infos[1:], weights)
    out = tmp_path_factory.mktemp("timeline") / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), out)
    return out


def test_text_and_svg(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "out.svg"
    assert run(["inspect", str(path), "--timeline", "--svg", str(picture), "-t", "scratchpad"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "predicted" in lines[0] and "without overlap" in lines[0]
    assert [line.split("|")[0].strip() for line in lines[1:4]] == ["load", "processor", "store"]
    assert lines[-1].startswith("total")
    assert len([e for e in ElementTree.parse(picture).iter() if e.tag.endswith("rect")]) > 6
    drawn = picture.read_text(encoding="utf-8")
    assert words_outside(drawn) == [] and paper(drawn)


def test_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(path), "--timeline", "-t", "scratchpad", "--json"]) == 0
    (chain,) = json.loads(capsys.readouterr().out)["chains"]
    assert chain["stripes"] > 1 and chain["seconds"] < chain["seconds_without_overlap"]
    assert chain["scratchpad_bytes"] <= 256 * 1024
    assert max(b["end"] for b in chain["bars"]) == chain["seconds"]
    assert {b["lane"] for b in chain["bars"]} == {"load", "processor", "store"}
    assert any(b["critical"] for b in chain["bars"])


def test_a_target_without_a_scratchpad_is_an_error(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(path), "--timeline", "-t", "x86-64-v3"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "no scratchpad" in line and "-t scratchpad" in line


def test_a_file_that_cannot_be_written_is_an_error(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(path), "-t", "scratchpad", "--svg", str(path / "no" / "x.svg")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "can't write" in line


def test_a_plan_that_was_not_chosen_has_no_curve(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["-t", "scratchpad"], ["--tile", "off"]):
        assert run(["inspect", str(path), "--pareto", *arguments]) == 0
        assert capsys.readouterr().out.endswith("no curve: there was nothing to choose between\n")

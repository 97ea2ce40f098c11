"""What README tells to install is enough for what it then does, and what more it takes is told in one line: fresh
environments with the wheels and what their metadata asks for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import venvs
from onnx import TensorProto, helper, numpy_helper

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCUMENTED = re.findall(r"pip install '\.\[([\w,]+)\]'", README)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Interpreters: with the package alone (``pip install .``), and with the extras that README names."""
    made = list(venvs.wheels(tmp_path_factory.mktemp("dist")).values())
    extras = [need for name in DOCUMENTED[0].split(",") for need in PROJECT["optional-dependencies"][name]]
    folder = tmp_path_factory.mktemp("venvs")
    return {"bare": venvs.fresh(folder / "bare", made), "extras": venvs.fresh(folder / "extras", made, extras)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where model.onnx lies: a convolution of 3 x 17 x 23."""
    folder = tmp_path_factory.mktemp("work")
    weight = np.random.default_rng(7).standard_normal((5, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 17, 23])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5, 17, 23])
    graph = helper.make_graph(nodes, "net", [x], [y], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    return folder


def halotile(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python.with_name("halotile"), *words], cwd=folder, capture_output=True, text=True, env=venvs.outside()
    )


def test_readme_names_one_set_of_extras_that_exist() -> None:
    assert len(set(DOCUMENTED)) == 1
    assert set(DOCUMENTED[0].split(",")) <= PROJECT["optional-dependencies"].keys()
    assert not re.search(r"pip install '?halotile", README), "nothing is on a package index"


def test_nothing_tells_to_install_what_is_on_no_index() -> None:
    rooms = ("compiler", "passes", "schedules", "targets", "benchmarks", "docs")
    files = [p for room in rooms for p in (ROOT / room).rglob("*") if p.suffix in (".py", ".md", ".c", ".in")]
    assert [p.name for p in files if "pip install 'halotile[" in p.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("kind", ["bare", "extras"])
def test_each_command_works_or_says_what_to_install(installed: dict[str, Path], folder: Path, kind: str) -> None:
    python = installed[kind]
    for words in (
        ("build", "model.onnx", "-o", f"out/{kind}"), ("run", f"out/{kind}", "-o", "y=y.npy"), ("bench", f"out/{kind}"),
        ("report", "model.onnx", "-o", f"{kind}.html"),
    ):  # fmt: skip
        done = halotile(python, folder, *words)
        assert done.returncode == 0, (words, done.stderr)
    assert "<html" in (folder / f"{kind}.html").read_text(encoding="utf-8")
    bench = ("bench", "model.onnx", "--peers", ",", "--seconds", "0.05", "--no-peak", "--threads", "1", "--json")
    board = ("build", "model.onnx", "-t", "raspberry-pi-4", "-o", f"pi/{kind}")
    for words in (("verify", "model.onnx"), bench, board):
        done = halotile(python, folder, *words)
        if kind == "extras":
            assert done.returncode == 0, (words, done.stderr)
        elif done.returncode or words[0] != "build":  # a compiler for the board may be there without ziglang
            errors = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
            assert done.returncode == 1 and len(errors) == 1, (words, done.stderr)
            assert re.match(r"error\[E500\]: .*pip install (onnxruntime|ziglang)", errors[0]), errors
            if "--json" in words:
                assert json.loads(done.stdout)["error"]["code"] == "E500"


def test_tune_needs_nothing_more(installed: dict[str, Path], folder: Path) -> None:
    done = halotile(installed["bare"], folder, "tune", "model.onnx", "--database", "tuning.json", "--seconds", "0.2")
    assert done.returncode == 0, done.stderr
    done = halotile(installed["bare"], folder, "build", "model.onnx", "--tuning", "tuning.json", "-o", "out/tuned")
    assert done.returncode == 0, done.stderr


def test_verify_in_python(installed: dict[str, Path], folder: Path) -> None:
    code = (
        "import halotile\nmodel = halotile.compile('model.onnx')\n"
        "try:\n    print(model.verify().ok)\nexcept halotile.HalotileError as error:\n    print(error.code, error)"
    )
    said = {
        kind: subprocess.run(
            [python, "-c", code], cwd=folder, capture_output=True, text=True, env=venvs.outside(), check=True
        ).stdout
        for kind, python in installed.items()
    }
    assert said["extras"] == "True\n"
    assert re.fullmatch(r"E500 .*onnxruntime, which is not installed: pip install onnxruntime\n", said["bare"])

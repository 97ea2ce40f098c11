"""Every block of code on the pages of quick starts, guides and how it works runs as it stands, in order, page by page:
``python`` and ``sh`` here, ``c``, ``c++`` and ``js`` through the commands below them. ``text`` is for what needs a
board."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from board_tools import needs_zig
from halotile.compiler.api import compile as compile_model
from halotile.compiler.cli import main
from node_tools import needs_node
from onnx import TensorProto, helper, numpy_helper

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(p for folder in ("start", "guides", "how") for p in (DOCS / folder).glob("*.md"))
FENCE = re.compile(r"^( *)```([\w+]+)\n(.*?)^\1```$", re.S | re.M)
RNG = np.random.default_rng(5)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array((RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32), name)


def save(path: Path, nodes: list[Any], x: tuple[str, list[Any]], y: tuple[str, list[Any]], weights: list[Any]) -> None:
    inputs, outputs = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in (x, y))
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def conv(x: str, y: str, name: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [x, f"w{name}"], [y], f"conv_{name}", pads=[1, 1, 1, 1])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models that the pages speak of, an input, and a library that others load."""
    folder = tmp_path_factory.mktemp("pages")
    node = helper.make_node
    save(
        folder / "model.onnx",
        [conv("x", "a", "1"), node("Relu", ["a"], ["b"]), node("GlobalAveragePool", ["b"], ["c"]),
         node("Flatten", ["c"], ["d"]), node("MatMul", ["d", "w2"], ["y"])],
        ("x", [1, 3, 32, 32]), ("y", [1, 10]), [weight("w1", 16, 3, 3, 3), weight("w2", 16, 10)],
    )  # fmt: skip
    save(
        folder / "detector.onnx",
        [conv("images", "a", "1"), node("Relu", ["a"], ["b"]), conv("b", "c", "2"), node("Relu", ["c"], ["d"]),
         conv("d", "scores", "3")],
        ("images", [1, 3, 64, 64]), ("scores", [1, 5, 64, 64]),
        [weight("w1", 16, 3, 3, 3), weight("w2", 16, 16, 3, 3), weight("w3", 5, 16, 3, 3)],
    )  # fmt: skip
    save(
        folder / "upscale.onnx",
        [conv("x", "a", "1"), node("Relu", ["a"], ["b"]), conv("b", "c", "2"),
         node("DepthToSpace", ["c"], ["y"], blocksize=2)],
        ("x", [1, 3, "h", "w"]), ("y", [1, 3, "h2", "w2"]), [weight("w1", 16, 3, 3, 3), weight("w2", 12, 16, 3, 3)],
    )  # fmt: skip
    np.save(folder / "x.npy", RNG.standard_normal((1, 3, 32, 32)).astype(np.float32))
    with compile_model(folder / "model.onnx") as model:
        model.save(folder / "out" / "model")
    return folder


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of a page's blocks, without the indent of lists."""
    text = page.read_text(encoding="utf-8")
    return [(kind, re.sub(rf"^{indent}", "", body, flags=re.M)) for indent, kind, body in FENCE.findall(text)]


def command(line: str) -> None:
    """A command line of ours, in this process; any other by the shell."""
    words = shlex.split(line, comments=True)
    if words[0] != "halotile":
        done = subprocess.run(["bash", "-euc", line], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (line, done.stderr)
        return
    printed = io.StringIO()
    target = words[-1] if ">" in words else None
    with contextlib.redirect_stdout(printed):
        code = main.run(words[1 : -2 if target else None])
    assert code == 0, line
    assert printed.getvalue() or "build" in words, f"{line} prints nothing"
    if target:
        Path(target).write_text(printed.getvalue())


@pytest.mark.parametrize("page", PAGES, ids=[p.stem for p in PAGES])
def test_blocks_run(page: Path, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    found = blocks(page)
    if any("raspberry-pi" in body or "wasm32" in body for kind, body in found if kind == "sh"):
        needs_zig()
    names: dict[str, Any] = {}
    for kind, body in found:
        if kind == "python":
            exec(compile(body, str(page), "exec"), names)
        elif kind in ("c", "c++"):
            Path("main.c" if kind == "c" else "main.cpp").write_text(body)
        elif kind in ("js", "html"):
            Path("worker.mjs" if kind == "js" else "index.html").write_text(body)
        elif kind == "sh" and "raspberrypi.local" not in body:  # that runs in tests/boards/test_readme.py
            for line in body.splitlines():
                if line.startswith("c++ ") and shutil.which("c++") is None:
                    pytest.skip("NOT RUN: no C++ compiler")
                if line.startswith("node "):
                    needs_node()
                command(line)
        else:
            assert kind in ("sh", "text", "toml", "dockerfile"), f"{page.name}: a block of {kind} would not be run"


def test_there_are_blocks() -> None:
    assert len(PAGES) >= 12
    kinds = [kind for page in PAGES for kind, _ in blocks(page)]
    assert kinds.count("python") >= 10 and kinds.count("sh") >= 10 and {"c", "c++"} <= set(kinds)

"""Weights that a level makes of those in the file: right, made once for all instances, given back, refused in words."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from board_tools import halotile as command
from board_tools import needs
from halotile.targets.detect import runs_here
from halotile.targets.resolve import resolve
from onnx import helper, numpy_helper

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def network() -> onnx.ModelProto:
    """x -> convs 3x3 and 1x1 of channels that panels of several widths divide, or not; mean; a product."""
    rng, nodes, weights, last, channels = np.random.default_rng(12), [], [], "x", 48
    for i, (outputs, size, stride) in enumerate(((128, 3, 1), (256, 1, 1), (128, 1, 1), (128, 3, 2), (67, 3, 1))):
        shape = (outputs, channels, size, size)
        weight = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        weights.append(numpy_helper.from_array(weight.astype("f4"), f"w{i}"))
        pads = [size // 2] * 4
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=pads, strides=[stride, stride]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        last, channels = f"r{i}", outputs
    weights.append(numpy_helper.from_array(rng.standard_normal((67, 1003)).astype("f4"), "t"))
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["m"]),
        helper.make_node("Flatten", ["m"], ["f"]),
        helper.make_node("MatMul", ["f", "t"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "made", [helper.make_tensor_value_info("x", 1, (1, 48, 28, 28))],
        [helper.make_tensor_value_info("y", 1, (1, 1003))], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made")
    onnx.save(network(), path / "model.onnx")
    x = np.random.default_rng(5).standard_normal((1, 48, 28, 28)).astype("f4")
    np.save(path / "x.npy", x)
    np.save(path / "y.npy", onnxruntime.InferenceSession(path / "model.onnx").run(None, {"x": x})[0])
    build = ("build", "model.onnx", "-t", "x86_64-linux-gnu", "--no-verify", "--threads", "1", "--format", "so,exe")
    for name, more in {"all": ("--levels", "v2,v3,v4"), "one": ()}.items():
        target = () if more else ("-t", LEVELS[-1])
        done = command(*build, *target, *more, "-o", name, cwd=path)
        assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def levels(folder: Path) -> list[dict[str, Any]]:
    manifest = json.loads((folder / "all" / "manifest.json").read_text())
    return list(manifest["report"]["levels"])


def run(folder: Path, level: str, *emulator: str, **more: Any) -> subprocess.CompletedProcess[str]:
    arguments = [*emulator, folder / "all" / "model_run", "-i", f"x={folder}/x.npy", "-o", f"y={folder}/out.npy"]
    environment = {**os.environ, "HALOTILE_LEVEL": level}
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, **more)


def test_lower_levels_make_what_the_last_one_stores(folder: Path, levels: list[dict[str, Any]]) -> None:
    assert [level["target"] for level in levels] == list(LEVELS)
    single = json.loads((folder / "one" / "manifest.json").read_text())["weight_bytes"]
    assert levels[2]["made_bytes"] == 0 and levels[2]["weight_bytes"] == single
    for level in levels[:2]:
        assert level["made_bytes"] > 4 * level["weight_bytes"]
    whole = json.loads((folder / "all" / "manifest.json").read_text())["weight_bytes"]
    assert whole == sum(level["weight_bytes"] for level in levels) <= 1.5 * single


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_gives_the_right_answer(folder: Path, level: str) -> None:
    if not runs_here(resolve(level)):
        pytest.skip(f"NOT RUN: this machine can't run {level}")
    done = run(folder, level)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(folder / "out.npy"), np.load(folder / "y.npy"), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("cpu", "level"), [("Nehalem", LEVELS[0]), ("Haswell", LEVELS[1])])
def test_emulated_processors_give_the_right_answer(folder: Path, cpu: str, level: str) -> None:
    needs("qemu-x86_64-static")
    done = run(folder, "", "qemu-x86_64-static", "-cpu", cpu)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(folder / "out.npy"), np.load(folder / "y.npy"), rtol=2e-5, atol=2e-5)


_MANY = """
import sys, threading, numpy, halotile
folder, made, level = sys.argv[1], int(sys.argv[2]), sys.argv[3]
x, wanted = numpy.load(folder + "/x.npy"), numpy.load(folder + "/y.npy")
wrong = []

def mapped():
    return 1024 * int(next(l for l in open("/proc/self/status") if l.startswith("RssAnon")).split()[1])

def use(number):
    for turn in range(4):
        with halotile.load(folder + "/all", threads=1) as model:
            assert model.level == level
            if not numpy.allclose(model(x), wanted, rtol=2e-5, atol=2e-5):
                wrong.append((number, turn))

def together():
    threads = [threading.Thread(target=use, args=(i,)) for i in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

together()
before = mapped()
models = [halotile.load(folder + "/all", threads=1) for _ in range(8)]
answers = {model(x).tobytes() for model in models}
arenas = sum(model.arena_bytes() for model in models)
after = mapped()
for model in models[:-1]: model.close()
assert models[-1](x).tobytes() in answers
models[-1].close()
print(len(wrong), len(answers), after - before <= 1.5 * made + arenas, mapped() - before < made / 2)
"""


def test_instances_share_them_and_the_last_gives_them_back(folder: Path, levels: list[dict[str, Any]]) -> None:
    if not runs_here(resolve(LEVELS[0])):
        pytest.skip("NOT RUN: no x86 here")
    arguments = [sys.executable, "-c", _MANY, folder, str(levels[0]["made_bytes"]), LEVELS[0]]
    environment = {**os.environ, "HALOTILE_LEVEL": LEVELS[0]}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["0", "1", "True", "True"], (done.stdout, done.stderr)


def test_memory_that_is_not_there_is_told_in_one_line(folder: Path, levels: list[dict[str, Any]]) -> None:
    if not runs_here(resolve(LEVELS[0])):
        pytest.skip("NOT RUN: no x86 here")
    program, arena = folder / "all" / "model_run", max(level["arena_bytes"] for level in levels)
    most = program.stat().st_size + arena + levels[0]["made_bytes"] // 2 + (1 << 20)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    done = run(folder, LEVELS[0], preexec_fn=limited)
    assert done.returncode != 0 and "weights in the form of this level of processors" in done.stderr
    if runs_here(resolve(LEVELS[2])):  # whose weights are in the file
        assert run(folder, LEVELS[2], preexec_fn=limited).returncode == 0

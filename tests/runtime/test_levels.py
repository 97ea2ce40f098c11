"""One library for several levels of processors: which level is taken where, right answers of each, shared weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from board_tools import halotile as command
from board_tools import needs, needs_zig
from halotile.errors import HalotileError, TargetError
from halotile.targets.detect import runs_here
from halotile.targets.levels import level_names
from halotile.targets.resolve import resolve
from onnx import helper, numpy_helper

X86 = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "x86_64-linux-gnu+sapphirerapids")
SIZES = {"fixed": (2, 3, 23, 29), "open": ("n", 3, "h", "w")}


def network(dims: tuple[int | str, ...]) -> onnx.ModelProto:
    """x -> conv 3x3 with bias, relu, conv 3x3 of stride 2, mean over the image, a product with a table."""
    rng = np.random.default_rng(11)

    def array(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("f4"), name)

    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["d"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["d"], ["m"]),
        helper.make_node("Flatten", ["m"], ["f"]),
        helper.make_node("MatMul", ["f", "t"], ["g"]),
        helper.make_node("Gather", ["table", "i"], ["rows"]),
        helper.make_node("MatMul", ["g", "rows"], ["y"]),
    ]
    index = numpy_helper.from_array(np.arange(19)[::-1].copy(), "i")
    weights = [array("w", 16, 3, 3, 3), array("b", 16), array("v", 24, 16, 3, 3), array("t", 24, 19),
               array("table", 19, 67), index]  # fmt: skip
    graph = helper.make_graph(
        nodes, "levels", [helper.make_tensor_value_info("x", 1, dims)],
        [helper.make_tensor_value_info("y", 1, (dims[0], 67))], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models ``fixed`` and ``open``; the fixed one built for all of x86's levels, with an input and its answer."""
    path = tmp_path_factory.mktemp("levels")
    for name, dims in SIZES.items():
        onnx.save(network(dims), path / f"{name}.onnx")
    x = np.random.default_rng(5).standard_normal(SIZES["fixed"]).astype("f4")
    np.save(path / "x.npy", x)
    np.save(path / "y.npy", onnxruntime.InferenceSession(path / "fixed.onnx").run(None, {"x": x})[0])
    done = command("build", "fixed.onnx", "-t", "x86_64-linux-gnu", "--levels", "v2,v3,v4,amx", "-o", "all",
                   "--no-verify", cwd=path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return path


def described(program: Path, *emulator: str, level: str = "") -> str:
    """The target of which ``model_run --describe`` tells."""
    environment = {**os.environ, "HALOTILE_LEVEL": level}
    done = subprocess.run([*emulator, program, "--describe"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[0].rpartition(" for ")[2]


def agrees(folder: Path, made: str, *emulator: str, level: str = "") -> None:
    """``model_run`` of ``made`` gives ``y.npy`` for ``x.npy``."""
    arguments = [*emulator, folder / made / "model_run", "-i", f"x={folder}/x.npy", "-o", f"y={folder}/out.npy"]
    environment = {**os.environ, "HALOTILE_LEVEL": level}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(folder / "out.npy"), np.load(folder / "y.npy"), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("cpu", "level"), [("Nehalem", X86[0]), ("Haswell", X86[1])])
def test_emulated_processors_take_the_best_level_that_they_have(folder: Path, cpu: str, level: str) -> None:
    needs("qemu-x86_64-static")
    emulator = ("qemu-x86_64-static", "-cpu", cpu)
    assert described(folder / "all" / "model_run", *emulator) == level
    agrees(folder, "all", *emulator)


def test_a_level_that_a_processor_lacks_is_refused_when_it_is_asked_for(folder: Path) -> None:
    needs("qemu-x86_64-static")
    arguments = ["qemu-x86_64-static", "-cpu", "Nehalem", folder / "all" / "model_run", "-i", f"x={folder}/x.npy"]
    environment = {**os.environ, "HALOTILE_LEVEL": X86[1]}
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "this processor lacks instructions" in done.stderr


@pytest.mark.parametrize("level", X86)
def test_every_level_of_this_machine_gives_the_right_answer(folder: Path, level: str) -> None:
    if not runs_here(resolve(level)):
        pytest.skip(f"NOT RUN: this machine can't run {level}")
    assert described(folder / "all" / "model_run", level=level) == level
    agrees(folder, "all", level=level)


def test_the_best_level_of_this_machine_is_taken_and_python_says_which(folder: Path) -> None:
    best = [level for level in X86 if runs_here(resolve(level))][-1:]
    if not best:
        pytest.skip("NOT RUN: no x86 here")
    with halotile.load(folder / "all") as model:
        assert model.level == best[0] and model.manifest["target"]["id"] == X86[0]
        y = model(np.load(folder / "x.npy"))
    np.testing.assert_allclose(y, np.load(folder / "y.npy"), rtol=2e-5, atol=2e-5)


def test_weights_of_one_form_are_there_once_and_the_arena_serves_every_level(folder: Path) -> None:
    manifest = json.loads((folder / "all" / "manifest.json").read_text())
    levels = manifest["report"]["levels"]
    assert [level["target"] for level in levels] == list(X86)
    assert manifest["weight_bytes"] == sum(level["weight_bytes"] for level in levels)
    assert manifest["arena_bytes"] == max(level["arena_bytes"] for level in levels)
    alone = []
    for name in X86:
        one = halotile.compile(folder / "fixed.onnx", name, threads=4)
        alone.append(one.manifest["weight_bytes"])
        assert one.manifest["arena_bytes"] <= manifest["arena_bytes"]
        one.close()
    assert levels[-1]["weight_bytes"] == alone[-1] and levels[-1]["made_bytes"] == 0
    assert manifest["weight_bytes"] < sum(alone)


def test_open_shapes_take_levels(folder: Path) -> None:
    model = halotile.compile(folder / "open.onnx", "x86_64-linux-gnu", levels=["v2", "v3", "v4"])
    if not runs_here(resolve(X86[0])):
        pytest.skip("NOT RUN: no x86 here")
    session = onnxruntime.InferenceSession(folder / "open.onnx")
    for shape in ((1, 3, 7, 5), (3, 3, 31, 17), (1, 3, 64, 64)):
        x = np.random.default_rng(2).standard_normal(shape).astype("f4")
        np.testing.assert_allclose(model(x), session.run(None, {"x": x})[0], rtol=2e-5, atol=2e-5)
    code = "import sys, numpy, halotile; m = halotile.load(sys.argv[1]); x = numpy.load(sys.argv[2]); " \
           "print(m.level, m.arena_bytes(shape={'n': 2, 'h': 23, 'w': 29})); numpy.save(sys.argv[3], m(x))"  # fmt: skip
    told = set()
    for level in (X86[0], X86[1]):
        if runs_here(resolve(level)):
            arguments = [sys.executable, "-c", code, model.path.parent, folder / "x.npy", folder / "open.npy"]
            environment = {**os.environ, "HALOTILE_LEVEL": level}
            done = subprocess.run(arguments, env=environment, capture_output=True, text=True)
            assert done.returncode == 0 and done.stdout.split()[0] == level, done.stderr
            told.add(done.stdout)
            np.testing.assert_allclose(np.load(folder / "open.npy"), np.load(folder / "y.npy"), rtol=2e-5, atol=2e-5)
    model.close()
    assert told


@pytest.mark.parametrize(("cpu", "level"), [("cortex-a53", 0), ("cortex-a76", 1)])
def test_levels_of_arm_in_one_program(folder: Path, cpu: str, level: int) -> None:
    needs("qemu-aarch64-static")
    needs_zig()
    if not (folder / "arm").exists():
        done = command("build", "fixed.onnx", "-t", "aarch64-linux-gnu", "--levels", "armv8.0,armv8.2", "-o", "arm",
                       "--format", "exe", cwd=folder)  # fmt: skip
        assert done.returncode == 0, done.stderr
    emulator = ("qemu-aarch64-static", "-cpu", cpu)
    names = level_names("armv8.0,armv8.2", "aarch64-linux-gnu")
    assert described(folder / "arm" / "model_run", *emulator) == names[level]
    agrees(folder, "arm", *emulator)


def test_a_manifest_builds_the_same_bytes_again(folder: Path) -> None:
    done = command("build", "--from", "all", "-o", "again", "--no-verify", cwd=folder)
    assert done.returncode == 0, done.stderr
    files = sorted(file.name for file in (folder / "all").iterdir())
    assert files == sorted(file.name for file in (folder / "again").iterdir())
    for name in files:
        assert (folder / "all" / name).read_bytes() == (folder / "again" / name).read_bytes(), name


@pytest.mark.parametrize(
    ("levels", "target", "words"),
    [
        ("v3", "native", "give several"),
        ("v2,v2", "native", "each once"),
        ("v3,v2", "x86_64-linux-gnu", "from the least on"),
        ("x86-64-v3,haswell", "x86_64-linux-gnu", "haswell"),
        ("v3,armv7", "x86_64-linux-gnu", "is for armv7l-linux-gnueabihf"),
        ("v2,v3", "raspberry-pi-4", "give a triple"),
        ("v2,v3", "x86-64-v3", "give a triple"),
        (["v2", 3], "x86_64-linux-gnu", "give names"),
        ("v2,v9", "native", "unknown level 'v9'; "),
        ("v2,v9", "x86_64-linux-gnu", "those of x86_64 are v2, v3, v4, amx;"),
        ("armv8.0,v9", "aarch64-linux-gnu", "those of aarch64 are armv8.0, armv8.2;"),
        ("v2,x86-64-v5", "native", "did you mean x86-64-v4?"),
        ("v2,armv8.2", "x86_64-linux-gnu", "is of aarch64: give the target aarch64-linux-gnu"),
        ("v2,skylake-avx512", "native", "level 'skylake-avx512' is a CPU"),
    ],
)
def test_levels_that_make_no_sense_are_refused_in_one_line(
    folder: Path, levels: str, target: str, words: str
) -> None:
    with pytest.raises(TargetError) as caught:
        halotile.compile(folder / "fixed.onnx", target, levels=levels)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_timers_and_weights_that_a_level_has_no_instruction_for_are_refused(folder: Path) -> None:
    arguments = ("build", "fixed.onnx", "-t", "x86_64-linux-gnu", "--levels", "v2,v3", "--timers", "-o", "no")
    done = command(*arguments, cwd=folder)
    assert done.returncode == 1 and "one level of processors alone" in done.stderr and not (folder / "no").exists()
    with pytest.raises(HalotileError, match="x86-64-v2 lacks"):
        halotile.compile(folder / "fixed.onnx", "x86_64-linux-gnu", levels="v2,v3", weights="float16")

"""Weights stored as float16: the same numbers as of rounded weights, half the bytes, and a tolerance of their own."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import halotile
import numpy as np
import onnx
import pytest
from board_tools import halotile as command
from board_tools import needs, needs_zig
from compiled import native
from halotile.benchmarks import machine_code
from halotile.benchmarks.boards import emulator
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Options
from halotile.compiler.verify import default_rtol, verify
from halotile.errors import HalotileError, TargetError
from halotile.schedules.conv.select import offered
from halotile.schedules.conv.winograd.algorithm import Winograd
from halotile.schedules.math.float16 import LEAST, narrowed
from halotile.schedules.words.candidates import MOST
from halotile.schedules.words.choice import Choice, Refusal
from halotile.schedules.words.group import Group, Node, Request
from halotile.schedules.words.layout import Layout
from halotile.schedules.words.policy import Policy
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper
from winograd_layers import facts_of

X = (1, 5, 13, 17)


def network(rounded: bool = False) -> onnx.ModelProto:
    """Convolutions 5x5, depthwise 3x3 and 1x1 of odd sizes, and a matrix product; biases of their own.

    ``rounded``: the weights of all but the depthwise one, which are too few, have float16's precision."""
    rng = np.random.default_rng(11)
    shapes = {"w": (37, 5, 5, 5), "d": (37, 1, 3, 3), "p": (67, 37, 1, 1), "m": (67, 29)}
    weights = {n: rng.standard_normal(s) / np.sqrt(np.prod(s[1:]) if n != "m" else s[0]) for n, s in shapes.items()}
    biases = {n: rng.standard_normal(s) for n, s in (("wb", 37), ("db", 37), ("pb", 67), ("mb", 29))}
    weights = {n: a.astype(np.float32) for n, a in weights.items()}
    if rounded:
        weights = {n: a if n == "d" else a.astype(np.float16).astype(np.float32) for n, a in weights.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w", "wb"], ["a"], pads=[2, 2, 2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "d", "db"], ["c"], group=37, pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),  # so that neighbours are not folded into one
        helper.make_node("Conv", ["r", "p", "pb"], ["e"]),
        helper.make_node("Relu", ["e"], ["s"]),
        helper.make_node("Transpose", ["s"], ["f"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["f", "m"], ["g"]),
        helper.make_node("Add", ["g", "mb"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "halves",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 13, 17, 29])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()]
        + [numpy_helper.from_array(a.astype(np.float32), n) for n, a in biases.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sample() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(3).standard_normal(X, np.float32)}


@pytest.fixture(scope="module")
def half() -> halotile.Model:
    return halotile.compile(network(), weights="float16")


def test_arrays_that_float16_can_not_hold_stay() -> None:
    plain = np.random.default_rng(0).standard_normal(LEAST).astype(np.float32)
    kept = narrowed(plain)
    assert kept is not None and kept.dtype == np.float16
    assert np.abs(kept - plain).max() <= 2**-11 * np.abs(plain).max()
    assert narrowed(plain[:-1]) is None and narrowed(plain.astype(np.float64)) is None
    for wrong in (1e5, np.inf, np.nan):
        odd = plain.copy()
        odd[7] = wrong
        assert narrowed(odd) is None
    assert narrowed(plain * np.float32(1e-7)) is None, "below the range's end, rounding is coarse"
    assert narrowed(plain * np.float32(1e-3)) is not None and narrowed(plain * 0) is not None


def test_the_result_is_that_of_rounded_weights_bit_for_bit(half: halotile.Model) -> None:
    feeds = sample()
    expected = halotile.compile(network(rounded=True), target=native())(feeds)["y"]
    assert (half(feeds)["y"] == expected).all()


def test_they_are_half_as_large_and_still_near(half: halotile.Model) -> None:
    whole = halotile.compile(network())
    assert half.report["weight_bytes"] < 0.6 * whole.report["weight_bytes"]
    assert half.report["notes"]["assemble"][0].startswith(
        "3 of 4 packed arrays of weights are stored as float16: "
    )
    check, other = half.verify(sample()), whole.verify(sample())
    assert check.ok and check.rtol == default_rtol("float16") == 10 * other.rtol
    assert 10 * other.max_error < check.max_error, "rounding shows"


def stack(channels: tuple[int, ...], size: tuple[int, int], kernel: int) -> onnx.ModelProto:
    """Convolutions of one size of kernel, one behind the other, with ReLU between."""
    rng = np.random.default_rng(5)
    nodes, weights, name = [], [], "x"
    for i, (before, after) in enumerate(zip(channels, channels[1:])):
        weight = rng.standard_normal((after, before, kernel, kernel)) / np.sqrt(kernel**2 * before)
        weights.append(numpy_helper.from_array(weight.astype(np.float32), f"w{i}"))
        last = i == len(channels) - 2
        nodes.append(helper.make_node("Conv", [name, f"w{i}"], ["y" if last else f"c{i}"], pads=[kernel // 2] * 4))
        name = f"r{i}"
        nodes += [] if last else [helper.make_node("Relu", [f"c{i}"], [name])]
    graph = helper.make_graph(
        nodes, "stack",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels[0], *size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels[-1], *size])], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def wide() -> onnx.ModelProto:
    return stack((64, 64, 64), (30, 34), 3)


def chain() -> onnx.ModelProto:
    """Of too few channels for Winograd's algorithm."""
    return stack((3, 13, 15, 5), (97, 101), 5)


def transposed() -> onnx.ModelProto:
    """A transposed convolution whose phases Winograd's algorithm would compute."""
    weight = np.random.default_rng(2).standard_normal((48, 40, 4, 4)).astype(np.float32) / 24
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])], "transposed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 48, 24, 29])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 40, 48, 58])],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def few() -> onnx.ModelProto:
    """Weights of fewer elements than float16 is worth."""
    return stack((16, 7, 16), (31, 37), 3)


def seven() -> onnx.ModelProto:
    """Convolutions that a matrix unit or Winograd's algorithm takes, of odd channels."""
    return stack((3, 32, 33, 32, 48, 32, 31, 8), (20, 19), 3)


def planned(model: onnx.ModelProto, target: str, weights: str, **options) -> dict:
    return run_pipeline(model, Options(resolve(target), weights=weights, stop_after="assemble", **options)).report


@pytest.mark.parametrize("target", ["x86-64-v3", "raspberry-pi-4", "x86_64-linux-gnu+sapphirerapids"])
@pytest.mark.parametrize(
    ("net", "tile"),
    [
        (network, "auto"), (wide, "off"), (wide, "auto"), (seven, "off"), (transposed, "off"), (few, "off"),
        (chain, "auto"),
    ],
)
def test_they_never_take_more_bytes(net, target: str, tile: str) -> None:
    """On targets whose float32 builds take multiply-adds, Winograd's transforms or a matrix unit."""
    half, whole = (planned(net(), target, w, tile=tile) for w in ("float16", "float32"))
    assert half["weight_bytes"] <= whole["weight_bytes"]
    assert not any("winograd" in k["schedule"] for k in half["kernels"])
    if net in (wide, transposed) and target == "raspberry-pi-4" and tile == "off":
        assert any("winograd" in k["schedule"] for k in whole["kernels"])


def test_nor_do_candidates_of_tuning_or_smaller_plans() -> None:
    """With fewer bytes of memory, and for every candidate that is measured."""
    whole = planned(wide(), "raspberry-pi-4", "float32", tile="off")["weight_bytes"]
    budget = planned(wide(), "raspberry-pi-4", "float16", tile="off")["planned_bytes"]
    assert planned(wide(), "raspberry-pi-4", "float16", memory_budget=budget)["weight_bytes"] < whole / 2
    for rank in range(MOST):
        report = planned(wide(), "raspberry-pi-4", "float16", tile="off", tuning={}, candidate=rank)
        assert report["weight_bytes"] < whole / 2, [k["schedule"] for k in report["kernels"]]


def test_what_does_not_fit_says_why() -> None:
    target, facts = resolve("raspberry-pi-4"), facts_of(64, 64, 30, 34)
    node = Node("conv", "relax.nn.conv2d", None, (facts.data, facts.weight), (facts.output,))
    group = Group("conv", (node,), (facts.data, facts.weight), (facts.output,), node)
    layouts = {v: Layout.blocked(v.shape, target.lanes()) for v in (facts.data, facts.output)}
    for kind in ("float32", "float16"):
        request = Request(group, layouts, target, Policy.of(weights=kind))
        offer = offered(Winograd(), request, facts)
        assert isinstance(offer, Refusal if kind == "float16" else Choice)
    assert re.fullmatch(r"it stores \d+ bytes of weights, and the form without a transform 73728", offer.reason)


def test_tiles_read_them_too() -> None:
    """A chain with rings: its parts get the same weights as whole kernels."""
    budget = halotile.compile(chain(), tile="off").report["planned_bytes"] // 2
    half, whole = (halotile.compile(chain(), weights=w, memory_budget=budget) for w in ("float16", "float32"))
    assert any("tiled" in k["schedule"] for k in half.report["kernels"])
    assert half.report["weight_bytes"] < 0.6 * whole.report["weight_bytes"]
    assert half.verify().ok


WIDENING = {"x86-64-v3": r"\bvcvtph2ps\b", "raspberry-pi-3": r"\bfcvtl\b"}  # the conversion that LLVM must choose


@pytest.mark.parametrize("name", WIDENING)
def test_they_are_widened_by_an_instruction(name: str) -> None:
    target = resolve(name)
    try:
        objdump = machine_code.tools().objdump
    except HalotileError:
        pytest.skip("NOT RUN: needs llvm-objdump")
    options = Options(target, weights="float16", stop_after="assemble")
    text = machine_code.disassembly(run_pipeline(network(), options).library.kernel_objects, target, objdump)
    assert re.search(WIDENING[name], text)
    assert not re.search(r"\b(callq?|bl)\s.*(extendhfsf2|h2f)", text), "no routine does it"


def test_a_board_runs_them(tmp_path: Path) -> None:
    target = resolve("raspberry-pi-3")
    command = emulator(target)
    needs(command[0])
    needs_zig()
    run_pipeline(network(), Options(target, weights="float16", formats=("exe",)), output=tmp_path / "out")
    with RemoteModel(tmp_path / "out", " ".join(command)) as remote:
        check = verify(remote, network(), remote.inputs, sample(), rtol=default_rtol("float16"))
    assert check.ok and check.max_error > 1e-4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-t", "x86-64-v2"), ["error[E400]", "x86-64-v2 lacks", "x86-64-v3"]),
        (("-t", "raspberry-pi-3-32"), ["error[E400]", "raspberry-pi-3-32 lacks"]),
        (("--exact",), ["exact forbids"]),
    ],
)
def test_what_can_not_be_is_refused(words, told, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(network().SerializeToString())
    done = command("build", "net.onnx", "-o", "out", "--weights", "float16", *words, cwd=tmp_path)
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("note:", "["))]
    assert done.returncode == 1 and len(lines) == 1 and all(t in lines[0] for t in told), done.stderr
    assert not (tmp_path / "out").exists()


def test_the_python_interface_refuses_the_same() -> None:
    with pytest.raises(TargetError, match="lacks"):
        halotile.compile(network(), target="x86-64-v2", weights="float16")
    with pytest.raises(HalotileError, match="weights='float8' is not one of float32, float16"):
        halotile.compile(network(), weights="float8")


def test_the_folder_knows_its_tolerance(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(network().SerializeToString())
    done = command("build", "net.onnx", "-o", "out", "--weights", "float16", "--verify", "--json", cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["verification"]["rtol"] == 1e-2, done.stderr
    assert json.loads((tmp_path / "out/manifest.json").read_text())["options"]["weights"] == "float16"
    checked = command("verify", "net.onnx", "out", "--json", cwd=tmp_path)
    assert checked.returncode == 0 and json.loads(checked.stdout)["rtol"] == 1e-2
    tight = command("verify", "net.onnx", "out", "--rtol", "1e-5", "--json", cwd=tmp_path)
    assert tight.returncode == 3
    again = command("build", "--from", "out", "-o", "again", "-q", cwd=tmp_path)
    assert again.returncode == 0 and again.stderr == "", again.stderr
    for name in ("manifest.json", "model_run"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_model_run_knows_it_as_well(tmp_path: Path, half: halotile.Model) -> None:
    run_pipeline(network(), Options(resolve("native"), weights="float16", formats=("exe",)), output=tmp_path / "out")
    np.save(tmp_path / "x.npy", sample()["x"])
    y = half(sample())["y"]
    np.save(tmp_path / "y.npy", y)
    words = ["out/model_run", "-i", "x.npy", "--expect", "y.npy", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    told = json.loads(done.stdout)["expected"][0]
    assert done.returncode == 0 and told["max_error"] == 0
    assert told["limit"] == pytest.approx(1e-2 * np.abs(y).max() + 1e-5, rel=1e-6)

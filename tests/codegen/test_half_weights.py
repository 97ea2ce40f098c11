"""Weights stored as float16: the same numbers as of rounded weights, half the bytes, and a tolerance of their own."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import halotile
import numpy as np
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
from halotile.schedules.words.choice import AlgorithmRefusal, Choice
from halotile.schedules.words.group import Group, Node, Request
from halotile.schedules.words.layout import Layout
from halotile.schedules.words.policy import Policy
from halotile.targets.resolve import resolve
from weight_models import chain, few, network, planned, sample, seven, transposed, wide
from winograd_layers import facts_of


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
        assert isinstance(offer, AlgorithmRefusal if kind == "float16" else Choice)
    assert re.fullmatch(r"it stores \d+ bytes of weights, and the form without a transform 73728", offer.reason)


def test_tiles_read_them_too() -> None:
    """A chain with rings: its parts get the same weights as whole kernels."""
    budget = planned(chain(), "native", "float32", tile="off")["planned_bytes"] // 2
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
    with pytest.raises(HalotileError, match="weights='float8' is not one of float32, float16, int8"):
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

"""Stripes on a scratchpad: builds run here with the reference transfers, give right numbers, and trace the sequence."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from evaluate import peer
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import LoadedModel, load
from halotile.compiler.state import Build, Options
from halotile.errors import HalotileError
from halotile.passes.tile.scratchpad.checker import check_stripes
from halotile.schedules.scratchpad.double_buffer import double_buffered
from halotile.schedules.scratchpad.kernel import StripedKernel
from halotile.schedules.words.stripe_plan import StripePlan
from halotile.schedules.words.tile_plan import Fill
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(11)


def model(shape: Sequence[int], *steps: tuple[str, str, str, dict[str, Any]], **weights: np.ndarray) -> onnx.ModelProto:
    """(operator, "inputs", "output", attributes) from x to y; "-" is an input left out."""
    nodes = [helper.make_node(o, ["" if n == "-" else n for n in i.split()], [r], name=r, **a) for o, i, r, a in steps]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True)


def real(*shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype("float32")


def build(
    source: onnx.ModelProto, folder: Path, rows: int | None = None, stop: str | None = None, **more: Any
) -> Build:
    tile: Any = {"shape": (rows, None)} if rows else None
    options = Options(resolve("scratchpad"), tile=tile, name="striped", stop_after=stop, **more)
    return run_pipeline(source.SerializeToString(), options, output=None if stop else folder)


def plans(made: Build) -> list[StripePlan]:
    found = [p for p in made.tiled.values() if isinstance(p, StripePlan)]
    for plan in found:
        assert check_stripes(plan).problems == []
    return found


def run(source: onnx.ModelProto, folder: Path, x: np.ndarray) -> LoadedModel:
    """Loads, runs, and compares with ONNX Runtime."""
    loaded = load(folder)
    found = next(iter(loaded({"x": x}).values()))
    np.testing.assert_allclose(found, peer(source, {"x": x})[0], rtol=1e-4, atol=1e-4)
    return loaded


def words(loaded: LoadedModel) -> list[str]:
    return [f"{t.action} {t.number}" for t in loaded.trace()]


def three_convolutions() -> onnx.ModelProto:
    return model(
        (1, 3, 39, 13),
        ("Conv", "x w1 b1", "a", dict(pads=[1] * 4)),
        ("Relu", "a", "b", {}),
        ("Conv", "b w2 b2", "c", dict(pads=[1, 0, 1, 2], strides=[2, 1])),
        ("Relu", "c", "d", {}),
        ("Conv", "d w3 b3", "y", dict(pads=[2] * 4, dilations=[2, 2])),
        w1=real(17, 3, 3, 3), b1=real(17), w2=real(8, 17, 3, 3), b2=real(8), w3=real(5, 8, 3, 3), b3=real(5),
    )  # fmt: skip


@pytest.mark.parametrize("stripes, rows", [(1, 20), (2, 10), (3, 7), (5, 4)])
def test_a_chain_runs_in_the_exact_sequence(stripes: int, rows: int, tmp_path: Path) -> None:
    source = three_convolutions()
    made = build(source, tmp_path, rows)
    (plan,) = plans(made)
    assert len(plan.stripes) == stripes and len(plan.members) >= 3
    assert set(plan.modes.values()) == {"ring"} and plan.extra_work == 1.0
    x = rng.standard_normal((1, 3, 39, 13)).astype("float32")
    loaded = run(source, tmp_path, x)
    assert words(loaded) == list(map(str, double_buffered(stripes)))
    loaded({"x": x})
    assert len(loaded.trace()) == len(double_buffered(stripes)) and loaded.trace() == ()


def test_the_times_of_a_trace_are_those_of_the_sequence(tmp_path: Path) -> None:
    source = three_convolutions()
    build(source, tmp_path, 4)
    trace = run(source, tmp_path, np.ones((1, 3, 39, 13), "float32")).trace()
    by_name = {(t.action, t.number): t for t in trace}
    for t in trace:
        assert t.issued <= t.start <= t.end
    for k in range(5):
        load_, compute, store = (by_name[a, k] for a in ("load", "compute", "store"))
        assert load_.end <= compute.start and compute.end <= store.start
        assert store.end <= by_name["wait store", k].end


def test_one_convolution(tmp_path: Path) -> None:
    source = model((1, 4, 13, 11), ("Conv", "x w b", "y", dict(pads=[1] * 4)), w=real(6, 4, 3, 3), b=real(6))
    (plan,) = plans(build(source, tmp_path, 5))
    assert len(plan.stripes) == 3
    x = rng.standard_normal((1, 4, 13, 11)).astype("float32")
    assert words(run(source, tmp_path, x)) == list(map(str, double_buffered(3)))


def test_branches_pools_and_resizes(tmp_path: Path) -> None:
    """A residual block, a pool, a resize and a concatenation, odd sizes: one chain."""
    source = model(
        (1, 8, 22, 19),
        ("Conv", "x w1 b1", "a", dict(pads=[1] * 4)),
        ("Relu", "a", "b", {}),
        ("Conv", "b w2 b1", "c", dict(pads=[1] * 4)),
        ("Add", "c x", "d", {}),
        ("MaxPool", "d", "e", dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)),
        ("Resize", "e - s", "f", dict(mode="linear")),
        ("Conv", "f w1 b1", "y", dict(pads=[1] * 4)),
        w1=real(8, 8, 3, 3), b1=real(8), w2=real(8, 8, 3, 3), s=np.array([1, 1, 2, 2], "float32"),
    )  # fmt: skip
    made = build(source, tmp_path, 6)
    assert plans(made)
    run(source, tmp_path, rng.standard_normal((1, 8, 22, 19)).astype("float32"))


def test_stripes_that_see_nothing_but_padding(tmp_path: Path) -> None:
    """The first and the last rows of the pool read no row of x: nothing is loaded for them."""
    source = model(
        (1, 4, 10, 9),
        ("Pad", "x p c", "a", dict(mode="constant")),
        ("MaxPool", "a", "b", dict(kernel_shape=[2, 2], strides=[2, 2])),
        ("Conv", "b w", "y", dict(pads=[0] * 4)),
        p=np.array([0, 0, 4, 1, 0, 0, 4, 0]), c=np.array(0.7, "float32"), w=real(3, 4, 1, 1),
    )  # fmt: skip
    made = build(source, tmp_path, 1)
    (plan,) = plans(made)
    assert [bool(s.loads) for s in plan.stripes] == [False] * 2 + [True] * 5 + [False] * 2
    run(source, tmp_path, rng.standard_normal((1, 4, 10, 9)).astype("float32"))


def test_what_needs_everything_is_computed_as_ever(tmp_path: Path) -> None:
    """Stripes up to the global pool; then a product with what it gave, as stripes of their own."""
    source = model(
        (1, 8, 24, 16),
        ("Conv", "x w1 b1", "a", dict(pads=[1] * 4)),
        ("Relu", "a", "b", {}),
        ("GlobalAveragePool", "b", "g", {}),
        ("Sigmoid", "g", "h", {}),
        ("Mul", "b h", "c", {}),
        ("Conv", "c w1 b1", "y", dict(pads=[1] * 4, strides=[2, 2])),
        w1=real(8, 8, 3, 3), b1=real(8),
    )  # fmt: skip
    made = build(source, tmp_path, 4)
    found = plans(made)
    assert len(found) >= 2 and any(not isinstance(k, StripedKernel) for k in made.kernels)
    run(source, tmp_path, rng.standard_normal((1, 8, 24, 16)).astype("float32"))


def test_the_height_is_chosen_and_everything_fits(tmp_path: Path) -> None:
    """A chain whose values are larger than the scratchpad: stripes that fit, more than one, and the arena is no more
    than what they use of the scratchpad."""
    wide = dict(pads=[1] * 4)
    source = model(
        (1, 3, 120, 160),
        ("Conv", "x w1 b1", "a", wide), ("Relu", "a", "b", {}), ("Conv", "b w2 b1", "c", wide),
        ("Relu", "c", "d", {}), ("Conv", "d w3 b3", "y", wide),
        w1=real(16, 3, 3, 3), b1=real(16), w2=real(16, 16, 3, 3), w3=real(3, 16, 3, 3), b3=real(3),
    )  # fmt: skip
    made = build(source, tmp_path)
    (plan,) = plans(made)
    (kernel,) = made.kernels
    limit = resolve("scratchpad").scratchpad_bytes
    assert isinstance(kernel, StripedKernel) and plan.bytes <= kernel.scratchpad <= limit < 4 * 16 * 120 * 160
    assert len(plan.stripes) > 1 and made.memory.planned_bytes == kernel.scratchpad
    assert f"SCRATCHPAD_BYTES {kernel.scratchpad}UL" in (tmp_path / "striped.h").read_text()
    loaded = run(source, tmp_path, rng.standard_normal((1, 3, 120, 160)).astype("float32"))
    events = double_buffered(len(plan.stripes))
    empty = [k for k, stripe in enumerate(plan.stripes) if not stripe.loads]  # the ring has their rows already
    assert empty in ([], [len(plan.stripes) - 1])
    assert words(loaded) == [str(e) for e in events if e.stripe not in empty or not e.action.endswith("load")]


def test_chains_behind_one_another_exchange_values_without_margins(tmp_path: Path) -> None:
    """More channels than one chain has room for: what lies in memory between chains has no margins, borders are
    filled in the scratchpad."""
    same = dict(pads=[1] * 4)
    source = model(
        (1, 96, 21, 37),
        *((("Conv", f"{a} w bias", z, same)) for a, z in (("x", "p"), ("p", "q"), ("q", "r"), ("r", "s"), ("s", "y"))),
        w=real(96, 96, 3, 3), bias=real(96),
    )  # fmt: skip
    made = build(source, tmp_path)
    found = plans(made)
    assert len(found) > 1
    between = {v for p in found for v in p.streams} - {*made.graph.inputs, *made.graph.outputs}
    assert between and not any(v in made.layouts and made.layouts[v].margins for v in between)
    assert any(isinstance(s, Fill) and s.value in between for p in found for stripe in p.stripes for s in stripe.steps)
    run(source, tmp_path, rng.standard_normal((1, 96, 21, 37)).astype("float32"))


def test_every_row_is_loaded_once() -> None:
    """The halo of the input stays in a ring, behind the conversion into the layout that the convolution wants."""
    made = build(three_convolutions(), Path(), 4, stop="tile")
    (plan,) = plans(made)
    loaded = [p for s in plan.stripes for p in s.loads]
    assert {p.value for p in loaded} == {made.graph.inputs[0]}
    assert [p.rows[0] for p in loaded] == [0, *(p.rows[1] for p in loaded[:-1])] and loaded[-1].rows[1] == 39


def test_a_checker_finds_a_load_that_is_short() -> None:
    (plan,) = plans(build(three_convolutions(), Path(), 4, stop="tile"))
    first, *rest = plan.stripes
    (part,) = first.loads
    short = replace(first, loads=(replace(part, rows=(0, part.rows[1] - 1)),))
    assert check_stripes(replace(plan, stripes=(short, *rest))).problems
    assert check_stripes(replace(plan, stripes=tuple(rest))).problems
    stream = plan.streams[part.value]
    near = {**plan.streams, part.value: replace(stream, offsets=(stream.offsets[0], stream.offsets[0] + 64))}
    assert check_stripes(replace(plan, streams=near)).problems


@pytest.mark.skipif(shutil.which("cc") is None, reason="NOT RUN: needs a C compiler")
def test_a_firmware_brings_its_own_scratchpad_and_transfers(tmp_path: Path) -> None:
    """A C program that defines them and links the archive: its functions are called, on its memory; one that fails
    makes the run fail."""
    source = three_convolutions()
    made = build(source, tmp_path, 4, formats=("a",))
    (plan,) = plans(made)
    x = rng.standard_normal((1, 3, 39, 13)).astype("float32")
    x.tofile(tmp_path / "x.bin")
    program = Path(__file__).parent.parent / "runtime" / "programs" / "firmware.c"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}"]
    command = ["cc", *flags, str(program), str(tmp_path / "libstriped.a"), "-o", "firmware", "-pthread", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./firmware", "x.bin", "y.bin"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done
    count = len(plan.stripes)
    assert done.stdout.split() == [str(count), str(count), str(2 * count)]
    expected = peer(source, {"x": x})[0]
    found = np.fromfile(tmp_path / "y.bin", "float32").reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")


@pytest.mark.parametrize("wish", [{"last": "y"}, {"shape": (4, 8)}, {"shape": (4, None), "bands": 2}])
def test_what_stripes_can_not_have_is_refused(wish: dict[str, Any]) -> None:
    options = Options(resolve("scratchpad"), tile=wish, stop_after="tile")
    with pytest.raises(HalotileError, match="have a height alone"):
        run_pipeline(model((1, 8, 12, 12), ("Relu", "x", "y", {})).SerializeToString(), options)


def test_off_is_off() -> None:
    options = Options(resolve("scratchpad"), tile="off", stop_after="plan")
    made = run_pipeline(three_convolutions().SerializeToString(), options)
    assert not made.tiled and not any(isinstance(k, StripedKernel) for k in made.kernels)


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="NOT RUN: linking for boards needs ziglang")
@pytest.mark.skipif(QEMU is None, reason="NOT RUN: needs qemu-aarch64")
def test_on_another_processor(tmp_path: Path) -> None:
    board = resolve("raspberry-pi-4")
    pad = dict(scratchpad_bytes=128 * 1024, bandwidth=10**8, hertz=10**9, transfer_seconds=1e-6)
    source = three_convolutions()
    options = Options(
        replace(board, memory_kind="scratchpad", **pad), tile={"shape": (4, None)}, name="striped", formats=("exe",)
    )
    (plan,) = plans(run_pipeline(source.SerializeToString(), options, output=tmp_path))
    assert len(plan.stripes) == 5
    x = rng.standard_normal((1, 3, 39, 13)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", peer(source, {"x": x})[0])
    command = [str(QEMU), "./model_run", "-i", "x=x.npy", "--expect", "y=y.npy"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_budget_that_stripes_exceed_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arena = build(three_convolutions(), folder, 4, stop="plan").memory.planned_bytes
    with pytest.raises(HalotileError, match=rf"can't be met.* {arena} bytes"):
        build(three_convolutions(), folder, 4, memory_budget=arena - 1)
    assert not folder.exists()
    assert build(three_convolutions(), folder, 4, stop="plan", memory_budget=arena).memory.planned_bytes == arena

"""Pairs of bfloat16 on ARM (bfdot): against float64 of the rounded operands, under an emulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bfloat16_sums import convolved, rounded
from board_tools import needs, needs_llvm, needs_zig
from halotile.benchmarks import machine_code as m
from halotile.benchmarks.graph import ModelGraph
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Options
from halotile.schedules.conv.direct import pairs
from halotile.schedules.instructions.bf16_pairs import has_pairs, narrows, pair_target
from halotile.schedules.matmul import select
from halotile.schedules.matmul.pairs import fits_pairs
from halotile.targets.resolve import resolve

TARGET = "graviton3"
STEP = 2.0**-23  # of a sum, that rounding to odd may be off by

# data, outputs, kernel, stride, padding, dilation, groups: channels that fill no block or are odd, several images
CONVOLUTIONS = [
    ((1, 34, 7, 17), 37, (3, 3), 1, 1, 1, 1),
    ((2, 50, 13, 11), 33, (3, 3), 2, 1, 1, 1),
    ((3, 16, 1, 41), 16, (1, 5), 1, 0, 1, 1),
    ((1, 5, 19, 23), 37, (3, 3), 1, 1, 1, 1),
    ((1, 96, 17, 5), 17, (2, 1), 1, 0, 2, 1),
    ((1, 64, 13, 11), 24, (3, 3), 1, 1, 1, 2),
]
PRODUCTS = [((1, 131), 67), ((3, 7), 130), ((61, 48), 33), ((2, 17, 61), 71)]


def random(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype("float32") for shape in shapes]


def test_numbers_under_an_emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("qemu-aarch64-static", "/usr/aarch64-linux-gnu/lib")
    needs_zig()
    monkeypatch.setattr(pairs, "SHARE", 0.0)
    monkeypatch.setattr(select, "pairs_expected", fits_pairs)
    g, feeds, cases, results = ModelGraph("pairs"), {}, {}, {}
    for n, (shape, outputs, kernel, stride, pad, dilation, groups) in enumerate(CONVOLUTIONS):
        x, w = random(n, shape, (outputs, shape[1] // groups, *kernel))
        x, w = rounded(x).astype("float32"), w / np.float32(np.sqrt(w[0].size))
        same = np.eye(shape[1], dtype="float32").reshape(shape[1], shape[1], 1, 1)
        held = g.op("Relu", g.op("Conv", g.input(f"c{n}", shape), g.weight(f"same{n}", same)))
        window: dict[str, Any] = {"strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2}
        results[f"cy{n}"] = g.op("Conv", held, g.weight(f"cw{n}", w), group=groups, **window)
        exact = [convolved(a, b, stride, pad, dilation, groups) for a, b in (
            (np.maximum(x, 0), rounded(w)), (np.abs(x), np.abs(rounded(w))), (np.maximum(x, 0), w))]  # fmt: skip
        feeds[f"c{n}"], cases[f"cy{n}"] = x, (w[0].size, *exact)
    for n, (shape, columns) in enumerate(PRODUCTS):
        a, b = random(100 + n, shape, (shape[-1], columns))
        results[f"my{n}"] = g.op("MatMul", g.input(f"m{n}", shape), g.weight(f"mw{n}", b))
        exact = [rounded(a) @ rounded(b), np.abs(rounded(a)) @ np.abs(rounded(b)), a.astype("f8") @ b]
        feeds[f"m{n}"], cases[f"my{n}"] = a, (shape[-1], *exact)
    options = Options(resolve(TARGET), threads=2, precision="bfloat16", tile="off", formats=("exe",))
    build = run_pipeline(g.finish(**results), options, output=tmp_path / "lib")
    taken = [k.schedule for k in build.kernels if k.schedule.endswith("bfloat16")]
    assert len(taken) == len(CONVOLUTIONS) + len(PRODUCTS), [k.schedule for k in build.kernels]
    with RemoteModel(tmp_path / "lib", "qemu-aarch64-static -cpu max") as model:
        one, two = (model(feeds, threads=threads) for threads in (1, 2))
    for name, (depth, exact, size, unrounded) in cases.items():
        assert np.array_equal(one[name], two[name]), name
        assert (np.abs(one[name] - exact) <= (depth + 8) * STEP * size + 1e-6).all(), name
        assert np.abs(one[name] - unrounded).max() > 1e-4, f"{name} is float32's"


def network() -> Any:
    """A product, and a layer behind one that stores bfloat16."""
    g = ModelGraph("network")
    y = g.input("x", (1, 64, 28, 28))
    for i in range(2):
        y = g.op("Relu", g.op("Conv", y, g.weight(f"w{i}", random(i, (64, 64, 1, 1))[0])))
    product = g.op("MatMul", g.input("a", (128, 333)), g.weight("b", random(3, (333, 512))[0]))
    return g.finish(y=y, z=product)


def test_nan_and_infinity_reach_their_rows_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies behind the last of an odd number of terms is multiplied by nothing; what overflows is infinite."""
    needs("qemu-aarch64-static", "/usr/aarch64-linux-gnu/lib")
    needs_zig()
    monkeypatch.setattr(select, "pairs_expected", fits_pairs)
    g, (a, b) = ModelGraph("odd"), random(7, (9, 37), (37, 21))
    b = np.abs(b) + np.float32(0.1)
    a[2, -1], a[4, 0], a[6] = np.nan, np.inf, 3e38
    results = {"y": g.op("MatMul", g.input("a", a.shape), g.weight("b", b))}
    options = Options(resolve(TARGET), threads=1, precision="bfloat16", tile="off", formats=("exe",))
    build = run_pipeline(g.finish(**results), options, output=tmp_path / "lib")
    assert [k.schedule.endswith("bfloat16") for k in build.kernels] == [True]
    with RemoteModel(tmp_path / "lib", "qemu-aarch64-static -cpu max") as model:
        y = model({"a": a}, threads=1)["y"]
    assert np.isnan(y[2]).all() and (y[4] == np.inf).all() and (y[6] == np.inf).all()
    assert np.isfinite(y[[0, 1, 3, 5, 7, 8]]).all()


def test_sums_wait_as_long_as_those_of_float32() -> None:
    target = resolve(TARGET)
    assert pair_target(target) == target
    assert pair_target(resolve("x86_64-linux-gnu+znver4")).fma_latency == 6


@needs_llvm
def test_the_object_has_the_instructions() -> None:
    target = resolve(TARGET)
    options = Options(target, precision="bfloat16", threads=1, tile="off", stop_after="plan")
    build = run_pipeline(network(), options)
    taken = [k for k in build.kernels if k.schedule.endswith("bfloat16")]
    assert len(taken) == build.report["precision"]["kernels"] == 2
    for kernel in taken:
        code = m.disassembly([m.object_of(kernel, target)], target, m.tools().objdump)
        text = "\n".join(i.text for i in m.functions(code)[m.NAME])
        assert text.count("bfdot") >= 16 and "fmla" not in text and "halotile_pairs" not in text
    stored = [k for k in build.kernels if "halotile.bfloat16" in (k.function.attrs or {})]
    code = m.disassembly([m.object_of(k, target) for k in stored], target, m.tools().objdump)
    assert stored and "bfcvtn" in code, "what is stored is rounded by an instruction"


@pytest.mark.parametrize("name", ["raspberry-pi-5", "jetson-orin", "ampere-altra", "rk3588", "raspberry-pi-3-32"])
def test_older_cores_have_none(name: str) -> None:
    assert not has_pairs(resolve(name)) and not narrows(resolve(name))


@pytest.mark.parametrize("cpu", ["neoverse-n2", "neoverse-v2", "cortex-a710", "cortex-x2"])
def test_newer_cores_have_them(cpu: str) -> None:
    assert has_pairs(resolve(f"aarch64-linux-gnu+{cpu}"))

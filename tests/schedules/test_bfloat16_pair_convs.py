"""Direct convolutions by pairs of channels in bfloat16: against float64 of the rounded operands, NaN and infinities,
the instruction in the object for targets that have it, and where they are taken."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm.relax
from bfloat16_sums import convolved, rounded
from compiled import Compiled, module_of, native, staged, weight
from halotile.benchmarks import machine_code as m
from halotile.benchmarks.graph import ModelGraph
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.direct import pairs
from halotile.schedules.instructions.bf16_pairs import has_pairs
from halotile.targets.resolve import resolve

R = tvm.relax.op
NAMED = ("x86_64-linux-gnu+znver4", "x86_64-linux-gnu+cooperlake")
FORM = re.compile(r"direct conv C16, tile .*, bfloat16")

needs_pairs = pytest.mark.skipif(
    not has_pairs(native()), reason="NOT RUN: this machine's vectors do not multiply bfloat16 (AVX512_BF16)"
)
needs_objdump = pytest.mark.skipif(shutil.which("objdump") is None, reason="NOT RUN: there is no objdump")

# data, outputs, kernel, strides, padding, dilation, groups: primes, channels that fill no block or are odd, one row,
# several images
CASES: list[tuple[tuple[int, ...], int, tuple[int, ...], int, int, int, int]] = [
    ((1, 64, 13, 11), 48, (1, 1), 1, 0, 1, 1),
    ((1, 34, 7, 17), 37, (3, 3), 1, 1, 1, 1),
    ((2, 50, 29, 31), 33, (3, 3), 2, 1, 1, 1),
    ((3, 16, 1, 41), 16, (1, 5), 1, 0, 1, 1),
    ((1, 6, 23, 19), 70, (5, 5), 1, 2, 1, 1),
    ((1, 96, 37, 5), 17, (2, 1), 1, 0, 2, 1),
    ((1, 322, 7, 7), 530, (1, 1), 1, 0, 1, 1),
    ((1, 5, 19, 23), 37, (3, 3), 1, 1, 1, 1),
    ((2, 33, 13, 11), 48, (1, 1), 1, 0, 1, 1),
    ((1, 47, 17, 9), 50, (3, 3), 2, 1, 1, 1),
    ((1, 64, 13, 11), 128, (3, 3), 1, 1, 1, 2),
    ((2, 48, 7, 29), 48, (1, 1), 1, 0, 1, 3),
    ((1, 256, 14, 5), 192, (3, 3), 2, 1, 1, 4),
]


def random(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype("float32") for shape in shapes]


def body(
    w: np.ndarray, bias: np.ndarray, stride: int, pad: int, dilation: int, groups: int = 1, first: Any = None
) -> Any:
    """A layer behind one that stores bfloat16: of weights ``first``, or such as keep what is not negative as it is."""
    channels = w.shape[1] * groups
    same = np.eye(channels, dtype="float32") if first is None else first
    same = same.reshape(channels, channels, 1, 1)

    def made(x: Any, other: Any) -> Any:
        before = R.nn.relu(R.nn.conv2d(x, weight(same)))
        y = R.nn.conv2d(before, weight(w), strides=stride, padding=pad, dilation=dilation, groups=groups)
        return R.nn.relu(R.add(R.add(y, weight(bias.reshape(1, -1, 1, 1))), other))

    return made


def built(arrays: list[np.ndarray], made: Any, cores: int = 2, **options: Any) -> Compiled:
    target = replace(native(), cores=cores)
    return Compiled(staged(module_of(arrays, made), target, precision="bfloat16", tiled=False, **options))


@pytest.fixture
def wherever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another algorithm is faster."""
    monkeypatch.setattr(pairs, "SHARE", 0.0)


@needs_pairs
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[1]} {c[2]}")
@pytest.mark.usefixtures("wherever")
def test_products_are_those_of_the_nearest_numbers(case: Any) -> None:
    """With a bias, a residual and an activation behind it, and the same bits by any number of tasks."""
    shape, outputs, kernel, *window = case
    *_, groups = window
    x, w, bias = random(1, shape, (outputs, shape[1] // groups, *kernel), (outputs,))
    x = rounded(x).astype("float32")
    w /= np.float32(np.sqrt(w[0].size))
    wanted = convolved(np.maximum(x, 0), rounded(w), *window)
    (other,) = random(2, wanted.shape)
    compiled = built([x, other], body(w, bias, *window))
    assert any(FORM.fullmatch(k.schedule) for k in compiled.build.kernels), [k.schedule for k in compiled.build.kernels]
    (found,) = compiled.run([x, other])
    exact = np.maximum(wanted + bias.reshape(1, -1, 1, 1) + other, 0)
    step = (w[0].size + 8) * 2.0**-24
    size = convolved(np.abs(x), np.abs(rounded(w)), *window) + np.abs(exact)
    assert (np.abs(found - exact) <= step * size + 1e-6).all()
    unrounded = convolved(np.maximum(x, 0), w, *window) + bias.reshape(1, -1, 1, 1) + other
    assert np.abs(found - np.maximum(unrounded, 0)).max() > 1e-4, "these are float32's"
    for tasks, poison in ((1, 0x7F), (2, 0), (64, 0xFF)):
        assert np.array_equal(found, compiled.run([x, other], tasks, poison)[0])


@needs_pairs
@pytest.mark.parametrize("channels", [34, 31])
@pytest.mark.usefixtures("wherever")
def test_nan_and_infinity_reach_their_windows_and_no_other(channels: int) -> None:
    """What lies behind the last channel, and beside the image, is multiplied by nothing."""
    x, w, bias = random(3, (1, channels, 23, 29), (33, channels, 3, 3), (33,))
    w, first = np.abs(w) + np.float32(0.1), np.full((channels, channels), 0.03, "float32")
    x[0, -1, 5, 7], x[0, 0, 15, 20] = np.nan, np.inf
    nothing = np.zeros((1, 33, 23, 29), "float32")
    compiled = built([x, nothing], body(w, bias, 1, 1, 1, first=first))
    assert any(FORM.fullmatch(k.schedule) for k in compiled.build.kernels)
    for poison in (0xFF, 0x7F):
        (y,) = compiled.run([x, nothing], poison=poison)
        odd = np.zeros(y.shape, bool)
        odd[:, :, 4:7, 6:9] = odd[:, :, 14:17, 19:22] = True
        assert np.isnan(y[:, :, 4:7, 6:9]).all() and (y[:, :, 14:17, 19:22] == np.inf).all()
        assert np.isfinite(y[~odd]).all()


# -- which targets, on any machine ----------------------------------------------------------------


def chain(channels: int = 64, kernel: int = 1, groups: int = 1) -> Any:
    g, pad = ModelGraph("chain"), kernel // 2
    y = g.input("x", (1, channels, 28, 28))
    for i in range(3):
        (w,) = random(i, (channels, channels // groups, kernel, kernel))
        y = g.op("Relu", g.op("Conv", y, g.weight(f"w{i}", w), pads=[pad] * 4, group=groups))
    return g.finish(y=y)


def planned(model: Any, target: str, **options: Any) -> Any:
    wish = {"precision": "bfloat16", "threads": 1, "tile": "off", **options}
    return run_pipeline(model, Options(resolve(target), stop_after="plan", **wish))


@needs_objdump
@pytest.mark.parametrize("target", NAMED)
def test_the_object_has_the_instruction(target: str) -> None:
    build = planned(chain(), target)
    taken = [k for k in build.kernels if FORM.fullmatch(k.schedule)]
    assert len(taken) == build.report["precision"]["kernels"] == 2, "the first reads the model's input"
    for kernel in taken:
        code = m.disassembly([m.object_of(kernel, build.target)], build.target, m.tools().objdump)
        text = "\n".join(i.text for i in m.functions(code)[m.NAME])
        assert "vdpbf16ps" in text and "vfmadd" not in text and "halotile_pairs" not in text
    assert build.report["precision"] == {"asked": "bfloat16", "kernels": 2, "of": 3} and not build.report["warnings"]
    assert [k.get("at_once") for k in build.report["kernels"]].count(2) == 2


@pytest.mark.parametrize("target", ["x86-64-v4", "raspberry-pi-5", "x86_64-linux-gnu+sapphirerapids"])
def test_other_targets_have_none(target: str) -> None:
    assert not any(FORM.fullmatch(k.schedule) for k in planned(chain(), target).kernels)
    assert not any(FORM.fullmatch(k.schedule) for k in planned(chain(), NAMED[0], precision="float32").kernels)


def test_odd_channels_and_groups_of_whole_blocks_are_pairs() -> None:
    for model in (chain(65), chain(64, groups=2), chain(48, 3, groups=3)):
        assert planned(model, NAMED[0]).report["precision"]["kernels"] == 2


def test_many_groups_and_a_faster_transform_stay_in_float32() -> None:
    assert planned(chain(64, groups=16), NAMED[0]).report["precision"]["kernels"] == 0
    deep = planned(chain(256, 3), NAMED[0])
    assert [k.schedule.split()[0] for k in deep.kernels].count("winograd") == 3

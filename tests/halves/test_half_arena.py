"""Layers in float16 take half of float32's arena: tiled where float32 is, though tiles gain less time there."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from board_tools import needs, needs_zig
from c_programs import MAIN, STRICT, run
from half_models import Net
from halotile.benchmarks.boards import emulator
from halotile.benchmarks.models import MODELS
from halotile.compiler import wide
from halotile.compiler.codegen.toolchain import musl, zig_target
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Build, Options
from halotile.passes.tile import tile
from halotile.targets.resolve import resolve
from random_nets import drawn, in_float16, of_outputs, random_nets

PI5 = "raspberry-pi-5"


def options(model: onnx.ModelProto, precision: str = "float16", **more: object) -> Options:
    halves = largest_of(model, "float16") if precision == "float16" else None
    return Options(resolve(PI5), precision=precision, **{"halves": halves, "threads": 1, **more})


def planned(model: onnx.ModelProto, precision: str = "float16", **more: object) -> Build:
    return run_pipeline(model, options(model, precision, stop_after="plan", **more))


def bytes_of(build: Build) -> int:
    return int(build.report["arena_bytes"])


def chain(rows: int = 67, columns: int = 71, seed: int = 6) -> onnx.ModelProto:
    """A chain of layers with a residual and a stride, at sizes that nothing divides."""
    net = Net((1, 3, rows, columns), seed=seed)
    a = net.conv("x0", 37, 3, 3, 3, pads=[1] * 4)
    b = net.conv(a, 37, 37, 3, 3, pads=[1] * 4, group=37)
    c = net.add("Add", a, net.conv(b, 37, 37, 1, 1, act=""))
    d = net.conv(c, 29, 37, 3, 3, pads=[1] * 4, strides=[2, 2])
    return net.model(net.conv(d, 5, 29, 1, 1, act=""))


def forced(monkeypatch: pytest.MonkeyPatch, half: float) -> None:
    """Lets builds aim at a part of float32's arena, whatever time it takes."""
    monkeypatch.setattr(wide, "HALF", half)
    monkeypatch.setattr(tile, "LITTLE", 100.0)


# -- that it is chosen -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mobilenet_v2", "espcn", "edsr", "seeded_squeezenet"])
def test_the_arena_is_half_of_what_float32_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name].model()
    whole, half = planned(model, "float32"), planned(model)
    assert bytes_of(half) <= wide.HALF * bytes_of(whole)
    cycles = half.details["tile"]["chosen"]["cycles"]
    monkeypatch.setattr(wide, "arena_aimed", lambda *_: None)
    fastest = planned(model)
    assert bytes_of(fastest) > 1.01 * bytes_of(whole), "what is to be mended"
    assert half.tiled and len(half.groups) < len(fastest.groups)
    assert cycles <= (1 + tile.LITTLE) * fastest.details["tile"]["chosen"]["cycles"]


@pytest.mark.parametrize("threads", [1, 4])
def test_what_takes_half_anyhow_is_left_as_it_is(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["resnet18"].model()
    half = planned(model, threads=threads)
    monkeypatch.setattr(wide, "arena_aimed", lambda *_: None)
    fastest = planned(model, threads=threads)
    assert half.notes["tile"] == fastest.notes["tile"] and bytes_of(half) == bytes_of(fastest)


def test_time_goes_before_what_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["espcn"].model()
    monkeypatch.setattr(tile, "LITTLE", 0.01)
    half = planned(model)
    assert not half.tiled and half.details["tile"]["chosen"] == half.details["tile"]["untiled"]


def test_other_wishes_and_precisions_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are models of which nothing is in float16."""
    model, seen = chain(), []
    own = wide.in_float32
    monkeypatch.setattr(wide, "in_float32", lambda *given: seen.append(given) or own(*given))
    for more in ({"tile": "off"}, {"optimize": "memory"}, {"memory_budget": 1 << 20}):
        planned(model, **more)
    planned(model, "float32")
    planned(model, halves={})
    assert not seen
    planned(model)
    assert len(seen) == 1


def test_float32_beside_is_what_a_build_in_it_is() -> None:
    model = MODELS["mobilenet_v2"].model()
    build = run_pipeline(model, options(model, stop_after="select"))
    from halotile.compiler.pipeline import _STAGE_FUNCTIONS

    before = dict(build.details), list(build.groups), dict(build.choices)
    found = wide.in_float32(build, _STAGE_FUNCTIONS, "tile")
    assert before == (build.details, list(build.groups), build.choices)
    plain = planned(model, "float32")
    assert found.details["tile"] == plain.details["tile"] and found.notes["tile"] == plain.notes["tile"]


# -- that it is right --------------------------------------------------------------------------------


def built(model: onnx.ModelProto, folder: Path, **more: object) -> Build:
    command = emulator(resolve(PI5))
    needs(command[0])
    needs_zig()
    return run_pipeline(model, options(model, **{"formats": ("exe",), **more}), output=folder)


def answers(folder: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """On one thread, which are those on two."""
    with RemoteModel(folder, " ".join(emulator(resolve(PI5)))) as remote:
        found, again = (remote(inputs, threads=n) for n in (1, 2))
    assert all(np.array_equal(found[name], again[name]) for name in found)
    return found


@pytest.mark.parametrize("half", [0.35, 0.2])
def test_tiles_compute_the_same_bits(half: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = chain(), np.random.default_rng(2).standard_normal((1, 3, 67, 71)).astype(np.float32)
    whole = built(model, tmp_path / "whole", winograd=False, tile="off")
    forced(monkeypatch, half)
    tiled = built(model, tmp_path / "tiled", winograd=False, threads=2)
    assert tiled.tiled and bytes_of(tiled) < bytes_of(whole)
    expected, found = (answers(tmp_path / n, {"x0": x}) for n in ("whole", "tiled"))
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("seeds", [range(42, 43), range(44, 45), range(55, 57), range(57, 59), range(59, 61)])
def test_random_networks_are_as_near_as_float16_can_be(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all transforms, against ONNX Runtime's float32."""
    model = random_nets(seeds)
    inputs = drawn(model, seeds.start)
    forced(monkeypatch, 0.3)
    assert built(model, tmp_path / "out").tiled
    found = answers(tmp_path / "out", inputs)
    exact, near = of_outputs(model, inputs), in_float16(model, inputs)
    for name, wanted in exact.items():
        allowed = max(float(np.abs(near[name] - wanted).max()), 2**-11 * float(np.abs(wanted).max()))
        assert np.abs(found[name] - wanted).max() < 8 * allowed, name


def test_what_lay_in_the_arena_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN of both widths, zeros, and guards on both sides, on one thread and on two (guards.c)."""
    forced(monkeypatch, 0.3)
    build = built(chain(41, 37), tmp_path / "out", name="rounds", formats=("a",), threads=2)
    assert build.tiled
    (archive,) = (tmp_path / "out").glob("*.a")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", zig_target(musl(resolve(PI5).triple)), "-static"]
    program = tmp_path / "guards"
    linked = (f"-I{tmp_path / 'out'}", archive, "-o", program, "-lm")
    run(*zig, "-std=c89", *STRICT, "-DMAKES_ZEROS", "-DMOST=2", MAIN / "guards.c", *linked)
    assert run(*emulator(resolve(PI5)), program) == "ok\n"

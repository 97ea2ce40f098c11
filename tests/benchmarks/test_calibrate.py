"""Calibration: the fit finds constants that timings were made of, and the file it writes is a target. No test depends
on how fast the machine is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from halotile.benchmarks.calibrate import calibration as module
from halotile.benchmarks.calibrate.board import board_text
from halotile.benchmarks.calibrate.calibration import Calibration, Errors, errors_of
from halotile.benchmarks.calibrate.fit import CONSTANTS, fitted, least_squares
from halotile.benchmarks.calibrate.layers import FITTED, HELD_OUT, LayerChain, chains
from halotile.benchmarks.calibrate.limits import MachineLimits, with_limits
from halotile.benchmarks.calibrate.samples import KernelSample, Variant, predicted_kernels, variants
from halotile.compiler.cli.main import run
from halotile.errors import TargetError, ToolchainError
from halotile.targets.detect import native, runs_here
from halotile.targets.fitted import table, usual
from halotile.targets.resolve import resolve
from halotile.targets.target import Target

HERTZ = 3_000_000_000
SERVER = replace(resolve("x86_64-linux-gnu+sapphirerapids"), cores=1, hertz=HERTZ)
LIMITS = MachineLimits(3.1e9, 99.2e9, 4 / 3.1e9, 2.4e12, 150e9, 28e9, 11e9, 18e9, 1.5e-6, 6e-8)
IMAGES, ROWS, MAPS = FITTED
OTHER_IMAGES = HELD_OUT[0]


@dataclass(frozen=True)
class Timed:
    """A kernel as if it had taken what ``truth`` predicts, times ``noise``."""

    kernel: KernelSample
    truth: Target
    noise: float = 1.0

    @property
    def family(self) -> str:
        return self.kernel.family

    @property
    def seconds(self) -> float:
        return self.noise * self.kernel.cycles(self.truth) / self.truth.hertz

    def cycles(self, target: Target) -> float:
        return self.kernel.cycles(target)


def _kernels(chain: LayerChain, given: Sequence[Variant]) -> list[KernelSample]:
    return [k for variant in given for k in _predicted(chain, variant)]


@cache
def _predicted(chain: LayerChain, variant: Variant) -> list[KernelSample]:
    return predicted_kernels(chain, SERVER, variant)


@pytest.mark.parametrize(
    ("chain", "variant", "changed"),
    [
        (IMAGES, Variant(exact=True), {("registers", "box_step"): 2.1}),
        (IMAGES, Variant(), {("unit", "conv_full"): 0.6, ("unit", "conv_split"): 9.0}),
        (IMAGES, Variant(matrix=False), {("winograd", "moved_starved"): 3.0}),
        (ROWS, Variant(), {("unit", "product_step"): 2.0}),
        (ROWS, Variant(exact=True), {("registers", "product"): 1.7}),
        (MAPS, Variant(), {("kernels", "move"): 16.0, ("kernels", "tap"): 0.6}),
    ],
    ids=["direct", "matrix unit", "winograd", "products on the unit", "products", "maps"],
)
def test_the_fit_finds_what_timings_were_made_of(
    chain: LayerChain, variant: Variant, changed: dict[tuple[str, str], float]
) -> None:
    """Measurements are off by a hundredth, and one kernel was disturbed and took twice as long. Constants of which a
    layer tells no more than a sum may share an error; predictions are right all the same."""
    truth = replace(SERVER, fitted=usual().with_values(changed))
    rng = np.random.default_rng(3)
    samples = [Timed(k, truth, float(np.exp(rng.normal(0, 0.01)))) for k in _kernels(chain, [variant])] * 2
    samples[-1] = replace(samples[-1], noise=2.0)
    found = fitted(samples, SERVER)
    for (group, name), value in changed.items():
        assert getattr(getattr(found.fitted, group), name) == pytest.approx(value, rel=0.15), (group, name)
    concerned = [s for s in samples if abs(s.cycles(SERVER) / s.cycles(truth) - 1) > 0.02]
    off = [abs(s.cycles(found) / s.cycles(truth) - 1) for s in concerned]
    assert np.median(off) < 0.03 < np.median([abs(s.cycles(SERVER) / s.cycles(truth) - 1) for s in concerned])


def test_predictions_of_other_layers_get_better_by_the_fit() -> None:
    changed = {("registers", "box_step"): 2.5, ("unit", "conv_split"): 12.0, ("unit", "conv_full"): 0.5}
    truth = replace(SERVER, fitted=usual().with_values(changed))
    assert variants(SERVER) == [Variant(), Variant(matrix=False), Variant(exact=True)]
    given = [Variant(), Variant(exact=True)]
    found = fitted([Timed(k, truth) for k in _kernels(IMAGES, given)], SERVER)
    errors = errors_of([Timed(k, truth) for k in _kernels(OTHER_IMAGES, given)], SERVER, found)
    by_name = {e.family: e for e in errors}
    assert list(by_name)[-1] == "all" and by_name["all"].kernels == sum(e.kernels for e in errors[:-1])
    for name in ("convolution: direct", "convolution: matrix unit"):
        error = by_name[name]
        assert error.median < 0.05 < error.median_before <= error.worst_before and error.median <= error.worst, name


def test_what_nothing_depends_on_stays_as_it_is() -> None:
    samples = [Timed(k, SERVER) for k in _kernels(ROWS, [Variant(exact=True)])]
    assert fitted(samples, SERVER).fitted.changed() == {}
    assert fitted([], SERVER) == SERVER


def test_least_squares_of_a_bent_curve() -> None:
    """Two numbers of an exponential and a shift, from values at eight places, one of them far off."""
    places, right = np.arange(8.0), np.array([0.4, -0.3])

    def values(at: np.ndarray) -> np.ndarray:
        return 20 * (np.exp(at[0]) * places / 4 + at[1])

    wanted = values(right)
    wanted[3] += 100
    found, _ = least_squares(lambda at: values(at) - wanted, 2)
    assert found == pytest.approx(right, abs=0.05)


def test_every_constant_that_is_fitted_is_one() -> None:
    names = [key for _, keys in CONSTANTS for key in keys]
    assert len(set(names)) == len(names)
    assert all(name in table()[group] for group, name in names)


def test_fitted_and_held_out_layers_have_no_shape_in_common() -> None:
    shapes = [{k.group.outputs[0].shape for c in found for k in _predicted(c, Variant())}
              for found in (FITTED, HELD_OUT)]  # fmt: skip
    assert all(shapes) and not shapes[0] & shapes[1]
    assert chains(["images"]) == (FITTED[:1], ()) and chains() == (FITTED, HELD_OUT)


def test_families_are_those_of_the_algorithms_that_were_chosen() -> None:
    families = {k.family for c in FITTED for k in _kernels(c, variants(SERVER))}
    assert {"convolution: direct", "convolution: depthwise", "convolution: winograd", "convolution: matrix unit",
            "product: the matrix unit", "product: register tiles", "maps, pools, norms"} <= families  # fmt: skip
    known = tuple(name for names, _ in CONSTANTS for name in names)
    assert all(family.startswith(known) for family in families), families


def test_limits_become_facts_in_cycles() -> None:
    target = with_limits(replace(SERVER, cores=2), LIMITS)
    assert (target.fma_ports, target.fma_latency, target.far_bytes, target.hertz) == (2, 4, 9, 3_100_000_000)
    assert target.bandwidth == 18_000_000_000 and not target.native
    assert target.fitted.kernels.launch == pytest.approx(4650) and target.fitted.kernels.call == pytest.approx(186)
    assert target.fitted.memory.shared == pytest.approx(18 / 3.1 / 2, rel=1e-3)
    assert target.fitted.unit.slower == pytest.approx(1024 * 3.1e9 / 2.4e12, rel=1e-3)
    plain = with_limits(resolve("x86-64-v3"), replace(LIMITS, matrix=0.0))
    assert plain.fitted.unit == usual().unit


def test_a_board_file_is_the_same_target_again(tmp_path: Path) -> None:
    target = with_limits(replace(SERVER, cores=2, clusters=("2 x sapphirerapids",), source='a "chip"'), LIMITS)
    found = Calibration(target, LIMITS, 9, (Errors("all", 4, 0.05, 0.2, 0.1, 0.4),))
    path = tmp_path / "mine.toml"
    path.write_text(board_text(found))
    assert replace(resolve(str(path)), id=target.id) == replace(target, native=False)
    assert "all: 5%, at worst 20% (4 kernels)" in path.read_text()
    assert json.loads(json.dumps(found.data()))["target"]["fitted"] == target.fitted.changed()


@pytest.fixture
def here() -> Target:
    """This machine, or a skip where it can't be detected."""
    try:
        target = native()
    except TargetError as error:
        pytest.skip(f"NOT RUN: {error}")
    assert runs_here(target)
    return target


def test_a_short_calibration_of_this_machine(
    here: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Few runs of few small layers: every figure is one, the file is a target, and a library for it is right."""
    small = LayerChain("small", (1, 16, 9, 11), (("conv", 24, 3, 1, "relu"), ("pool", 3, 2), ("softmax", -1)))
    other = LayerChain("else", (1, 16, 7, 13), (("conv", 40, 3, 1, "relu"), ("depthwise", 3, 1, "none")))
    monkeypatch.setattr(module, "chains", lambda _: ((small,), (other,)))
    monkeypatch.setattr(module, "LARGEST", 1 << 20)
    path = tmp_path / "my-machine.toml"
    assert run(["calibrate", "-o", str(path), "--seconds", "0.002", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert all(value > 0 for name, value in told["limits"].items() if name != "matrix")
    assert told["fitted_on"] >= 3 and told["errors"][-1]["kernels"] >= 2
    assert all(np.isfinite([v for v in e.values() if not isinstance(v, str)]).all() for e in told["errors"])
    target = resolve(str(path))
    kept = ("triple", "cpu", "features", "vector_bits", "l1_bytes", "l2_bytes", "l3_bytes", "cores")
    assert [getattr(target, name) for name in kept] == [getattr(here, name) for name in kept]
    assert target.hertz > 1e8 and target.fitted.changed() and runs_here(target)
    model = tmp_path / "model.onnx"
    model.write_bytes(other.model().SerializeToString())
    assert run(["build", str(model), "-t", str(path), "-o", str(tmp_path / "out")]) == 0
    assert run(["verify", str(model), str(tmp_path / "out")]) == 0


def test_without_a_compiler_of_c_it_is_one_line(
    here: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(*_: object) -> MachineLimits:
        raise ToolchainError("no C compiler was found")

    monkeypatch.setattr(module, "measure_limits", nothing)
    path = tmp_path / "mine.toml"
    assert run(["calibrate", "-o", str(path)]) == 1
    assert "no C compiler was found" in capsys.readouterr().err and not path.exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [("mine.json", "a target's file ends in .toml"), ("nowhere/mine.toml", "there is no folder")],
)
def test_a_file_that_can_not_be_is_refused_first(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["calibrate", "-o", str(tmp_path / name)]) == 1
    told = capsys.readouterr().err
    assert re.search(message, told) and len(told.strip().splitlines()) == 1

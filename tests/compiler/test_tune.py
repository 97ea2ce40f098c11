"""Choices by measurement: every candidate is right, a recorded one is built, databases that are none are told."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import halotile
import numpy as np
import onnx
import pytest
from commands import run_command
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import activation, conv, linear
from halotile.compiler import tune as tuning
from halotile.compiler import tuning_file
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.sample import random_inputs
from halotile.compiler.state import Options
from halotile.compiler.verify import verify
from halotile.errors import HalotileError, TargetError
from halotile.schedules.words.candidates import MOST
from halotile.targets.resolve import resolve


def network() -> onnx.ModelProto:
    """Every family that offers candidates, at odd sizes: direct, Winograd, depthwise, 1 x 1 and a product."""
    g = ModelGraph("families", ExportForm(opset=17))
    x = conv(g, g.input("x", (2, 19, 23, 17)), 37, 3)
    x = conv(g, activation(g, x, "relu"), 37, 3, groups=37)
    x = conv(g, activation(g, x, "relu"), 21, 1, stride=2)
    x = g.op("Flatten", x)
    return g.finish(y=linear(g, x, 13))


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return network()


@pytest.fixture(scope="module")
def options() -> Options:
    return Options(resolve("native"), threads=2, tile="off", tuning={})


@pytest.mark.parametrize("rank", range(MOST))
def test_every_candidate_is_right(model: onnx.ModelProto, options: Options, rank: int, tmp_path: Path) -> None:
    build = run_pipeline(model, replace(options, candidate=rank), output=tmp_path / "out")
    decisions = [k.decision for k in build.kernels if k.decision is not None]
    assert len({d.key for d in decisions}) == 4
    assert sum(d.chosen != d.own for d in decisions) >= (2 if rank else 0) and (rank or decisions[0].chosen)
    with load(tmp_path / "out", threads=2) as loaded:
        assert verify(loaded, model, loaded.inputs).ok


def test_candidates_without_a_tuning_are_the_ordinary_build(model: onnx.ModelProto, options: Options) -> None:
    plain = run_pipeline(model, replace(options, tuning=None, stop_after="schedule"))
    offered = run_pipeline(model, replace(options, stop_after="schedule"))
    assert [k.schedule for k in plain.kernels] == [k.schedule for k in offered.kernels]
    assert all(k.decision is None for k in plain.kernels)


def test_the_ordinary_build_offers_what_it_takes_of_products_of_halves_and_residuals() -> None:
    """A tuned build begins from the same choices: it once had neither form."""
    g = ModelGraph("block", ExportForm(opset=17))
    x = activation(g, conv(g, g.input("x", (1, 3, 28, 28)), 256, 3), "relu")
    y = conv(g, activation(g, conv(g, x, 256, 1), "relu"), 256, 3)
    x = activation(g, g.op("Add", x, y), "relu")
    block = g.finish(y=conv(g, x, 32, 1))
    zen4 = replace(resolve("x86-64-v4"), fma_ports=1, fma_latency=4, l2_bytes=1 << 20, l3_bytes=32 << 20)
    ordinary = Options(zen4, threads=1, tile="off", stop_after="schedule")
    plain = run_pipeline(block, ordinary).kernels
    offered = run_pipeline(block, replace(ordinary, tuning={})).kernels
    assert [(k.schedule, k.inplace != ()) for k in plain] == [(k.schedule, k.inplace != ()) for k in offered]
    assert any("halves" in k.schedule for k in offered) and any(k.inplace for k in offered)


def test_what_was_measured_is_built_and_recorded(
    model: onnx.ModelProto, options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is replaced: the third candidate of every kernel is the fastest, and the tuned build is as well."""
    monkeypatch.setattr(
        tuning, "_kernel_times", lambda models, *_: [[abs(r - 2) + 1.0] * 16 for r in range(len(models))]
    )
    monkeypatch.setattr(tuning, "_run_times", lambda models, *_: [[2.0 - i] * 8 for i in range(len(models))])
    monkeypatch.setattr(
        tuning, "_winners", lambda builds, times, inner=tuning._winners: inner(
            builds, [t[: len(b.kernels)] for b, t in zip(builds, times, strict=True)]
        ),
    )  # fmt: skip
    file, source = tmp_path / "tuning.json", tmp_path / "families.onnx"
    onnx.save(model, source)
    found = halotile.tune(source, file, threads=2, candidates=4)
    assert found["considered"] == 4 and len(found["kernels"]) >= 3 and found["seconds"] < found["own_seconds"]
    tuned = halotile.compile(source, threads=2, tile="off", tuning=file)
    built = {k["decision"]["key"]: k for k in tuned.report["kernels"] if "decision" in k}
    for key, kernel in found["kernels"].items():
        assert built[key]["decision"]["chosen"] == kernel["chosen"] != kernel["own"]
        assert f"measured faster than {kernel['own']}" in built[key]["notes"]
    assert tuned.verify().ok

    other = halotile.compile(source, threads=1, tuning=file)  # nothing was measured with one thread
    assert not any("measured faster" in note for k in other.report["kernels"] for note in k["notes"])

    command = ["build", "--no-verify", "--format", "so"]
    first = ["families.onnx", "--threads", "2", "--tile", "off", "--tuning", "tuning.json", "-o", "a"]
    again = ["--from", "a/manifest.json", "families.onnx", "-o", "b"]
    for arguments in (first, again):
        done = run_command([command[0], *arguments], tmp_path, os.environ)
        assert done.returncode == 0, done.stderr
        file.unlink(missing_ok=True)  # the manifest has all that is needed of it
    assert json.loads((tmp_path / "a/manifest.json").read_text())["options"]["tuning"]
    assert (tmp_path / "a/libfamilies.so").read_bytes() == (tmp_path / "b/libfamilies.so").read_bytes()


def test_a_real_measurement_ends_and_takes_only_what_is_faster(model: onnx.ModelProto, options: Options) -> None:
    found = tuning.tune(model, options, seconds=0.2, candidates=2)
    assert found.considered == 4 and 0 < found.seconds <= found.own_seconds
    assert all(m.seconds < m.own_seconds and m.chosen != m.own for m in found.kernels.values())


def test_a_choice_that_is_offered_no_more_is_a_note(model: onnx.ModelProto, options: Options) -> None:
    plain = run_pipeline(model, replace(options, stop_after="schedule"))
    key = next(k.decision.key for k in plain.kernels if k.decision is not None)
    stale = run_pipeline(model, replace(options, tuning={key: "direct 99x99x99"}, stop_after="schedule"))
    assert [k.schedule for k in stale.kernels] == [k.schedule for k in plain.kernels]
    assert any("tune again" in note for k in stale.kernels for note in k.notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a tuning database"),
        ("[1, 2]", "not a tuning database"),
        ('{"format": "halotile-tuning", "version": 1, "machines": {"x": {"cpu": 3}}}', "not a tuning database"),
        ('{"format": "other", "version": 1}', "is other 1"),
        ('{"format": "halotile-tuning", "version": 9}', "tune again"),
        (b"\xff\xfe\x00", "not a tuning database"),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_database(text: str | bytes | None, words: str, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(HalotileError, match=words) as told:
        halotile.compile(network(), tuning=file)
    assert "\n" not in str(told.value) and str(file) in str(told.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"seconds": float("nan")}, "how long"),
        ({"seconds": 0}, "how long"),
        ({"database": "nowhere/t.json"}, "can't be written"),
        ({"database": "."}, "not a file"),
        ({"database": None}, "name the file"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_measured(
    wrong: dict, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HalotileError, match=words):
        halotile.tune(network(), **{"database": "t.json", "progress": pytest.fail, **wrong})
    assert list(tmp_path.iterdir()) == []


def test_another_machine_has_another_place(tmp_path: Path) -> None:
    here, file = resolve("native"), tmp_path / "t.json"
    measured = tuning_file.Measured("direct 1x1x1", "direct 2x2x2", 1.0, 2.0)
    tuning_file.add(file, here, 1, {"a": measured})
    tuning_file.add(file, here, 1, {"b": measured})
    tuning_file.add(file, replace(here, l2_bytes=1), 1, {"c": measured})
    assert sorted(tuning_file.choices(file, here, 1)) == ["a", "b"]
    assert tuning_file.choices(file, here, 2) == {}
    assert sorted(tuning_file.choices(file, replace(here, l2_bytes=1), 1)) == ["c"]
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_only_this_machines_code_is_measured(model: onnx.ModelProto) -> None:
    with pytest.raises(TargetError, match="raspberry-pi-4"):
        tuning.tune(model, Options(resolve("raspberry-pi-4"), tuning={}))


def test_the_command(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    command = ["tune", "m.onnx", "--seconds", "0.2", "--candidates", "2"]
    done = run_command([*command, "--json"], tmp_path, os.environ)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["considered"] == 4 and (tmp_path / "tuning.json").is_file()
    (tmp_path / "tuning.json").write_text("no")
    done = run_command(command, tmp_path, os.environ)
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1


def test_inputs_are_the_models(model: onnx.ModelProto, options: Options, tmp_path: Path) -> None:
    """The seconds of kernels belong to the kernels of the report, one each."""
    run_pipeline(model, replace(options, timers=True), output=tmp_path / "out")
    with load(tmp_path / "out", threads=2) as loaded:
        times = tuning._kernel_times([loaded], random_inputs(loaded.inputs), 0.0, lambda *_: None)
        assert len(times) == 1 and len(times[0]) == len(loaded.report["kernels"])
        assert np.all(np.array(times) >= 0)

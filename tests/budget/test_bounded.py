"""Precision float16 within an error: what is expected is near what kernels do, and is kept by what stays more exact."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from board_tools import halotile as command
from board_tools import needs, needs_zig
from half_models import MODELS, Net, stack
from halotile.benchmarks.boards import emulator
from halotile.compiler.cli.summary import rows
from halotile.compiler.narrow import narrowed
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.recipe import options_of, rtol_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.runtime.place import read_manifest
from halotile.compiler.sample import random_inputs
from halotile.compiler.spec import TensorSpec
from halotile.compiler.state import Build, Options
from halotile.errors import HalotileError, OutputError
from halotile.schedules.conv.winograd.transform import HALF2
from halotile.schedules.words.half_error import HalfError, round_up
from halotile.targets.resolve import resolve

PI5 = "raspberry-pi-5"


def asked(model: onnx.ModelProto, error: float | None = None, target: str = PI5, **more: object) -> Options:
    return narrowed(model, Options(resolve(target), tile="off", matrix=False, **more), "float16", error=error)


def chosen(options: Options, model: onnx.ModelProto) -> Build:
    return run_pipeline(model, replace(options, stop_after="select"))


def transforms(build: Build) -> list[float]:
    """How much the transforms of the kernels multiply errors."""
    plans = [c.plan.transform for c in build.choices.values() if c.algorithm == "winograd"]
    return [t.growth for t in plans]


def told(options: Options) -> HalfError:
    assert options.half_error is not None
    return options.half_error


def windows(layers: int = 8, steep: float = 1.0) -> onnx.ModelProto:
    """3x3 layers in a row, which have transforms, and a sigmoid that multiplies what they are off by."""
    net, y = Net((1, 32, 29, 31)), "x0"
    for _ in range(layers):
        y = net.conv(y, 32, 32, 3, 3, pads=[1] * 4)
    y = net.add("Mul", net.conv(y, 16, 32, 1, 1, act=""), net.const(np.float32(steep)))
    return net.model(net.add("Sigmoid", y))


def points(steep: float, small: int = 6) -> onnx.ModelProto:
    """Large 1x1 layers and small ones in turns, which have no transforms."""
    net, y = Net((1, 64, 17, 19)), "x0"
    for _ in range(small):
        y = net.conv(y, 8, 64, 1, 1)
        y = net.conv(y, 64, 8, 1, 1)
    y = net.conv(net.conv(y, 256, 64, 1, 1), 64, 256, 1, 1)
    y = net.add("Mul", net.conv(y, 16, 64, 1, 1, act=""), net.const(np.float32(steep)))
    return net.model(net.add("Sigmoid", y))


def wanted(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in model.graph.output), session.run(None, inputs)))


def off(options: Options, model: onnx.ModelProto, folder: Path, seeds: range = range(3)) -> float:
    """What the kernels are off by on a board, of the largest value of an output: the mean over some inputs."""
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    run_pipeline(model, replace(options, formats=("exe",), threads=1), output=folder)
    infos = model.graph.input
    specs = [TensorSpec(i.name, "float32", tuple(d.dim_value for d in i.type.tensor_type.shape.dim)) for i in infos]
    errors = []
    with RemoteModel(folder, " ".join(run)) as remote:
        for seed in seeds:
            inputs = random_inputs(specs, model, seed)
            exact, found = wanted(model, inputs), remote(inputs, threads=1)
            errors.append(max(float(np.abs(found[k] - v).max() / np.abs(v).max()) for k, v in exact.items()))
    return float(np.mean(errors))


# -- within the error --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_what_keeps_the_error_is_built_as_before(name: str) -> None:
    model = MODELS[name]()
    options = asked(model)
    found = told(options)
    assert found == HalfError(found.expected, 1e-2) and 0 < found.expected < 1e-2, found
    assert options.halves == largest_of(model, "float16")
    plain = Options(resolve(PI5), precision="float16", halves=largest_of(model, "float16"), tile="off", matrix=False)
    first, second = ([str(c) for c in chosen(o, model).choices.values()] for o in (options, plain))
    assert first == second


@pytest.mark.parametrize("model", [MODELS["windows"](), MODELS["lines"](), windows(6), windows(8, 6.0), points(8.0)])
def test_expected_errors_are_near_those_of_kernels(model: onnx.ModelProto, tmp_path: Path) -> None:
    """Within a factor of two, without larger transforms, which are for classifiers."""
    options = asked(model, 0.5)
    found = off(options, model, tmp_path / "out")
    assert found / 2 < told(options).expected < 2 * found, (found, told(options))


# -- beyond it ---------------------------------------------------------------------------------------


def test_transforms_become_small_where_that_is_enough(tmp_path: Path) -> None:
    model = windows(8)
    every = told(asked(model)).expected
    options = asked(model, 0.8 * every)
    found = told(options)
    assert found.small and not found.stay and not found.none and found.expected < 0.8 * found.throughout, found
    before, after = (transforms(chosen(o, model)) for o in (asked(model), options))
    assert max(before) > HALF2.growth >= max(after) and len(after) >= 6
    build = chosen(options, model)
    assert build.details["halves"]["in_float16"] == build.details["halves"]["products"] == 9
    assert any("no transform is larger than F(2x2,3x3)" in note for note in build.notes["halves"])
    assert off(options, model, tmp_path / "small") < 0.8 * off(asked(model), model, tmp_path / "large")


def test_layers_of_least_work_stay_in_float32(tmp_path: Path) -> None:
    model = points(8.0)
    every = told(asked(model, 0.5)).expected
    options = asked(model, 0.8 * every)
    found = told(options)
    stay = set(found.stay)
    assert stay and not found.none and found.expected < 0.8 * every
    build = chosen(options, model)
    wide = {n.sources[0] for n in build.graph.nodes if "conv2d" in n.operator and n.results[0].dtype == "float32"}
    large = {n.name for n in model.graph.node if n.op_type == "Conv"} - stay
    assert wide == stay and len(large) >= 2
    assert set(build.details["halves"]["left"].values()) == {
        f"outputs would be off by more than {0.8 * every:g} of their largest value"
    }
    assert off(options, model, tmp_path / "some") < 0.95 * off(asked(model, 0.5), model, tmp_path / "none")


def test_all_layers_stay_in_float32_where_little_would_be_left(tmp_path: Path) -> None:
    model = windows(8, 40.0)
    options = asked(model)
    found = told(options)
    assert found.none and found.throughout > 2e-2
    build, plain = chosen(options, model), run_pipeline(
        model, Options(resolve(PI5), tile="off", matrix=False, stop_after="select")
    )
    assert list(map(str, build.choices.values())) == list(map(str, plain.choices.values()))
    warning = build.warnings[0]
    assert "all layers stay in float32: in float16 outputs would be off by about" in warning and "error=" in warning
    allowed = asked(model, float(round_up(found.throughout)))
    assert told(allowed).expected == pytest.approx(found.throughout, rel=0.3) and not told(allowed).small
    assert off(options, model, tmp_path / "out") < 1e-3


def test_all_layers_stay_where_a_mix_is_slower_than_float32(tmp_path: Path) -> None:
    """Layers in float32 lose their large transforms to blocks of eight channels; one in float16 does not make up."""
    model = windows(8)
    convs = [n.name for n in model.graph.node if n.op_type == "Conv"]
    stay = HalfError(5e-3, 1e-2, 2e-2, tuple(convs[:-1]))
    options = replace(asked(model), half_error=stay)
    build, plain = chosen(options, model), run_pipeline(
        model, Options(resolve(PI5), tile="off", matrix=False, stop_after="select")
    )
    assert list(map(str, build.choices.values())) == list(map(str, plain.choices.values()))
    assert not build.details.get("halves") and build.target == plain.target
    (why,) = build.warnings
    assert re.fullmatch(r"all layers stay in float32: .* takes [1-3]\.\d\d times float32's time", why), why
    assert off(options, model, tmp_path / "out") < 1e-4
    for more in ({"optimize": "memory"}, {"half_error": replace(stay, stay=tuple(convs[-1:]))}):
        mixed = chosen(replace(options, **more), model)
        assert mixed.details["halves"]["in_float16"] and not mixed.warnings, "memory counts, or it is faster"


def test_larger_transforms_do_not_come_back_with_layers_in_float32() -> None:
    """Fewer layers in float16 spread less error, by which larger transforms would be chosen."""
    model = windows(2)
    options = asked(model, 0.7 * told(asked(model)).expected)
    assert told(options).small and max(transforms(chosen(options, model)), default=0) <= HALF2.growth


# -- what can't be told ------------------------------------------------------------------------------


def test_what_a_last_bit_decides_is_not_looked_at() -> None:
    net = Net((1, 32, 13, 17))
    y = net.conv("x0", 40, 32, 3, 3, pads=[1] * 4)
    steep = net.add("Cast", net.add("Greater", net.conv(y, 8, 40, 1, 1, act=""), net.const(np.float32(0.1))), to=1)
    alone, both = net.model(steep), net.model(steep, y)
    assert asked(alone).half_error is None
    found = told(asked(both))
    assert not found.small and not found.stay and found.expected < 3e-3


def test_targets_without_float16_look_at_nothing() -> None:
    model = windows(8, 40.0)
    for target in ("raspberry-pi-4", "x86-64-v3"):
        assert asked(model, target=target).half_error is None


def test_layers_out_of_range_do_not_count() -> None:
    """They stay in float32 anyway, and rounding them would make infinities."""
    model = stack((32, 32, 32, 32), (13, 17), 3, (1.0, 1e6, 1e-6))
    found = told(asked(model))
    assert not found.small and not found.stay and 0 < found.expected < 1e-2


def test_names_that_fusion_would_change_are_kept() -> None:
    """A product and a sum become one node in ONNX Runtime, of a name that the model does not have."""
    net, y = Net((4, 48)), "x0"
    for _ in range(4):
        y = net.add("MatMul", y, net.weight(48, 48, fan=48))
        y = net.add("Relu", net.add("Add", y, net.const(np.ones(48, np.float32))))
    model = net.model(net.add("Sigmoid", net.add("Mul", y, net.const(np.float32(30.0)))))
    for node in model.graph.node:
        node.name = ""
    options = asked(model, 1e-6)
    assert told(options).none
    fewer = asked(model, 0.9 * told(options).throughout)
    names = set(told(fewer).stay)
    assert names <= {n.output[0] for n in model.graph.node if n.op_type == "MatMul"}, names


# -- the doors ---------------------------------------------------------------------------------------


def test_the_error_is_told_recorded_and_compared_by(tmp_path: Path) -> None:
    model = windows(4, 20.0)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    words = ["build", "net.onnx", "-t", PI5, "--precision", "float16", "--format", "a"]
    done = command(*words, "-o", "own", "--error", "0.3", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    line = dict(rows(json.loads(done.stdout), tmp_path / "net.onnx", None))["error expected"]
    assert re.fullmatch(r"\d\.\de-\d\d of the largest value, 0\.3 allowed", line), line
    recorded = read_manifest(tmp_path / "own")
    assert recorded.options["half_error"]["allowed"] == 0.3 and rtol_of(recorded) == 0.3
    for wrong in (-1.0, "much"):
        told_wrong = {**recorded.options["half_error"], "expected": wrong}
        with pytest.raises(OutputError, match="half_error"):
            options_of(replace(recorded, options={**recorded.options, "half_error": told_wrong}))
    again = command("build", "--from", "own", "-o", "again", "-q", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "own/manifest.json").read_bytes() == (tmp_path / "again/manifest.json").read_bytes()
    done = command(*words, "-o", "tight", "--error", "1e-5", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["precision"]["kernels"] == 0 and "error=" in done.stderr
    assert rtol_of(read_manifest(tmp_path / "tight")) == 1e-2


@pytest.mark.parametrize("error", [0, 1, True, "x", float("nan"), -0.1])
def test_an_error_that_is_none_is_refused(error: object) -> None:
    with pytest.raises(HalotileError, match="give what outputs may be off by"):
        halotile.compile(windows(1), target=PI5, precision="float16", error=error)


def test_the_cache_has_what_was_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from halotile.compiler.budget import bounded
    from halotile.compiler.cache.store import Cache

    model, cache = windows(2), Cache(tmp_path / "cache")
    first = asked(model, cache=cache)
    monkeypatch.setattr(bounded, "_found", lambda *_: pytest.fail("it is in the cache"))
    assert asked(model, cache=cache).half_error == first.half_error


@pytest.mark.parametrize(("error", "more"), [(0.0381, "0.05"), (0.0123, "0.02"), (0.0149, "0.02"), (0.3, "0.4")])
def test_an_error_to_allow_is_a_fifth_more_in_one_digit(error: float, more: str) -> None:
    assert round_up(error) == more


def test_what_is_near_the_error_is_the_mean_of_some_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """One draw of roundings tells the largest of a thousand errors by a tenth or so."""
    from halotile.compiler.budget import rounding

    drawn, own = [], rounding.rounded

    def counted(*given: object) -> onnx.ModelProto:
        drawn.append(given[3])
        return own(*given)

    monkeypatch.setattr(rounding, "rounded", counted)
    model = windows(2)
    every = told(asked(model, cache=None)).expected
    assert drawn == [0], "far within the error one draw is enough"
    drawn.clear()
    found = told(asked(model, 1.24 * every, cache=None)).expected
    assert drawn == [0, 1, 2] and found != every and found == pytest.approx(every, rel=0.24)

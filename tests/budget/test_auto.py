"""Precision auto: an error that is kept, by the precisions that the target has, told exactly and the same again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from board_tools import halotile as command
from half_models import Net, classifier, encoder, stack
from halotile.compiler.budget.plan import LEFT, Planner
from halotile.compiler.budget.wish import planner
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.recorded import checked_assigned
from halotile.compiler.state import Options
from halotile.errors import HalotileError
from halotile.targets.resolve import resolve

UNIT, PI5, AVX2 = "x86_64-linux-gnu+sapphirerapids", "raspberry-pi-5", "x86-64-v3"
HALVES = "x86_64-linux-gnu+sapphirerapids+-amx-tile"
LIMITS = (1e-3, 3e-3, 1e-2, 3e-2)


def samples(model: onnx.ModelProto, count: int, seed: int = 0, size: float = 1.0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    return [{n: (size * rng.standard_normal(s)).astype("f4") for n, s in shapes.items()} for _ in range(count)]


def wanted(model: onnx.ModelProto, given: list[dict[str, np.ndarray]]) -> list[list[np.ndarray]]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [session.run(None, arrays) for arrays in given]


def off(built: Any, model: onnx.ModelProto, given: list[dict[str, np.ndarray]]) -> float:
    """The largest difference over the largest value, of the worst output over all inputs."""
    names = [o.name for o in model.graph.output]
    found = [[run[n] for n in names] for run in map(built, given)]
    pairs = list(zip(zip(*wanted(model, given)), zip(*found)))
    return max(max(np.abs(w - f).max() for w, f in zip(*p)) / max(np.abs(w).max() for w in p[0]) for p in pairs)


def planned(model: onnx.ModelProto, target: str, count: int = 6) -> Planner:
    made: Planner = planner(model, Options(resolve(target), threads=1), samples(model, count))
    return made


# -- assignments, on any machine -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "kinds"),
    [(UNIT, [("bfloat16", "int8")]), (HALVES, [("bfloat16", "int8"), ("float16",)]), (PI5, [("int8",), ("float16",)]),
     (AVX2, [("int8",)]), ("raspberry-pi-4", [])],
)  # fmt: skip
def test_precisions_are_those_that_the_target_has(target: str, kinds: list[tuple[str, ...]]) -> None:
    made = planned(stack((16, 33, 17), (11, 13), 1), target, 4)
    assert made.times.kinds == kinds
    assert {k for u in made.units for k in u.share} <= {"float32", *(k for mixed in kinds for k in mixed)}
    for rung in made.rungs:  # one kind of float beside float32 a build
        assert len({p for p in rung.precision.values() if p != "int8"}) <= 1


@pytest.mark.parametrize("target", [UNIT, PI5])
def test_time_falls_with_the_limit_and_the_limit_is_kept(target: str) -> None:
    made = planned(encoder(), target)
    chosen = [next(made.within(limit)) for limit in LIMITS]
    assert all(rung.error <= LEFT * limit for rung, limit in zip(chosen, LIMITS))
    cycles = [made.rungs[0].cycles, *(rung.cycles for rung in chosen)]
    assert cycles == sorted(cycles, reverse=True) and cycles[-1] < 0.95 * cycles[0]
    assert len({tuple(sorted(r.precision.items())) for r in chosen}) > 1
    for rung in made.rungs[1:]:
        assert rung.errors[0] / 3 < rung.estimate < 3 * rung.errors[0]  # of layers alone, and of all together


def test_what_float16_may_not_hold_stays_wider() -> None:
    model = stack((64, 128, 128, 128), (23, 27), 1, scales=(1, 3000, 1e-3))
    made = planned(model, PI5)
    kinds = [set(unit.share) for unit in made.units]
    assert "float16" in kinds[0] and all("float16" not in k for k in kinds[1:])
    assert any("range" in why for unit in made.units[1:] for why in unit.why.values())
    found = made.shares.errors({unit.names[0]: "float16" for unit in made.units if "float16" in unit.share})
    assert all(np.isfinite(found))


def test_layers_are_built_in_their_precision_and_no_others() -> None:
    model = stack((64, 128, 96, 64), (18, 22), 1)
    made = planned(model, UNIT)
    names = [n.name for n in made.shares.layers]
    for taken in ([names[1]], [names[0], names[2]]):
        precision = dict.fromkeys(taken, "bfloat16")
        assigned = {"layers": precision}
        build = run_pipeline(
            model, Options(resolve(UNIT), threads=1, precision="bfloat16", assigned=assigned, stop_after="schedule")
        )
        assert _bfloat16(build.report["kernels"], names) == set(taken)
    half = run_pipeline(
        model,
        Options(resolve(PI5), threads=1, precision="float16", halves=made.times.largest,
                assigned={"layers": {names[1]: "float16"}}, stop_after="select"),
    )  # fmt: skip
    products = [n for n in half.graph.nodes if "conv" in n.operator and n.results[0].dtype == "float16"]
    narrow = {s for n in products for s in n.sources}
    assert narrow & set(names) == {names[1]}


def test_members_of_tile_groups_have_precisions_of_their_own() -> None:
    model = stack((64, 64, 64, 64, 64), (96, 96), 3)
    names = [n.name for n in model.graph.node if n.op_type == "Conv"]
    asked = Options(resolve(UNIT), threads=1, optimize="memory", stop_after="schedule")
    alone, mixed = (
        run_pipeline(model, Options(**{**vars(asked), "precision": "bfloat16", "assigned": {"layers": layers}}))
        for layers in (dict.fromkeys(names, "bfloat16"), {names[1]: "bfloat16"})
    )
    assert alone.tiled and mixed.tiled
    counts = [_unit_products(build) for build in (alone, mixed)]
    assert 0 < counts[0] < counts[1], "three products for each layer but one"


def _unit_products(build: Any) -> int:
    return sum(str(f).count("tdpbf16ps") for k in build.kernels for f in _functions(k))


def _functions(kernel: Any) -> list[Any]:
    return [p.function for p in kernel.parts] if hasattr(kernel, "parts") else [kernel.function]


def _bfloat16(kernels: list[dict[str, Any]], names: list[str]) -> set[str]:
    found = {n for k in kernels if "bfloat16" in k["schedule"] for n in k["nodes"]}
    return found & set(names)


# -- builds for this machine, whatever it has ------------------------------------------------------


@pytest.mark.parametrize("name", ["classifier", "stack"])
def test_a_build_keeps_its_limit_and_records_it(name: str, tmp_path: Path) -> None:
    model = classifier() if name == "classifier" else stack((32, 64, 64, 32), (20, 24), 1)
    given = samples(model, 8)
    for limit in (2e-3, 2e-2):
        built = halotile.compile(model, precision="auto", calibrate=given, error=limit, threads=1)
        told = built.report["auto"]
        assert told["measured"] and max(told["error"], told["held"]) <= limit == told["limit"]
        assert off(built, model, given) <= limit
        assert off(built, model, samples(model, 4, seed=9)) <= 2 * limit
        assert sum(told["precisions"].values()) == told["of"] == len([*_layers(model)])
        assert built.manifest["options"]["assigned"]["layers"] == told["layers"]
        if told["layers"]:
            assert told["cycles"] < told["cycles_float32"]
            assert told["expected"] / 2 <= max(told["error"], told["held"]) <= 2 * told["expected"]
        assert built.verify(model=model).ok


def _layers(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [n for n in model.graph.node if n.op_type in ("Conv", "Gemm", "MatMul", "ConvTranspose")]


def test_an_impossible_limit_names_the_least() -> None:
    model = classifier()
    with pytest.raises(HalotileError, match="can't be kept: all in float32, outputs are off by") as caught:
        halotile.compile(model, precision="auto", calibrate=samples(model, 4), error=1e-9, threads=1)
    assert "\n" not in str(caught.value)
    least = float(str(caught.value).split("are off by ")[1].split()[0])
    built = halotile.compile(model, precision="auto", calibrate=samples(model, 4), error=least, threads=1)
    assert max(built.report["auto"]["error"], built.report["auto"]["held"]) <= least


def test_the_command_line_shows_the_plan_and_builds_the_same_again(tmp_path: Path) -> None:
    model = stack((32, 64, 64, 32), (20, 24), 1)
    onnx.save(model, tmp_path / "net.onnx")
    np.savez(tmp_path / "samples.npz", x0=np.stack([s["x0"] for s in samples(model, 5)]))
    asked = ("--calibrate", "samples.npz", "--error", "2e-2")
    shown = command("inspect", "net.onnx", "--precision-plan", *asked, "--json", "-t", UNIT, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    data = json.loads(shown.stdout)
    assert data["precisions"] == ["bfloat16", "float32", "int8"] and len(data["layers"]) == 3
    assert data["chosen"] in data["curve"] and data["chosen"]["cycles"] <= data["cycles_float32"]
    times = [p["cycles"] for p in data["curve"]]
    assert times == sorted(times, reverse=True)
    text = command("inspect", "net.onnx", "--precision-plan", *asked, "-t", UNIT, cwd=tmp_path)
    assert "expected error" in text.stdout and "chosen" in text.stdout and "reason" in text.stdout
    done = command("build", "net.onnx", "--precision", "auto", *asked, "--table", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "layers by precision" in done.stderr and "error kept" in done.stderr
    (tmp_path / "samples.npz").unlink()
    again = command("build", "--from", "out", "-o", "again", "--no-cache", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "out" / "manifest.json").read_bytes() == (tmp_path / "again" / "manifest.json").read_bytes()


def test_a_damaged_record_is_refused() -> None:
    good = {"layers": {"a": "int8"}, "of": 2, "limit": 0.1, "expected": 0.0, "error": 0.0, "held": 0.0,
            "measured": True, "samples": [1, 1], "cycles": 1.0, "cycles_float32": 2.0}  # fmt: skip
    assert checked_assigned(json.loads(json.dumps(good))) == good
    wrong: tuple[Any, ...] = ({"layers": {"a": "int4"}}, {"of": "2"}, {"measured": 1}, {"samples": [1]}, {"held": True})
    for bad in (None, {}, *({**good, **part} for part in wrong)):
        with pytest.raises(HalotileError, match="no precisions of layers"):
            checked_assigned(bad)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "needs sample inputs"),
        ({"calibrate": []}, "needs an error to keep"),
        ({"calibrate": [], "error": 2}, "error=2"),
        ({"calibrate": [], "error": 0.1}, "holds no sample"),
        ({"calibrate": [], "error": 0.1, "exact": True}, "exact forbids"),
        ({"calibrate": [], "error": 0.1, "stream": True}, "streams has none"),
        ({"calibrate": [], "error": 0.1, "levels": "v2,v3", "target": "x86_64-linux-gnu"}, "for one processor"),
    ],
)
def test_contradictions_are_refused_in_one_line(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(HalotileError) as caught:
        halotile.compile(stack((4, 5), (6, 7), 1), precision="auto", **asked)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_model_without_floats_that_come_out_is_refused() -> None:
    net = Net((1, 4, 9, 9))
    top = net.add("ArgMax", net.conv("x0", 8, 4, 3, 3), axis=1)
    model = net.model(top)
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    with pytest.raises(HalotileError, match="no output in floats"):
        halotile.compile(model, precision="auto", calibrate=samples(model, 2), error=0.1)

"""Precision float16: layers computed and stored in it, near ONNX Runtime's float32, on processors that have it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from board_tools import halotile as command
from board_tools import needs, needs_zig
from compiled import machine, native, unitless
from half_models import MODELS, Net, stack
from halotile.benchmarks import machine_code
from halotile.benchmarks.boards import emulator
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.sample import random_inputs
from halotile.compiler.spec import TensorSpec
from halotile.compiler.state import Options
from halotile.errors import HalotileError
from halotile.passes.halves.halves import END, ROOM
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.targets.resolve import resolve

PI5, SERVER = "raspberry-pi-5", "x86_64-linux-gnu+sapphirerapids"
HERE = pytest.mark.skipif(not machine().has_halves, reason="NOT RUN: this machine does not compute in float16")
RTOL = 1e-2  # of the largest value


def feeds(model: onnx.ModelProto, seed: int = 5) -> dict[str, np.ndarray]:
    specs = []
    for info in model.graph.input:
        specs.append(TensorSpec(info.name, "float32", tuple(d.dim_value for d in info.type.tensor_type.shape.dim)))
    return random_inputs(specs, model, seed)


def wanted(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in model.graph.output), session.run(None, inputs)))


def off(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """The largest difference over the largest value."""
    return max(float(np.abs(found[k] - v).max() / np.abs(v).max()) for k, v in expected.items())


def options(model: onnx.ModelProto, target: Any, **more: Any) -> Options:
    target = resolve(target) if isinstance(target, str) else target
    largest = largest_of(model, "float16")
    return Options(target, precision="float16", halves=largest, **{"tile": "off", "matrix": False, **more})


def here(model: onnx.ModelProto, **more: Any) -> halotile.Model:
    return halotile.compile(model, target=unitless(native()), precision="float16", **more)


def types(build: Any) -> list[tuple[str, str]]:
    """(operator, type of its result) of every node."""
    return [(n.operator, n.results[0].dtype) for n in build.graph.nodes]


# -- what is computed in float16, on any machine ---------------------------------------------------


@pytest.mark.parametrize("target", [PI5, SERVER])
@pytest.mark.parametrize("name", MODELS)
def test_products_are_in_float16_and_costly_maps_are_not(name: str, target: str) -> None:
    build = run_pipeline(MODELS[name](), options(MODELS[name](), target, stop_after="schedule"))
    found = types(build)
    weighed = [n for n in build.graph.nodes if len(n.inputs) == 2 and n.inputs[1].constant is not None]
    weighed = [n for n in weighed if "conv" in n.operator or n.operator == "relax.matmul"]
    assert len(weighed) >= 4 and {n.results[0].dtype for n in weighed} == {"float16"}
    wide = ("softmax", "norm", "mean", "sigmoid", "gelu", "tanh", "silu")
    assert all(t == "float32" for o, t in found if any(w in o for w in wide))
    kernels = build.report["precision"]
    assert kernels["asked"] == "float16" and kernels["in_float16"] == kernels["products"] == len(weighed)
    lanes = resolve(target).lanes("float16")
    assert {v.block for v in build.layouts.values() if v.block} <= {lanes}


def test_what_is_stored_between_layers_takes_half_of_the_bytes() -> None:
    model = stack((32, 64, 64, 32), (20, 24), 1)
    half, whole = (
        run_pipeline(model, replace(options(model, PI5, stop_after="plan"), precision=p)).report["planned_bytes"]
        for p in ("float16", "float32")
    )
    assert half <= 0.52 * whole


@pytest.mark.parametrize(("target", "pattern"), [(PI5, r"fmla\s+v\d+\.8h"), (SERVER, r"vfmadd\d+ph")])
def test_the_instructions_multiply_halves(target: str, pattern: str) -> None:
    try:
        objdump = machine_code.tools().objdump
    except HalotileError:
        pytest.skip("NOT RUN: needs llvm-objdump")
    for model in (stack((32, 64, 64), (14, 14), 3), stack((64, 64), (14, 14), 1)):
        build = run_pipeline(model, options(model, target, stop_after="assemble"))
        text = machine_code.disassembly(build.library.kernel_objects, resolve(target), objdump)
        wide = len(re.findall(r"fmla\s+v\d+\.4s|vfmadd\d+ps", text))
        assert len(re.findall(pattern, text)) >= 40 > 10 * wide
        assert not re.search(r"\b(callq?|bl)\s.*(sfhf|hfsf|h2f|f2h)", text), "no routine converts"


@pytest.mark.parametrize("target", ["raspberry-pi-4", "x86-64-v3", "raspberry-pi-3-32"])
def test_other_targets_stay_in_float32_and_say_so(target: str) -> None:
    model = MODELS["lines"]()
    build = run_pipeline(model, options(model, target, stop_after="schedule"))
    plain = run_pipeline(model, Options(resolve(target), tile="off", matrix=False, stop_after="schedule"))
    assert [k["schedule"] for k in build.report["kernels"]] == [k["schedule"] for k in plain.report["kernels"]]
    assert "does not compute in float16" in build.report["warnings"][0]
    assert build.report["precision"]["kernels"] == 0


def test_a_matrix_unit_is_faster() -> None:
    model = MODELS["lines"]()
    build = run_pipeline(model, options(model, SERVER, matrix=True, stop_after="merge"))
    assert "matrix unit" in build.warnings[0] and not build.details.get("halves")


def test_layers_that_could_leave_the_range_stay_in_float32() -> None:
    """The second layer's numbers are beyond 65,504, the others' are not."""
    model = stack((16, 32, 32, 16), (9, 11), 3, (1.0, 1e5, 1e-5))
    build = run_pipeline(model, options(model, PI5, stop_after="schedule"))
    convs = [t for o, t in types(build) if o == "relax.nn.conv2d"]
    assert convs == ["float16", "float32", "float32"]
    second, third = build.details["halves"]["left"].values()
    assert "float16's range ends at 65,504" in second and "float16's range ends at 65,504" in third + second


def test_the_range_has_room() -> None:
    model = stack((8, 8), (5, 5), 1)
    for most, dtype in ((END / ROOM, "float16"), (1.01 * END / ROOM, "float32")):
        asked = replace(options(model, PI5, stop_after="schedule"), halves={"n0": most})
        assert ("relax.nn.conv2d", dtype) in types(run_pipeline(model, asked))
    nothing = replace(options(model, PI5, stop_after="schedule"), halves={})
    build = run_pipeline(model, nothing)
    assert "nothing is known of the size" in build.notes["halves"][0]


# -- answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_board_computes_them(name: str, tmp_path: Path) -> None:
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    model, inputs = MODELS[name](), feeds(MODELS[name]())
    run_pipeline(model, options(model, PI5, formats=("exe",)), output=tmp_path / "out")
    with RemoteModel(tmp_path / "out", " ".join(run)) as remote:
        error = off(remote(inputs), wanted(model, inputs))
    assert 1e-5 < error < RTOL


@HERE
@pytest.mark.parametrize("name", MODELS)
def test_answers_are_near_and_the_same_on_any_number_of_threads(name: str) -> None:
    model, inputs = MODELS[name](), feeds(MODELS[name]())
    expected = wanted(model, inputs)
    found = [here(model, threads=n, tile="off")(inputs) for n in (1, 2)]
    assert 1e-5 < off(found[0], expected) < RTOL
    assert all((found[0][k] == found[1][k]).all() for k in expected)


@HERE
def test_long_sums_are_added_up_in_float32() -> None:
    """4608 terms all of one sign: sums in float16 alone would be off by percents."""
    net = Net((1, 512, 6, 7))
    weight = net.const((np.abs(net.rng.standard_normal((40, 512, 3, 3))) / 64).astype(np.float32))
    matrix = net.const((np.abs(net.rng.standard_normal((3000, 40))) / 64).astype(np.float32))
    net.inputs.append(onnx.helper.make_tensor_value_info("x1", onnx.TensorProto.FLOAT, [5, 3000]))
    model = net.model(net.add("Conv", "x0", weight, pads=[1] * 4), net.add("MatMul", "x1", matrix))
    inputs = {k: np.abs(v) for k, v in feeds(model).items()}
    found, expected = here(model)(inputs), wanted(model, inputs)
    product, rows = model.graph.output[1].name, inputs["x1"].astype(np.float16)
    one = np.zeros((5, 40), np.float16)  # what a single run would make
    for column, weights in zip(rows.T, onnx.numpy_helper.to_array(model.graph.initializer[1]).astype(np.float16)):
        one += column[:, None] * weights
    assert off(found, expected) < 4e-3
    assert 4 * off({"y": found[product]}, {"y": expected[product]}) < off({"y": one}, {"y": expected[product]})


@HERE
@pytest.mark.parametrize("transforms", [False, True])
def test_tiles_compute_the_same_bits_in_less_memory(transforms: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of Winograd's transforms begin elsewhere in boxes, and round otherwise."""
    model = stack((8, 64, 64, 8), (81, 77), 3)
    inputs, result = feeds(model), model.graph.output[0].name
    if not transforms:
        monkeypatch.setattr(winograd_algorithm, "choose_plan", lambda *_, **__: None)
    whole = here(model, tile="off", optimize="memory")
    tiled = here(model, memory_budget=whole.report["planned_bytes"] * 6 // 10)
    assert any("tiled" in k["schedule"] for k in tiled.report["kernels"])
    assert tiled.report["precision"]["in_float16"] == whole.report["precision"]["in_float16"] == 3
    assert transforms or (whole(inputs)[result] == tiled(inputs)[result]).all()
    assert off(tiled(inputs), wanted(model, inputs)) < RTOL


@HERE
def test_a_model_scaled_to_overflow_has_no_infinity() -> None:
    for scales in ((1e5, 1e-5, 1.0), (1.0, 3e4, 1e-4), (1e-7, 1e7, 1.0)):
        model = stack((16, 32, 32, 16), (9, 11), 3, scales)
        inputs = feeds(model)
        found = here(model)(inputs)
        assert all(np.isfinite(v).all() for v in found.values())
        assert off(found, wanted(model, inputs)) < RTOL


@HERE
def test_nan_and_infinity_keep_their_meaning() -> None:
    model = stack((8, 16, 8), (9, 11), 3)
    inputs = feeds(model)
    for odd in (np.nan, np.inf, -np.inf):
        inputs["x0"][0, 3, 4, 5] = odd
        found, expected = here(model)(inputs), wanted(model, inputs)
        for k, v in expected.items():
            np.testing.assert_array_equal(np.isfinite(found[k]), np.isfinite(v))
            np.testing.assert_array_equal(np.isnan(found[k]), np.isnan(v))


def test_random_inputs_make_masks_of_zeros_and_ones() -> None:
    """(1 - mask) * the least number is infinite for a mask of twos, and what reads it NaN."""
    net = Net((1, 8, 24))
    net.inputs.append(onnx.helper.make_tensor_value_info("mask", onnx.TensorProto.INT64, [1, 1, 8]))
    least = net.const(np.float32(np.finfo(np.float32).min))
    hidden = net.add("Mul", net.add("Sub", net.const(np.float32(1)), net.add("Cast", "mask", to=1)), least)
    scores = net.add("Add", net.add("MatMul", "x0", net.weight(24, 8, fan=24)), hidden)
    mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), "x0")
    model = net.model(net.add("MatMul", mixed, net.weight(24, 40, fan=24)))
    largest = largest_of(model, "float16")
    assert largest is not None and {"n3", "n7"} <= set(largest)
    build = run_pipeline(model, options(model, PI5, stop_after="schedule"))
    assert build.report["precision"]["in_float16"] == 2


# -- the doors -------------------------------------------------------------------------------------


def test_samples_decide_and_the_manifest_has_them(tmp_path: Path) -> None:
    model = stack((8, 16, 8), (9, 11), 3)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    for name, size in (("small", 1.0), ("large", 1e5)):
        np.savez(tmp_path / f"{name}.npz", x0=size * feeds(model)["x0"])
        words = ["build", "net.onnx", "-o", name, "-t", PI5, "--precision", "float16", "--calibrate", f"{name}.npz"]
        done = command(*words, "--format", "a", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)["precision"]
        assert (told["asked"], told["kernels"], told["of"]) == ("float16", 2 if name == "small" else 0, 2)
    recorded = json.loads((tmp_path / "small/manifest.json").read_text())["options"]
    assert recorded["precision"] == "float16" and set(recorded["halves"]) == {"n0", "n0 reads", "n1", "n2", "n2 reads"}
    assert 0 < recorded["half_error"]["expected"] < recorded["half_error"]["allowed"] == 1e-2
    again = command("build", "--from", "small", "-o", "again", "-q", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "small/manifest.json").read_bytes() == (tmp_path / "again/manifest.json").read_bytes()


def test_contradictions_are_refused_in_one_line() -> None:
    model = stack((8, 8), (5, 5), 1)
    for asked, words in (
        ({"exact": True}, "precision float16 rounds to eleven bits, which exact forbids"),
        ({"error": 1.5}, "give what outputs may be off by"),
        ({"calibrate": {"y": np.zeros(3)}}, "no input 'y'"),
    ):
        with pytest.raises(HalotileError, match=words):
            halotile.compile(model, target=PI5, precision="float16", **asked)

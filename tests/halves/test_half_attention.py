"""Attention's two products in float16 between float32 rows of scores: near ONNX Runtime, or left as they were."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from board_tools import needs, needs_zig
from half_models import Net
from halotile.benchmarks import machine_code
from halotile.benchmarks.boards import emulator
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Build, Options
from halotile.errors import HalotileError
from halotile.passes.halves.halves import END, ROOM
from halotile.schedules.kernel.half_sums import SPAN
from halotile.targets.resolve import resolve

PI5, SERVER = "raspberry-pi-5", "x86_64-linux-gnu+sapphirerapids"
RTOL = 1e-2  # of the largest value, as all comparisons in float16


@dataclass(frozen=True)
class Case:
    """``heads`` of ``rows`` queries and ``keys``, which are ``depth`` long, and values ``width``; ``scale`` of scores
    and ``size`` of queries and values, which are about 1."""

    rows: int
    keys: int
    heads: int
    depth: int
    width: int
    batch: int = 1
    scale: float = 0.4
    mask: str = ""
    sizes: tuple[float, float] = (1.0, 1.0)

    def model(self) -> onnx.ModelProto:
        """Projections of two inputs of 24 numbers, the attention, and a product behind it."""
        net = Net((self.batch, self.rows, 24), (self.batch, self.keys, 24), seed=self.keys)
        parts = []
        for x, length, size, perm, scale in (
            ("x0", self.rows, self.depth, [0, 2, 1, 3], self.sizes[0]),
            ("x1", self.keys, self.depth, [0, 2, 3, 1], 1.0),
            ("x1", self.keys, self.width, [0, 2, 1, 3], self.sizes[1]),
        ):
            y = net.add("MatMul", x, net.weight(24, self.heads * size, fan=24, scale=scale))
            shape = np.array([self.batch, length, self.heads, size], np.int64)
            parts.append(net.add("Transpose", net.add("Reshape", y, net.const(shape)), perm=perm))
        scores = net.add("MatMul", parts[0], parts[1])
        if self.scale != 1:
            scores = net.add("Mul", scores, net.const(np.float32(self.scale)))
        if self.mask == "input":
            shape = [self.batch, 1, 1, self.keys]
            net.inputs.append(onnx.helper.make_tensor_value_info("mask", onnx.TensorProto.FLOAT, shape))
            scores = net.add("Add", scores, "mask")
        elif self.mask == "causal":
            keep = np.tril(np.ones((self.rows, self.keys), bool))
            scores = net.add("Where", net.const(keep), scores, net.const(np.float32(-np.inf)))
        mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), parts[2])
        mixed = net.add("Transpose", mixed, perm=[0, 2, 1, 3])
        shape = np.array([self.batch, self.rows, self.heads * self.width], np.int64)
        mixed = net.add("Reshape", mixed, net.const(shape))
        fan = self.heads * self.width
        return net.model(net.add("MatMul", mixed, net.weight(fan, 16, fan=fan)))

    def inputs(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(7)
        shapes = {"x0": (self.batch, self.rows, 24), "x1": (self.batch, self.keys, 24)}
        found = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
        if self.mask == "input":
            hidden = rng.random((self.batch, 1, 1, self.keys)) < 0.4
            hidden[..., 0] = False
            found["mask"] = np.where(hidden, -np.inf, 0).astype(np.float32)
        return found


CASES = {
    "plain": Case(19, 19, 3, 20, 20, batch=2),
    "runs of keys": Case(37, 131, 2, 13, 9),
    "two keys": Case(5, 2, 2, 7, 3),
    "one query": Case(1, 67, 4, 16, 16),
    "short": Case(11, 3, 2, 3, 5),
    "long depth": Case(61, 523, 1, 139, 24, scale=0.1),
    "mask": Case(29, 35, 2, 16, 17, batch=2, mask="input"),
    "causal": Case(70, 70, 2, 32, 32, mask="causal"),
    "as it is": Case(23, 41, 2, 8, 16, scale=1.0),
}


ONE_KEY = Case(5, 1, 2, 7, 3)


def options(model: onnx.ModelProto, **more: Any) -> Options:
    given = {"target": resolve(PI5), "halves": largest_of(model, "float16"), "tile": "off", "matrix": False, **more}
    return Options(**{"precision": "float16", **given})


def built(case: Case, **more: Any) -> Build:
    return run_pipeline(case.model(), options(case.model(), stop_after="schedule", **more))


def attention(build: Build) -> Any:
    (kernel,) = [k for k in build.kernels if k.schedule.startswith("attention")]
    return kernel


def wanted(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


@pytest.mark.parametrize("case", [*CASES.values(), ONE_KEY], ids=[*CASES, "one key"])
def test_a_board_computes_them(case: Case, tmp_path: Path) -> None:
    """After a run on NaN, which is then in all scratch; the same bits on one thread and on two."""
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    model, inputs = case.model(), case.inputs()
    build = run_pipeline(model, options(model, formats=("exe",)), output=tmp_path / "out")
    if case is not ONE_KEY:
        assert build.details["halves"]["attentions"] == 1 and "products in float16" in attention(build).schedule
    result = model.graph.output[0].name
    with RemoteModel(tmp_path / "out", " ".join(run)) as remote:
        for threads in (1, 2):
            bad = remote({k: np.full_like(v, np.nan) for k, v in inputs.items()}, threads=threads)[result]
            assert np.isnan(bad).all()
        found = [remote(inputs, threads=n)[result] for n in (1, 2)]
    expected = wanted(model, inputs)
    assert np.abs(found[0] - expected).max() < RTOL * np.abs(expected).max()
    np.testing.assert_array_equal(*found)


def test_infinite_scores_and_hidden_rows_keep_their_meaning(tmp_path: Path) -> None:
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    case = Case(29, 35, 2, 16, 17, batch=2, mask="input")
    model, inputs = case.model(), case.inputs()
    inputs["mask"][1] = -np.inf
    inputs["x0"][0, 3, 5] = np.inf
    run_pipeline(model, options(model, formats=("exe",)), output=tmp_path / "out")
    with RemoteModel(tmp_path / "out", " ".join(run)) as remote:
        (found,) = remote(inputs).values()
    expected = wanted(model, inputs)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert np.isnan(expected[1]).all() and np.isnan(expected[0, 3]).all() and not np.isnan(expected[0, 4:]).any()


def test_weights_keep_the_digits_of_float16(tmp_path: Path) -> None:
    """Scores 0 and x, values 0 and 1: the output is exp(x) / (1 + exp(x)), within two roundings and the exponential's
    own error; exactly a half at 0."""
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    x = -np.concatenate([[0.0], np.geomspace(2.0**-10, 9.0, 508)]).astype(np.float16).astype(np.float32)
    net, eye = Net((1, x.size, 8), (1, 8, 2), (1, 2, 8)), np.eye(8, dtype=np.float32)
    q, v = (net.add("MatMul", name, net.const(eye)) for name in ("x0", "x2"))
    model = net.model(net.add("MatMul", net.add("Softmax", net.add("MatMul", q, "x1"), axis=-1), v))
    inputs = {"x0": x[None, :, None] * eye[0], "x1": np.stack([0 * eye[0], eye[0]], 1)[None], "x2": eye[None, 6:, ::-1]}
    build = run_pipeline(model, options(model, formats=("exe",)), output=tmp_path / "out")
    assert "products in float16" in attention(build).schedule
    with RemoteModel(tmp_path / "out", " ".join(run)) as remote:
        (found,) = remote({k: np.ascontiguousarray(v, np.float32) for k, v in inputs.items()}).values()
    wanted = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert found[0, 0, 0] == 0.5
    assert np.abs(found[0, :, 0] / wanted - 1).max() < 2 * 2.0**-11 + 1.1e-4 + 1e-5


@pytest.mark.parametrize("target", [PI5, SERVER])
def test_scores_are_float32_between_products_of_float16(target: str) -> None:
    build = built(CASES["plain"], target=resolve(target))
    head = str(attention(build).function).split("-> T.int32")[0]
    types = dict(re.findall(r'p_(keys|values|queries|weights|scores|inverses)\d+: T\.handle\("(float\d+)"', head))
    wide = {"scores", "inverses"}
    assert len(types) == 6 and types == {name: "float32" if name in wide else "float16" for name in types}
    softmax = [n for n in build.graph.nodes if n.operator == "relax.nn.softmax"]
    assert [n.results[0].dtype for n in softmax] == ["float32"]


def test_tiles_multiply_by_elements_of_rows() -> None:
    try:
        objdump = machine_code.tools().objdump
    except HalotileError:
        pytest.skip("NOT RUN: needs llvm-objdump")
    kernel = attention(built(Case(64, 64, 4, 32, 32)))
    target = resolve(PI5)
    text = machine_code.disassembly([machine_code.object_of(kernel, target)], target, objdump)
    lines = [line for line in text.splitlines() if "fmla" in line]
    by_element = [line for line in lines if ".8h" in line and ".h[" in line]
    assert len(by_element) >= 2 * 8 * 16, "two products, of eight steps each, written out"
    assert 2 * sum(".4s" in line for line in lines) < len(by_element), "exponentials alone are in float32"


def test_what_could_leave_the_range_stays_in_float32() -> None:
    for sizes, why in (((300.0, 1.0), "its scores reach"), ((1.0, 30.0), "its values reach")):
        build = built(replace(CASES["plain"], sizes=sizes))
        assert build.details["halves"]["attentions"] == 0
        assert "products in float16" not in attention(build).schedule
        assert any(why in note for note in build.notes["halves"]), build.notes["halves"]


def test_the_ranges_ends_are_sharp() -> None:
    model = CASES["plain"].model()
    known = largest_of(model, "float16")
    assert known is not None
    products = [n.name for n in model.graph.node if n.op_type == "MatMul"]
    scores, mixed = products[3], products[4]
    for name, most in ((scores, END / ROOM**2), (mixed, END / ROOM / SPAN)):
        for factor, count in ((1.0, 1), (1.01, 0)):
            build = built(CASES["plain"], halves={**known, name: factor * most})
            assert build.details["halves"]["attentions"] == count, (name, factor)
    unknown = {k: v for k, v in known.items() if k != scores}
    assert built(CASES["plain"], halves=unknown).details["halves"]["attentions"] == 0


def test_other_precisions_and_targets_are_as_they_were() -> None:
    for more in ({"precision": "float32", "halves": None}, {"target": resolve("raspberry-pi-4")}):
        assert "float16" not in str(attention(built(CASES["plain"], **more)).function)

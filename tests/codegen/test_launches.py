"""Libraries for any size: small layers are computed by one core, and numbers do not depend on it."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from halotile.compiler.codegen import launches
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.schedules.words import sizes
from halotile.schedules.words.dims import Dim
from halotile.schedules.words.group import Kernel, Value
from halotile.targets.resolve import resolve
from onnx import helper
from tvm import tirx

from ..support.open_models import Drawing, feeds, holds_at
from ..support.open_runs import checked

TYPICAL = {"n": 1, "h": 64, "w": 48}


def network() -> Drawing:
    g = Drawing(5)
    x = g.conv(g.input("x", "n", 3, "h", "w"), 3, 32, 3, strides=[2, 2])
    x = g("Relu", g.conv(x, 32, 32, 3, groups=32))
    x = g("MaxPool", g.conv(x, 32, 48, 1), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    g.output(g("Sigmoid", g.conv(x, 48, 40, 3)), 4)
    return g


def test_small_images_are_computed_by_one_core(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    told: list[tirx.Expr] = []
    own = launches.alone
    monkeypatch.setattr(launches, "alone", lambda kernel: told.append(own(kernel)) or told[-1])
    proto = network().model()
    options = Options(resolve("native"), threads=2, open=True, formats=("so",), typical=TYPICAL)
    build = run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    assert len(told) >= 4 and len(told) <= len(build.kernels)
    assert all(holds_at(e, {"n": 1, "h": 3, "w": 2}) for e in told)
    assert not any(holds_at(e, {"n": 4, "h": 200, "w": 300}) for e in told)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (n, h, w) in enumerate([(1, 1, 1), (2, 3, 5), (1, 17, 13), (3, 40, 31), (1, 64, 48), (2, 101, 67)]):
            given = feeds(proto, {"n": n, "h": h, "w": w}, number)
            checked(library, session, given, 1e-5, (n, h, w))



def test_recurrent_layers_are_shared_at_any_length(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    told: dict[str, tirx.Expr] = {}
    own = launches.alone
    monkeypatch.setattr(launches, "alone", lambda kernel: told.setdefault(kernel.schedule, own(kernel)))
    g = Drawing(2)
    weights = [g.drawn(1, 4 * 256, 64), g.drawn(1, 4 * 256, 256)]
    g.nodes.append(helper.make_node("LSTM", [g.input("x", "steps", 2, 64), *weights], ["states"], hidden_size=256))
    g.output("states", 4)
    options = Options(resolve("native"), threads=2, open=True, formats=("so",), typical={"steps": 50})
    run_pipeline(g.model().SerializeToString(), options, output=tmp_path / "out")
    assert not holds_at(told["loops"], {"steps": 1})


def _cached_step() -> Drawing:
    """One token beside a cache of any length."""
    g = Drawing(6)
    x, keys = g.input("x", "n", 1, 128), g.input("keys", "n", 4, "past", 32)
    query = g("Transpose", g("Reshape", g.linear(x, 128, 128), g.constant([0, 1, 4, 32], np.int64)), perm=[0, 2, 1, 3])
    scores = g("MatMul", query, g("Transpose", keys, perm=[0, 1, 3, 2]))
    read = g("Transpose", g("MatMul", g("Softmax", scores, axis=-1), keys), perm=[0, 2, 1, 3])
    hidden = g("Relu", g.linear(g("Reshape", read, g.constant([0, 1, 128], np.int64)), 128, 512))
    g.output(g.linear(hidden, 512, 128), 3)
    return g


def test_layers_that_are_small_at_the_usual_size_are_shared_at_larger_ones(monkeypatch, tmp_path) -> None:
    told: dict[str, tirx.Expr] = {}
    own = launches.alone
    monkeypatch.setattr(launches, "alone", lambda kernel: told.setdefault(kernel.schedule, own(kernel)))
    proto, typical = _cached_step().model(), {"n": 1, "past": 64}
    options = Options(resolve("native"), threads=2, open=True, formats=("so",), typical=typical)
    run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    attention = next(few for schedule, few in told.items() if schedule.startswith("attention"))
    product = next(few for schedule, few in told.items() if schedule.startswith("matmul"))
    for few in (attention, product):
        assert holds_at(few, typical) and not holds_at(few, {"n": 16, "past": 1000})
    assert not holds_at(attention, {"n": 1, "past": 4000})  # it grows with what it reads
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (n, past) in enumerate([(1, 1), (1, 64), (3, 301), (1, 4000), (17, 95)]):
            checked(library, session, feeds(proto, {"n": n, "past": past}, number), 1e-5, (n, past))


def test_one_core_shares_nothing(tmp_path) -> None:
    proto = _cached_step().model()
    options = Options(resolve("native"), threads=1, open=True, typical={"n": 1, "past": 64}, stop_after="schedule")
    build = run_pipeline(proto.SerializeToString(), options)
    assert not any(map(launches.launches, build.kernels))


def test_of_tensors_that_are_as_large_the_first_is_looked_at() -> None:
    """Which of them a set of values had first depended on where these lay: two builds of a model were different."""
    with sizes.no_symbols():
        sizes.TYPICAL.set({"h": 224})
        h = Dim.symbol("h", 1, 4096)
        counts = [h * 64, (h + 3) // 4 * 256, (h + 7) // 8 * 512, (h + 15) // 16 * 1024, (h + 31) // 32 * 2048]
        assert len({sizes.usual(size) for size in counts}) == 1
        for first in range(len(counts)):
            own = counts[first:] + counts[:first]
            values = tuple(Value(f"v{i}", (size,), "float32") for i, size in enumerate(own))
            told = launches.alone(Kernel(None, values, values[:1], "", 0, 0))
            assert str(told) == str(launches.alone(Kernel(None, values[:1], values[:1], "", 0, 0)))

"""Minimal ONNX models whose shape arithmetic, constants and control flow the import must see through."""

from __future__ import annotations

import halotile
import numpy as np
import onnxruntime
import pytest
from catalogue.onnx_models import ENTRIES, OnnxEntry
from halotile.compiler.frontend import import_model
from halotile.passes.simplify import Simplify

CASES = [pytest.param(e, b, id=f"{e.title} ({'static' if b == 2 else 'dynamic'})") for e in ENTRIES for b in (2, "n")]


def remaining(entry: OnnxEntry, batch: int | str) -> str:
    listed = halotile.inspect(entry.model(batch), stage="simplify")["operators"]
    return " ".join(sorted(o["operator"].removeprefix("relax.") for o in listed))


@pytest.mark.parametrize(("entry", "batch"), CASES)
def test_what_is_left_and_that_it_is_right(tools, entry: OnnxEntry, batch: int | str) -> None:
    left = entry.left if entry.open_left is None or batch == 2 else entry.open_left
    assert remaining(entry, batch) == " ".join(sorted(left.split()))
    model = entry.model(batch)
    imported = import_model(model, symbolic=True)
    module = Simplify(check=True).apply(imported.module).module
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    for n in (2,) if batch == 2 else (1, 3):
        rng = np.random.default_rng(n)
        given = {}
        for info in session.get_inputs():
            shape = [d if isinstance(d, int) else {"length": 7}.get(d, n) for d in info.shape]
            array = rng.standard_normal(shape).astype("float32")
            given[info.name] = array > 0 if info.type == "tensor(bool)" else array
        if entry.title.startswith("Pow(x,.5) of anything"):
            given["x"].reshape(-1)[:3] = [-np.inf, np.inf, -0.0]
        expected = session.run(None, given)[0]
        got = tools.values(module, [given[i.name] for i in imported.inputs])[0]
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_every_entry_has_its_own_title() -> None:
    assert len({e.title for e in ENTRIES}) == len(ENTRIES)

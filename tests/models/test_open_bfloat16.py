"""Whole networks in bfloat16 whose batch, rows and columns are open, on a target that multiplies pairs of it: as near
to ONNX Runtime as bfloat16 is, in arenas of exactly the formula's bytes that are full of NaN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from compiled import native
from halotile.benchmarks.models import MODELS
from halotile.benchmarks.open_models import images
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.schedules.instructions.bf16_pairs import has_pairs
from open_runs import run_in

CLOSE = 0.1  # of the largest number
SIZES = ((1, 32, 32), (2, 64, 96), (3, 96, 32), (1, 160, 224))  # images, rows, columns: multiples of what halvings ask
MODELS_HERE = {
    "mobilenet_v2": {"classes": 10},
    "efficientnet_b0": {"classes": 10},  # squeezed and excited
    "densenet": {"growth": 16, "blocks": (2, 3, 2), "classes": 10},  # parts of a concatenation
    "unet": {"base": 16, "levels": 3},
}

pytestmark = pytest.mark.skipif(
    not has_pairs(native()), reason="NOT RUN: this machine's vectors do not multiply bfloat16 (AVX512_BF16)"
)


@pytest.mark.parametrize("wish", [{}, {"optimize": "memory"}], ids=["time", "memory"])
@pytest.mark.parametrize("name", MODELS_HERE)
def test_networks_of_open_images(name: str, wish: dict[str, Any], tmp_path: Path) -> None:
    source = images(name, small=True, **{**MODELS[name].small, **MODELS_HERE[name]})
    options = Options(native(), precision="bfloat16", threads=2, typical={"h": 96, "w": 96}, **wish)
    run_pipeline(source, options, output=tmp_path)
    session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path) as model:
        assert model.report["precision"]["kernels"] > 2
        (spec,) = model.inputs
        for size in SIZES:
            x = np.random.default_rng(size).standard_normal((size[0], spec.shape[1], *size[1:])).astype("float32")
            (wanted,) = session.run(None, {spec.name: x})
            sizes = dict(zip(("n", "h", "w"), size))
            sizes = {s.name: sizes[s.name] for s in model.symbols}
            found, *others = (run_in(model, sizes, x, t, p) for t, p in ((1, 0xFF), (2, 0x7F), (2, 0), (1, 0)))
            assert all(np.array_equal(found, other) for other in others), size
            assert np.abs(found - wanted).max() <= CLOSE * np.abs(wanted).max(), size
            assert np.abs(found - wanted).max() > 1e-5 * np.abs(wanted).max(), "these are float32's"

"""Open builds beside fixed ones: models whose dims all stay open, and figures that say what they are of."""

from __future__ import annotations

import halotile
import numpy as np
import onnxruntime
import pytest
from halotile.benchmarks.open_builds import OpenBuildFigures, measure, table
from halotile.benchmarks.open_models import OPEN_MODELS
from halotile.compiler.frontend import import_model
from halotile.compiler.sample import random_inputs
from halotile.compiler.sized import chosen_sizes, inputs_at

NAMED = "x86-64-v3"
CLOSE = 1e-4  # of the largest number of an output


@pytest.mark.parametrize("name", OPEN_MODELS)
def test_every_dim_stays_open(name: str) -> None:
    imported = import_model(OPEN_MODELS[name].model(), symbolic=True)
    for sizes in OPEN_MODELS[name].sizes:
        assert {symbol.name for symbol in imported.symbols} == set(sizes)


def test_the_audio_model_agrees_at_its_sizes() -> None:
    """Its products are of rows whose number is a chain of quotients."""
    entry = OPEN_MODELS["audio"]
    proto = entry.model()
    model = halotile.compile(proto, typical=entry.typical, threads=2)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for sizes in ({"batch": 1, "samples": 479}, {"batch": 3, "samples": 1601}, entry.small):
        given = random_inputs(inputs_at(model, chosen_sizes(model, {}, sizes)), proto, 3)
        (wanted,), got = session.run(None, given), model(given)["logits"]
        assert got.shape == wanted.shape
        assert np.abs(got - wanted).max() <= CLOSE * np.abs(wanted).max(), sizes


def test_figures_are_of_both_builds() -> None:
    found = measure(OPEN_MODELS["tagger"], NAMED, threads=1, kernels=3)
    assert found.name == "tagger" and min(found.seconds) > 0 and min(found.library) > 10_000
    assert [dict(sizes) for sizes, _, _ in found.arenas] == list(OPEN_MODELS["tagger"].sizes)
    assert all(own > 0 and fixed > 0 for _, own, fixed in found.arenas)
    assert len(found.kernels) == 3 and "loops" in found.kernels[0][0] + found.kernels[1][0] + found.kernels[2][0]


def test_the_table_has_ratios_and_the_worst_of_them() -> None:
    figures = [
        OpenBuildFigures("a", (4.0, 2.0), (300, 200), [({"n": 1}, 150, 100), ({"n": 2}, 100, 100)]),
        OpenBuildFigures("b", (9.0, 2.0), (100, 100), [({"n": 1}, 90, 100)], [("matmul", 1.5, 2000)]),
    ]
    text = table(figures)
    assert "| a | 4.0 | 2.00 | 0.00 MB | 1.50 | 1.500 (n=1), 1.000 (n=2) |" in text
    assert "seconds 3.00, at most 4.50; bytes of libraries 1.22, at most 1.50; the largest arenas of each" in text
    assert text.endswith("\nb:\n\n- 1.50 s, 2 kB: matmul\n")

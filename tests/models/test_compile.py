"""Every model of the registry agrees with ONNX Runtime at its small size; the light ones at their own."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from halotile.benchmarks.check_models import TOLERANCE, compare, reference
from halotile.benchmarks.models import MODELS
from halotile.benchmarks.models.light import NAMES, reference_input, reference_output

SMALL = [n for n, e in MODELS.items() if "light" not in e.tags]
EXACT = ["resnet50", "mobilenet_v2", "efficientnet_b0", "unet", "edsr", "convnext", "bert", "vit"]


def check(name: str, exact: bool) -> None:
    entry = MODELS[name]
    model = entry.model(small=True)
    feeds = entry.inputs(model, seed=7)
    compiled = halotile.compile(model, exact=exact)
    differences = compare(compiled(feeds), reference(model, feeds), TOLERANCE / 10 if exact else TOLERANCE)
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("name", SMALL)
def test_small_model_agrees(name: str) -> None:
    check(name, exact=False)


@pytest.mark.parametrize("name", EXACT)
def test_small_model_agrees_ten_times_tighter_when_exact(name: str) -> None:
    check(name, exact=True)


@pytest.mark.parametrize("name", ["seeded_squeezenet", "seeded_shufflenet"])
def test_seeded_light_model_agrees(name: str) -> None:
    check(name, exact=False)


@pytest.mark.parametrize("name", NAMES)
def test_light_model_gives_the_output_that_onnx_ships(name: str) -> None:
    model = MODELS[f"light_{name}"].model()
    compiled = halotile.compile(model)
    (spec,) = compiled.inputs
    (values,) = compiled({spec.name: reference_input(spec.shape)}).values()
    expected = reference_output(name)
    assert values.shape == expected.shape
    np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-6)


def test_symbolic_batch_is_fixed_by_shapes() -> None:
    entry = MODELS["resnet18"]
    model = entry.model(small=True, batch="batch")
    feeds = entry.inputs(model, seed=2, batch=2)
    compiled = halotile.compile(model, shapes={"input": feeds["input"].shape})
    differences = compare(compiled(feeds), reference(model, feeds), TOLERANCE)
    assert not differences, "\n".join(differences)

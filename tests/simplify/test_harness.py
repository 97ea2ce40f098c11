"""Every model of the harness, small, with a known batch and with an open one: nothing of shape arithmetic is left that
does not depend on the batch, a second run changes nothing, and there are never more operators."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from halotile.benchmarks.models import MODELS
from halotile.compiler.frontend import import_model
from halotile.passes.simplify import Simplify

SHAPE_WORK = {"relax.shape_to_tensor", "relax.arange", "relax.full", "relax.tile", "relax.equal", "relax.less"}
LIGHT = sorted(name for name in MODELS if name.startswith("light_"))
#: Models whose builder takes a name for the batch, and what an open batch adds.
OPEN = {name: {} for name in sorted(MODELS) if not name.startswith(("light_", "seeded_"))}
del OPEN["swin"]  # its masks are constants for one batch
for name in ("vit", "vit_dynamo", "vit_raw"):
    OPEN[name] = {"relax.broadcast_to": 1}  # the class token, once for each image


def left(model, mode: str = "strict") -> Counter[str]:
    imported = import_model(model, symbolic=True)
    result = Simplify(mode).apply(imported.module)
    again = Simplify(mode).apply(result.module)
    assert not again.changed, again.notes
    assert result.details["operators_after"] <= result.details["operators_before"]
    return Counter(result.details["operators"])


@pytest.mark.parametrize("name", OPEN)
def test_an_open_batch_leaves_what_a_known_one_leaves(name: str) -> None:
    fixed, open_ = (left(MODELS[name].model(small=True, batch=batch)) for batch in (2, "batch"))
    assert not SHAPE_WORK & fixed.keys()
    assert open_ - fixed == OPEN[name] and not fixed - open_


def test_swin_of_a_known_batch() -> None:
    assert not SHAPE_WORK & left(MODELS["swin"].model(small=True)).keys()


@pytest.mark.parametrize("name", LIGHT)
def test_light_models(name: str) -> None:
    assert not SHAPE_WORK & left(MODELS[name].model()).keys()


@pytest.mark.parametrize("name", ["resnet50", "bert", "swin"])
def test_it_takes_less_than_two_seconds(name: str) -> None:
    module = import_model(MODELS[name].model()).module
    best = float("inf")
    for _ in range(2):
        start = time.process_time()
        Simplify().apply(module)
        best = min(best, time.process_time() - start)
    assert best < 2, best

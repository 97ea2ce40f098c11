"""What import and simplification make of the models, before any kernel exists: right, small, and stable."""

from __future__ import annotations

import time
from functools import cache

import pytest
from halotile.benchmarks.check_models import TOLERANCE, compare, reference
from halotile.benchmarks.models import MODELS
from halotile.compiler.frontend import ImportedModel, import_model
from halotile.passes.result import Result
from halotile.passes.simplify import Simplify
from halotile.schedules.operators.reference import compile_reference
from halotile.targets.resolve import resolve
from tvm import relax
from tvm.ir import Call

NAMES = [n for n, e in MODELS.items() if not n.startswith("seeded_")]
SHAPES = {"relax.shape_of", "relax.tensor_to_shape", "relax.shape_to_tensor", "relax.size", "relax.arange"}


@cache
def imported(name: str) -> ImportedModel:
    return import_model(MODELS[name].model(small=True))


@cache
def simplified(name: str) -> Result:
    return Simplify().apply(imported(name).module, resolve("native"))


def operators(module: object) -> list[str]:
    bindings = [b.value for block in module["main"].body.blocks for b in block.bindings]  # type: ignore[index]
    return [v.op.name for v in bindings if isinstance(v, Call)]


@pytest.mark.parametrize("name", NAMES)
def test_simplification_shrinks_and_settles(name: str) -> None:
    before, after = operators(imported(name).module), operators(simplified(name).module)
    assert len(after) <= len(before)
    assert not SHAPES & set(after), "arithmetic on static shapes is left"
    assert not simplified(name).changed or simplified(name).notes
    started = time.perf_counter()
    again = Simplify().apply(simplified(name).module, resolve("native"))
    assert time.perf_counter() - started < 5
    assert not again.changed
    assert operators(again.module) == after


@pytest.mark.parametrize(
    ("plain", "raw"),
    [("resnet18", "resnet18_raw"), ("convnext", "convnext_raw"), ("bert", "bert_raw"), ("vit", "vit_raw")],
)
def test_raw_exports_end_as_the_plain_ones(plain: str, raw: str) -> None:
    assert len(operators(imported(raw).module)) >= len(operators(imported(plain).module))
    assert sorted(operators(simplified(raw).module)) == sorted(operators(simplified(plain).module))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "unet"])
def test_normalisation_after_a_convolution_is_folded_into_it(name: str) -> None:
    before, after = operators(imported(name).module), operators(simplified(name).module)
    assert {"relax.nn.batch_norm", "relax.multiply"} & set(before)
    assert not {"relax.nn.batch_norm", "relax.multiply"} & set(after)
    assert after.count("relax.nn.conv2d") == imported(name).operators["Conv"]


def test_a_mask_of_static_length_is_a_constant() -> None:
    after = operators(simplified("bert_constant_mask").module)
    assert not {"relax.astype", "relax.full", "relax.ones"} & set(after)


@pytest.mark.parametrize("name", ["edsr", "detector_neck", "bert_raw", "bert_dynamo", "convnext_raw"])
def test_simplified_module_agrees_with_onnx_runtime(name: str) -> None:
    entry, model = MODELS[name], MODELS[name].model(small=True)
    feeds = entry.inputs(model, seed=7)
    module = simplified(name).module
    assert isinstance(module["main"], relax.Function)
    values = compile_reference(module)(*(feeds[i.name] for i in imported(name).inputs))
    ours = dict(zip([o.name for o in imported(name).outputs], values))
    differences = compare(ours, reference(model, feeds), TOLERANCE)
    assert not differences, "\n".join(differences)

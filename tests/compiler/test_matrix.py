"""The matrix unit as an option: who asks for it, what is recorded, and what a library then asks of the system."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from halotile.benchmarks.bench import ABLATIONS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.recipe import describe_options, options_of
from halotile.compiler.runtime.recorded import Recorded
from halotile.compiler.state import Options
from halotile.schedules import dispatch
from halotile.schedules.instructions.amx import may_split
from halotile.schedules.words.group import Request
from halotile.targets.convert import convert
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper

NAMED = "x86_64-linux-gnu+sapphirerapids"


@pytest.fixture(scope="module")
def product() -> onnx.ModelProto:
    """Large enough for any kernel that pays."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, 512]) for name in "xy")
    weight = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "product", [x], [y], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def requests(product: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[Request]:
    """What the pipeline asks its generators for."""
    found: list[Request] = []
    build = dispatch.build_kernel

    def noted(request: Request) -> Any:
        found.append(request)
        return build(request)

    monkeypatch.setattr(dispatch, "build_kernel", noted)
    run_pipeline(product, Options(**{"target": resolve(NAMED), "stop_after": "schedule", **options}))
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"matrix": False}, False),
        ({"exact": True}, False),
        ({"weights": "float16"}, False),
        ({"target": f"{NAMED}+-amx-tile"}, False),
        ({"target": f"{NAMED}+-amx-bf16"}, False),
        ({"target": "x86_64-linux-gnu+znver4"}, False),
        ({"target": "raspberry-pi-5"}, False),
    ],
)
def test_who_may_multiply_in_parts(
    options: dict[str, Any], expected: bool, product: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "target" in options:
        options = {**options, "target": resolve(options["target"])}
    found = requests(product, monkeypatch, **options)
    assert found and all(may_split(request) == expected for request in found)


def made(options: dict[str, Any], target: dict[str, Any]) -> Recorded:
    """A manifest of a build by these options."""
    data = {"options": options, "target": target}
    return convert({**data, "everything": data}, Recorded)


def test_the_choice_is_recorded_and_ablated() -> None:
    options = Options(resolve(NAMED), matrix=False)
    recorded = describe_options(options)
    assert recorded["matrix"] is False and describe_options(replace(options, matrix=True))["matrix"] is True
    target = {"id": NAMED, "triple": options.target.triple, "cpu": options.target.cpu}
    assert options_of(made(recorded, target)).matrix is False
    del recorded["matrix"]  # of an earlier version, whose builds had none: the version tells
    assert options_of(made(recorded, target)).matrix is True
    assert ABLATIONS["matrix"] == {"matrix": False}


@pytest.mark.parametrize("matrix", [True, False])
def test_a_library_asks_for_the_unit_if_a_kernel_uses_it(product: onnx.ModelProto, matrix: bool) -> None:
    build = run_pipeline(product, Options(resolve(NAMED), matrix=matrix, stop_after="assemble"))
    (kernel,) = (k for k in build.report["kernels"] if k["flops"])
    assert build.library.matrix_unit == ("matrix" in kernel["schedule"]) == (kernel.get("matrix") in (3.0, 6.0))
    assert matrix or not build.library.matrix_unit

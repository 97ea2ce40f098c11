"""The model whose layers are in bytes as a build's plan says, in place of the model that the build was given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import TargetError
from .state import Build

if TYPE_CHECKING:
    import onnx


def in_bytes(build: Build) -> onnx.ModelProto:
    """The model with the layers of the options' plan in bytes, under its own name; the model itself for a target that
    has no products of bytes, whose options then have no such plan."""
    from ..schedules.instructions.int8_dot import data_dtype
    from .frontend.load import load
    from .quantise.plan import quantised_by

    plan, target = build.options.int8, build.options.target
    assert plan is not None
    if data_dtype(target) is None and len(plan["left"]) < plan["layers"]:
        if build.level:
            raise TargetError(f"level {target.id} has no products of bytes, which levels below it have: leave one out")
        build.options = replace(build.options, int8=None)
        build.warnings.append(f"{target.id} has no products of bytes: all layers stay in float32, as that is faster")
        return build.source
    model = quantised_by(build.source, plan)
    model.graph.name = load(build.source).name
    if build.options.assigned is None:
        build.notes["int8"] = [f"{name}: float32, for the error to be kept" for name in plan["left"]]
    return model

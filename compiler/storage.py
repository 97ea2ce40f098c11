"""Whose memory values have after the layout stage, and in which type they lie there, where a build may choose it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..passes.memory.places import Places
    from .state import Build


def placed(build: Build, slices: Mapping[Any, Any]) -> Places:
    """The aliases of the build's views and of ``slices``. Where layers compute in bfloat16, values between them are
    stored so; the build's layouts then say it."""
    from ..passes.layout.stored import store_narrow
    from ..passes.memory.places import Places
    from ..schedules.instructions.amx import has_matrix_unit

    policy = build.options.policy
    if policy.precision != "bfloat16" or not policy.parts or not has_matrix_unit(build.target):
        return Places(build.views, slices)
    fixed = (*build.graph.inputs, *build.graph.outputs, *build.closing)
    found = store_narrow(build.groups, build.layouts, build.views, slices, fixed, policy.layers)
    build.layouts = found.layouts
    build.notes["layout"].append(f"{found.count} of {found.of} values between layers are stored as bfloat16")
    build.details["layout"] = {"in_bfloat16": found.count, "values": found.of}
    return Places(build.views, found.slices)

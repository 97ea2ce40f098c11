"""Whose memory values have after the layout stage, and in which type they lie there, where a build may choose it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..passes.memory.places import Places
    from ..schedules.words.group import Node, Value
    from .state import Build


def placed(build: Build, slices: Mapping[Value, tuple[Value, int]]) -> Places:
    """The aliases of the build's views and of ``slices``. Where layers compute in bfloat16 or float16, values between
    them are stored so; the build's layouts then say it."""
    from ..passes.layout.stored import once, store_narrow
    from ..passes.memory.places import Places
    from ..schedules.instructions.amx import has_matrix_unit
    from ..schedules.instructions.bf16_pairs import may_pair

    policy = build.options.policy
    fixed = (*build.graph.inputs, *build.graph.outputs, *build.closing)
    shared = (build.groups, build.layouts, build.views, slices, fixed)
    unit = policy.parts and has_matrix_unit(build.target)
    pairs = may_pair(build.target, policy)
    if policy.precision == "bfloat16" and (unit or pairs):
        found = store_narrow(*shared, policy.layers, opens=pairs)
    elif policy.precision == "float16" and build.target.in_halves and policy.layers is None:
        found = store_narrow(*shared, kind="float16", fits=_fits(build.options.halves or {}))
    else:
        return Places(build.views, slices)
    build.layouts = found.layouts
    build.notes["layout"].append(f"{found.count} of {found.of} values between layers are stored as {policy.precision}")
    build.details["layout"] = {f"in_{policy.precision}": found.count, "values": found.of}
    if policy.precision == "float16":
        taken = {*fixed, *build.views, *slices, *(base for base, _ in slices.values())}
        build.groups, views = once(build.groups, build.layouts, taken)
        build.views = {**build.views, **views}
        if views:
            build.details["layout"]["once"] = len(views)
            build.notes["layout"].append(f"{len(views)} of these are other values, and lie in memory once")
    return Places(build.views, found.slices)


def _fits(largest: Mapping[str, float]) -> Callable[[Node], bool]:
    """True for nodes whose numbers were seen to be far within float16's range."""
    from ..passes.halves.halves import END, ROOM

    def fits(node: Node) -> bool:
        seen = [largest[name] for name in node.sources if name in largest]
        return bool(seen) and ROOM * max(seen) <= END

    return fits

"""The options of a stream that has to keep within a memory budget, with what was found for it (:mod:`.fit`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...schedules.words.sizes import no_symbols, plan_for
from ..reach.build import plain_reach
from .fit import StreamedNetwork, fitted

if TYPE_CHECKING:
    from ..state import Build, Options


def within_budget(build: Build, run: Callable[..., Build]) -> Options:
    """The options with a fit; as they are where there is one, and for scratchpads, whose stripes see to it alone.
    ``run`` is the pipeline."""
    options = build.options
    if options.fit is not None or options.target.memory_kind == "scratchpad":
        return options

    def network() -> StreamedNetwork:
        asked = replace(options, stream=None, memory_budget=None, levels=None, dump_ir=None, stop_after="simplify")
        found = run(build.source, asked)
        with no_symbols():
            plan_for(found.imported.symbols, found.imported.conditions)
            return StreamedNetwork(found.imported.inputs, found.imported.outputs, plain_reach(found))

    return replace(options, fit=fitted(options, lambda wanted: run(build.source, wanted), network))

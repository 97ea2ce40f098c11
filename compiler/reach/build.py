"""The reach of a model that is being built, or only looked at."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...passes.fuse.graph import build_graph
from ...passes.simplify.size_tables import spread
from .find import find_reach
from .words import Reach

if TYPE_CHECKING:
    from ...targets.plain import Json
    from ..state import Build

log = logging.getLogger("halotile.compile")


def model_reach(build: Build) -> tuple[Reach, ...]:
    """The reach of every output of the model, as it is simplified."""
    imported = build.imported
    names = [spec.name for spec in imported.inputs], [spec.name for spec in imported.outputs]
    return find_reach(build_graph(spread(build.module)), names, imported.symbols, imported.conditions)


def plain_reach(build: Build) -> tuple[Json, ...]:
    """The reach of a build as the manifest has it. A library is worth having without it: where it can't be told, it
    is left out."""
    try:
        return tuple(reach.plain() for reach in model_reach(build))
    except Exception as reason:
        log.debug("reach: %s", reason)
        return ()

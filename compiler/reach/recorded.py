"""The reach that a library's manifest tells."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ...errors import RunError
from .words import Reach

if TYPE_CHECKING:
    from ..runtime.recorded import Recorded


def reach_of(recorded: Recorded | None, name: str, output: str) -> Reach:
    """The reach of an output; RunError for one that there is not, and for a library that does not know it."""
    known = [] if recorded is None else [tensor.name for tensor in recorded.outputs]
    found = () if recorded is None else recorded.reach
    if recorded is not None and output not in known:
        raise RunError(f"{name} has no output {output!r}; it has {', '.join(map(repr, known))}")
    for one in found:
        if one.output == output:
            return Reach.of(asdict(one))
    raise RunError(f"the library of {name} does not record what its outputs reach: build it again from its model")

"""Reports of builds of which nothing is compiled: for tests of what is chosen, planned and stored, on any target.

    reported(model, "raspberry-pi-5", tile="off")["kernels"]

All stages up to ``assemble`` are the real ones; LLVM alone, which takes most of a build's time and decides none of
that, is not asked: objects are empty, and no library is linked. That code comes out and what it computes is for tests
that run it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from halotile.compiler.codegen import module
from halotile.compiler.options import checked_shapes
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve
from halotile.targets.target import Target


@contextmanager
def uncompiled() -> Iterator[None]:
    """Builds within have empty objects."""
    with patch.object(module, "build_object", lambda *_: b""):
        yield


def reported(model: Any, target: str | Target = "native", **options: Any) -> dict[str, Any]:
    """The report of a build with the options of :func:`halotile.compile`, as far as nothing is compiled."""
    if "shapes" in options:
        options["shapes"] = checked_shapes(options["shapes"])
    with uncompiled():
        return dict(run_pipeline(model, Options(resolve(target), stop_after="assemble", **options)).report)

"""Expressions of a kernel: what several nodes share is written once, with names, without, and under guards."""

from __future__ import annotations

from typing import Any

import pytest
from halotile.schedules.emit.inline import Inliner, key
from tvm import te, tirx

DEPTH = 12  # of squares: 4,096 leaves if each were written anew


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_shared_nodes_are_written_once(named: bool, guarded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = te.placeholder((9,), name="x")

    def squared(i: Any) -> Any:
        value = x[i - 1] if guarded else x[i]
        for _ in range(DEPTH):
            value = value * value
        return tirx.if_then_else(i > 0, value, tirx.const(0, "float32")) if guarded else value

    written: list[type] = []
    real = Inliner._binary
    monkeypatch.setattr(Inliner, "_binary", lambda self, kind, a, b: written.append(kind) or real(self, kind, a, b))
    names: list[Any] = []

    def bind(value: Any) -> Any:
        names.append(value)
        return tirx.Var(f"v{len(names)}", value.ty)

    sources = {key(x): lambda indices: tirx.Var("element", "float32")}
    inliner = Inliner(sources, bind if named else None)
    value = inliner.at(te.compute((9,), squared, name="y"), [tirx.Var("place", "int32")])
    assert DEPTH <= len(written) <= DEPTH + 4
    assert bool(names) == named and str(value.ty.dtype) == "float32"

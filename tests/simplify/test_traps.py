"""Every trap: the simplification leaves what must be left, and the values stay, NaN and infinities among them."""

from __future__ import annotations

import pytest
from catalogue import TRAPS, Emit
from halotile.passes.simplify import Simplify

CASES = [
    pytest.param(e, b, id=f"{e.title} ({'static' if b == 2 else 'dynamic'})")
    for e in TRAPS
    for b in (2, "n")
    if not (e.dynamic and b == ("n" if "static" in e.dynamic else 2))
]


@pytest.mark.parametrize(("entry", "batch"), CASES)
def test_it_stays(tools, entry, batch):
    inputs = [(tuple(batch if d == "batch" else d for d in shape), dtype) for shape, dtype in entry.inputs]
    before = tools.module(inputs, lambda emit, *xs: entry.body(Emit(emit), *xs))
    result = Simplify(entry.mode, check=True).apply(before)
    assert " ".join(sorted(tools.operators(result))) == " ".join(sorted(entry.left.split())), result.notes
    for n in (1, 5, 9) if batch == "n" else (2,):
        for special in (False, True):
            tools.same(before, result.module, exact=False, special=special, n=n)

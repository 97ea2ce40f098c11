"""Loops begin where they should, also after TVM has made them begin at zero."""

from __future__ import annotations

import re

import tvm
from halotile.schedules.emit.builder import KernelBuilder


def test_where_a_loop_begins_is_named_first() -> None:
    """for q from 3 p: for c from 2 q; TVM's pass replaces q where it is read, but not where a loop begins."""
    k = KernelBuilder("k")
    places = k.pointer("places", "int32", 64)
    with k.loop(2, name="p") as p, k.loop(3, name="q", begin=p * 3) as q, k.loop(2, name="c", begin=q * 2) as c:
        k.store(places, c, q)
    function = k.finish()
    assert re.search(r"for c\d+ in range\((t\d+), \1 \+ 2\)", str(function)), str(function)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    text = str(tvm.s_tir.transform.CanonicalizeLoop()(module))
    assert "= (q2 + p1 * 3) * 2" in text

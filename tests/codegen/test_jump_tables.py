"""A module's machine code is that of a fresh process, whatever target was compiled before."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from halotile.compiler.codegen import jump_tables, llvm_options
from halotile.compiler.codegen.objects import build_object
from halotile.schedules.emit.builder import KernelBuilder
from halotile.targets.resolve import resolve
from tvm import tirx

TARGETS = ("x86-64-v3", "x86-64-v4", "raspberry-pi-3-32", "raspberry-pi-4", "raspberry-pi-5", "wasm")


def choice(ways: int) -> tvm.IRModule:
    """A switch: another function is called in each of the first turns, one more in the turns after them."""
    k = KernelBuilder("chosen")
    x = k.pointer("x", "int32", 64)
    with k.loop(64) as i:
        body: Any = tirx.Evaluate(tirx.call_extern("int32", "last", i))
        for way in reversed(range(ways)):
            called = tirx.Evaluate(tirx.call_extern("int32", f"way{way}", i))
            body = tirx.IfThenElse(k.load(x, i) == way, called, body)
        k.add(body)
    return tvm.IRModule({"chosen": k.finish({"global_symbol": "chosen", "calling_conv": 1})})


@pytest.mark.parametrize("ways", [3, 4, 12])
def test_no_target_leaves_another_state_of_llvm(ways: int) -> None:
    targets = {name: resolve(name) for name in TARGETS}
    first = {name: build_object(choice(ways), target) for name, target in targets.items()}
    for before in targets.values():
        for name, target in targets.items():
            build_object(choice(ways), before)
            assert build_object(choice(ways), target) == first[name], (before.id, name)


def test_a_build_for_webassembly_would_leave_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, LLVM keeps no such state any more, and jump_tables.py can go."""
    target = resolve("x86-64-v3")
    usual = build_object(choice(3), target)
    with monkeypatch.context() as patch:
        patch.setattr(llvm_options, "settle", lambda target: None)
        build_object(choice(3), resolve("wasm"))
        assert build_object(choice(3), target) != usual
    jump_tables.settle(resolve("wasm"))
    assert build_object(choice(3), target) == usual

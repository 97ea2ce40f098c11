"""LLVM's options are the target's own for all threads that compile for it, and nobody's afterwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import tvm
from halotile.compiler.codegen.llvm_options import held_options
from halotile.compiler.codegen.objects import build_object
from halotile.schedules.emit.builder import KernelBuilder
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from tvm import tirx

TABLED = resolve("x86-64-v3")


class Untabled(Target):
    """A machine whose switches are never tables."""

    @property
    def llvm_options(self) -> tuple[str, ...]:
        return ("-max-jump-table-size:uint=1",)


UNTABLED = Untabled(**{name: getattr(TABLED, name) for name in TABLED.__dataclass_fields__})


def choice() -> tvm.IRModule:
    """A switch of twelve ways: a table, unless an option forbids it."""
    k = KernelBuilder("chosen")
    x = k.pointer("x", "int32", 64)
    with k.loop(64) as i:
        body = tirx.Evaluate(tirx.call_extern("int32", "last", i))
        for way in reversed(range(12)):
            body = tirx.IfThenElse(k.load(x, i) == way, tirx.Evaluate(tirx.call_extern("int32", f"way{way}", i)), body)
        k.add(body)
    return tvm.IRModule({"chosen": k.finish({"global_symbol": "chosen", "calling_conv": 1})})


def test_a_module_has_its_targets_options() -> None:
    tabled, untabled = build_object(choice(), TABLED), build_object(choice(), UNTABLED)
    assert b".rodata" in tabled and b".rodata" not in untabled
    assert build_object(choice(), TABLED) == tabled, "options outlast a build"


def test_options_hold_for_whatever_compiles_within() -> None:
    """Also where the target that TVM is given does not name them: they are the process's."""
    build = tvm.get_global_func("target.build.llvm")
    silent = tvm.target.Target({k: v for k, v in dict(TABLED.tvm().export()).items() if k != "cl-opt"})
    bound = tirx.transform.BindTarget(silent.with_host(silent))

    def text() -> str:
        return str(build(tirx.transform.LowerIntrin()(bound(choice())), silent).inspect_source("s"))

    usual = text()
    with held_options(UNTABLED):
        assert text() != usual
    assert text() == usual


def test_threads_side_by_side_disturb_nobody() -> None:
    """Some begin and end while others are in the middle, for two targets whose options differ."""
    expected = {id(t): build_object(choice(), t) for t in (TABLED, UNTABLED)}
    with ThreadPoolExecutor(4) as pool:
        turns = [TABLED, UNTABLED, UNTABLED, TABLED] * 5
        assert all(pool.map(lambda t: build_object(choice(), t) == expected[id(t)], turns))
    assert "LLVM's options" not in [t.name for t in threading.enumerate()]


def test_held_options_may_be_nested_and_end_with_an_error() -> None:
    with pytest.raises(ZeroDivisionError), held_options(UNTABLED):
        with held_options(UNTABLED), ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda _: build_object(choice(), UNTABLED), range(2))
        assert first == second
        raise ZeroDivisionError
    assert build_object(choice(), TABLED) == build_object(choice(), replace(TABLED))

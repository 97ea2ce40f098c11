"""LLVM's options, held for all threads that compile for one target.

    with held_options(target): ...modules of ``target`` compile, side by side

TVM takes LLVM's options with each target (``cl-opt``), but LLVM keeps them in variables of the process: a module that
ends puts them back, also for those that other threads are in the middle of. So one thread waits inside LLVM, with an
empty module and the same options, until the last of the others has done: to these, the options are set before and
after. It waits where TVM asks for the code generator of a target: for one that has none of its own, by a function that
is there for that moment only.

Targets of other options wait for their turn, and so does WebAssembly, which changes other state (jump_tables.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import tvm
import tvm_ffi

from ...targets.target import Target
from .jump_tables import settle

_OTHER = {"kind": "llvm", "mtriple": "powerpc64le-unknown-linux-gnu", "vector-width": 128}
_GENERATOR = "tvm.codegen.llvm.target_ppc64le"


class _Waiting:
    """A thread inside LLVM, which holds ``options`` from the start to ``end()``."""

    def __init__(self, options: tuple[str, ...]) -> None:
        self.options = options
        self._inside, self._done, self._holds = threading.Event(), threading.Event(), False
        tvm_ffi.register_global_func(_GENERATOR, self._wait, override=True)
        try:
            self._thread = threading.Thread(target=self._run, name="LLVM's options", daemon=True)
            self._thread.start()
            self._inside.wait()
        finally:
            tvm_ffi.registry.remove_global_func(_GENERATOR)
        if not self._holds:
            raise RuntimeError(f"TVM {tvm.__version__} does not hold LLVM's options {' '.join(options)}")

    def _run(self) -> None:
        other = tvm.target.Target({**_OTHER, "cl-opt": list(self.options)})
        try:
            tvm.get_global_func("target.build.llvm")(tvm.IRModule({}), other)
        except RuntimeError:  # what TVM makes of an exception that comes back through it
            pass
        finally:
            self._inside.set()

    def _wait(self, *machine: object) -> None:
        self._holds = True
        self._inside.set()
        self._done.wait()
        raise RuntimeError("the others have done")

    def end(self) -> None:
        self._done.set()
        self._thread.join()


_turn = threading.Condition()
_users = 0
_key: tuple[tuple[str, ...], bool] | None = None  # options, and whether for WebAssembly
_waiting: _Waiting | None = None


@contextmanager
def held_options(target: Target) -> Iterator[None]:
    """Within it, LLVM has the options of ``target`` and no others, whatever other threads begin or end. May be nested
    for the same target, also by threads that the outer one waits for."""
    global _users, _key, _waiting
    key = (target.llvm_options, target.system == "wasm")
    with _turn:
        _turn.wait_for(lambda: not _users or _key == key)
        if not _users:
            settle(target)
            _key, _waiting = key, _Waiting(target.llvm_options) if target.llvm_options else None
        _users += 1
    try:
        yield
    finally:
        with _turn:
            _users -= 1
            if not _users:
                if _waiting:
                    _waiting.end()
                _waiting = None
                _turn.notify_all()

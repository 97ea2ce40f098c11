"""The same machine code whatever was compiled before: LLVM's state of the process is put back between targets.

    settle(target)     before each module that LLVM compiles for ``target``

LLVM keeps the fewest cases of which a switch becomes a jump table in a variable of the process, 4 at first. Its backend
for WebAssembly writes 2 there and leaves it, and those of x86 and ARM read what they find: the same module gave other
machine code after a build for WebAssembly. No call of TVM's writes the variable, but the backend for PowerPC copies an
option of its own there, which does outlast the module that it was given for.
"""

from __future__ import annotations

import threading

import tvm

from ...targets.target import Target

# LLVM's own first value (TargetLoweringBase), by an option of the one backend that writes an option's value there.
_FIRST = {
    "kind": "llvm", "mtriple": "powerpc64le-unknown-linux-gnu", "vector-width": 128,
    "cl-opt": ["-ppc-min-jump-table-entries:uint=4"],
}  # fmt: skip
_lock = threading.Lock()
_left = False  # a backend has written there since


def settle(target: Target) -> None:
    """Gives LLVM its first state, in some 5 ms, where another target's backend has left its own. Modules that compile
    side by side are for one target."""
    global _left
    with _lock:
        if target.system == "wasm":
            _left = True
        elif _left:
            tvm.get_global_func("target.build.llvm")(tvm.IRModule({}), tvm.target.Target(_FIRST))
            _left = False

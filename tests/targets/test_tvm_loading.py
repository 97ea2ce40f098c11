"""TVM imported in less time is the same TVM."""

from __future__ import annotations

import subprocess
import sys

NAMES = """
import hashlib, sys
import tvm
found = sorted((n, sorted(vars(m))) for n, m in sys.modules.items() if n.startswith("tvm"))
print(len(found), hashlib.sha256(repr(found).encode()).hexdigest())
"""
LOAD = """
import tvm_ffi.registry as registry
from halotile.targets.tvm_loading import load

listed, calls = registry.list_global_func_names, []
registry.list_global_func_names = lambda: calls.append(1) or listed()
kept = registry.list_global_func_names
load()
assert registry.list_global_func_names is kept and 0 < len(calls) < 25, len(calls)
"""


def test_the_same_modules_with_the_same_names() -> None:
    """From a few lists of all functions in place of fifty."""
    plain, quick = (
        subprocess.run([sys.executable, "-c", text + NAMES], capture_output=True, text=True, check=True).stdout
        for text in ("", LOAD)
    )
    assert plain == quick and int(plain.split()[0]) > 500

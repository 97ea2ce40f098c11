"""TVM, imported in less time.

    load()             before the first call of TVM; later ones do nothing

Each of some fifty modules of TVM lists all global functions, with a call for each of 2,400 names. Their number says
whether a list is still true, since imports remove none. Whoever imports TVM without this has the same modules.
"""

from __future__ import annotations

import sys
import threading

_lock = threading.Lock()


def load() -> None:
    """Imports TVM, unless somebody has."""
    with _lock:
        if "tvm" in sys.modules:
            return
        try:
            from tvm_ffi import registry

            listed = registry.list_global_func_names
        except (ImportError, AttributeError):  # another version: it is imported as it comes
            return
        known: list[str] = []

        def names() -> list[str]:
            if registry.get_global_func("ffi.FunctionListGlobalNamesFunctor")()(-1) != len(known):
                known[:] = listed()
            return known

        registry.list_global_func_names = names
        try:
            import tvm  # noqa: F401
        finally:
            registry.list_global_func_names = listed

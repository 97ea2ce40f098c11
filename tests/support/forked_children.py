"""Many processes that do the same at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable


def forked(count: int, work: Callable[[int], object]) -> list[int]:
    """How the children end that each do ``work``, at the same time."""
    ready, go = os.pipe()
    children = []
    for i in range(count):
        if (child := os.fork()) == 0:
            code = 1
            try:
                os.close(go)
                os.read(ready, 1)  # until the parent has them all
                work(i)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    os.close(go)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(ready)
    return ends

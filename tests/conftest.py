"""What all tests share: examples that may take as long as a busy machine takes, one cache of object code, and
references of ONNX Runtime on one thread, since workers share the cores and its threads wait by turning round.

Many tests compile the same kernels. What one of them has compiled, in whichever process, the others take from a cache
that lasts for the run, or that of ``HALOTILE_CACHE``, which lasts as long as its owner wants; the user's own is never
touched. It has object code only: tests change the compiler under its feet, and look at what its stages do.
"""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import costs
import generators
import pytest
import quick
import reached
from dealing import dealt
from hypothesis import HealthCheck, settings
from sampling import EVERY, MARK, left_out

VARIABLE = "HALOTILE_CACHE"
_own: list[str] = []
_counts: Counter[str] = Counter()  # of all workers
_restorers: list[generators.Restore] = []

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    _one_thread_for_references()
    config.addinivalue_line("markers", f"{MARK}: of crossed parameters some cases run (tests/support/sampling.py)")
    config.addinivalue_line("markers", f"{EVERY}: all cases run, whatever lines they reach (tests/support/sampling.py)")
    if os.environ.get(costs.VARIABLE):
        config.pluginmanager.register(costs.Costs())
    alone = not config.getoption("numprocesses", None)
    if (folder := os.environ.get(reached.VARIABLE)) and (alone or hasattr(config, "workerinput")):
        config.pluginmanager.register(reached.Reached(Path(folder)))
    if hasattr(config, "workerinput"):
        return
    os.environ["HALOTILE_CACHE_LIBRARIES"] = "off"
    os.environ.setdefault("HALOTILE_CACHE_SIZE", "8GiB")
    if os.environ.get(VARIABLE, "off") == "off":
        _own.append(tempfile.mkdtemp(prefix="halotile-objects-"))
        os.environ[VARIABLE] = _own[0]
    else:
        from halotile.compiler.cache.place import chosen_cache
        from halotile.compiler.cache.prune import prune

        os.environ[VARIABLE] = os.path.abspath(os.environ[VARIABLE])  # commands run elsewhere
        prune(chosen_cache(os.environ[VARIABLE]))


def _one_thread_for_references() -> None:
    """Unless a session is told how many."""
    import onnxruntime

    real = onnxruntime.InferenceSession.__init__

    def start(self: Any, model: Any, sess_options: Any = None, *more: Any, **named: Any) -> None:
        sess_options = sess_options or onnxruntime.SessionOptions()
        sess_options.intra_op_num_threads = sess_options.intra_op_num_threads or 1
        real(self, model, sess_options, *more, **named)

    onnxruntime.InferenceSession.__init__ = start


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the same ones in every worker, and puts the others into the same order."""
    if out := set(left_out(items)):
        config.hook.pytest_deselected(items=list(out))
        items[:] = [item for item in items if item not in out]
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        root = config.rootpath
        items[:] = dealt(items, lambda item: item.path.relative_to(root).as_posix(), costs.read_costs(), workers)


def pytest_collection_finish() -> None:
    """What is imported by now stays, and a compiler makes many objects and few circles: without this, a thirtieth of
    the time goes into looking for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)
    _restorers[:] = generators.restorers()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """``make quick`` ends in time even where files take longer than was thought; random numbers are a test's own."""
    if (until := os.environ.get(quick.UNTIL)) and time.time() > float(until):
        pytest.skip("no time is left: make test")
    for restore in _restorers:
        restore()


def pytest_sessionfinish(session: pytest.Session) -> None:
    from halotile.compiler.cache.store import COUNTS

    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["objects"] = dict(COUNTS)
    else:
        _counts.update(COUNTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _counts.update(getattr(node, "workeroutput", {}).get("objects", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if total := sum(_counts.values()):
        terminalreporter.write_line(f"object cache: {_counts['found']} of {total} objects were there")


def pytest_unconfigure() -> None:
    while _own:
        os.environ.pop(VARIABLE, None)
        shutil.rmtree(_own.pop(), ignore_errors=True)

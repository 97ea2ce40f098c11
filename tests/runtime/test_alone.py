"""Launches of a kernel that is too small to share run on the calling thread; what workers of others block."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from halotile.compiler.codegen.library import build_library
from halotile.compiler.runtime.loader import load

# y[i] = shares of a launch, of which x[i] says whether one core takes it alone, and threads that were not the caller's
SHARES = """
#include <pthread.h>
extern int32_t halotile_alone(int32_t);
struct closure { pthread_t caller; float tasks[4], others[4]; };
static int count(int id, group *g, void *p) {
    struct closure *c = p;
    c->tasks[id] = (float)g->num_task;
    c->others[id] = !pthread_equal(c->caller, pthread_self());
    return 0;
}
int32_t halotile_kernel_main(const float *x, float *y, const void *weights, void *arena) {
    (void)weights, (void)arena;
    for (int i = 0; i < 4; ++i) {
        struct closure c = {pthread_self(), {0}, {0}};
        if (i) halotile_alone(x[i] > 0);
        if (parallel(count, &c, 0)) return -1;
        y[i] = c.tasks[0] + 100 * (c.others[0] + c.others[1] + c.others[2] + c.others[3]);
    }
    return 0;
}
"""


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_one_thread_runs_all_tasks_where_it_is_told_to(make_spec, threads, tmp_path) -> None:
    build_library(make_spec(SHARES, max_threads=3), tmp_path / "out", formats=("so",))
    with load(tmp_path / "out") as library:
        for _ in range(20):
            y = library({"x": np.array([0, 1, 0, 1], np.float32)}, threads=threads)["y"]
            assert (y[[1, 3]] == 1).all()  # one task, by the caller
            assert (y[[0, 2]] % 100 == threads).all()  # the first of the next run is shared again


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="NOT RUN: the system does not tell of its threads")
def test_workers_block_all_signals_but_those_of_their_own_instructions(make_spec, tmp_path) -> None:
    """A program's crash handler is asked in them, too."""
    build_library(make_spec(SHARES, max_threads=2), tmp_path / "out", formats=("so",))
    before = set(os.listdir("/proc/self/task"))
    with load(tmp_path / "out") as library:
        deadline = time.monotonic() + 60
        while library({"x": np.zeros(4, np.float32)}, threads=2)["y"][0] < 100:  # until the worker has begun
            assert time.monotonic() < deadline
        (worker,) = set(os.listdir("/proc/self/task")) - before
        told = Path(f"/proc/self/task/{worker}/status").read_text().split("SigBlk:")[1].split()[0]
    blocked = {n for n in range(1, 32) if int(told, 16) >> (n - 1) & 1}
    own = {signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV}
    assert set(range(1, 32)) - blocked == {int(n) for n in (*own, signal.SIGKILL, signal.SIGSTOP)}

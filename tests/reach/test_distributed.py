"""Blocks on a cluster of two processes: the same bits, one model a worker, and a worker that dies costs its blocks."""

from __future__ import annotations

import os
import signal
import time

import halotile
import numpy as np
import pytest
from local_models import local_model

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install distributed")
import dask.array as da  # noqa: E402


def models_here() -> int:
    from halotile.compiler.reach import dask_arrays

    return len(dask_arrays._here)


def test_a_cluster_computes_the_same_bits_and_survives_a_worker() -> None:
    model = halotile.compile(local_model(103), typical={"h": 64, "w": 64})
    x = np.random.default_rng(0).normal(0, 1, (1, 2, 700, 600)).astype(np.float32)
    whole = model.map_blocks({"x": x}, tile=40)["y0"]
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        for chunks in ((1, 2, 64, 64), (1, 1, 37, 600), x.shape):
            y = model.map_blocks({"x": da.from_array(x, chunks=chunks)}, tile=40)["y0"]
            assert np.array_equal(y.compute(), whole)
        assert set(client.run(models_here).values()) == {1}
        pids = client.run(os.getpid)
        y = client.compute(model.map_blocks({"x": da.from_array(x, chunks=(1, 2, 40, 40))}, tile=20)["y0"])
        time.sleep(0.5)
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        assert np.array_equal(y.result(timeout=120), model.map_blocks({"x": x}, tile=20)["y0"])
    model.close()

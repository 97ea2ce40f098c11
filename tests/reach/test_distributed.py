"""Blocks on a cluster of two processes: the same bits, one model a worker, and a worker that dies costs its blocks."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import halotile
import numpy as np
import pytest
from local_models import local_model

distributed = pytest.importorskip(
    "distributed", reason="NOT RUN: dask.distributed is not installed: pip install distributed"
)
import dask  # noqa: E402
import dask.array as da  # noqa: E402

PATIENT = {  # nothing here is a matter of time, on a machine with whatever else to do
    "distributed.comm.timeouts.connect": "300s",
    "distributed.comm.timeouts.tcp": "300s",
    "distributed.scheduler.worker-ttl": None,
}
LONGEST = 300  # seconds


@pytest.fixture
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with dask.config.set(PATIENT), distributed.LocalCluster(**options) as cluster:
        with distributed.Client(cluster, timeout=LONGEST) as found:
            found.wait_for_workers(2, timeout=LONGEST)
            yield found


@pytest.fixture(scope="module")
def model():
    with halotile.compile(local_model(103), typical={"h": 64, "w": 64}) as made:
        yield made


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)


def test_every_chunking_gives_the_same_bits_on_a_cluster(model, client) -> None:
    def models_here() -> int:  # within, so that it travels as it is
        from halotile.compiler.reach import dask_arrays

        return len(dask_arrays._here)

    x = image(1, 2, 300, 200)
    whole = model.map_blocks({"x": x}, tile=40)["y0"]
    for chunks in ((1, 2, 64, 64), (1, 1, 37, 200), x.shape):
        y = model.map_blocks({"x": da.from_array(x, chunks=chunks)}, tile=40)["y0"]
        assert np.array_equal(client.compute(y).result(timeout=LONGEST), whole)
    assert max(client.run(models_here).values()) == 1


def test_a_worker_that_dies_costs_its_blocks_alone(model, client, tmp_path: Path) -> None:
    """The lower half of the image waits for a file, which comes when one of the two workers has been killed."""
    x, gate = image(1, 2, 300, 200), tmp_path / "open"
    asked = tmp_path / "asked"
    asked.mkdir()

    def rows(block_info, whole=x, gate=str(gate), asked=str(asked)) -> np.ndarray:
        place = tuple(slice(a, b) for a, b in block_info[None]["array-location"])
        while place[2].start >= 150 and not os.path.exists(gate):
            Path(asked, f"{place[2].start}-{place[3].start}-{os.getpid()}").touch()
            time.sleep(0.05)
        return whole[place]

    chunks = ((1,), (2,), (50,) * 6, (50,) * 4)
    source = da.map_blocks(rows, chunks=chunks, dtype=np.float32, meta=np.empty((0,) * 4, np.float32))
    pids = set(client.run(os.getpid).values())
    assert len(pids) == 2
    y = client.compute(model.map_blocks({"x": source}, tile=40)["y0"])
    until = time.monotonic() + LONGEST
    while len({f.name.rpartition("-")[2] for f in asked.iterdir()}) < 2:  # both are at work, and can't finish
        assert time.monotonic() < until and not y.done()
        time.sleep(0.05)
    os.kill(min(pids), signal.SIGKILL)
    while min(pids) in client.run(os.getpid, on_error="ignore").values():
        assert time.monotonic() < until
        time.sleep(0.05)
    gate.touch()
    assert np.array_equal(y.result(timeout=LONGEST), model.map_blocks({"x": x}, tile=40)["y0"])

"""The line protocol with engines that behave, fail, print, die and hang."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from halotile.benchmarks.peers.process import EngineProcess
from halotile.errors import RunError

GOOD = """
import time
class Engine:
    info = {"version": "7", "precision": "f32"}
    def __init__(self, model, threads, options):
        print("chatter on stdout", flush=True)
        if model.endswith("missing"):
            raise FileNotFoundError("no such model")
        self.factor = threads
    def bind(self, inputs):
        self.inputs = inputs
    def run(self):
        time.sleep(0.02)
        self.result = {k + "/out": v * self.factor for k, v in self.inputs.items()}
    def outputs(self):
        return self.result
"""


def start(folder: Path, source: str, timeout: float = 60.0) -> EngineProcess:
    file = folder / "engine.py"
    file.write_text(textwrap.dedent(source))
    return EngineProcess("toy", Path(sys.executable), file, timeout)


def test_load_compute_burst_and_memory(tmp_path: Path) -> None:
    with start(tmp_path, GOOD) as process:
        seconds, info = process.load(tmp_path / "m", threads=3)
        assert seconds >= 0 and info["version"] == "7"
        feeds = {"a/b.c:0": np.arange(6, dtype=np.float32).reshape(2, 3), "": np.ones(2, np.int64)}
        outputs = process.compute(feeds)
        assert set(outputs) == {"a/b.c:0/out", "/out"}
        np.testing.assert_array_equal(outputs["a/b.c:0/out"], feeds["a/b.c:0"] * 3)
        assert outputs["/out"].dtype == np.int64
        burst = process.burst(5, warm=2)
        assert len(burst.times) == 5 and min(burst.times) >= 0.02
        assert burst.wall >= 7 * 0.02 and burst.cpu < burst.wall
        assert 1e6 < process.peak_rss() < 1e9


def test_memory_is_the_engines_own_not_that_of_the_process_that_started_it(tmp_path: Path) -> None:
    ballast = np.ones(60_000_000, np.float32)  # 240 MB here, none of it the engine's
    with start(tmp_path, GOOD) as process:
        process.load(tmp_path / "m", 1)
        assert process.peak_rss() < ballast.nbytes


def test_a_failure_is_reported_and_the_process_goes_on(tmp_path: Path) -> None:
    with start(tmp_path, GOOD) as process:
        with pytest.raises(RunError, match="toy failed to load: FileNotFoundError: no such model"):
            process.load(tmp_path / "missing", 1)
        process.load(tmp_path / "m", 1)


def test_an_engine_that_dies_says_its_last_words(tmp_path: Path) -> None:
    source = GOOD.replace(
        "time.sleep(0.02)", "import os, sys; sys.stderr.write('no luck\\n'); sys.stderr.flush(); os._exit(5)"
    )
    with start(tmp_path, source) as process:
        process.load(tmp_path / "m", 1)
        with pytest.raises(RunError, match=r"toy ended \(code 5\) at 'compute'.*no luck"):
            process.compute({"x": np.zeros(1)})


def test_an_engine_that_hangs_is_ended(tmp_path: Path) -> None:
    with start(tmp_path, GOOD.replace("time.sleep(0.02)", "time.sleep(60)"), timeout=7.5) as process:
        process.load(tmp_path / "m", 1)
        with pytest.raises(RunError, match="did not answer 'compute' within 8 s"):
            process.compute({"x": np.zeros(1)})

"""Per-kernel times: from timers in the library to the table, and no trace of them in an ordinary build."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path

import halotile
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from halotile.benchmarks.bench import Settings, measure
from halotile.benchmarks.cli import bench
from halotile.benchmarks.models import MODELS
from halotile.benchmarks.profile import derive, render, rows
from halotile.compiler.cli.main import cli
from halotile.compiler.page.peak import Peak
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.report import read_bytes
from halotile.compiler.state import Options
from halotile.targets.detect import native

PEAK = Peak(1, 1e11, ((1 << 20, 1e11), (1 << 30, 1e10)))


def _library(folder: Path, timers: bool) -> Path:
    model = MODELS["bert"].model(small=True)
    run_pipeline(model, Options(native(), threads=2, timers=timers), output=folder)
    return folder


@pytest.mark.parametrize("threads", [1, 2])
def test_times_of_the_kernels_add_up_to_the_run(tmp_path: Path, threads: int) -> None:
    with halotile.load(_library(tmp_path / "timed", True), threads=threads) as model:
        rng = np.random.default_rng(0)
        feeds = {s.name: rng.integers(0, 2, s.shape).astype(s.dtype) for s in model.inputs}
        best = 0.0
        for _ in range(20):
            started = time.perf_counter()
            model(feeds)
            whole = time.perf_counter() - started
            seconds = model.kernel_seconds()
            assert seconds is not None and len(seconds) == len(model.report["kernels"]) > 10
            assert all(s >= 0 for s in seconds) and 0 < sum(seconds) <= whole
            best = max(best, sum(seconds) / whole)
        assert best > 0.3  # the rest is Python's; on one run each a time of its own
        assert sum(s > 0 for s in seconds) > len(seconds) // 2


def test_an_ordinary_library_has_no_timers(tmp_path: Path) -> None:
    folder = _library(tmp_path / "plain", False)
    with halotile.load(folder) as model:
        assert model.kernel_seconds() is None
        library = model.path
    symbols = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True).stdout
    assert "kernel_seconds" not in symbols and "kernel_seconds" not in next(folder.glob("*.h")).read_text()


def test_a_kernels_share_of_its_roofline() -> None:
    busy = derive({"name": "a", "flops": 1e9, "bytes": 1.0, "seconds": 0.02}, PEAK)
    assert busy["limit_fraction"] == pytest.approx(0.5) and busy["bound"] == "FMA"
    moved = derive({"name": "b", "flops": 1.0, "bytes": 1e9, "seconds": 0.4}, PEAK)
    assert moved["limit_fraction"] == pytest.approx(0.25) and moved["bound"] == "bandwidth"
    unit = {"name": "d", "flops": 1e9, "bytes": 1.0, "seconds": 5e-3, "matrix": 3.0}
    found = derive(unit, replace(PEAK, matrix=1.2e12))
    assert found["limit_fraction"] == pytest.approx(0.5) and found["bound"] == "matrix unit"
    assert derive({"name": "c", "flops": 1, "bytes": 1}, PEAK) == {"name": "c", "flops": 1, "bytes": 1}


def test_kernels_of_one_function_share_a_row() -> None:
    kernels = [
        {"name": "x", "nodes": ["conv", "relu"], "function": "k0", "flops": 1e6, "bytes": 1e3, "seconds": 1e-3},
        {"name": "y", "function": "k1", "flops": 1e6, "bytes": 1e3, "seconds": 5e-3},
        {"name": "z", "nodes": ["other"], "function": "k0", "flops": 1e6, "bytes": 1e3, "seconds": 1e-3},
        {"name": "untimed", "function": "k2", "flops": 1e6, "bytes": 1e3},
    ]
    first, second = rows(kernels, None)
    assert (first.name, first.count) == ("y", 1)
    assert (second.name, second.count, second.flops) == ("x", 2, 2e6)
    assert (first.nodes, second.nodes) == ((), ("conv", "other"))
    assert second.seconds == pytest.approx(2e-3)


def test_the_harness_times_kernels_and_prints_them() -> None:
    settings = Settings(("espcn",), (1,), (), seconds=0.1, burst=0.01, pause=0.0, small=True, profile=True)
    (result,) = measure(settings)
    assert result.build is not None and all(k["seconds"] > 0 for k in result.build.kernels)
    table = render(result)
    assert len([line for line in table.splitlines() if line.startswith("| ")]) >= 3
    assert "All kernels:" in table


def test_the_command_prints_the_table() -> None:
    arguments = ["-m", "espcn", "-j", "1", "-s", "0.1", "--peers", "", "--no-peak", "--small", "--profile"]
    result = CliRunner().invoke(bench, arguments)
    assert result.exit_code == 0, result.output
    assert "### espcn, 1 thread: kernels" in result.output


def test_a_build_with_timers_says_so_in_its_header(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODELS["espcn"].model(small=True), path)
    arguments = ["build", str(path), "-o", str(tmp_path / "out"), "--timers", "--no-verify"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    header = next((tmp_path / "out").glob("*.h")).read_text()
    assert "int model_kernel_seconds(" in header and "MODEL_KERNELS" in header
    with halotile.load(tmp_path / "out") as model:
        model({s.name: np.zeros(s.shape, s.dtype) for s in model.inputs})
        assert sum(model.kernel_seconds() or []) > 0


def test_bytes_of_a_lookup_are_those_it_reads() -> None:
    """A table of which a few rows are taken does not pass through memory."""
    build = run_pipeline(MODELS["bert"].model(small=True), Options(native(), stop_after="schedule"))
    group = next(g for g in build.groups if "halotile.gather" in g.operators)
    table = max(group.inputs, key=lambda v: v.elements)
    gathered = next(n for n in group.nodes if n.operator == "halotile.gather")
    assert gathered.inputs[0] is table and table.bytes > gathered.results[0].bytes
    assert read_bytes(group, table) == gathered.results[0].bytes
    product = next(g for g in build.groups if "relax.matmul" in g.operators)
    assert all(read_bytes(product, v) == v.bytes for v in product.inputs)

"""Where the fastest choice takes much memory, one of half of it is taken if it is expected to take no longer."""

from __future__ import annotations

from dataclasses import replace

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.tile import tile
from halotile.targets.resolve import resolve


def chosen(path, target, threads, monkeypatch, large=None):
    """Bytes and cycles of the choice for ``path``, with arenas called large from ``large`` bytes on."""
    if large is not None:
        monkeypatch.setattr(tile, "LARGE", large)
    target = resolve(target) if isinstance(target, str) else target
    options = Options(target, threads=threads, cache=None, stop_after="tile")
    found = run_pipeline(path, options).details["tile"]["chosen"]
    monkeypatch.undo()
    return found["bytes"], found["cycles"]


def saved(tmp_path, name, **size):
    path = tmp_path / "model.onnx"
    onnx.save(MODELS[name].model(**size), path)
    return path


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "raspberry-pi-5"])
@pytest.mark.parametrize(("name", "threads"), [("espcn", 1), ("espcn", 2), ("edsr", 2)])
def test_less_memory_is_expected_to_take_no_longer(name, threads, target, tmp_path, monkeypatch):
    path = saved(tmp_path, name)
    before, cycles = chosen(path, target, threads, monkeypatch, 1 << 60)
    after, less = chosen(path, target, threads, monkeypatch)
    assert less <= cycles
    assert after <= before / 2 if after != before else less == cycles


def test_memory_is_halved_again_and_again(tmp_path, monkeypatch):
    path = saved(tmp_path, "espcn")
    server = replace(resolve("x86_64-linux-gnu+znver4"), l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)
    before, cycles = chosen(path, server, 2, monkeypatch, 1 << 60)
    after, less = chosen(path, server, 2, monkeypatch)
    assert before > 400e6 and after < 10e6 and less <= cycles


def test_little_memory_is_left_to_speed(tmp_path, monkeypatch):
    path = saved(tmp_path, "espcn", height=180, width=320)
    assert chosen(path, "x86-64-v4", 2, monkeypatch) == chosen(path, "x86-64-v4", 2, monkeypatch, 1 << 60)


def test_the_numbers_are_those_of_the_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(tile, "LARGE", 1 << 20)  # so that a small image is a large one
    path = saved(tmp_path, "espcn", height=181, width=313)
    x = np.random.default_rng(0).standard_normal((1, 3, 181, 313)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(path).run(None, {"input": x})[0]
    for threads in (1, 2):
        with halotile.compile(path, threads=threads, tile="off") as whole:
            most = whole.arena_bytes(threads)
        with halotile.compile(path, threads=threads) as model:
            assert model.arena_bytes(threads) <= most  # a half of it or less where tiles pay on this machine
            np.testing.assert_allclose(model(x), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())

"""``halotile run --tile``: large images from file to file, or nothing at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import halotile
import numpy as np
import pytest
from open_models import Drawing

COMMAND = [sys.executable, "-m", "halotile.compiler.cli", "run", "m"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a library of twice the size, one that pools over the image, and an image."""
    place = tmp_path_factory.mktemp("tiles")
    g = Drawing(1)
    x = g("Relu", g.conv(g.input("x", 1, 2, "h", "w"), 2, 8, 3))
    g.output(g("DepthToSpace", x, blocksize=2, mode="CRD"), 4)
    g.output(g.conv(x, 8, 3, 3, strides=[2, 2]), 4)
    halotile.compile(g.model()).save(place / "m")
    g = Drawing(1)
    x = g.conv(g.input("x", 1, 2, "h", "w"), 2, 8, 3)
    g.output(g("Mul", x, g("GlobalAveragePool", x)), 4)
    halotile.compile(g.model()).save(place / "pooled")
    np.save(place / "x.npy", np.random.default_rng(0).normal(0, 1, (1, 2, 211, 150)).astype(np.float32))
    return place


def run(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize(("tile", "count"), [("auto", 1), ("64", 35), ("100,64", 25)])
def test_from_file_to_file(folder: Path, tile: str, count: int) -> None:
    done = run(folder, "-i", "x.npy", "-o", "y0=a.npy", "-o", "y1=b.npy", "--tile", tile, "--json")
    told = json.loads(done.stdout)
    assert told["tiles"] == count and [o["shape"] for o in told["outputs"]] == [[1, 2, 422, 300], [1, 3, 106, 75]]
    with halotile.load(folder / "m") as model:
        for name, values in model({"x": np.load(folder / "x.npy")}).items():
            assert np.abs(np.load(folder / {"y0": "a.npy", "y1": "b.npy"}[name]) - values).max() < 1e-5
    assert not [*folder.glob("*.part")]


def test_what_is_wrong_is_told_and_nothing_is_left(folder: Path) -> None:
    np.save(folder / "bytes.npy", np.zeros((1, 2, 64, 64), np.uint8))
    before = sorted(folder.iterdir())
    for arguments, text in (
        (("-i", "x.npy", "--tile", "64"), "say where with -o"),
        (("-i", "x.npy", "-o", "y0=c.npz", "--tile", "64"), "one output into one .npy file"),
        (("-i", "x.bin", "-o", "y0=c.npy", "--tile", "64"), "'x.bin' is none"),
        (("-i", "none.npy", "-o", "y0=c.npy", "--tile", "64"), "can't be mapped: No such file"),
        (("-o", "y0=c.npy", "--tile", "64"), "input 'x' is missing"),
        (("-i", "bytes.npy", "-o", "y0=c.npy", "--tile", "64"), "dtype uint8, expected float32"),
        (("-i", "x.npy", "-o", "y0=c.npy", "--tile", "1,2,3"), "give one whole number, or 2"),
    ):
        assert text in run(folder, *arguments, code=1).stderr
        assert sorted(folder.iterdir()) == before
    assert "give rows of a tile" in run(folder, "-i", "x.npy", "-o", "y0=c.npy", "--tile", "x", code=2).stderr
    assert "--tile" in run(folder, "-i", "x.npy", "--tile", "9", "--repeat", "2", code=2).stderr


def test_a_global_node_is_named(folder: Path) -> None:
    command = [*COMMAND[:-1], "pooled", "-i", "x.npy", "-o", "c.npy", "--tile", "64"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "node 'GlobalAveragePool_v" in done.stderr
    assert len(done.stderr.splitlines()) == 1

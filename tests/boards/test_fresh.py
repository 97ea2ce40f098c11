"""`pip install '.[cross]'` and one build command, in a fresh virtual environment without a cross compiler.

It downloads half a gigabyte, so it runs when HALOTILE_FRESH is set (`make boards` sets it).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from board_tools import PI5, needs, network

ROOT = Path(__file__).resolve().parents[2]


def test_one_install_and_one_build(tmp_path: Path) -> None:
    if not os.environ.get("HALOTILE_FRESH"):
        pytest.skip("NOT RUN: it downloads half a gigabyte; HALOTILE_FRESH=1 runs it")
    needs("qemu-aarch64-static")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{ROOT}[cross]"], check=True)
    (tmp_path / "net.onnx").write_bytes(network().SerializeToString())
    # No compiler of any kind: zig alone links for the board.
    environment = {"PATH": str(tmp_path / "venv/bin"), "HOME": str(tmp_path)}
    words = ["build", "net.onnx", "-t", "raspberry-pi-5", "-o", "out"]
    done = subprocess.run(
        [tmp_path / "venv/bin/halotile", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    np.save(tmp_path / "x.npy", np.ones((1, 3, 13, 17), np.float32))
    ran = subprocess.run(
        [*PI5.split(), "out/model_run", "-i", "x.npy", "-o", "y=y.npy"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    import onnxruntime as ort

    session = ort.InferenceSession(network().SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(["y"], {"x": np.load(tmp_path / "x.npy")})[0]
    assert np.abs(np.load(tmp_path / "y.npy") - want).max() < 1e-5

"""RISC-V, built here and run in an emulator: networks, corners of float32, vectors of two lengths, and none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from board_tools import needs, needs_zig
from corners import check_corners, corners_input, corners_model
from halotile.benchmarks.models import MODELS
from halotile.compiler.codegen.elf import read_elf
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Options
from halotile.compiler.verify import verify
from halotile.errors import RemoteError, TargetError
from halotile.targets.resolve import resolve

VECTORS = "riscv64-linux-gnu+generic-rv64+v"
EMULATOR = "qemu-riscv64-static -cpu rv64,v=true,vlen=128"


def _needs_all() -> None:
    needs("qemu-riscv64-static")
    needs_zig()


def test_facts_follow_from_the_features() -> None:
    scalar, vectors, long = (resolve(t) for t in (VECTORS.removesuffix("+v"), VECTORS, f"{VECTORS},zvl256b"))
    assert (scalar.vector_bits, vectors.vector_bits, long.vector_bits) == (64, 128, 256)
    assert resolve("riscv64-linux-gnu+spacemit-x60").vector_bits == 256
    assert {"+f", "+d", "+c"} <= set(scalar.features) and scalar.bits == 64
    with pytest.raises(TargetError, match="the processor must have d.*add .d"):
        resolve("riscv64-linux-gnu+generic-rv64+-d")
    with pytest.raises(TargetError, match="unknown CPU 'sifive-e31'"):  # of 32 bits
        resolve("riscv64-linux-gnu+sifive-e31")


@pytest.mark.parametrize("name", ["mobilenet_v2", "bert"])
def test_a_network_equals_onnxruntime(name: str, tmp_path: Path) -> None:
    _needs_all()
    entry = MODELS[name]
    model = entry.model(small=True)
    run_pipeline(model, Options(resolve(VECTORS), name=name, formats=("exe",)), output=tmp_path / "out")
    with RemoteModel(tmp_path / "out", EMULATOR) as remote:
        for threads in (1, 3):
            found = verify(lambda a, n=threads: remote(a, n), model, remote.inputs, entry.inputs(model, seed=1))
            assert found.ok, found


@pytest.mark.parametrize(
    ("target", "emulator"),
    [
        (VECTORS, EMULATOR),
        (f"{VECTORS},zvl256b", EMULATOR.replace("128", "256")),
        (VECTORS.removesuffix("+v"), "qemu-riscv64-static"),
    ],
)
def test_corners_of_float32_are_numpys(target: str, emulator: str, tmp_path: Path) -> None:
    _needs_all()
    run_pipeline(corners_model(), Options(resolve(target), threads=1, formats=("exe",)), output=tmp_path / "out")
    assert read_elf(tmp_path / "out" / "model_run").machine == "riscv64"
    with RemoteModel(tmp_path / "out", emulator) as remote:
        check_corners(remote({"x": corners_input()}, 1))


def test_a_processor_without_vectors_is_told_so(tmp_path: Path) -> None:
    """Which also shows that the kernels were made for vectors: nobody is asked for what they don't use."""
    _needs_all()
    run_pipeline(corners_model(), Options(resolve(VECTORS), threads=1, formats=("exe",)), output=tmp_path / "out")
    with (
        RemoteModel(tmp_path / "out", "qemu-riscv64-static -cpu rv64,v=false") as remote,
        pytest.raises(RemoteError, match="lacks instructions"),
    ):
        remote({"x": np.zeros((31, 3), "float32")}, 1)

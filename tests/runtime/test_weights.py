"""Weights: streamed into the object, mapped at run time, and out of everybody's reach at any size."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from halotile.compiler.codegen.library import build_library
from halotile.compiler.codegen.weights import write_weights
from halotile.compiler.runtime.loader import load
from halotile.errors import ToolchainError

MIB = 1 << 20


def sections(path: Path) -> str:
    return subprocess.run(["readelf", "-SsW", path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("triple", "machine"),
    [
        ("x86_64-linux-gnu", "X86-64"),
        ("aarch64-linux-gnu", "AArch64"),
        ("armv7l-linux-gnueabihf", "ARM"),
        ("i686-linux-gnu", "80386"),
        ("riscv64-linux-gnu", "RISC-V"),
    ],
)
@pytest.mark.parametrize("size", [1, 63, 64, 4097])
def test_the_object_is_one_that_binutils_reads(triple, machine, size, tmp_path):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    total, digest = write_weights(tmp_path / "w.o", triple, [data[: size // 2], data[size // 2 :]])
    assert (total, digest) == (size, hashlib.sha256(data).hexdigest())
    text = sections(tmp_path / "w.o")
    header = subprocess.run(["readelf", "-hW", tmp_path / "w.o"], capture_output=True, text=True, check=True)
    assert re.search(rf"Machine:.*{machine}", header.stdout) and not header.stderr
    assert re.search(rf"{size} OBJECT +GLOBAL HIDDEN +1 halotile_weights", text)
    offset = int(re.search(r"(?:lrodata|halotile_weights) +PROGBITS +0+ ([0-9a-f]+)", text)[1], 16)
    assert offset % 64 == 0 and (tmp_path / "w.o").read_bytes()[offset : offset + size] == data


def test_on_x86_the_section_is_a_large_one(tmp_path):
    """Linkers place those behind everything else: 2 GB of weights push no code out of reach."""
    write_weights(tmp_path / "w.o", "x86_64-linux-gnu", [b"x" * 100])
    assert re.search(r"\.lrodata.* Al ", sections(tmp_path / "w.o"))


def test_a_machine_without_a_known_object_format_is_refused(tmp_path):
    with pytest.raises(ToolchainError, match="no object format is known for sparc-sun-solaris"):
        write_weights(tmp_path / "w.o", "sparc-sun-solaris", [b"x"])


def test_writing_holds_one_chunk_at_a_time(tmp_path):
    chunk = bytes(MIB)
    tracemalloc.start()
    total, _ = write_weights(tmp_path / "w.o", "x86_64-linux-gnu", (memoryview(chunk) for _ in range(64)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 64 * MIB and peak < MIB


@pytest.mark.parametrize("size", [4096, 4097, 12288, 100_000])
def test_pieces_join_without_a_gap(make_spec, monkeypatch, tmp_path, size):
    """Sections of one name are joined in order; here they are small, so that there are many."""
    monkeypatch.setattr("halotile.compiler.codegen.weights.PIECE", 4096)
    source = f"""int32_t halotile_kernel_main(void *y, const void *w, void *a) {{
        memcpy(y, w, {size});
        return 0;
    }}"""
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    y = replace(make_spec().outputs[0], dtype="uint8", shape=(size,))
    spec = make_spec(source, inputs=(), outputs=(y,), weights=[data.data])
    built = build_library(spec, tmp_path, formats=("so", "a", "exe"))  # the last one removes unreferenced sections
    assert data.tobytes() in built.archive.read_bytes() and data.tobytes() in built.executable.read_bytes()
    with load(built.directory) as model:
        assert np.array_equal(model({})["y"], data)


def test_loading_maps_the_weights_and_reads_none(make_spec, tmp_path):
    source = """int32_t halotile_kernel_main(void *x, void *y, const void *w, void *a) {
        memcpy(y, (const char *)w + (63 << 20), 16);
        return 0;
    }"""
    spec = make_spec(
        source, weights=[memoryview(np.full(MIB // 4, i, np.float32)).cast("B") for i in range(64)]
    )
    built = build_library(spec, tmp_path)
    before = _resident()
    with load(built.directory) as model:
        assert model({"x": np.zeros(4, "f")})["y"].tolist() == [63.0] * 4
        assert _resident() - before < 8 * MIB


def test_the_weights_are_reached_through_a_pointer_in_data(rounds, tmp_path):
    """A distance in code would reach 2 GB."""
    built = build_library(replace(rounds, weights=[bytes(32 * 4)]), tmp_path, formats=("so", "a"))
    relocations = subprocess.run(["readelf", "-rW", built.archive], capture_output=True, text=True).stdout
    lines = [line for line in relocations.splitlines() if line.endswith("halotile_weights + 0")]
    assert len(lines) == 1 and re.search(r"R_\w+_(64|ABS64|ABS32|32) ", lines[0]), lines


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

"""A small part of the matrix of benchmarks/boards.py: networks on boards, 64 and 32 bits, one and four threads."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pytest
from board_tools import needs, needs_zig
from byte_sums import reference
from evaluate import one_node
from halotile.benchmarks.boards import (
    BOARDS,
    NETWORKS,
    BoardOutcome,
    Cells,
    check,
    emulator,
    outcomes,
    sources,
)
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Options
from halotile.targets.boards import boards
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper


@pytest.mark.parametrize(
    ("board", "name"),
    [
        ("raspberry-pi-5", "mobilenet_v2"),
        ("raspberry-pi-4", "espcn"),
        ("raspberry-pi-3-32", "bert"),
        ("raspberry-pi-3-32", "shufflenet_v2"),
        ("armv7", "resnet18"),
    ],
)
def test_a_network_on_a_board_equals_onnxruntime(board: str, name: str) -> None:
    needs("qemu-aarch64-static", "qemu-arm-static", "/usr/aarch64-linux-gnu/lib", "/usr/arm-linux-gnueabihf/lib")
    needs_zig()
    outcome = check(board, name, MODELS[name].model(small=True), MODELS[name], small=True)
    assert (outcome.program, outcome.library) == ("ok", "ok"), outcome
    assert 0 < outcome.limit and outcome.error <= outcome.limit
    assert outcome.code_bytes < 1 << 20


def test_rows_of_three_floats_are_read_where_they_lie(tmp_path: Path) -> None:
    """LLVM's pass that makes block loads for 32-bit ARM went on by 8 bytes instead of 12, from row to row."""
    needs("qemu-arm-static")
    needs_zig()
    x = np.random.default_rng(0).standard_normal((1, 16, 3)).astype("float32")
    pooled, feeds = one_node("MaxPool", [x], 1, kernel_shape=[3], pads=[1, 0])
    options = Options(resolve("raspberry-pi-2-32"), threads=1, formats=("exe",))
    run_pipeline(pooled, options, output=tmp_path / "lib")
    with RemoteModel(tmp_path / "lib", "qemu-arm-static -cpu cortex-a7") as model:
        (y,) = model(feeds, threads=1).values()
    np.testing.assert_array_equal(y, np.stack([x[..., :2].max(axis=2), x.max(axis=2)], axis=2))


def test_bytes_are_multiplied_by_the_board_as_here(tmp_path: Path) -> None:
    """sdot: the whole range of both sides, so that 16 bits would not hold two products; sums against NumPy."""
    needs("qemu-aarch64-static", "/usr/aarch64-linux-gnu/lib")
    needs_zig()
    rng = np.random.default_rng(3)
    x = rng.choice(np.array([0, 1, 254, 255], "uint8"), (1, 37, 9, 11))
    convs = [(1, 1, 1, 0), (3, 1, 1, 1), (3, 2, 1, 1), (2, 1, 3, 2), (1, 3, 1, 0)]  # taps, stride, dilation, padding
    ends = np.array([-128, -127, 3, 127], "int8")
    weights = [rng.choice(ends, (21, 37, taps, taps)) for taps, *_ in convs]
    nodes = [
        helper.make_node(
            "ConvInteger", ["x", f"w{i}", "zero"], [f"y{i}"], strides=[s, s], dilations=[d, d], pads=[p] * 4
        )
        for i, (_, s, d, p) in enumerate(convs)
    ]
    constants = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(
        nodes, "bytes", [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info(f"y{i}", TensorProto.INT32, None) for i in range(len(convs))],
        [*constants, numpy_helper.from_array(np.uint8(7), "zero")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = Options(resolve("raspberry-pi-5"), threads=1, tile="off", formats=("exe",))
    build = run_pipeline(model, options, output=tmp_path / "lib")
    assert sum(k.schedule.startswith("dot products of bytes") for k in build.kernels) == len(convs)
    with RemoteModel(tmp_path / "lib", "qemu-aarch64-static -cpu cortex-a76") as remote:
        found = remote({"x": x}, threads=1)
    for (_, s, d, p), w, y in zip(convs, weights, found.values(), strict=True):
        np.testing.assert_array_equal(y, reference(x.astype("i8") - 7, w, (s, s), (d, d), ((p, p), (p, p)), 1, 0))


def test_the_matrix_has_what_was_promised() -> None:
    assert set(BOARDS) <= set(boards()) and len(BOARDS) == 5
    assert set(NETWORKS) <= set(MODELS)
    for kind in ("seeded_", "light_"):
        assert sum(name.startswith(kind) for name in NETWORKS) == 9


def test_the_matrix_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def run(board: str, name: str, *rest: object) -> BoardOutcome:
        done.append(f"{board} {name}")
        verdict = "4 threads: differs" if name == "espcn" else "ok"
        return BoardOutcome(board, name, 1, 2, 0.5, 1, verdict, "ok", 9, sources(), "bytes", True)

    monkeypatch.setattr("halotile.benchmarks.boards.check", run)
    cells = ("raspberry-pi-5", "jetson-orin"), ("bert", "espcn"), True
    for expected in (4, 2):  # what failed is run again
        kept = Cells(tmp_path / "cells.json")
        for outcome in outcomes(*cells, kept.agreed):
            kept.keep(outcome)
        assert len(done) == expected and ("raspberry-pi-5 bert" in done) == (expected == 4)
        done.clear()
    kept = Cells(tmp_path / "cells.json")
    monkeypatch.setattr("halotile.benchmarks.boards.sources", lambda: "others")
    assert len(list(outcomes(*cells, kept.agreed))) == len(done) == 4
    assert kept.agreed("jetson-orin", "bert", True) and not kept.agreed("jetson-orin", "bert", False)
    (tmp_path / "cells.json").write_text('[{"board": 1}]')
    with pytest.raises(click.ClickException, match="cells.json is not a file"):
        Cells(tmp_path / "cells.json")


def test_every_board_has_an_emulator() -> None:
    for name in boards():
        target = resolve(name)
        if target.system == "linux" and not target.triple.startswith("x86_64"):
            command = emulator(target)
            assert command[0] in ("qemu-aarch64-static", "qemu-arm-static") and command[1] == "-cpu", Path(name)

"""A small part of the matrix of benchmarks/boards.py: networks on boards, 64 and 32 bits, one and four threads."""

from __future__ import annotations

from pathlib import Path

import pytest
from board_tools import needs, needs_zig
from halotile.benchmarks.boards import BOARDS, NETWORKS, check, emulator
from halotile.benchmarks.models import MODELS
from halotile.targets.boards import boards
from halotile.targets.resolve import resolve


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


def test_the_matrix_has_what_was_promised() -> None:
    assert set(BOARDS) <= set(boards()) and len(BOARDS) == 5
    assert set(NETWORKS) <= set(MODELS) and sum(name.startswith("seeded_") for name in NETWORKS) == 9


def test_every_board_has_an_emulator() -> None:
    for name in boards():
        target = resolve(name)
        if not target.triple.startswith("x86_64"):
            command = emulator(target)
            assert command[0] in ("qemu-aarch64-static", "qemu-arm-static") and command[1] == "-cpu", Path(name)

"""Counts of layers in float16: lanes, dense blocks and their share of the peak, what misses its mark."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from board_tools import needs_llvm, needs_plugins, needs_zig
from halotile.benchmarks import half_counts as h
from halotile.benchmarks.emulation import counts as c
from halotile.benchmarks.models import MODELS
from halotile.targets.resolve import resolve

PI5 = "raspberry-pi-5"
TEXTS = ("fmla v0.8h, v1.8h, v2.h[0]", "fmla v0.4s, v1.4s, v2.4s", "ldr q0, [x1]", "fmadd h0, h1, h2, h3", "b.ne #-8")
HALF, WIDE, LOAD, SCALAR, BACK = range(len(TEXTS))


def run(*blocks: tuple[str, float, int, tuple[int, ...]]) -> Any:
    """Of blocks as (schedule, cycles, runs, instructions)."""
    made = [c.Block(64 * i, runs, (0, 0), struct.pack(f"<{len(w)}I", *w)) for i, (_, _, runs, w) in enumerate(blocks)]
    each = {b: cycles for b, (_, cycles, _, _) in zip(made, blocks)}
    program = SimpleNamespace(function_at=lambda address: blocks[address // 64][0], kernel_of=lambda name: name)
    return h._Run(c.Counts(tuple(made)), dict(enumerate(TEXTS)), each, program)


@pytest.mark.parametrize(("text", "lanes"), [
    ("fmla v0.8h, v1.8h, v2.h[0]", 8), ("fmls v0.4s, v1.4s, v2.4s", 4), ("fmla v0.4h, v1.4h, v2.4h", 4),
    ("fmla v3.2d, v1.2d, v2.2d", 2), ("fmadd s0, s1, s2, s3", 1), ("fmadd h0, h1, h2, h3", 1),
    ("sdot v0.4s, v1.16b, v2.4b[0]", 0), ("fmul v0.8h, v1.8h, v2.8h", 0), ("ldr q0, [x1]", 0),
])  # fmt: skip
def test_lanes_are_read_off_the_instruction(text: str, lanes: int) -> None:
    assert h.lanes_of(text) == lanes


def test_lanes_count_in_products_alone() -> None:
    found = run(
        ("direct conv C8, tile 3x4x2", 2.0, 10, (HALF, HALF, BACK)), ("tiled, 3 members", 1.0, 5, (WIDE, SCALAR)),
        ("softmax", 1.0, 1000, (WIDE,)),
    )  # fmt: skip
    assert h.of_lanes(found) == pytest.approx(160 / (160 + 5 * (4 + 1)))
    assert h.of_lanes(run(("softmax", 1.0, 1, (WIDE,)))) == 0


def test_dense_blocks_have_their_share_of_the_peak() -> None:
    found = h.dense_blocks(run(
        ("winograd", 4.0, 100, (HALF,) * 6 + (LOAD, BACK)), ("matmul", 2.0, 20, (HALF,) * 4 + (LOAD, BACK)),
        ("direct conv", 2.0, 900, (HALF, LOAD, LOAD, BACK)), ("matmul tail", 2.0, 1, (HALF, HALF)),
    ), 2.0)  # fmt: skip
    every = 600 + 80 + 900 + 2
    assert [b.schedule for b in found] == ["winograd", "matmul"], "others have few, or are few"
    assert [b.share for b in found] == pytest.approx([6 / 8, 4 / 4])
    assert [b.part for b in found] == pytest.approx([600 / every, 80 / every])


def row(**more: Any) -> h.HalfRow:
    facts: dict[str, Any] = {
        "model": "m", "target": PI5, "in_float16": 3, "products": 3, "of_lanes": 0.95, "of_peak": 0.9, "at_mark": 1.0,
        "instructions": (50, 100), "cycles": (40.0, 100.0), "blocks": (), **more,
    }  # fmt: skip
    return h.HalfRow(**facts)


def test_what_misses_its_mark_is_told() -> None:
    assert not row().falls_short and row().fewer == 0.5
    assert row(of_lanes=0.89).falls_short and row(of_peak=0.84).falls_short
    assert not row(of_lanes=0.5, in_float16=2).falls_short, "some layers are in float32"
    assert not row(of_lanes=0.0, in_float16=0, products=0).falls_short
    block = h.DenseBlock("matmul packed", 20, 24, 14.0, 0.4, 0.71)
    text = h.table([row(instructions=(6 * 10**7, 10**8), of_lanes=0.5, in_float16=2, blocks=(block,))])
    assert "| 2 of 3 | **50.0%** | 90.0% | 100.0% | 40.0% | 60.0 | **0.600** |" in text
    assert "| 71% (40% of them): matmul packed |" in text


@pytest.mark.parametrize("target", ["raspberry-pi-4", "x86-64-v3", "x86_64-linux-gnu+sapphirerapids"])
def test_other_machines_are_one_line(target: str, capsys: pytest.CaptureFixture) -> None:
    assert h.main(["-t", target]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "computes in float16" in said.err


@needs_llvm
@needs_plugins
def test_a_small_model_is_counted(tmp_path: Path) -> None:
    needs_zig()
    entry = MODELS["resnet18"]
    model = entry.model(small=True, width=32)
    found = h.measure("resnet18", model, entry.inputs(model, seed=1), resolve(PI5))
    assert found.in_float16 == found.products == 21 and found.of_lanes > 0.9
    assert found.fewer < 0.7 and found.cycles[0] < found.cycles[1] and found.blocks
    assert 0 < found.of_peak <= 1.01 and all(b.share <= 1.01 for b in found.blocks)

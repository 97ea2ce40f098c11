"""Dot products of bytes on 64-bit ARM take a row's words from the lanes of a vector; no tile goes to the stack."""

from __future__ import annotations

import random
import shutil
from typing import Any

import numpy as np
import pytest
from compiled import module_of, staged, weight
from halotile.benchmarks import machine_code as m
from halotile.schedules.instructions.word_rows import LANES, _loads
from halotile.schedules.operators.registry import call
from halotile.targets.resolve import resolve

needs_objdump = pytest.mark.skipif(
    not any(shutil.which(f"llvm-objdump{v}") for v in ("", *(f"-{n}" for n in range(14, 31)))),
    reason="NOT RUN: llvm-objdump is not installed (Debian: llvm)",
)


@needs_objdump
@pytest.mark.parametrize(("size", "taps", "stride"), [(28, 1, 1), (13, 3, 1), (29, 3, 2)])
def test_rows_lie_in_lanes_and_nothing_on_the_stack(size: int, taps: int, stride: int) -> None:
    target, out = resolve("raspberry-pi-5"), (size - 1) // stride + 1
    x, w = np.ones((1, 192, size, size), np.int8), np.ones((64, 192, taps, taps), np.int8)

    def body(p: Any) -> Any:
        return call(
            "halotile.dot_conv", p, weight(w), strides=[stride] * 2, dilations=[1, 1], begin=[taps // 2] * 2,
            output=[out, out], groups=1, fill=0,
        )  # fmt: skip

    kernels = staged(module_of([x], body), target, tiled=False).kernels
    (kernel,) = [k for k in kernels if k.schedule.startswith("dot products of bytes")]
    code = m.functions(m.disassembly([m.object_of(kernel, target)], target, m.tools().objdump))[m.NAME]
    dots = {loop: [i.text for i in loop.instructions if i.text.startswith("sdot")] for loop in m.loops(code)}
    heavy = {loop: texts for loop, texts in dots.items() if len(texts) >= 8}
    assert heavy
    for loop, texts in heavy.items():
        assert not loop.spills
        assert all(".4b[" in text for text in texts), "each word by itself"
        assert len(loop.instructions) <= 1.8 * len(texts), (kernel.schedule, len(loop.instructions), len(texts))


def test_loads_have_all_words_and_read_none_beside() -> None:
    chosen = random.Random(5)
    for _ in range(300):
        offsets = [0, *sorted(chosen.sample(range(1, 29), chosen.randint(0, 11)))]
        loads = _loads(offsets)
        covered = {start + i for start, size in loads for i in range(size)}
        assert set(offsets) <= covered and min(covered) == 0 and max(covered) == offsets[-1]
        assert len(loads) <= len(offsets) and {size for _, size in loads} <= {1, 2, LANES}

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
from tvm import relax

R = relax.op
needs_objdump = pytest.mark.skipif(
    not any(shutil.which(f"llvm-objdump{v}") for v in ("", *(f"-{n}" for n in range(14, 31)))),
    reason="NOT RUN: llvm-objdump is not installed (Debian: llvm)",
)


def compiled(arrays: list[np.ndarray], body: Any, family: str) -> list[str]:
    """The instructions of the kernel of ``family``, whose loops of dot products are tight: words come from lanes,
    nothing from the stack."""
    target = resolve("raspberry-pi-5")
    kernels = staged(module_of(arrays, body), target, tiled=False).kernels
    (kernel,) = [k for k in kernels if k.schedule.startswith(family)]
    code = m.functions(m.disassembly([m.object_of(kernel, target)], target, m.tools().objdump))[m.NAME]
    dots = {loop: [i.text for i in loop.instructions if i.text.startswith("sdot")] for loop in m.loops(code)}
    heavy = {loop: texts for loop, texts in dots.items() if len(texts) >= 8}
    assert heavy
    for loop, texts in heavy.items():
        assert not loop.spills
        assert all(".4b[" in text for text in texts), "each word by itself"
        assert len(loop.instructions) <= 1.8 * len(texts), (kernel.schedule, len(loop.instructions), len(texts))
    return [i.text for i in code]


def behind(sums: Any, residual: Any, channels: int) -> Any:
    """The epilogue of a block of a quantised network: rounded, a residual added, and rounded again."""
    axes = (channels, 1, 1)
    each = (np.arange(1, channels + 1, dtype="f4").reshape(axes) * np.float32(n) for n in (1e-4, 1e-2))
    scale, offset = (weight(n) for n in each)
    real = R.add(R.multiply(R.astype(sums, "float32"), scale), offset)
    near = call("halotile.rounded", real, zero=3, low=0, high=255, dtype="uint8")
    real = R.multiply(R.astype(near, "float32"), relax.const(np.float32(0.037)))
    kept = R.multiply(R.astype(residual, "float32"), relax.const(np.float32(0.043)))
    divisors = (weight(np.float32(n)) for n in (0.059, 1 / 0.059))
    made = call("halotile.quotient", R.add(real, kept), *divisors)
    near = call("halotile.rounded", made, zero=0, low=0, high=255, dtype="uint8")
    return R.astype(R.subtract(R.astype(near, "int32"), relax.const(np.int32(128))), "int8")


@needs_objdump
@pytest.mark.parametrize(("size", "taps", "stride"), [(28, 1, 1), (13, 3, 1), (29, 3, 2)])
def test_rows_lie_in_lanes_and_nothing_on_the_stack(size: int, taps: int, stride: int) -> None:
    """Nor constants of what is behind the sums, which no register is free for."""
    out = (size - 1) // stride + 1
    x, w = np.ones((1, 192, size, size), np.int8), np.ones((64, 192, taps, taps), np.int8)
    residual = np.zeros((1, 64, out, out), np.uint8)

    def body(p: Any, q: Any) -> Any:
        sums = call(
            "halotile.dot_conv", p, weight(w), strides=[stride] * 2, dilations=[1, 1], begin=[taps // 2] * 2,
            output=[out, out], groups=1, fill=0,
        )  # fmt: skip
        return behind(sums, q, 64)

    code = compiled([x, residual], body, "dot products of bytes")
    assert any(text.startswith("fcvtns") for text in code) and not any(text.startswith("frint") for text in code)


@needs_objdump
def test_products_take_four_steps_of_a_row_from_lanes() -> None:
    """Weights that two halves of a tile's rows read are loaded for each: registers don't hold those of four steps."""
    a, w = np.ones((40, 96), np.int8), np.ones((96, 48), np.int8)

    def body(p: Any) -> Any:
        real = R.multiply(R.astype(R.matmul(p, weight(w), out_dtype="int32"), "float32"), relax.const(np.float32(0.01)))
        return call("halotile.rounded", real, zero=3, low=0, high=255, dtype="uint8")

    code = compiled([a], body, "matmul of bytes")
    assert any(text.startswith("fcvtns") for text in code)


def test_loads_have_all_words_and_read_none_beside() -> None:
    chosen = random.Random(5)
    for _ in range(300):
        offsets = [0, *sorted(chosen.sample(range(1, 29), chosen.randint(0, 11)))]
        loads = _loads(offsets)
        covered = {start + i for start, size in loads for i in range(size)}
        assert set(offsets) <= covered and min(covered) == 0 and max(covered) == offsets[-1]
        assert len(loads) <= len(offsets) and {size for _, size in loads} <= {1, 2, LANES}

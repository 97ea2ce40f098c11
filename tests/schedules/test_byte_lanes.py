"""Bytes narrowed four vectors at a time, and looked up in tables, where vectors have 4 or 8 lanes: ARM and AVX2.

One model of many cases for each processor. Scales are powers of two, so that sums are exact and many lie halfway
between two whole numbers: what NumPy rounds to even is what is wanted, to the bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board_tools import PI5, needs, needs_zig
from byte_sums import numbers, reference
from compiled import Compiled, module_of, staged, weight
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Build, Options
from halotile.schedules.instructions.byte_tables import MARK
from halotile.schedules.operators.registry import call
from halotile.schedules.words.group import Value
from halotile.schedules.words.layout import Layout
from halotile.targets.detect import read_machine
from halotile.targets.resolve import resolve
from numerics import Sheet
from tvm import relax

ZEROS = {"uint8": 113, "int8": -7}
PACKED = {"raspberry-pi-5": "sqxt", "x86-64-v3": "avx2.pack"}

#  read and made, channels, size, and of each layer: outputs, groups, kernel, if a gate is behind it
CASES: list[tuple[str, str, int, tuple[int, int], list[tuple[int, int, int, bool]]]] = [
    ("uint8", "int8", 24, (5, 3), [(40, 1, 1, True), (43, 1, 3, False)]),  # rows of three columns; vectors not full
    ("int8", "uint8", 19, (7, 9), [(24, 1, 1, False), (32, 1, 1, True), (19, 19, 3, True)]),
]


class Bytes(Sheet):
    """Cases of quantised layers: names in the model beside the numbers that they stand for."""

    def real(self, name: str, x: np.ndarray, scale: float) -> tuple[str, np.ndarray]:
        zero = ZEROS[x.dtype.name]
        given = [self.constant(scale), self.constant(zero, x.dtype)]
        return self.node("DequantizeLinear", name, *given), (x.astype(np.float64) - zero) * scale

    def bytes_of(self, name: str, x: np.ndarray, scale: float, kind: str) -> tuple[str, np.ndarray]:
        ends = np.iinfo(kind)
        whole = np.rint(x / scale) + ZEROS[kind]
        given = [self.constant(scale), self.constant(ZEROS[kind], kind)]
        return self.node("QuantizeLinear", name, *given), np.clip(whole, ends.min, ends.max).astype(kind)

    def layer(
        self, rng: np.random.Generator, name: str, x: np.ndarray, outputs: int, groups: int, kernel: int, kind: str
    ) -> tuple[str, np.ndarray]:
        """A convolution of bytes, rounded to bytes."""
        given, _ = self.real(name, x, 2**-4)
        channels = x.shape[1]
        w = numbers(rng, "int8", (outputs, channels // groups, kernel, kernel))
        scale = np.exp2(rng.integers(-9, -3, outputs)).astype(np.float32)
        bias = rng.integers(-4000, 4000, outputs).astype(np.int32)
        weights = self.node("DequantizeLinear", self.constant(w, "int8"), self.constant(scale), axis=0)
        zeros = self.node("DequantizeLinear", self.constant(bias, "int32"), self.constant(scale * 2**-4), axis=0)
        pad = kernel // 2
        made = self.node("Conv", given, weights, zeros, group=groups, pads=[pad] * 4)
        sums = reference(x.astype("i2") - ZEROS[x.dtype.name], w, [1, 1], [1, 1], ([pad] * 2, [pad] * 2), groups, 0)
        wanted = (sums + bias[:, None, None]) * (scale.astype("f8") * 2**-4)[:, None, None]
        return self.bytes_of(made, wanted, 2.0**6, kind)

    def product(self, rng: np.random.Generator, name: str, x: np.ndarray, outputs: int) -> tuple[str, np.ndarray]:
        """Rows of bytes by a matrix of them, rounded to bytes."""
        given, _ = self.real(name, x, 2**-4)
        w = numbers(rng, "int8", (x.shape[-1], outputs))
        constants = self.constant(w, "int8"), self.constant(2.0**-5), self.constant(0, "int8")
        weights = self.node("DequantizeLinear", *constants)
        sums = (x.astype("i8") - ZEROS[x.dtype.name]) @ w
        return self.bytes_of(self.node("MatMul", given, weights), sums * 2.0**-9, 2.0**4, "uint8")

    def gate(self, name: str, x: np.ndarray, kind: str) -> tuple[str, np.ndarray]:
        """x * sigmoid(x) of bytes as bytes: a table."""
        given, value = self.real(name, x, 2**-4)
        silu = value / (1 + np.exp(-value))
        assert (np.abs(silu / 0.07 % 1 - 0.5) > 1e-4).all(), "either neighbour would be right"
        made = self.node("Mul", given, self.node("Sigmoid", given))
        return self.bytes_of(made, silu, 0.07, kind)


def layers() -> Bytes:
    rng, s = np.random.default_rng(8), Bytes()
    for read, made, channels, size, each in CASES:
        x = numbers(rng, read, (2, channels, *size))
        given = s.input(x)
        for outputs, groups, kernel, gated in each:
            q, wanted = s.layer(rng, given, x, outputs, groups, kernel, made)
            s.case(f"{read} {made} {size} {outputs}", *(s.gate(q, wanted, read) if gated else (q, wanted)))
    x = numbers(rng, "uint8", (19, 107))  # of 27 words, six times four; more rows than a tile has
    s.case("product", *s.product(rng, s.input(x), x, 43))
    x = np.resize(np.arange(256, dtype=np.uint8), (3, 7, 31))
    s.case("table", *s.gate(s.input(x), x, "int8"))
    return s


def fired(build: Build, pack: str, layers: int) -> None:
    """Asserts that bytes of as many layers are narrowed together, and those of two looked up with them."""
    texts = [k.function.script() for k in build.kernels if "dot products of" in k.schedule]
    assert sum(pack in text for text in texts) == layers
    assert sum(pack in text and MARK in text for text in texts) == 2
    assert sum(MARK in k.function.script() for k in build.kernels) == 4


@pytest.mark.skipif("avx2" not in read_machine().flags, reason="NOT RUN: this machine has no AVX2")
def test_on_avx2() -> None:
    s = layers()
    build = run_pipeline(s.model(), Options(resolve("x86-64-v3"), threads=1, tile="off", stop_after="plan"))
    found = Compiled(build).run(list(s.feeds.values()))
    names = [output for case in s.cases.values() for output in case.outputs]
    for name in s.cases:
        s.check(name, dict(zip(names, found, strict=True)))
    fired(build, "avx2.packss", 3)


def test_on_arm(tmp_path: Path) -> None:
    needs("qemu-aarch64-static")
    needs_zig()
    s = layers()
    options = Options(resolve("raspberry-pi-5"), threads=1, tile="off", formats=("exe",))
    build = run_pipeline(s.model(), options, output=tmp_path / "arm")
    with RemoteModel(tmp_path / "arm", PI5) as model:
        found = model(s.feeds)
    for name in s.cases:
        s.check(name, found)
    fired(build, "neon.sqxt", 4)
    assert any("matmul of bytes" in k.schedule for k in build.kernels)


@pytest.mark.skipif("avx2" not in read_machine().flags, reason="NOT RUN: this machine has no AVX2")
def test_fours_across_rows_may_lie_over_the_residual() -> None:
    """Nine positions are three fours: what the last two have in common is read before the first of them is written."""
    rng = np.random.default_rng(5)
    x, w = rng.integers(-255, 1, (1, 32, 3, 3)).astype("f4"), numbers(rng, "int8", (32, 32, 1, 1)).astype("f4")
    r = numbers(rng, "uint8", (1, 32, 3, 3))

    def body(p: Any, q: Any) -> Any:
        kept = relax.op.nn.max_pool2d(q, (3, 3), padding=(1, 1))
        data = relax.op.add(p, relax.op.astype(kept, "float32"))
        y = relax.op.multiply(relax.op.nn.conv2d(data, weight(w)), relax.const(np.float32(2**-11)))
        total = relax.op.add(y, relax.op.astype(kept, "float32"))
        made = call("halotile.rounded", total, zero=0, low=0, high=255, dtype="uint8")
        return relax.op.nn.max_pool2d(made, (2, 1))

    def blocked(build: Build) -> dict[Value, Layout]:
        made = [v for group in build.groups for v in group.outputs if v not in build.graph.outputs]
        return {v: Layout.blocked(v.shape, 8) for v in made}

    build = staged(module_of([x, r], body), resolve("x86-64-v3"), layouts=blocked, tiled=False)
    kernel = next(k for k in build.kernels if "direct" in k.schedule)
    assert "avx2.packuswb" in kernel.function.script()
    offsets = build.memory.offsets
    assert any(offsets[v] == offsets[o] for v in kernel.inplace for o in kernel.outputs)
    near = np.lib.stride_tricks.sliding_window_view(np.pad(r, [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3))
    kept = near.max((4, 5)).astype("f8")
    sums = np.einsum("oc,ncyx->noyx", w[:, :, 0, 0], x + kept)
    wanted = np.clip(np.rint(sums * 2.0**-11 + kept), 0, 255).astype(np.uint8)
    wanted = np.maximum(wanted[:, :, :-1], wanted[:, :, 1:])
    np.testing.assert_array_equal(Compiled(build).run([x, r])[0], wanted)

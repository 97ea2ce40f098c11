"""Loops of products write their steps out where two multiply-adds start in a cycle, and what is left over behind."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from tvm import relax

R = relax.op
F = "float32"
TWO = replace(resolve("x86-64-v4"), fma_ports=2, cores=1, l1_bytes=48 << 10, l2_bytes=2 << 20, far_bytes=10)
OTHERS = [(TWO, True), (replace(TWO, fma_ports=1), False), (replace(TWO, triple="aarch64-linux-gnu"), False)]
WRITTEN_OUT = r"for (?:k|c)\d* in T\.unroll\(4\)"


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(F)


def text_of(target: Target, module: Any, schedule: str) -> str:
    (found,) = [k for k in staged(module, target, tiled=False).kernels if schedule in k.schedule]
    return str(found.function)


@pytest.mark.parametrize("target,expected", OTHERS)
def test_products_of_matrices(target: Target, expected: bool) -> None:
    module = module_of([rand(64, 96)], lambda x: R.matmul(x, weight(rand(96, 128))))
    assert bool(re.search(WRITTEN_OUT, text_of(target, module, "matmul packed"))) is expected


@pytest.mark.parametrize("target,expected", OTHERS)
def test_seven_products_of_halves(target: Target, expected: bool) -> None:
    module = module_of([rand(256, 512)], lambda x: R.matmul(x, weight(rand(512, 1536))))
    assert bool(re.search(WRITTEN_OUT, text_of(target, module, "seven products"))) is expected


@pytest.mark.parametrize("target,expected", OTHERS)
def test_products_of_winograd(target: Target, expected: bool) -> None:
    """Of whole blocks of channels and of what is left; with as many as no four divide, in a plain loop."""
    for channels, parts in ((64, 1), (70, 1), (72, 2)):
        image, filters = rand(1, channels, 24, 24), weight(rand(64, channels, 3, 3))
        module = module_of([image], lambda x: R.nn.conv2d(x, filters, padding=1))  # noqa: B023
        found = re.findall(WRITTEN_OUT, text_of(target, module, "winograd"))
        assert len(found) == (parts if expected else 0)


@pytest.mark.parametrize("depth", [3, 4, 5, 30, 64, 83])
@pytest.mark.parametrize("constant", [True, False])
def test_what_is_left_over_is_summed_in_its_order(depth: int, constant: bool) -> None:
    """Of few steps, of as many as are written out, and of some behind them: the bits of a plain loop."""
    a, b = rand(37, depth), rand(depth, 51)
    inputs, found = [a] if constant else [a, b], []
    for ports in (1, 2):
        target = replace(native(), fma_ports=ports, fma_latency=8 // ports)
        module = module_of(inputs, lambda x, *y: R.matmul(x, *(y or (weight(b),))))
        found.append(Compiled(staged(module, target, tiled=False, exact=True)).run(inputs)[0])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], a.astype("float64") @ b, rtol=1e-4, atol=1e-5)

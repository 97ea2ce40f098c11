"""Layers for the tests of Winograd convolutions: exact results, plans that are forced, facts of a server's core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Suite, native, weight
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd import choose as choose
from halotile.schedules.conv.winograd import plan as winograd_plan
from halotile.schedules.conv.winograd.transform import Transform
from halotile.schedules.words.group import Value
from halotile.targets.fitted import usual
from halotile.targets.target import Target
from tvm import relax

Pads = tuple[int, int, int, int]  # top, left, bottom, right
ONES = (1, 1, 1, 1)


def convolution(
    x: np.ndarray, w: np.ndarray, pads: Pads, dilation: tuple[int, int] = (1, 1), stride: int = 1
) -> np.ndarray:
    """The exact result, in float64."""
    top, left, bottom, right = pads
    down, along = dilation
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    reach = down * (w.shape[2] - 1) + 1, along * (w.shape[3] - 1) + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    taps = windows[:, :, ::stride, ::stride, ::down, ::along]
    return np.einsum("nihwyx,oiyx->nohw", taps, w.astype(np.float64), optimize=True)


def conv(x: Any, w: np.ndarray, pads: Pads = ONES, stride: int = 1) -> Any:
    return relax.op.nn.conv2d(x, weight(w), strides=stride, padding=list(pads))


def random(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def add_strided(suite: Suite, name: str, layer: Any, seed: int) -> None:
    """A layer of (batch, channels in and out, rows and columns, kernel, strides, padding), bias and ReLU."""
    n, cin, cout, size, kernel, strides, pads = layer
    x, b = random((n, cin, *size), seed), random((1, cout, 1, 1), 40 + seed)
    k = random((cout, cin, *kernel), 20 + seed) / np.float32(np.sqrt(cin * np.prod(kernel)))
    exact = convolution(x, k, pads)[:, :, :: strides[0], :: strides[1]] + b

    def body(x: Any) -> Any:
        made = relax.op.nn.conv2d(x, weight(k), strides=list(strides), padding=list(pads))
        return relax.op.nn.relu(made + weight(b))

    suite.add(name, [x], body, np.maximum(exact, 0).astype(np.float32), 0, 1e-4)


def plans_of(transform: Transform, pick: int, parts: bool = False) -> Callable[..., Any]:
    """A choice that takes ``transform`` wherever it fits, else the smallest there is, with strips, groups and register
    tiles that differ; products are those of ``parts`` on the matrix unit."""

    def choice(target: Any, facts: ConvFacts, **_: Any) -> Any:
        able = winograd_plan.all_transforms(winograd_plan.Layer.of(facts)) if choose.applies(facts) else []
        if not able:
            return None
        taken = transform if transform in able else able[-1]
        products = winograd_plan.products_for(taken) if parts else ()
        plans = list(choose._plans(target, winograd_plan.Layer.of(facts), taken, products))
        if facts.plane.dilation == (1, 1):
            plans = [p for p in plans if p.strip > 1 or p.strips == 1]
        return replace(plans[(7 * facts.channels + 5 * facts.outputs + pick) % len(plans)], cycles=0.0)  # beats all

    return choice


def compiled_directly(suite: Suite) -> Suite:
    """``suite``, compiled without Winograd's algorithm: what is meant to test the direct kernels tests these, whatever
    is estimated to be faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_algorithm, "choose_plan", lambda *_, **__: None)
        suite.compile()
    return suite


def facts_of(cin: int, cout: int, h: int, w: int, batch: int = 1, **other: Any) -> ConvFacts:
    """Of a layer with ``h`` x ``w`` outputs."""
    kernel = other.pop("kernel", (3, 3))
    strides = other.pop("strides", (1, 1))
    data = Value("x", (batch, cin, h * strides[0], w * strides[1]), "float32")
    result = Value("y", (batch, cout, h, w), "float32")
    taps = Value("w", (cout, cin // other.get("groups", 1), *kernel), "float32")
    plain = {"dilation": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 1, **other}
    return ConvFacts(data, taps, result, kernel, strides=strides, **plain)


def server(**other: Any) -> Target:
    """A server core's facts, so that choices do not depend on where the tests run."""
    facts = {"vector_bits": 512, "vector_registers": 32, "fma_ports": 2, "fma_latency": 4, "cores": 2}
    caches = {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20, "l3_bytes": 32 << 20, "far_bytes": 10}
    return replace(native(), **{**facts, **caches, "fitted": usual(), **other})

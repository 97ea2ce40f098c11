"""Depthwise convolutions and those of few outputs prefetch rows below their tiles, of images that come from afar."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import halotile
import numpy as np
import onnxruntime
import pytest
from compiled import Compiled, module_of, narrow, staged, weight
from halotile.schedules.conv.direct import depthwise, few_outputs
from halotile.schedules.conv.direct.data_prefetch import prefetch_rows_below
from halotile.schedules.words.group import Kernel
from halotile.targets.target import Target
from tvm import relax

from ..support.open_models import Drawing

R = relax.op
LARGE = replace(narrow(512), l2_bytes=64 << 20, l3_bytes=1 << 30)
SMALL = replace(narrow(512), l2_bytes=16 << 10, l3_bytes=0)
STEPS = [  # down, across, apart, padding
    (1, 1, 1, (1, 1, 1, 1)),
    (2, 1, 1, (0, 2, 1, 0)),
    (1, 2, 1, (1, 1, 1, 1)),
    (2, 2, 2, (2, 2, 2, 2)),
    (4, 1, 1, (0, 0, 0, 0)),
]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def hints(kernel: Kernel) -> int:
    """Prefetches of what will be read, from the second level on."""
    return str(kernel.function).count(", 0, 2, 1)")


def asked(body: Any, x: np.ndarray, target: Target, name: str) -> int:
    """The hints of the kernel whose schedule has ``name``; its numbers are compared."""
    build = staged(module_of([x], body), target, tiled=False)
    plain = staged(module_of([x], body), target, layout=False)
    np.testing.assert_allclose(Compiled(build).run([x])[0], Compiled(plain).run([x])[0], rtol=2e-5, atol=2e-5)
    (kernel,) = [k for k in build.kernels if name in k.schedule]
    return hints(kernel)


@pytest.mark.parametrize(("down", "across", "apart", "pad"), STEPS)
def test_of_few_outputs(down: int, across: int, apart: int, pad: tuple[int, ...]) -> None:
    """A line for each pixel that is read for the first time below a tile of four columns."""
    x, w = normal(2, 40, 23, 37), weight(normal(3, 40, 3, 3))

    def body(x: relax.Expr) -> relax.Expr:
        return R.nn.conv2d(x, w, strides=(down, across), padding=pad, dilation=apart)

    assert asked(body, x, LARGE, "few outputs") == 0
    assert asked(body, x, SMALL, "few outputs") == 4 * min(down, 3) * across


@pytest.mark.parametrize(("down", "across", "apart", "pad"), STEPS)
def test_of_depthwise_layers(down: int, across: int, apart: int, pad: tuple[int, ...]) -> None:
    x, w, first = normal(2, 40, 23, 41), weight(normal(40, 1, 3, 3)), weight(normal(40, 40, 1, 1))

    def body(x: relax.Expr) -> relax.Expr:
        y = R.nn.relu(R.nn.conv2d(x, first))
        return R.nn.relu(R.nn.conv2d(y, w, strides=(down, across), padding=pad, dilation=apart, groups=40))

    assert asked(body, x, LARGE, "depthwise") == 0
    assert asked(body, x, SMALL, "depthwise") > 0


def test_one_multiply_add_for_a_line_is_too_few() -> None:
    """A 1x1 layer with one output multiplies each vector once, and one with two twice."""
    x = normal(2, 40, 23, 37)
    for outputs, wanted in ((1, False), (2, True)):
        w = weight(normal(outputs, 40, 1, 1))
        assert (asked(lambda x: R.nn.conv2d(x, w), x, SMALL, "few outputs") > 0) == wanted  # noqa: B023


def test_vectors_of_half_a_line_ask_for_nothing() -> None:
    x, w = normal(2, 40, 23, 37), weight(normal(2, 40, 3, 3))
    target = replace(narrow(256), l2_bytes=16 << 10, l3_bytes=0)
    assert asked(lambda x: R.nn.conv2d(x, w, padding=1), x, target, "few outputs") == 0


def asked_of(place: ModuleType, asks: list[str], given: tuple[Any, ...]) -> None:
    asks.append(place.__name__)
    prefetch_rows_below(*given)


@pytest.mark.parametrize("threads", [1, 2])
def test_images_of_open_size(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes of open images ask as well, and give the numbers that they give without."""
    g = Drawing(5)
    x = g("Relu", g.conv(g.input("x", "n", 3, "h", "w"), 3, 40, 1))
    x = g("Relu", g("Conv", x, g.drawn(40, 1, 3, 3), pads=[1] * 4, group=40, strides=[1, 2]))
    g.output(g("Conv", x, g.drawn(3, 40, 3, 3), pads=[1] * 4), 4)
    model = g.model()
    asks, built = [], []
    for target in (LARGE, SMALL):
        asks.clear()
        for place in (depthwise, few_outputs):
            monkeypatch.setattr(place, "prefetch_rows_below", lambda *given, own=place: asked_of(own, asks, given))
        built.append(halotile.compile(model, target, threads=threads, tile="off", typical={"h": 60, "w": 80}))
        assert set(asks) == (set() if target is LARGE else {depthwise.__name__, few_outputs.__name__})
    near, far = built
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for n, h, w in ((1, 1, 1), (2, 3, 2), (1, 60, 80), (3, 31, 47)):
        x = np.random.default_rng(h).standard_normal((n, 3, h, w)).astype("float32")
        (wanted,) = session.run(None, {"x": x})
        found = far({"x": x})["y0"]
        assert np.array_equal(found, near({"x": x})["y0"])
        assert np.abs(found - wanted).max() <= 2e-5 * max(1.0, np.abs(wanted).max())

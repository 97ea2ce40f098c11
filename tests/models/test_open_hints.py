"""Winograd's products of open images ask for lines where the images of a run are large, and numbers stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Build, Options
from halotile.targets.resolve import resolve
from halotile.targets.target import Target

from ..support.open_models import Drawing, feeds
from ..support.open_runs import checked

ZEN = replace(resolve("x86_64-linux-gnu+znver4"), l3_bytes=32 << 20)
CLOSE = 3e-5  # of the largest number


def residual(*size: int | str) -> onnx.ModelProto:
    g = Drawing(3)
    x = g("Relu", g.conv(g.input("x", size[0], 3, *size[1:]), 3, 32, 3))
    y = g.conv(g("Relu", g.conv(x, 32, 32, 3)), 32, 32, 3)
    g.output(g("Add", x, y), 4)
    return g.model()


def built(proto: onnx.ModelProto, target: Target, folder: Path | None = None, **given: object) -> Build:
    options = Options(target, threads=1, formats=("so",), tile="off", **given)
    if folder is None:
        options = replace(options, stop_after="schedule")
    return run_pipeline(proto.SerializeToString(), options, output=folder)


def hints(build: Build) -> list[int]:
    """Prefetches in each kernel of Winograd's algorithm."""
    texts = []
    for kernel in build.kernels:
        parts = getattr(kernel, "parts", ()) or (kernel,)
        texts += [part.function.script() for part in parts if part.schedule.startswith("winograd F(6x6")]
    return [text.count("tirx.prefetch") + text.count("T.prefetch") for text in texts]


def test_zen_asks_for_lines_of_its_last_level_and_others_do_not() -> None:
    target = ZEN
    other = replace(target, fitted=resolve("x86-64-v4").fitted)
    for size, many in ((96, False), (240, True)):
        proto = residual(1, size, size)
        near, far = hints(built(proto, other)), hints(built(proto, target))
        assert len(near) == len(far) == 2
        assert all((b > a) == many for a, b in zip(near, far))


def test_open_images_ask_where_they_may_be_large() -> None:
    target = ZEN
    far = hints(built(residual("n", "h", "w"), target, open=True, typical={"n": 1, "h": 96, "w": 96}))
    near = hints(built(residual("n", "h", "w"), target, open=True, typical={"n": 1, "h": 30, "w": 30}))
    assert near and far and min(far) > max(near)


@pytest.mark.parametrize("asked", [2.3, 0.02, 0.001])
def test_numbers_do_not_depend_on_what_is_asked_for(asked: float, tmp_path: Path) -> None:
    """Of sizes around those from which lines are asked for: all of 0.02 second levels and more, or of any."""
    target = resolve("native")
    target = replace(target, fitted=target.fitted.with_values({("winograd", "asked"): asked}))
    proto = residual("n", "h", "w")
    options = Options(target, threads=2, formats=("so",), open=True, typical={"n": 1, "h": 96, "w": 96})
    run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (n, h, w) in enumerate([(1, 1, 1), (2, 9, 7), (1, 13, 12), (3, 17, 19), (1, 40, 31), (1, 97, 131)]):
            given = feeds(proto, {"n": n, "h": h, "w": w}, number)
            checked(library, session, given, CLOSE, (n, h, w))

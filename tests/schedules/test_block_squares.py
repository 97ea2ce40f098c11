"""Plain images of many channels into blocks of them: squares are transposed in registers, and numbers stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.schedules.general.loop_interchange import NOTE
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds
from ..support.open_runs import checked

CLOSE = 3e-5  # of the largest number of an output
TARGETS = ["x86-64-v3", "native"]
SIZES = [(1, 1), (3, 16), (2, 17), (5, 15), (4, 33), (7, 31), (1, 8), (9, 3), (17, 64)]


def drawn(kind: str, channels: int, batch: int | str, height: int | str, width: int | str) -> onnx.ModelProto:
    g = Drawing(channels)
    x = g.input("x", batch, channels, height, width)
    if kind == "sum":
        x = g("Add", x, g.input("z", batch, channels, height, width))
    elif kind == "kept":  # what comes in blocks is read beside it
        x = g("Mul", x, g("Sigmoid", g.conv(x, channels, channels, 3)))
    elif kind == "bias":
        x = g("Mul", x, g.constant(np.linspace(-1, 2, channels, dtype=np.float32).reshape(1, -1, 1, 1)))
    elif kind == "pair":
        x = g("Concat", g("Neg", x), g.input("z", batch, channels, height, width), axis=1)
        channels *= 2
    g.output(g.conv(g("Relu", x) if kind == "plain" else x, channels, 5, 3), 4)
    return g.model()


def compared(proto: onnx.ModelProto, options: Options, folder: Path, sizes: list[dict[str, int]]) -> set[str]:
    """The notes of all kernels, after outputs at ``sizes`` were compared with ONNX Runtime's on one and two threads."""
    build = run_pipeline(proto.SerializeToString(), options, output=folder)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(folder) as library:
        for number, size in enumerate(sizes):
            given = feeds(proto, size, number)
            checked(library, session, given, CLOSE, size)
    return {note for k in build.kernels for note in k.notes}


@pytest.mark.sampled
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind,channels", [("plain", 48), ("sum", 32), ("kept", 16), ("pair", 16), ("bias", 80)])
def test_fixed_images(kind: str, channels: int, size: tuple[int, int], target: str, tmp_path: Path) -> None:
    proto = drawn(kind, channels, 2, *size)
    options = Options(resolve(target), threads=2, formats=("so",), tile="off")
    notes = compared(proto, options, tmp_path / "out", [{}])
    if kind != "pair":  # which of the two is read is a condition
        assert (NOTE in notes) == (size[1] >= resolve(target).lanes("float32"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind,channels", [("plain", 48), ("sum", 32), ("kept", 16), ("pair", 16), ("bias", 80)])
def test_open_images(kind: str, channels: int, target: str, tmp_path: Path) -> None:
    proto = drawn(kind, channels, "n", "h", "w")
    typical = {"n": 1, "h": 40, "w": 40}
    options = Options(resolve(target), threads=2, open=True, formats=("so",), typical=typical)
    sizes = [{"n": 1 + i % 3, "h": h, "w": w} for i, (h, w) in enumerate(SIZES)]
    assert NOTE in compared(proto, options, tmp_path / "out", sizes) or kind == "pair"


@pytest.mark.parametrize("channels", [5, 24, 40])
def test_blocks_that_channels_do_not_fill(channels: int, tmp_path: Path) -> None:
    proto = drawn("plain", channels, "n", "h", "w")
    options = Options(resolve("native"), threads=2, open=True, formats=("so",), typical={"n": 1, "h": 40, "w": 40})
    notes = compared(proto, options, tmp_path / "out", [{"n": 2, "h": h, "w": w} for h, w in SIZES])
    assert (NOTE in notes) == (channels % resolve("native").lanes("float32") == 0)

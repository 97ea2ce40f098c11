"""Images of open size whose results are written past the caches: by kernels of their own, from the pixel on."""

from __future__ import annotations

from dataclasses import replace

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.codegen.streaming import can_stream
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.targets.detect import native
from halotile.targets.resolve import resolve
from halotile.targets.target import Target

from ..support.open_models import Drawing, feeds
from ..support.open_runs import run_in

CLOSE = 3e-5
CHANNELS = 37
PIXELS = 211  # of an image whose results are large: a prime, which no rectangle has
MULTIPLE = 4
NEVER = 1 << 39
here = pytest.mark.skipif(not can_stream(native()), reason="NOT RUN: this machine's vectors are no lines")


def past(target: Target, bytes_: int) -> Target:
    """The same machine, where results of more bytes are written past the caches."""
    return replace(target, fitted=target.fitted.with_values({("memory", "past"): bytes_}))


def layers() -> onnx.ModelProto:
    """Winograd, a residual, a pixel shuffle of whole blocks, and a strided layer."""
    g = Drawing(5)
    x = g("Relu", g.conv(g.input("x", "n", 19, "h", "w"), 19, CHANNELS, 3))
    x = g("Add", g.conv(x, CHANNELS, CHANNELS, 3), x)
    x = g("DepthToSpace", g.conv(x, CHANNELS, 4 * 32, 3), blocksize=2, mode="CRD")
    g.output(g.conv(x, 32, 5, 3, strides=[2, 2]), 4)
    return g.model()


def halves() -> onnx.ModelProto:
    """Layers at half the size of an image: where that is even, all its vectors lie on lines."""
    g = Drawing(6)
    x = g("Relu", g.conv(g.input("x", 1, 16, "h", "w"), 16, 32, 3, strides=[2, 2]))
    g.output(g.conv(g("Relu", g.conv(x, 32, 48, 3)), 48, 16, 3), 4)
    return g.model()


@here
def test_the_same_numbers_on_both_sides_of_the_limit() -> None:
    proto, bytes_ = layers(), 4 * CHANNELS * PIXELS
    typical = {"n": 1, "h": 9, "w": 9}
    built = halotile.compile(proto, past(native(), bytes_), typical=typical, threads=2)
    small = {"x": ("n:1..4", 19, "h:1..64", "w:1..64")}
    plain = halotile.compile(proto, past(native(), NEVER), shapes=small, typical=typical, threads=2)
    notes = [n for k in built.report["kernels"] for n in k["notes"] if "past them" in n]
    transformed = [k for k in built.report["kernels"] if "winograd" in k["schedule"]]  # two or three, by the machine
    assert len(notes) >= max(2, len(transformed))
    assert not [n for k in plain.report["kernels"] for n in k["notes"] if "past them" in n]
    assert built.report["weight_bytes"] == plain.report["weight_bytes"], "large images read the same weights"
    shuffles = [k["schedule"] for k in built.report["kernels"] if "relax.permute_dims" in k["operators"]]
    assert shuffles and all("lanes" in schedule for schedule in shuffles), "whole blocks move, of open images too"
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for number, (n, h, w) in enumerate(
        [(1, 7, 30), (1, 14, 15), (1, 15, 14), (1, 16, 13), (1, 8, 27), (1, 53, 61), (2, 7, 15), (2, 9, 12), (3, 31, 8)]
    ):
        sizes = {"n": n, "h": h, "w": w}
        x = feeds(proto, sizes, number)["x"]
        one, two = (run_in(built._loaded, sizes, x, threads, 0xFF) for threads in (1, 2))
        (wanted,) = session.run(None, {"x": x})
        assert np.array_equal(one, two), sizes
        assert np.abs(one - wanted).max() <= CLOSE * np.abs(wanted).max(), sizes


@pytest.mark.parametrize("multiple", [1, MULTIPLE])
def test_multiples_tell_that_vectors_lie_on_lines(multiple: int) -> None:
    """Whatever machine this is: of an image of any size half is an odd number as well."""
    target = past(resolve("x86-64-v4"), 1 << 16)
    shapes = {"x": (1, 16, f"h:8..4096:{multiple}", f"w:8..4096:{multiple}")}
    build = run_pipeline(halves(), Options(target, shapes=shapes, typical={"h": 64, "w": 64}))
    large = [p for k in build.kernels for p in getattr(k, "parts", ()) if p.large]
    assert len(large) >= 2
    assert len(build.streams) >= len(large), build.streams


@pytest.mark.parametrize("name", ["x86-64-v3", "aarch64"])
def test_no_kernels_for_them_where_nothing_is_written_past_the_caches(name: str) -> None:
    build = run_pipeline(layers(), Options(past(resolve(name), 1 << 10), typical={"n": 1, "h": 9, "w": 9}))
    assert not [p for k in build.kernels for p in getattr(k, "parts", ()) if p.large]


def test_images_of_one_size_are_as_before() -> None:
    """However many there are: their strips are those of the image, and each library would have one kernel more."""
    target = past(resolve("x86-64-v4"), 1 << 10)
    shapes = {"x": ("n", 19, 24, 24)}
    build = run_pipeline(layers(), Options(target, shapes=shapes, typical={"n": 1}))
    assert not [p for k in build.kernels for p in getattr(k, "parts", ()) if p.large]

"""Group convolutions whose groups are no whole vectors: a vector in one group reads the channels of that one alone, and
one that holds several whole groups shuffles their channels."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from compiled import native
from halotile import compile as compile_model
from halotile import load
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.direct.shared_taps import window_of
from halotile.schedules.conv.direct.small_groups import MOST_UNROLLED, choose_grouped_tile, has_small_groups
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.words.group import Value
from onnx import TensorProto, helper, numpy_helper


def model(
    groups: int, inputs: int, outputs: int, kernel: int, size: int = 14, stride: int = 1, apart: int = 1
) -> Any:
    """A convolution (channels in blocks) and a group convolution of ``inputs`` and ``outputs`` channels a group."""
    rng = np.random.default_rng(groups + inputs)
    channels = groups * inputs
    first = rng.standard_normal((channels, 3, 1, 1)).astype("f4")
    second = rng.standard_normal((groups * outputs, inputs, kernel, kernel)).astype("f4") / np.sqrt(
        inputs * kernel
    )
    tensors = [numpy_helper.from_array(first, "a"), numpy_helper.from_array(second.astype("f4"), "b")]
    pads = [kernel // 2 * apart] * 4
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"]),
        helper.make_node(
            "Conv", ["c", "b"], ["y"], group=groups, strides=[stride] * 2, dilations=[apart] * 2, pads=pads
        ),
    ]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, size, size])]
    ends += [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "groups", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


SHAPES = [(4, 17, 68, 1), (4, 34, 34, 3), (3, 20, 20, 1), (8, 48, 12, 1), (2, 8, 24, 3), (5, 7, 33, 1)]


@pytest.mark.parametrize(("groups", "inputs", "outputs", "kernel"), SHAPES)
def test_numbers(groups: int, inputs: int, outputs: int, kernel: int) -> None:
    made = model(groups, inputs, outputs, kernel)
    x = np.random.default_rng(1).standard_normal((2, 3, 14, 14)).astype("f4")
    (wanted,) = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"x": x})
    for threads in (1, 2):
        found = compile_model(made, threads=threads, exact=True)({"x": x})["y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


def chooses(made: Any) -> tuple[bool, bool]:
    """Whether the second convolution's lanes choose what they multiply, and whether that depends on the vector."""
    build = run_pipeline(made, Options(native(), threads=1, tile="off", stop_after="schedule"))
    text = [k for k in build.kernels if k.schedule.startswith("direct")][-1].function.script()
    return re.search(r"\bown\d*\b", text) is not None, "owner" in text


def test_only_where_vectors_differ() -> None:
    lanes = native().lanes("float32")
    assert chooses(model(4, 20, lanes * 4 + lanes // 4, 1)) == (True, True)
    assert chooses(model(4, 20, lanes * 4, 1)) == (False, False)  # every vector lies in one group
    assert chooses(model(8, 20, lanes // 2, 1)) == (True, False)  # every vector holds two


DATA = [("x", (1, 128, 14, 14)), ("w", (128, 4, 3, 3)), ("y", (1, 128, 14, 14))]
SMALL = [(4, 3, 14, 1, 1), (2, 3, 15, 2, 1), (4, 1, 9, 1, 1), (2, 5, 17, 1, 2), (4, 2, 13, 3, 1)]


@pytest.mark.parametrize(("share", "kernel", "size", "stride", "apart"), SMALL)
def test_vectors_of_whole_groups(
    tmp_path: Path, share: int, kernel: int, size: int, stride: int, apart: int
) -> None:
    """Groups of a ``share`` of a vector; the last vector is not full."""
    channels = native().lanes("float32") // share
    if channels < 2:
        pytest.skip("a vector has no groups of several channels")
    made = model(2 * share + 1, channels, channels, kernel, size, stride, apart)
    x = np.random.default_rng(2).standard_normal((2, 3, size, size)).astype("f4")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    build = run_pipeline(made, Options(native(), threads=2, tile="off"), output=tmp_path / "made")
    assert any(k.schedule.startswith("grouped conv") for k in build.kernels)
    found = load(tmp_path / "made", threads=2)({"x": x})["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


def test_columns_share_what_is_shuffled() -> None:
    facts = ConvFacts(*(Value(n, s, "float32") for n, s in DATA), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 32)
    reads = window_of(facts).reads(4)
    assert list(reads) == [0, 1, 2, 3, 4, 5] and reads[2] == [(0, 2), (1, 1), (2, 0)]
    apart = window_of(replace(facts, strides=(2, 2))).reads(2)
    assert apart == {0: [(0, 0)], 1: [(0, 1)], 2: [(0, 2), (1, 0)], 3: [(1, 1)], 4: [(1, 2)]}


def test_only_where_shuffles_pay() -> None:
    target = native()
    lanes = target.lanes("float32")

    def pays(size: int, kernel: int) -> bool:
        image, taps = (1, 4 * lanes, 14, 14), (4 * lanes, size, kernel, kernel)
        values = (Value(n, s, "float32") for n, s in (("x", image), ("w", taps), ("y", image)))
        pads = (kernel // 2,) * 2
        facts = ConvFacts(*values, taps[2:], (1, 1), (1, 1), pads, pads, 4 * lanes // size)
        return has_small_groups(target, facts)

    assert pays(lanes // 2, 3)
    assert not pays(lanes, 3)  # a vector lies in one group
    assert not pays(1, 3)  # depthwise


@pytest.mark.parametrize("taps, columns", [(3, 26), (7, 14)])
def test_what_is_written_out_stays_small(taps: int, columns: int) -> None:
    """LLVM's time grows faster than the multiply-adds of a tile: seven taps of 8 channels by 26 would be 1456."""
    target = replace(native(), vector_bits=512, vector_registers=32, fma_ports=2, fma_latency=4)
    facts: Any = SimpleNamespace(out_spatial=(16384,), kernel=(taps,), group_in=8, strides=(1,), dilation=(1,))
    tile = choose_grouped_tile(target, facts)
    assert tile.columns == columns and taps * 8 * tile.positions <= MOST_UNROLLED

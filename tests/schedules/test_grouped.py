"""Group convolutions whose groups are no whole vectors: a vector in one group reads the channels of that one alone."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnxruntime
import pytest
from compiled import native
from halotile import compile as compile_model
from halotile.compiler.pipeline import Options, run_pipeline
from onnx import TensorProto, helper, numpy_helper


def model(groups: int, inputs: int, outputs: int, kernel: int, size: int = 14) -> Any:
    """A convolution (channels in blocks) and a group convolution of ``inputs`` and ``outputs`` channels a group."""
    rng = np.random.default_rng(groups + inputs)
    channels = groups * inputs
    first = rng.standard_normal((channels, 3, 1, 1)).astype("f4")
    second = rng.standard_normal((groups * outputs, inputs, kernel, kernel)).astype("f4") / np.sqrt(inputs * kernel)
    tensors = [numpy_helper.from_array(first, "a"), numpy_helper.from_array(second.astype("f4"), "b")]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"]),
        helper.make_node("Conv", ["c", "b"], ["y"], group=groups, pads=[kernel // 2] * 4),
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
    (wanted,) = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )
    for threads in (1, 2):
        found = compile_model(made, threads=threads, exact=True)({"x": x})["y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


def open_loops(made: Any) -> int:
    """Loops over channels of the second convolution whose length depends on the vector."""
    build = run_pipeline(made, Options(native(), threads=1, tile="off", stop_after="schedule"))
    kernel = [k for k in build.kernels if k.schedule.startswith("direct")][-1]
    loops = re.findall(r"for (c\d+) in .*?range\((.*)\):", kernel.function.script())
    return sum(any(part.strip("-").isidentifier() for part in re.split(r"[^\w.]+", ends)) for _, ends in loops)


def test_only_where_vectors_differ() -> None:
    lanes = native().lanes("float32")
    assert open_loops(model(4, 20, lanes * 4 + lanes // 4, 1)) == 1
    assert open_loops(model(4, 20, lanes * 4, 1)) == 0  # every vector lies in one group
    assert open_loops(model(8, 4, lanes // 4, 3)) == 0  # every vector holds four

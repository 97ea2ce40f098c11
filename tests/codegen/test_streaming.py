"""Large results go past the caches: the same bits, only what lies on lines in the arena, a fence behind every task."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from halotile.compiler.codegen import streaming
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.targets.detect import native
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(41)
STREAMS = "past them"
here = pytest.mark.skipif(not streaming.can_stream(native()), reason="NOT RUN: this machine's vectors are no lines")


def network(height: int, width: int, channels: int = 37) -> onnx.ModelProto:
    """Winograd, direct, depthwise and strided convolutions, a residual, a pool, a concatenation, odd channels."""
    shapes = {
        "first": (channels, 3, 3, 3), "second": (channels, channels, 3, 3), "point": (61, channels, 1, 1),
        "depth": (channels, 1, 5, 5), "strided": (29, 61, 3, 3), "last": (5, 29 + channels, 3, 3),
    }  # fmt: skip
    initializers = []
    for name, shape in shapes.items():
        weight = RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        initializers.append(numpy_helper.from_array(weight.astype(np.float32), name))
        bias = RANDOM.standard_normal(shape[0]).astype(np.float32)
        initializers.append(numpy_helper.from_array(bias, name + "_bias"))

    def conv(source: str, name: str, result: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node("Conv", [source, name, name + "_bias"], [result], **attributes)

    nodes = [
        conv("x", "first", "a", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        conv("b", "second", "c", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "b"], ["d"]),
        conv("d", "depth", "e", pads=[2, 2, 2, 2], group=channels),
        helper.make_node("Relu", ["e"], ["f"]),
        conv("f", "point", "g"),
        helper.make_node("Relu", ["g"], ["h"]),
        conv("h", "strided", "i", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("MaxPool", ["f"], ["j"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Concat", ["i", "j"], ["k"], axis=1),
        conv("k", "last", "y", pads=[1, 1, 1, 1]),
    ]
    size = [(height + 1) // 2, (width + 1) // 2]
    graph = helper.make_graph(
        nodes, "streams",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, height, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5, *size])],
        initializers,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def all_past(target: Target) -> Target:
    """The same machine, where no result is too small to be written past the caches."""
    return replace(target, fitted=target.fitted.with_values({("memory", "past"): 1}))


def streaming_kernels(report: dict[str, Any]) -> list[str]:
    return [k["name"] for k in report["kernels"] if any(STREAMS in note for note in k["notes"])]


@pytest.mark.sampled
@here
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("optimize", ["speed", "memory"])
def test_same_bits(threads: int, optimize: str) -> None:
    model, x = network(53, 67), RANDOM.standard_normal((2, 3, 53, 67)).astype(np.float32)
    kept = halotile.compile(model, threads=threads, optimize=optimize)
    assert not streaming_kernels(kept.report), "no result of this model is large"
    past = halotile.compile(model, target=all_past(native()), threads=threads, optimize=optimize)
    if optimize == "speed":
        assert len(streaming_kernels(past.report)) >= 5, past.report["kernels"]
    expected = kept({"x": x})["y"]
    assert past.verify().ok
    for _ in range(20):
        assert past({"x": x})["y"].tobytes() == expected.tobytes()


@here
def test_large_results_alone() -> None:
    """With the mark as it is: maps of 72 and 96 MB go past the caches, small ones do not."""
    model = network(443, 443)
    report = halotile.compile(model, tile="off").report
    least = native().fitted.memory.past
    large = {g["name"] for g in report["groups"] if any(np.prod(o["shape"]) * 4 > least for o in g["outputs"])}
    assert large
    assert set(streaming_kernels(report)) <= large
    assert streaming_kernels(report), report["kernels"]


@pytest.mark.parametrize("name", ["x86-64-v3", "aarch64", "raspberry-pi-2-32"])
def test_not_where_it_was_not_measured(name: str) -> None:
    target = all_past(resolve(name))
    assert not streaming.can_stream(target)
    build = run_pipeline(network(21, 23), Options(target))
    assert not build.streams


@pytest.mark.parametrize("least", [1, 2048])
def test_open_sizes_that_may_be_either(least: int) -> None:
    """Where results are large at every size, all kernels write them past the caches; where they may be either, only
    those for large images do. Whatever machine this is."""
    model = network(443, 443)
    for value, names in ((model.graph.input[0], ("h", "w")), (model.graph.output[0], ("a", "b"))):
        for dim, name in zip(value.type.tensor_type.shape.dim[2:], names):
            dim.dim_param = name
    shape = {"x": (2, 3, f"h:{least}..4096:16", f"w:{least}..4096:16")}
    build = run_pipeline(model, Options(resolve("x86-64-v4"), shapes=shape, tile="off"))
    assert build.library is not None and build.library.kernel_objects
    every = [part for kernel in build.kernels for part in getattr(kernel, "parts", None) or [kernel]]
    past = [part for part in every if streaming.ATTRIBUTE in (part.function.attrs or {})]
    assert build.streams and past
    assert all(part.large == (least == 1) for part in past)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="NOT RUN: needs objdump")
def test_each_task_ends_with_a_fence(tmp_path: Path) -> None:
    """Whatever machine this is, code for one whose vectors are lines has the stores, and a fence before each return."""
    target = all_past(resolve("x86-64-v4"))
    assert streaming.can_stream(target)
    build = run_pipeline(network(53, 67), Options(target, tile="off"))
    assert build.library is not None
    assert len(build.streams) >= 5, build.streams
    code = ""
    for i, part in enumerate(build.library.kernel_objects):
        (tmp_path / f"{i}.o").write_bytes(part)
        code += subprocess.run(["objdump", "-d", f"{i}.o"], cwd=tmp_path, capture_output=True, text=True).stdout
    lines = code.split("\n")
    assert sum("vmovntps" in line for line in lines) >= sum(build.streams.values())
    assert sum("sfence" in line for line in lines) >= len(build.streams)
    behind = [line for line in lines if "vmovntps" in line or "sfence" in line or line.endswith("ret")]
    for line, after in zip(behind, behind[1:]):
        assert not ("vmovntps" in line and after.endswith("ret")), "a task ends without a fence"
    assert not any("halotile_stream" in line for line in lines), "calls are inlined"


def test_what_is_read_back_is_stored_as_ever() -> None:
    """A function that reads its own result, one whose vectors are off their lines, and one that does neither."""
    from halotile.schedules.emit.builder import KernelBuilder
    from tvm import IRModule, tirx

    def function(shift: int, reads: bool) -> Any:
        k = KernelBuilder("copy")
        x, y = k.pointer("x", "float32", 4096), k.pointer("y", "float32", 4096)
        with k.loop(64, name="i") as i, k.loop(16, "vectorized", "v") as v:
            at = i * 16 + v + shift
            k.store(y, at, y[at] + x[at] if reads else x[at] + x[at])
        made = k.finish({streaming.ATTRIBUTE: [tirx.IntImm("int32", 1)]})
        return made.with_attrs({"global_symbol": "copy", "calling_conv": 1})

    from halotile.compiler.codegen.objects import build_object

    for shift, reads, expected in ((0, False, 1), (3, False, 0), (0, True, 0)):
        stores: dict[str, int] = {}
        build_object(IRModule({"copy": function(shift, reads)}), resolve("x86-64-v4"), stores)
        assert bool(stores.get("copy")) == bool(expected), (shift, reads, stores)

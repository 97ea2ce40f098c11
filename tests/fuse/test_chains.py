"""Chains of operators that move elements: one kernel holds a few, and a long chain takes no longer for each."""

from __future__ import annotations

import time
from collections.abc import Callable

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.fuse.graph import build_graph
from halotile.schedules.operators.expression_lengths import LONGEST, Lengths
from halotile.schedules.operators.kind import Facts
from halotile.targets.resolve import resolve
from onnx import helper, numpy_helper

SHAPE = (1, 4, 8, 20)
DRAWN = np.random.default_rng(3)


class Chain:
    """Nodes that are written one behind the other."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, values: object, dtype: str = "int64") -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def node(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def sliced(self, x: str, start: int, end: int, axis: int, step: int = 1) -> str:
        return self.node("Slice", x, *(self.constant([v]) for v in (start, end, axis, step)))

    def model(self, *outputs: str) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", 1, SHAPE)
        ends = [helper.make_tensor_value_info(o, 1, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "chain", [x], ends, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


Link = Callable[[Chain, str, int], str]


def gather(c: Chain, x: str, i: int) -> str:
    axis = 2 + i % 2
    return c.node("Gather", x, c.constant(DRAWN.integers(-SHAPE[axis], SHAPE[axis], SHAPE[axis])), axis=axis)


def gather_turned(c: Chain, x: str, i: int) -> str:
    rows = 20 if i % 2 else 8  # after an odd number of links the image lies on its side
    taken = c.node("Gather", x, c.constant(DRAWN.permutation(rows)), axis=2)
    return c.node("Transpose", taken, perm=[0, 1, 3, 2])


def gather_elements(c: Chain, x: str, i: int) -> str:
    return c.node("GatherElements", x, c.constant(DRAWN.integers(0, SHAPE[2 + i % 2], SHAPE)), axis=2 + i % 2)


def gather_at_run_time(c: Chain, x: str, i: int) -> str:
    row = c.node("Reshape", c.sliced(c.sliced(x, 0, 1, 1), i % 8, i % 8 + 1, 2), c.constant([20]))
    return c.node("Gather", x, c.node("Cast", row, to=7), axis=3)


def padded(mode: str, crop: bool) -> Link:
    def link(c: Chain, x: str, i: int) -> str:
        y = c.node("Pad", x, c.constant([0, 0, 1, 1, 0, 0, 1, 0]), mode=mode)
        if not crop:
            return y
        return c.sliced(c.sliced(y, i % 3, i % 3 + 8, 2), 1 - i % 2, 21 - i % 2, 3)

    return link


def tiled(c: Chain, x: str, i: int) -> str:
    axis = 2 + i % 2
    return c.sliced(
        c.node("Tile", x, c.constant([1, 1, 2, 1] if axis == 2 else [1, 1, 1, 2])), 3, 3 + SHAPE[axis], axis
    )


def rolled(c: Chain, x: str, i: int) -> str:
    return c.node("Concat", c.sliced(x, 1 + i % 3, 20, 3), c.sliced(x, 0, 1 + i % 3, 3), axis=3)


def added_to_rolled(c: Chain, x: str, i: int) -> str:
    return c.node("Max", x, rolled(c, x, i))


def turned(c: Chain, x: str, i: int) -> str:
    return c.node("Transpose", c.node("Relu", x), perm=[0, 1, 3, 2])


def reshaped(c: Chain, x: str, i: int) -> str:
    wide = c.node("Reshape", x, c.constant([1, 5, 16, 8]))
    return c.node("Reshape", c.node("Transpose", wide, perm=[0, 3, 1, 2]), c.constant(SHAPE))


def stepped(c: Chain, x: str, i: int) -> str:
    return c.sliced(x, -1, -100, 2 + i % 2, -1)


def resized(mode: str) -> Link:
    def link(c: Chain, x: str, i: int) -> str:
        return c.node("Resize", x, "", "", c.constant([1, 4, 9 - i % 2, 19 + i % 2]), mode=mode)

    return link


def sampled(c: Chain, x: str, i: int) -> str:
    return c.node("GridSample", x, c.constant(DRAWN.uniform(-1, 1, (1, 8, 20, 2)), "float32"))


def shuffled(c: Chain, x: str, i: int) -> str:
    deep = c.node("SpaceToDepth", x, blocksize=2)
    return c.node("DepthToSpace", deep, blocksize=2, mode="CRD")


def compared_with_turned(c: Chain, x: str, i: int) -> str:
    square = c.sliced(x, 0, 8, 3)
    return c.node(
        "Concat",
        c.node("Min", square, c.node("Transpose", square, perm=[0, 1, 3, 2])),
        c.sliced(x, 8, 20, 3),
        axis=3,
    )


LINKS: dict[str, Link] = {
    "gather": gather,
    "gather and transpose": gather_turned,
    "gather elements": gather_elements,
    "gather at run time": gather_at_run_time,
    **{f"pad {mode}": padded(mode, False) for mode in ("constant", "edge", "reflect", "wrap")},
    **{f"pad {mode} and crop": padded(mode, True) for mode in ("constant", "edge", "reflect", "wrap")},
    "tile": tiled,
    "concat": rolled,
    "concat and max": added_to_rolled,
    "transpose": turned,
    "reshape": reshaped,
    "slice": stepped,
    "resize nearest": resized("nearest"),
    "resize linear": resized("linear"),
    "resize cubic": resized("cubic"),
    "grid sample": sampled,
    "depth to space": shuffled,
    "transpose and min": compared_with_turned,
}
MIXED = [
    n
    for n in LINKS
    if n not in ("gather and transpose", "transpose") and "resize" not in n and not n.startswith("pad")
]
MIXED += [n for n in LINKS if n.endswith("crop")]


def mixed(c: Chain, x: str, i: int) -> str:
    return LINKS[MIXED[i % len(MIXED)]](c, x, i)


LINKS["mixed"] = mixed


def chain(name: str, length: int) -> onnx.ModelProto:
    c, x = Chain(), "x"
    for i in range(length):
        x = LINKS[name](c, x, i)
    return c.model(x)


@pytest.mark.parametrize("name", LINKS)
def test_a_chain_is_cut_where_its_expression_would_be_too_long(name: str) -> None:
    """Three are one kernel's work as before; twenty-four took for ever (three times as long for each link and more).
    Untiled: a group of tiles is many kernels, each of which keeps to the limit."""
    began = time.process_time()
    build = run_pipeline(chain(name, 24), Options(target=resolve("x86-64-v4"), tile="off", stop_after="schedule"))
    assert time.process_time() - began < 30
    nodes = [n for group in build.groups for n in group.nodes]
    lengths = Lengths({n: Facts(n) for n in nodes})
    for group in build.groups:
        assert len(group.nodes) == 1 or lengths.of(group.nodes, group.outputs) <= LONGEST


def test_chains_of_moves_give_what_onnx_runtime_gives() -> None:
    c = Chain()
    ends = []
    for name in LINKS:
        x = "x"
        for i in range(len(MIXED) if name == "mixed" else 7):
            x = LINKS[name](c, x, i)
        ends.append(c.node("Identity", x))
    model = c.model(*ends)
    x = DRAWN.uniform(-8, 8, SHAPE).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    results = halotile.compile(model, target="native")({"x": x})
    for name, end, theirs in zip(LINKS, ends, expected):
        np.testing.assert_allclose(
            results[end], theirs, rtol=2e-5, atol=2e-4 if "resize" in name else 1e-5, err_msg=name
        )


def test_known_positions_stand_once_in_an_index() -> None:
    """Those of run time may be negative, or beyond the axis, and are written several times to find out."""
    c = Chain()
    known = c.node("Gather", "x", c.constant([0, -1, 3]), axis=3)
    build = run_pipeline(
        c.model(known, gather_at_run_time(c, "x", 0)),
        Options(target=resolve("x86-64-v4"), stop_after="import"),
    )
    takes = [n for n in build_graph(build.module).nodes if n.operator in ("relax.take", "halotile.gather")]
    one, other = (Lengths({n: Facts(n)}).of([n], n.results) for n in takes)
    assert 2 * one < other

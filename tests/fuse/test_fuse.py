"""Groups: what joins, what stays apart and why, in which order; and random graphs give the same numbers either way."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, staged, weight
from halotile.passes.fuse.fuse import MOST_NODES, Fuse, Fusion
from halotile.passes.fuse.graph import ProgramGraph, build_graph
from halotile.schedules.attention import AttentionFacts, attention_facts
from halotile.schedules.conv import kernel as tile
from halotile.schedules.general import generator as kernels
from halotile.schedules.general import loop_nest, maps
from halotile.schedules.matmul import packed
from halotile.schedules.operators.kind import Facts
from tvm import relax

R = relax.op
F = "float32"
X = np.zeros((1, 8, 6, 6), F)


def conv(x: Any, kernel: int = 3) -> Any:
    """8 channels to 8."""
    return R.nn.conv2d(x, weight(np.ones((8, 8, kernel, kernel), F)), padding=kernel // 2)


def bias(x: Any) -> Any:
    return R.add(x, weight(np.arange(8, dtype=F).reshape(1, 8, 1, 1)))


def fused(body: Callable[..., Any], *arrays: np.ndarray, enabled: bool = True) -> tuple[ProgramGraph, Fusion]:
    """``body`` maps (emit, *inputs) to outputs; ``emit`` names an expression, so that it may be used twice."""
    params = [relax.Var(f"p{i}", relax.TensorType(a.shape, a.dtype.name)) for i, a in enumerate(arrays)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = body(builder.emit, *params)
            made = list(made) if isinstance(made, (list, tuple)) else [made]
            out = builder.emit_output(relax.Tuple([builder.emit(m) for m in made]))
        builder.emit_func_output(out)
    graph = build_graph(builder.get())
    return graph, Fuse(enabled).apply(graph)


def operators(fusion: Fusion) -> list[tuple[str, ...]]:
    return [tuple(o.split(".")[-1] for o in g.operators) for g in fusion.groups]


def test_an_anchor_takes_its_epilogue() -> None:
    _, fusion = fused(lambda emit, x: R.nn.relu(bias(conv(x))), X)
    assert operators(fusion) == [("conv2d", "add", "relu")]
    (group,) = fusion.groups
    assert group.anchor is group.nodes[0]


def test_a_chain_of_any_length_is_cut_into_groups() -> None:
    """One expression of 300 nested sines is deeper than Python recurses."""
    arrays = [np.linspace(-1, 1, X.size, dtype=F).reshape(X.shape)]
    params = [relax.Var("x", relax.TensorType(X.shape, F))]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = params[0]
            for _ in range(300):
                made = builder.emit(R.sin(made))
            out = builder.emit_output(relax.Tuple([made]))
        builder.emit_func_output(out)
    build = staged(builder.get())
    assert [len(g.nodes) for g in build.groups] == [MOST_NODES] * 4 + [300 - 4 * MOST_NODES]
    wanted = arrays[0]
    for _ in range(300):
        wanted = np.sin(wanted)
    np.testing.assert_allclose(Compiled(build).run(arrays)[0], wanted, rtol=1e-4, atol=1e-6)


def test_a_residual_joins_the_later_convolution() -> None:
    def block(emit: Any, x: Any) -> Any:
        first = emit(bias(conv(x)))
        shortcut = emit(conv(x, kernel=1))
        return R.nn.relu(R.add(first, shortcut))

    _, fusion = fused(block, X)
    assert operators(fusion) == [("conv2d", "add"), ("conv2d", "add", "relu")]
    first, second = fusion.groups
    assert first.outputs[0] in second.inputs


def test_a_value_that_is_read_twice_is_written_once() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(R.nn.relu(conv(x)))
        return [conv(y), conv(y, kernel=1)]

    graph, fusion = fused(body, X)
    assert operators(fusion) == [("conv2d", "relu"), ("conv2d",), ("conv2d",)]
    written = [v for g in fusion.groups for v in g.outputs]
    assert len(written) == len(set(written)) == 3


def test_a_map_that_leaves_the_model_ends_its_group() -> None:
    """It must be plain, which the rest of its group need not be."""

    def body(emit: Any, x: Any) -> Any:
        y = emit(R.nn.relu(x))
        return [y, R.sigmoid(y)]

    graph, fusion = fused(body, X)
    assert operators(fusion) == [("relu",), ("sigmoid",)]
    assert set(graph.outputs) <= {v for g in fusion.groups for v in g.outputs}


def test_a_reduction_takes_its_prologue_and_epilogue() -> None:
    _, fusion = fused(lambda emit, x: R.sqrt(R.sum(R.exp(R.negative(x)), axis=(2, 3))), X)
    assert operators(fusion) == [("negative", "exp", "sum", "sqrt")]


def test_maps_with_nothing_between_are_one_group() -> None:
    _, fusion = fused(lambda emit, x, y: R.sigmoid(R.multiply(R.add(x, y), R.negative(y))), X, X)
    assert len(fusion.groups) == 1


def test_nothing_costly_is_computed_twice() -> None:
    """An exp that is broadcast into 36 times its elements is written first."""
    small = np.zeros((1, 8, 1, 1), F)
    _, fusion = fused(lambda emit, x, s: R.multiply(x, R.exp(s)), X, small)
    assert sorted(operators(fusion)) == [("exp",), ("multiply",)]


def test_a_stencil_takes_no_costly_prologue() -> None:
    _, fusion = fused(lambda emit, x: R.nn.max_pool2d(R.exp(x), (3, 3), padding=(1, 1)), X)
    assert operators(fusion) == [("exp",), ("max_pool2d",)]


def test_what_reads_other_elements_stays_apart_and_says_so() -> None:
    _, fusion = fused(lambda emit, x: R.flip(conv(x), 3), X)
    assert operators(fusion) == [("conv2d",), ("flip",)]
    assert any("flip" in note and "other elements" in note for note in fusion.groups[0].notes)


def test_views_are_no_groups() -> None:
    graph, fusion = fused(lambda emit, x: R.negative(R.reshape(R.squeeze(R.nn.relu(x), [0]), (48, 6))), X)
    assert len(fusion.views) == 2
    assert all("reshape" not in name and "squeeze" not in name for g in fusion.groups for name in g.operators)
    for value, base in fusion.views.items():
        assert value.elements == base.elements


def test_disabled_every_node_is_a_group() -> None:
    graph, fusion = fused(lambda emit, x: R.nn.relu(bias(conv(x))), X, enabled=False)
    assert operators(fusion) == [("conv2d",), ("add",), ("relu",)]


def test_a_node_with_several_outputs_takes_no_epilogue() -> None:
    _, fusion = fused(lambda emit, x: [R.nn.relu(p) for p in _split(emit, x)], X)
    assert operators(fusion)[0] == ("split",) and len(fusion.groups) == 3


def _split(emit: Any, x: Any) -> list[Any]:
    parts = emit(R.split(x, 2, axis=1))
    return [relax.TupleGetItem(parts, i) for i in range(2)]


# -- random graphs -------------------------------------------------------------------------------------------------

SHAPE = (2, 4, 5, 6)
Step = Callable[[random.Random, list[Any]], Any]


def keep(x: Any, axes: tuple[int, ...], op: Any) -> Any:
    return op(x, axis=axes, keepdims=True)


MAPS: list[Step] = [
    lambda r, v: R.tanh(r.choice(v)),
    lambda r, v: R.nn.relu(r.choice(v)),
    lambda r, v: R.add(r.choice(v), r.choice(v)),
    lambda r, v: R.multiply(r.choice(v), R.sigmoid(r.choice(v))),
    lambda r, v: R.maximum(r.choice(v), weight(np.linspace(-1, 1, 6, dtype=F))),
    lambda r, v: R.flip(r.choice(v), r.randrange(4)),
    lambda r, v: R.subtract(r.choice(v), keep(r.choice(v), r.choice([(1,), (2, 3), (3,), (0,)]), R.mean)),
    lambda r, v: R.nn.softmax(r.choice(v), r.randrange(4)),
    lambda r, v: R.nn.max_pool2d(r.choice(v), (3, 3), padding=(1, 1)),
    lambda r, v: R.reshape(R.reshape(r.choice(v), (8, 30)), SHAPE),
    lambda r, v: R.permute_dims(R.reshape(R.permute_dims(r.choice(v), (3, 2, 1, 0)), (6, 5, 4, 2)), (3, 2, 1, 0)),
    lambda r, v: R.divide(r.choice(v), R.add(keep(R.abs(r.choice(v)), (1, 2, 3), R.max), weight(np.float32(1)))),
    lambda r, v: R.strided_slice(R.concat([r.choice(v), r.choice(v)], 1), [1], [2], [6]),
    lambda r, v: R.nn.conv2d(r.choice(v), weight(np.full((4, 4, 3, 3), 0.05, F)), padding=(1, 1)),
    lambda r, v: R.nn.conv2d(r.choice(v), weight(np.full((4, 1, 3, 3), 0.1, F)), padding=(1, 1), groups=4),
    lambda r, v: R.where(R.greater(r.choice(v), r.choice(v)), r.choice(v), R.negative(r.choice(v))),
    lambda r, v: R.subtract(r.choice(v), R.reshape(R.sum(r.choice(v), axis=(1, 3)), (2, 1, 5, 1))),
    lambda r, v: R.nn.layer_norm(r.choice(v), weight(np.ones(6, F)), weight(np.zeros(6, F)), axes=[3]),
    lambda r, v: R.nn.avg_pool2d(r.choice(v), (2, 3), padding=(1, 1, 0, 1)),
    lambda r, v: R.reshape(R.matmul(R.reshape(r.choice(v), (2, 20, 6)), weight(np.full((6, 6), 0.1, F))), SHAPE),
    lambda r, v: R.matmul(R.nn.softmax(R.matmul(r.choice(v), R.permute_dims(r.choice(v), (0, 1, 3, 2))), -1), v[-1]),
    lambda r, v: R.add(r.choice(v), R.astype(R.argmax(r.choice(v), axis=1, keepdims=True), F)),
    lambda r, v: R.concat([R.strided_slice(r.choice(v), [1], [i], [i + 2]) for i in (2, 0)], 1),
    lambda r, v: R.nn.pad(R.strided_slice(r.choice(v), [2, 3], [1, 1], [4, 5]), [0, 0, 0, 0, 1, 1, 1, 1]),
]


def random_body(seed: int) -> Callable[..., Any]:
    def body(emit: Any, *inputs: Any) -> list[Any]:
        rng, values = random.Random(seed), list(inputs)
        for _ in range(rng.randint(4, 14)):
            values.append(emit(rng.choice(MAPS)(rng, values[-5:])))
        return [values[-1], *rng.sample(values, 2)]

    return body


def random_module(seed: int) -> Any:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", relax.TensorType(SHAPE, F)) for i in range(2)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(relax.Tuple(random_body(seed)(builder.emit, *params)))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_are_well_formed(seed: int) -> None:
    """Every node once, every value written before it is read and by one group, every output written."""
    graph = build_graph(random_module(seed))
    fusion = Fuse().apply(graph)
    facts = {node: Facts(node) for node in graph.nodes}
    grouped = [n for g in fusion.groups for n in g.nodes]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {n for n in graph.nodes if n.results[0] not in fusion.views}
    assert all(facts[n].kind == "view" for n in graph.nodes if n not in grouped)
    known = {*graph.inputs}

    def is_known(value: Any) -> bool:
        while value in fusion.views:
            value = fusion.views[value]
        return value.constant is not None or value in known

    for group in fusion.groups:
        assert all(is_known(v) for v in group.inputs), f"{group.name} reads what is not written yet"
        assert not known & set(group.outputs)
        known |= set(group.outputs)
        anchors = [n for n in group.nodes if facts[n].kind in ("anchor", "stencil", "opaque")]
        assert len(anchors) <= 1 or isinstance(attention_facts(group), AttentionFacts)
        assert [graph.nodes.index(n) for n in group.nodes] == sorted(graph.nodes.index(n) for n in group.nodes)
    assert all(is_known(v) for v in graph.outputs)


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_give_the_same_numbers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fused, in channel blocks and, every other time, with a launch wherever one can be; or none of that: the same up
    to rounding, and never more kernels."""
    random_ = np.random.default_rng(seed)
    arrays = [random_.standard_normal(SHAPE).astype(F) for _ in range(2)]
    with monkeypatch.context() as patch:
        if seed % 2:
            for room in (loop_nest, maps, kernels):
                patch.setattr(room, "PARALLEL_WORK", 32)
            for room in (tile, packed):
                patch.setattr(room, "PARALLEL_FLOPS", 32)
        whole = staged(random_module(seed))
    plain = staged(random_module(seed), fuse=False, layout=False)
    assert len(Fuse().apply(build_graph(random_module(seed))).groups) <= len(plain.groups)
    for a, b in zip(Compiled(whole).run(arrays), Compiled(plain).run(arrays), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-5)


@pytest.mark.parametrize(("function", "joined"), [(R.sin, False), (R.cos, False), (R.tanh, True)])
@pytest.mark.parametrize("moved", [False, True])
def test_functions_of_many_constants_stay_out_of_products(function: Any, joined: bool, moved: bool) -> None:
    """Their constants would push the sums out of the vector registers, which took three times as long."""

    def body(emit: Any, x: Any, w: Any) -> Any:
        product = emit(R.add(emit(R.matmul(x, w)), weight(np.ones(16, F))))
        return emit(function(emit(R.reshape(product, (4, 8, 16))) if moved else product))

    _, fusion = fused(body, np.zeros((32, 16), F), np.zeros((16, 16), F))
    names = [n.operator for g in fusion.groups for n in g.nodes if n.operator not in ("relax.reshape",)]
    assert len(names) == 3
    assert len(fusion.groups) == (1 if joined else 2)
    if not joined and not moved:
        assert any("registers of the product's sums" in note for g in fusion.groups for note in g.notes)

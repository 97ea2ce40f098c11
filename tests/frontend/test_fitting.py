"""Multiples that fit wherever a condition binds one dimension alone, in refusals and in what inspection tells."""

from __future__ import annotations

import numpy as np
import pytest
from halotile.compiler.api import compile as halotile_compile
from halotile.compiler.frontend.fitting import MULTIPLES, with_fitting
from halotile.compiler.frontend.together import holds
from halotile.compiler.inspection import inspect_file
from halotile.compiler.spec import Condition, Symbol
from halotile.errors import RunError
from halotile.schedules.words.dims import Dim, maximum
from onnx import TensorProto, helper, numpy_helper

H, W = Dim.symbol("h", 1), Dim.symbol("w", 1)
SYMBOLS = (Symbol("h", 1, None, 1, 224), Symbol("w", 1, 4096, 4, 64))


def up(dim: Dim, by: int) -> Dim:
    return (dim + by - 1) // by


@pytest.mark.parametrize(
    ("conditions", "h", "w"),
    [
        ([Condition(2 * up(H, 32), "is", up(H, 16))], 32, 0),
        ([Condition(2 * up(H, 32), "is", up(H, 16)), Condition(up(H, 48) * 3, "is", up(H, 16))], 96, 0),
        ([Condition(4 * up(W, 4), "is", W)], 0, 4),  # it is one already
        ([Condition(W % 24, "is", 0), Condition(H % 5, "is", 0)], 5, 24),
        ([Condition(H + W, "at most", 512)], 0, 0),  # both together
        ([Condition(H, "at most", 512)], 0, 0),  # no multiple without an end is
        ([Condition(W // 8, "at least", 3)], 0, 24),
        ([Condition(up(H, 6), "is 1 or", 7 * up(H, 42))], 42, 0),
        ([Condition(H * H, "is", 2 * H)], 0, 0),
        ([Condition(maximum(H - 7, 0) + 7, "is", H)], 7, 0),
        ([Condition(up(H, 2000) * 2000, "is", H)], 0, 0),  # beyond those that are tried
    ],
)
def test_the_least_number_whose_multiples_do(conditions: list[Condition], h: int, w: int) -> None:
    found = {c.fits for c in with_fitting(conditions, SYMBOLS) if c.fits}
    assert found == {f"any multiple of {n} fits as {name}" for name, n in (("h", h), ("w", w)) if n}
    sizes = {"h": 224, "w": 64}
    for symbol, m in zip(SYMBOLS, (h, w)):
        own = [c for c in conditions if str(c.left).count(symbol.name) or str(c.right).count(symbol.name)]
        for n in range(m, (symbol.high or 3000) + 1, m) if m else ():
            assert all(holds(c, {**sizes, symbol.name: n}) for c in own)
        smaller = [s for s in MULTIPLES if s < m and s % symbol.multiple == 0]
        for other in smaller if m else ():
            multiples = range(other, (symbol.high or 3000) + 1, other)
            assert not all(holds(c, {**sizes, symbol.name: n}) for n in multiples for c in own)


def test_a_refusal_and_inspection_say_which_sizes_do() -> None:
    """Half the size, rounded up twice, enlarged twice, and added to what was there."""
    kernel = numpy_helper.from_array(np.ones((4, 4, 3, 3), np.float32), "k")
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    ways = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"], **ways),
        helper.make_node("Conv", ["a", "k"], ["b"], **ways),
        helper.make_node("Resize", ["b", "", "scales"], ["c"], mode="nearest"),
        helper.make_node("Add", ["a", "c"], ["y"], name="join"),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, "h", "w"])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "halves", [given], [made], [kernel, scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    needs = inspect_file(model)["conditions"]
    assert len(needs) == 2 and all("any multiple of 4 fits as" in line for line in needs)
    with halotile_compile(model, typical={"h": 8, "w": 8}) as built:
        assert built(np.ones((1, 4, 12, 4), np.float32)).shape == (1, 4, 6, 2)
        with pytest.raises(RunError, match=r"any multiple of 4 fits as h \(.*\)?") as caught:
            built(np.ones((1, 4, 9, 8), np.float32))
        assert "\n" not in str(caught.value)

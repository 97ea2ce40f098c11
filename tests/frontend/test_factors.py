"""Products of sizes: what is known of a polynomial that is one, and what follows where it is not zero."""

from __future__ import annotations

import random

import numpy as np
from exports import Raw
from halotile.compiler.frontend import import_model
from halotile.compiler.frontend.implied import at
from halotile.compiler.spec import Condition
from halotile.schedules.words.dims import Dim, bounds, floor_div
from halotile.schedules.words.factors import factors_of
from halotile.schedules.words.sizes import known_limits
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

INFINITY = float("inf")


def test_bounds_of_products() -> None:
    h, w, n = Dim.symbol("h", 4), Dim.symbol("w", 9), Dim.symbol("n", 1)
    assert bounds((h - 4) * (w - 8)) == (0, INFINITY)
    assert bounds((h - 4) * (w - 8) + 7) == (7, INFINITY)
    assert bounds(n * h * w - n * w * 4) == (0, INFINITY)
    assert bounds((floor_div(h + 1, 5) - 1) * (w - 9) * 3) == (0, INFINITY)
    assert bounds(-((h - 4) * (w - 8)) + 5) == (-INFINITY, 5)
    assert bounds((h - 5) * (w - 8))[0] == -INFINITY
    assert factors_of((h * h - h * 8 + 16).terms) is None and factors_of((h + w).terms) is None


def test_bounds_of_random_products_hold() -> None:
    rng, checked = random.Random(0), 0
    for _ in range(400):
        h, w = Dim.symbol("h", rng.randint(0, 5)), Dim.symbol("w", rng.randint(0, 5), rng.choice([INFINITY, 20]))
        one = h * rng.choice([1, 2, -3]) + rng.randint(-6, 6)
        other = floor_div(w + rng.randint(0, 4), rng.choice([1, 2, 3])) * rng.choice([1, 5, -1]) + rng.randint(-4, 4)
        value = one * other + rng.randint(-9, 9)
        value = value * rng.choice([1, h, w]) if isinstance(value, Dim) else value
        low, high = bounds(value)
        checked += isinstance(value, Dim) and not low == -high == -INFINITY
        sizes = [{"h": a, "w": b} for a in range(5, 14) for b in range(5, 14)]
        assert all(low <= at(value, s) <= high for s in sizes)
    assert checked > 100


def test_conditions_that_differ_by_a_number_are_one() -> None:
    rows = Dim.symbol("h") * Dim.symbol("w")
    limits = known_limits([
        Condition(rows + 4, "at least", 7), Condition(rows + 16, "at least", 18), Condition(rows - 1, "at most", 90),
        Condition(Dim.symbol("h") + 1, "at least", 5),
    ])  # fmt: skip
    assert limits == ((rows, 3, 91),)


def test_rows_of_an_image_as_a_sequence() -> None:
    """Windows behind windows over (h - 4) (w - 8) rows: nothing to be checked, since both factors are counts."""
    g = Raw(17)
    x = g("Conv", g.input("x", (1, 1, "h", "w")), g.weight(2, 1, 5, 9))
    x = g("Reshape", g("Transpose", x, perm=[0, 2, 3, 1]), g.const([1, -1, 2]))
    x = g("Transpose", x, perm=[0, 2, 1])
    for dilation in (1, 2, 4, 8):
        x = g("Conv", x, g.weight(2, 2, 3), dilations=[dilation], pads=[dilation, dilation])
    infos = [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)]
    model = helper.make_model(
        helper.make_graph(g.nodes, "rows", g.inputs, infos, g.weights), opset_imports=[helper.make_opsetid("", 17)]
    )
    imported = import_model(model, symbolic=True)
    assert [(s.name, s.low) for s in imported.symbols] == [("h", 5), ("w", 9)] and not imported.conditions
    shape = imported.outputs[0].shape
    assert [at(d, {"h": 7, "w": 11}) for d in shape] == [1, 2, 9]
    reference = ReferenceEvaluator(model)
    assert list(reference.run(None, {"x": np.zeros((1, 1, 7, 11), "float32")})[0].shape) == [1, 2, 9]

"""What a model implies of its open dimensions: bounds, multiples, sums of others, and the node that asks for each."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from exports import END, Raw
from halotile.compiler.frontend import import_model
from halotile.compiler.frontend.importer import ImportedModel
from halotile.errors import ShapeError
from onnx import TensorProto, helper


def finished(g: Raw, *outputs: str, element: int = TensorProto.FLOAT) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(o, element, None) for o in outputs]
    graph = helper.make_graph(g.nodes, "open", g.inputs, infos, g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=8)


def learned(model: onnx.ModelProto, **shapes: tuple) -> ImportedModel:
    return import_model(model, shapes or None, True)


def runs(model: onnx.ModelProto, **shapes: tuple[int, ...]) -> bool:
    """Whether ONNX Runtime runs the model with inputs of these shapes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    kinds = {i.name: np.int64 if "int64" in i.type else np.float32 for i in session.get_inputs()}
    try:
        session.run(None, {n: np.zeros(s, kinds[n]) for n, s in shapes.items()})
    except Exception:
        return False
    return True


def u_net(levels: int) -> onnx.ModelProto:
    """Convolutions that halve, and upsampling with a skip at every level."""
    g = Raw(17)
    x = g.input("x", (1, 2, "h", "w"))
    skips = []
    for _ in range(levels):
        skips.append(x)
        x = g("Conv", x, g.weight(2, 2, 3, 3), pads=[1] * 4)
        x = g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    for skip in reversed(skips):
        x = g("Resize", x, "", g.f([1, 1, 2, 2]), mode="nearest", coordinate_transformation_mode="asymmetric",
              nearest_mode="floor")  # fmt: skip
        x = g("Conv", g("Concat", x, skip, axis=1), g.weight(2, 4, 1, 1))
    return finished(g, x)


@pytest.mark.parametrize("levels", [1, 3])
def test_skips_around_halvings_ask_for_multiples(levels: int) -> None:
    model = u_net(levels)
    imported = learned(model)
    assert [(s.name, s.multiple) for s in imported.symbols] == [("h", 2**levels), ("w", 2**levels)]
    assert not imported.conditions and "(Concat) can't run otherwise" in imported.symbols[0].why[-1]
    assert [str(d) for d in imported.outputs[0].shape] == ["1", "2", "h", "w"]
    for size in range(2**levels, 2 ** (levels + 1) + 1):
        allowed = size % 2**levels == 0
        assert runs(model, x=(1, 2, size, 2 ** (levels + 1))) == allowed


def test_a_stride_with_padding_asks_for_a_multiple() -> None:
    """(h - 1) // 2 + 1 doubled is h where h is even."""
    g = Raw(17)
    x = g.input("x", (1, 2, "h", 8))
    half = g("Conv", x, g.weight(2, 2, 3, 3), pads=[1] * 4, strides=[2, 1])
    twice = g("ConvTranspose", half, g.weight(2, 2, 2, 1), strides=[2, 1])
    imported = learned(finished(g, g("Add", x, twice)))
    assert [(s.name, s.low, s.multiple) for s in imported.symbols] == [("h", 2, 2)] and not imported.conditions


def test_a_view_in_windows_asks_for_a_multiple() -> None:
    g = Raw(17)
    x = g.input("x", ("b", "n", 6))
    windows = g.view(x, g.size(x, 0), g("Div", g.size(x, 1), g.const(7)), 7, 6)
    model = finished(g, g("Relu", windows))
    imported = learned(model)
    assert [(s.name, s.multiple) for s in imported.symbols] == [("b", 1), ("n", 7)]
    assert [str(d) for d in imported.outputs[0].shape] == ["b", "(n // 7)", "7", "6"]
    assert [runs(model, x=(2, n, 6)) for n in (7, 13, 14)] == [True, False, True]


def test_a_users_multiple_is_kept() -> None:
    imported = learned(u_net(2), h=("48..:6",))
    assert [(s.name, s.low, s.multiple) for s in imported.symbols] == [("h", 48, 12), ("w", 4, 4)]


def test_a_position_table_bounds_a_length() -> None:
    g = Raw(17)
    x = g.input("x", ("b", "n", 4))
    table = g.weight(1, 512, 4)
    model = finished(g, g("Add", x, g.slice(table, 1, 0, g.unsqueeze(g.size(x, 1), 0))))
    imported = learned(model)
    assert [(s.name, s.high) for s in imported.symbols] == [("b", None), ("n", 512)]
    assert "at most 512, since node '/Add_" in imported.symbols[1].why[0]
    assert [runs(model, x=(2, n, 4)) for n in (512, 513)] == [True, False]


def test_positions_that_are_counted_bound_a_length() -> None:
    g = Raw(17)
    ids = g.input("ids", ("b", "n"), TensorProto.INT64)
    places = g("Range", g.const(0), g.size(ids, 1), g.const(1))
    model = finished(g, g("Add", g("Gather", g.weight(50, 4), ids), g("Gather", g.weight(64, 4), places)))
    imported = learned(model)
    assert [(s.name, s.high) for s in imported.symbols] == [("b", None), ("n", 64)]
    assert "(Gather)" in imported.symbols[1].why[0]
    assert [runs(model, ids=(2, n)) for n in (64, 65)] == [True, False]
    with pytest.raises(ShapeError, match=r"'n' would have to be from 65 to 70, as asked for, and at most 64"):
        learned(model, n=("65..70",))


def test_positions_behind_a_cache_bound_a_sum() -> None:
    """Positions past, past + 1, ... past + n - 1 of a table of 64: no symbol says so, but a condition."""
    g = Raw(17)
    x, cache = g.input("x", (1, "n", 4)), g.input("cache", (1, "past", 4))
    first = g.size(cache, 1)
    places = g("Range", first, g("Add", first, g.size(x, 1)), g.const(1))
    imported = learned(finished(g, g("Add", x, g("Gather", g.weight(64, 4), places))))
    assert [(s.name, s.high) for s in imported.symbols] == [("n", None), ("past", None)]
    assert [(str(c.left), c.relation, c.right) for c in imported.conditions] == [("n + past", "at most", 64)]


def test_a_mask_is_as_long_as_cache_and_tokens_together() -> None:
    g = Raw(17)
    x, cache, mask = g.input("x", ("b", "n", 4)), g.input("cache", ("b", "past", 4)), g.input("mask", ("b", "total"))
    keys = g("Concat", cache, x, axis=1)
    model = finished(g, g("Add", keys, g.unsqueeze(mask, 2)))
    imported = learned(model)
    assert [s.name for s in imported.symbols] == ["b", "n", "past"]
    assert [str(d) for d in imported.inputs[2].shape] == ["b", "n + past"]
    assert runs(model, x=(2, 3, 4), cache=(2, 4, 4), mask=(2, 7))
    assert not runs(model, x=(2, 3, 4), cache=(2, 4, 4), mask=(2, 6))
    bounded = learned(model, total=("..9",))
    assert [(str(c.left), c.relation, c.right) for c in bounded.conditions] == [("n + past", "at most", 9)]


def test_a_name_that_is_an_expression_is_one() -> None:
    """Exporters write so; what uses names that no dimension has is a name like any other."""
    g = Raw(17)
    x, cache = g.input("x", ("b", "seq_len", 4)), g.input("cache", ("b", "past_len", 4))
    mask = g.input("mask", ("b", "past_len + seq_len", "2*(seq_len // 2) + 1", "other + 1"))
    imported = learned(finished(g, g("Relu", x), g("Relu", cache), g("Relu", mask)))
    assert [s.name for s in imported.symbols] == ["b", "seq_len", "past_len", "other + 1"]
    assert [str(d) for d in imported.inputs[2].shape[1:3]] == ["past_len + seq_len", "2*(seq_len // 2) + 1"]
    alone = import_model(finished(g, g("Relu", mask)), {"seq_len": (5,), "past_len": (3,)}, True)
    assert [i.name for i in alone.inputs] == ["mask"] and alone.inputs[0].shape[1:3] == (8, 5)
    shapes = {"x": (1, 5, 4), "cache": (1, 3, 4), "other + 1": (2,)}
    assert import_model(finished(g, g("Relu", mask)), shapes).inputs[0].shape == (1, 8, 5, 2)


def test_what_no_symbol_expresses_is_a_condition() -> None:
    g = Raw(17)
    x = g.input("x", (1, "h", 2))
    quarter = g.slice(g.slice(x, 1, 0, END, 2), 1, 0, END, 2)
    pairs = g.view(quarter, 1, g("Div", g.size(quarter, 1), g.const(2)), 2, 2)
    imported = learned(finished(g, g("Relu", pairs)))
    (condition,) = imported.conditions
    sides = str(condition.left), condition.relation, str(condition.right)
    assert sides == ("2*((h + 3) // 8)", "is", "((h + 3) // 4)")
    assert imported.symbols[0].multiple == 1


def test_a_number_beside_an_open_dimension_is_a_condition() -> None:
    g = Raw(17)
    x = g.input("x", ("n", 3))
    model = finished(g, g("Add", x, g.weight(7, 3)))
    (condition,) = learned(model).conditions
    assert (str(condition.left), condition.relation, condition.right) == ("n", "is 1 or", 7)
    assert [runs(model, x=(n, 3)) for n in (1, 3, 7)] == [True, False, True]
    assert learned(model, n=("2..",)).inputs[0].shape == (7, 3)  # not 1, so 7


def test_an_input_stays_for_its_size_alone() -> None:
    g = Raw(17)
    x, like = g.input("x", (4,)), g.input("like", ("n", 3))
    model = finished(g, g("Expand", x, g("Concat", g.unsqueeze(g.size(like, 0), 0), g.const([4]), axis=0)))
    imported = learned(model)
    assert [i.name for i in imported.inputs] == ["x", "like"] and [s.name for s in imported.symbols] == ["n"]
    assert [i.name for i in import_model(model, {"n": (5,)}).inputs] == ["x"]


def test_typical_sizes_go_together() -> None:
    from halotile.compiler.frontend.together import going_together
    from halotile.compiler.spec import Condition, Symbol
    from halotile.schedules.words.dims import Dim

    n, past, new, total = (Dim.symbol(x) for x in ("n", "past", "new", "total"))
    symbols = tuple(Symbol(x, 0, None, 1, size) for x, size in (("n", 128), ("past", 128), ("new", 1), ("total", 128)))
    conditions = [Condition(n, "is 1 or", 3), Condition(total, "is", past + new), Condition(new, "at most", 7)]
    found = going_together(symbols, conditions, {"n", "past", "new", "total"})
    assert [s.typical for s in found] == [3, 128, 1, 129]
    kept = going_together(symbols, conditions, {"past", "total"})  # nobody may change n
    assert [s.typical for s in kept] == [128, 128, 1, 128]
    bounded = (Symbol("n", 4, 64, 4, 64), *symbols[1:])
    assert [s.typical for s in going_together(bounded, [Condition(n, "is", 2 * past - 4)], {"n"})][0] == 64
    chained = [Condition(n * past, "is", 15), Condition(past * new, "is", 20), Condition(new * total, "is", 24)]
    found = going_together(symbols, chained, {"n", "past", "new", "total"})
    assert [s.typical for s in found] == [3, 5, 4, 6]
    assert going_together(symbols, [*chained, Condition(n, "at least", 4)], {"n", "past", "new", "total"}) == symbols


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes", "same"),
    [
        ("ScatterElements", [("n", 9), ("k", 9), ("u", 9)], {"axis": 0}, {"u": "k"}),
        ("ScatterND", [("n", 9), ("k", 1), ("u", 9)], {}, {"u": "k"}),
        ("GatherND", [("n", 4, 9), ("k", 2, 1)], {"batch_dims": 1}, {"k": "n"}),
        ("LSTM", [("t", "n", 5), (1, 12, 5), (1, 12, 3), (1, 24), ("u",), (1, "v", 3)], {"hidden_size": 3},
         {"u": "n", "v": "n"}),
        ("GRU", [("t", "n", "w"), (1, 9, 5), (1, 9, 3)], {"hidden_size": 3}, {"w": "5"}),
        ("Col2Im", [("n", 12, "k"), (5, 5), (2, 3)], {}, {"k": "12"}),
    ],
)  # fmt: skip
def test_what_is_read_beside_each_other_is_as_long(operator, shapes, attributes, same) -> None:
    """Sizes of other names could else reach outside of a tensor."""
    g = Raw(18)
    whole = operator in ("ScatterElements", "ScatterND", "GatherND")
    names = []
    for i, shape in enumerate(shapes):
        if operator == "Col2Im" and i:
            names.append(g.const(shape))
        elif all(isinstance(d, int) for d in shape):
            names.append(g.weight(*shape))
        else:
            positions = TensorProto.INT64 if whole else TensorProto.INT32
            element = positions if (whole and i == 1) or (operator == "LSTM" and i == 4) else TensorProto.FLOAT
            names.append(g.input(f"i{i}", shape, element))
    imported = learned(finished(g, g(operator, *names, **attributes)))
    known = {n: str(d) for i in imported.inputs for n, d in zip(shapes[int(i.name[1:])], i.shape)}
    assert all(known[a] == known.get(b, b) for a, b in same.items()), known


def test_positions_beside_data_are_no_more_than_these() -> None:
    g = Raw(17)
    y = g("GatherElements", g.input("x", ("n", 4)), g.input("i", ("k", 3), TensorProto.INT64), axis=1)
    (condition,) = learned(finished(g, y)).conditions
    assert sorted(str(condition.left).split()) == ["+", "-1*k", "n"] or "n - 1*k" in str(condition.left)
    assert (condition.relation, condition.right) == ("at least", 0)


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_the_largest_of_none_is_none(operator: str) -> None:
    g = Raw(17)
    x = g.input("x", ("b", "n"))
    model = finished(g, g(operator, x, axis=1), element=TensorProto.INT64)
    (n,) = [s for s in learned(model).symbols if s.name == "n"]
    assert n.low == 1 and runs(model, x=(2, 1)) and not runs(model, x=(2, 0)) and runs(model, x=(0, 3))

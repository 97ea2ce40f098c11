"""Models imported with open dimensions: what is folded, what is learned, what is refused and how that is said."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx
import pytest
from exports import Raw
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError
from onnx import TensorProto, helper


def operators(model: onnx.ModelProto) -> tuple[Counter[str], tuple[str, ...], list[str]]:
    """The operators written, the notes, and the shapes of the outputs as text."""
    imported = import_model(model, symbolic=True)
    block = imported.module["main"].body.blocks[0]
    found = Counter(b.value.op.name for b in block.bindings if hasattr(b.value, "op"))
    return found, imported.notes, [", ".join(map(str, o.shape)) for o in imported.outputs]


def finished(g: Raw, *outputs: str, element: int = TensorProto.FLOAT) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(o, element, None) for o in outputs]
    graph = helper.make_graph(g.nodes, "open", g.inputs, infos, g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=8)


def test_a_view_by_another_inputs_batch_makes_both_one() -> None:
    g = Raw(17)
    x, other = g.input("x", ("b", 3, 4)), g.input("z", ("b2", 5))
    y = g("MatMul", g.view(x, g.size(other, 0), 12), g.weight(12, 5))
    found, notes, shapes = operators(finished(g, g("Add", y, other)))
    assert found == {"relax.reshape": 1, "relax.matmul": 1, "relax.add": 1}
    assert any("'b2' is taken to be b" in n or "'b' is taken to be b2" in n for n in notes)
    assert shapes in (["b, 5"], ["b2, 5"])


def test_weights_fix_a_dimension() -> None:
    g = Raw(17)
    x = g.input("x", ("b", "k"))
    _, notes, shapes = operators(finished(g, g("MatMul", x, g.weight(4, 5))))
    assert shapes == ["b, 5"] and any("'k' is taken to be 4" in n for n in notes)


def test_joined_tensors_share_their_other_dimensions() -> None:
    g = Raw(17)
    x, z = g.input("x", ("b", "n", 3)), g.input("z", ("c", "m", 3))
    _, notes, shapes = operators(finished(g, g("Concat", x, z, axis=1)))
    assert shapes in (["b, m + n, 3"], ["c, m + n, 3"]) and sum("taken to be" in n for n in notes) == 1


def test_an_element_that_is_read_must_exist() -> None:
    g = Raw(17)
    x = g.input("x", ("b", "n", 3))
    _, notes, shapes = operators(finished(g, g("Gather", x, g.const(2), axis=1), g("Gather", x, g.const(-1), axis=1)))
    assert shapes == ["b, 3", "b, 3"] and any("'n' is at least 3" in n for n in notes)


def test_names_that_stand_beside_each_other_are_one() -> None:
    """Where one of them is 1 in some run, it is to be given that number."""
    g = Raw(17)
    x, z = g.input("x", ("a", 3)), g.input("z", ("b", 3))
    _, notes, shapes = operators(finished(g, g("Add", x, z)))
    assert shapes == ["a, 3"] and any("'b' is taken to be a, beside which it stands; fix" in n for n in notes)


@pytest.mark.parametrize(
    ("operator", "names", "shapes", "attributes", "expected"),
    [
        ("Pow", ["a n", "c m"], [], {}, "a, n"),
        ("Where", ["a n", "a n", "m"], [], {}, "a, n"),
        ("Gemm", ["a k", "l m", "o"], [], {}, "a, m"),
        ("PRelu", ["a n k", "l"], [], {}, "a, n, k"),
        ("Einsum", ["a n k", "c m l"], [], {"equation": "ank,amk->anm"}, "a, n, m"),
        ("InstanceNormalization", ["a c h"], [(6,), (6,)], {}, "a, 6, h"),
        ("ConvTranspose", ["a c h"], [(6, 4, 3)], {"strides": [3]}, "a, 4, 3*h"),
        ("DepthToSpace", ["a c h w"], [], {"blocksize": 2}, "a, (c // 4), 2*h, 2*w"),
        ("GridSample", ["a 3 h w", "c p q r"], [], {}, "a, 3, p, q"),
    ],
)
def test_what_operands_must_agree_in_is_learned(
    operator: str, names: list[str], shapes: list[tuple[int, ...]], attributes: dict[str, Any], expected: str
) -> None:
    """The names that are given differ; where weights have a number, it is that."""
    g = Raw(17)
    dims = [[int(d) if d.isdigit() else d for d in n.split()] for n in names]
    operands = [g.input(f"x{k}", tuple(d), TensorProto.BOOL if operator == "Where" and not k else TensorProto.FLOAT)
                for k, d in enumerate(dims)]  # fmt: skip
    _, _, found = operators(finished(g, g(operator, *operands, *(g.weight(*s) for s in shapes), **attributes)))
    assert found == [expected]


def test_pieces_of_an_open_axis_make_it_up() -> None:
    g = Raw(18)
    parts = g("Split", g.input("x", ("n", 3)), axis=0, num_outputs=3, outputs=3)
    _, _, shapes = operators(finished(g, *parts))
    assert shapes[0] == "((n + 2) // 3), 3"


def test_a_number_beside_a_name_gives_the_number() -> None:
    g = Raw(17)
    x = g.input("x", ("n", 3))
    found, _, shapes = operators(finished(g, g("Add", x, g.weight(7, 3))))
    assert shapes == ["7, 3"] and found == {"relax.broadcast_to": 1, "relax.add": 1}


@pytest.mark.parametrize(("dimension", "taken"), [(-1, "Neg"), (3, "Abs")])
def test_a_condition_that_holds_for_every_length_is_taken(dimension: int, taken: str) -> None:
    """A dimension is never -1; the last one is 3."""
    g = Raw(17)
    x = g.input("x", ("n", 3))
    part = {
        name: helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [onnx.ValueInfoProto(name=name)])
        for name, op in (("else_branch", "Neg"), ("then_branch", "Abs"))
    }
    asked = g.size(x, 0) if dimension == -1 else g.size(x, 1)
    found, _, _ = operators(finished(g, g("If", g("Equal", asked, g.const(dimension)), **part)))
    assert found == {{"Neg": "relax.negative", "Abs": "relax.abs"}[taken]: 1}


def test_a_condition_that_depends_on_the_length_is_refused() -> None:
    g = Raw(17)
    x = g.input("x", ("n", 3))
    part = helper.make_graph([helper.make_node("Abs", ["x"], ["p"])], "p", [], [onnx.ValueInfoProto(name="p")])
    both = helper.make_node("Concat", ["x", "x"], ["p"], axis=1)
    other = helper.make_graph([both], "q", [], [onnx.ValueInfoProto(name="p")])
    y = g("If", g("Equal", g.size(x, 0), g.const(1)), then_branch=part, else_branch=other)
    with pytest.raises(UnsupportedError, match="If"):
        operators(finished(g, y))


def test_squeeze_without_axes_leaves_dimensions_that_are_longer_than_one() -> None:
    """At 1 the rank would be another: a build for that size says so."""
    g = Raw(17)
    model = finished(g, g("Squeeze", g.input("x", ("n", 1, "m", 3))))
    assert operators(model)[2] == ["n, m, 3"]
    assert bounds_of(model)["n"][:2] == bounds_of(model)["m"][:2] == (2, None)
    assert "would be dropped at 1" in bounds_of(model)["n"][2]
    fixed = import_model(model, {"n": (1,)}, True).outputs[0].shape
    assert len(fixed) == 2 and fixed[1] == 3


def test_squeeze_without_axes_of_what_is_one_at_most_is_refused() -> None:
    g = Raw(17)
    x = g("Slice", g.input("x", ("n", 3)), g.const([0]), g.const([1]), g.const([0]))
    with pytest.raises(UnsupportedError, match="an open dimension of .* may be one"):
        operators(finished(g, g("Squeeze", x)))


def test_a_local_function_computes_shapes() -> None:
    g = Raw(17)
    x = g.input("x", ("b", 6, "n"))
    body = [
        helper.make_node("Shape", ["v"], ["s"], start=0, end=1),
        helper.make_node("Constant", [], ["rest"], value_ints=[2, 3, -1]),
        helper.make_node("Concat", ["s", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["v", "t"], ["o"]),
    ]
    split = helper.make_function("own", "Split2", ["v"], ["o"], body, [helper.make_opsetid("", 17)])
    model = finished(g, g("Split2", x, domain="own"))
    model.functions.append(split)
    model.opset_import.append(helper.make_opsetid("own", 1))
    found, _, shapes = operators(model)
    assert found == {"relax.reshape": 1} and shapes == ["b, 2, 3, n"]


def test_leftovers_of_training_go() -> None:
    g = Raw(17)
    x = g.input("x", ("b", 4))
    y, _ = g("Dropout", g("Identity", x), g.f(0.3), outputs=2)
    assert operators(finished(g, g("Relu", y)))[0] == {"relax.nn.relu": 1}


def test_a_shape_that_is_an_output_becomes_a_tensor() -> None:
    g = Raw(17)
    x = g.input("x", ("b", 3, "n"))
    half = g("Div", g("Add", g("Shape", x), g.const(1)), g.const(2))
    found, _, shapes = operators(finished(g, half, element=TensorProto.INT64))
    assert found == {"relax.shape_to_tensor": 1} and shapes == ["3"]


def test_old_interpolation_scales_floats_of_the_shape() -> None:
    """Shape -> Cast -> Mul -> Floor -> Cast -> Concat -> Resize, twice as large and back to the size of another map."""
    g = Raw(12)
    x = g.input("x", ("b", 3, "h", "w"))
    sizes = []
    for axis in (2, 3):
        wide = g("Mul", g("Cast", g.size(x, axis), to=TensorProto.FLOAT), g.f(2.0))
        sizes.append(g.unsqueeze(g("Cast", g("Floor", wide), to=TensorProto.INT64), 0))
    shape = g("Concat", g.slice(g("Shape", x), 0, 0, 2), *sizes, axis=0)
    modes = {"coordinate_transformation_mode": "asymmetric", "mode": "nearest", "nearest_mode": "floor"}
    empty = g.const([], "float32")
    found, _, shapes = operators(finished(g, g("Resize", x, empty, empty, shape, **modes)))
    assert found == {"halotile.upsample": 1} and shapes == ["b, 3, 2*h, 2*w"]


def test_a_float_factor_that_rounds_is_left_to_run_time() -> None:
    g = Raw(17)
    x = g.input("x", ("b", "n"))
    wide = g("Mul", g("Cast", g.size(x, 1), to=TensorProto.FLOAT), g.f(1.7))
    end = g.unsqueeze(g("Cast", g("Floor", wide), to=TensorProto.INT64), 0)
    with pytest.raises(UnsupportedError, match="are open, and others depend on the data"):
        operators(finished(g, g.slice(x, 1, 0, end)))


def test_an_empty_input_may_have_open_dimensions() -> None:
    g = Raw(17)
    count, inputs, outputs = operators(finished(g, g("Relu", g.input("x", (0, "n")))))
    assert outputs == ["0, n"]


def test_no_value_of_a_dimension_can_satisfy_both() -> None:
    g = Raw(17)
    x = g.input("x", ("b", "n"))
    y = g("MatMul", x, g.weight(4, 5))
    with pytest.raises(UnsupportedError, match="do not fit together|is not"):
        operators(finished(g, y, g("MatMul", x, g.weight(6, 5))))


def test_the_same_model_with_numbers_is_what_it_was() -> None:
    g = Raw(17)
    x = g.input("x", (2, 3, 8))
    y = g.view(x, g.size(x, 0), g("Div", g.size(x, 2), g.const(2)), -1)
    model = finished(g, y)
    fixed = import_model(model).outputs
    assert fixed == import_model(model, symbolic=True).outputs
    assert fixed[0].shape == (2, 4, 6) and all(type(d) is int for d in fixed[0].shape)


@pytest.mark.parametrize(("kernel", "step", "pads"), [(3, 2, 0), (2, 2, 0), (3, 2, 1), (5, 3, 2), (3, 1, 1)])
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_pools_that_round_up_have_as_many_windows_as_of_every_fixed_length(
    operator: str, kernel: int, step: int, pads: int
) -> None:
    def shapes(length: str | int) -> list[str]:
        g = Raw(17)
        x = g.input("x", (1, 3, length, 9))
        y = g(operator, x, kernel_shape=[kernel] * 2, strides=[step] * 2, pads=[pads] * 4, ceil_mode=1)
        return operators(finished(g, y))[2][0].split(", ")

    found = shapes("h")
    for length in range(kernel, kernel + 9):
        fixed = shapes(length)
        assert [eval(d, {"h": length}) for d in found] == list(map(int, fixed))


def test_a_pool_that_rounds_up_and_may_end_in_its_padding_is_refused() -> None:
    g = Raw(17)
    y = g("MaxPool", g.input("x", (1, 3, "h", 9)), kernel_shape=[2, 2], strides=[3, 3], ceil_mode=1)
    with pytest.raises(UnsupportedError, match="ceil_mode over open dimensions"):
        operators(finished(g, y))


def bounds_of(model: onnx.ModelProto) -> dict[str, tuple[int, int | None, str]]:
    return {s.name: (s.low, s.high, " ".join(s.why)) for s in import_model(model, symbolic=True).symbols}


@pytest.mark.parametrize(
    ("operator", "given", "least"),
    [
        ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}, 2),
        ("AveragePool", {"kernel_shape": [7, 5], "pads": [1, 1, 2, 2]}, 4),
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, 2),
        ("MaxPool", {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}, 1),
        ("MaxPool", {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}, 0),
        ("Conv", {"kernel_shape": [3, 3], "dilations": [2, 2]}, 5),
    ],
)
def test_a_window_fits(operator: str, given: dict[str, object], least: int) -> None:
    """Since none lies outside of the image, of which the result would have no sensible number of rows."""
    g = Raw(19)
    x = g.input("x", (1, 3, "h", 9))
    weights = [g.weight(4, 3, 3, 3)] if operator == "Conv" else []
    low, high, why = bounds_of(finished(g, g(operator, x, *weights, **given)))["h"]
    assert (low, high) == (least, None) and ("for a window to fit" in why) == (least > 0)


def test_an_axis_that_is_squeezed_is_one_long() -> None:
    """Which bounds the height of rows of text: 15 is too little, and 80 makes two rows of what is read."""
    g = Raw(17)
    x = g("MaxPool", g.input("x", (1, 8, "h", "w")), kernel_shape=[8, 2], strides=[32, 2])
    y = g("Squeeze", x, g.const([2]))
    found, _, shapes = operators(finished(g, y))
    known = bounds_of(finished(g, y))
    assert shapes == ["1, 8, (w // 2)"] and known["h"][:2] == (8, 39) and known["w"][:2] == (2, None)
    assert found["relax.strided_slice"] == 0


def test_an_axis_that_two_dimensions_make_is_squeezed_under_a_condition() -> None:
    g = Raw(17)
    y = g("Squeeze", g("Reshape", g.input("x", ("a", "b", 3)), g.const([-1, 3])), g.const([0]))
    imported = import_model(finished(g, y), symbolic=True)
    assert imported.outputs[0].shape == (3,)
    assert [(str(c.left), c.relation, str(c.right)) for c in imported.conditions] == [("a*b", "is", "1")]


def test_a_length_that_is_clamped_is_bounded_through_the_clamp() -> None:
    g = Raw(17)
    x = g.input("x", (1, 8, "t"))
    y = g("MaxPool", x, kernel_shape=[4], auto_pad="SAME_UPPER", strides=[4])
    y = g("Slice", y, g.const([0]), g.const([5]), g.const([2]))  # min(5, (t + 3) // 4)
    low, high, _ = bounds_of(finished(g, g("Reshape", y, g.const([1, 8, 3]))))["t"]
    assert (low, high) == (9, 12)


def test_a_crop_to_the_result_of_another_window() -> None:
    """The end is h - 3, of which an image that is smaller would make another position."""
    g = Raw(17)
    x = g.input("x", (1, 3, "h", 20))
    a, b = g("Conv", x, g.weight(4, 3, 5, 5)), g("Conv", x, g.weight(4, 3, 3, 3))
    end = g("Add", g("Unsqueeze", g.size(a, 2), g.const([0])), g.const([1]))
    y = g("Slice", b, g.const([1]), end, g.const([2]))
    assert operators(finished(g, y))[2] == ["1, 4, h - 4, 18"]


def squeezed_where_one(g: Raw, x: str, axis: int, negated: bool = False) -> str:
    """x.squeeze(axis) as exporters write it where the length is not known."""
    one = g("Equal", g.size(x, axis), g.const(1))
    condition = g("Cast", g("Not", one), to=TensorProto.BOOL) if negated else one
    axes = helper.make_node("Constant", [], ["axes"], value_ints=[axis])
    squeezed = [axes, helper.make_node("Squeeze", [x, "axes"], ["p"])]
    yes = helper.make_graph(squeezed, "yes", [], [onnx.ValueInfoProto(name="p")])
    no = helper.make_graph([helper.make_node("Identity", [x], ["q"])], "no", [], [onnx.ValueInfoProto(name="q")])
    branches = {"then_branch": no if negated else yes, "else_branch": yes if negated else no}
    return str(g("If", condition, **branches))


@pytest.mark.parametrize("negated", [False, True])
def test_an_axis_that_is_squeezed_where_it_is_one_is_so_at_every_size(negated: bool) -> None:
    g = Raw(17)
    x = g("Conv", g.input("x", ("n", 1, "t")), g.weight(8, 1, 256), strides=[128])
    y = squeezed_where_one(g, x, 2, negated)
    model = finished(g, g("Gemm", y, g.weight(8, 5)))
    assert operators(model)[2] == ["n, 5"]
    assert bounds_of(model)["t"][:2] == (256, 383) and "If" in bounds_of(model)["t"][2]


def test_a_dimension_that_is_asked_for_itself_is_not_fixed_in_silence() -> None:
    g = Raw(17)
    x = g.input("x", ("n", 8))
    with pytest.raises(UnsupportedError, match="depends on whether 'n' is 1; fix 'n' with --shape n="):
        operators(finished(g, g("Relu", squeezed_where_one(g, x, 0))))


def test_branches_of_one_form_stay_two() -> None:
    """What a dimension decides is computed where both branches give the same shape."""
    g = Raw(17)
    x = g.input("x", ("n", 8))
    parts = [
        helper.make_graph([helper.make_node(o, [x], ["p"])], o, [], [onnx.ValueInfoProto(name="p")])
        for o in ("Abs", "Neg")
    ]
    y = g("If", g("Equal", g.size(x, 0), g.const(1)), then_branch=parts[0], else_branch=parts[1])
    found, _, shapes = operators(finished(g, y))
    assert found["relax.where"] == 1 and shapes == ["n, 8"]


def test_a_bound_of_a_slice_counts_from_the_front() -> None:
    """Where the length would make it negative, it would mean another place."""
    g = Raw(17)
    x = g.input("x", ("h", 4))
    end = g("Sub", g("Mul", g("Unsqueeze", g.size(x, 0), g.const([0])), g.const([2])), g.const([1]))
    model = finished(g, g("Slice", g.weight(40, 4), g.const([0]), end, g.const([0])), x)
    assert bounds_of(model)["h"][0] == 1 and operators(model)[2][0] == "min(2*h - 1, 40), 4"


@pytest.mark.parametrize("form", ["left over", "divided", "remainder"])
def test_what_is_divided_by_is_not_zero(form: str) -> None:
    """Else the arena's bytes could not be told at the size 0: each symbol of a product is at least 1."""
    g = Raw(17)
    x, z = g.input("x", ("b", "n", 12)), g.input("z", ("c", "d", 5))
    if form == "left over":
        y = g.view(x, g.size(z, 0), g.size(z, 1), -1)
    else:
        many = g("Mul", g.size(z, 0), g.size(z, 1))
        length = g("Div", g("Mul", g.size(x, 1), g.const(7)), many)
        if form == "remainder":
            length = g("Add", g("Mod", g.size(x, 1), many), g.const(1))
        shape = g("Concat", g.const([1]), g.unsqueeze(length, 0), g.const([12]), axis=0)
        y = g("Expand", g("ReduceSum", x, g.const([1]), keepdims=1), shape)
    known = bounds_of(finished(g, y))
    assert (known["c"][0], known["d"][0], known["n"][0]) == (1, 1, 0)
    assert "by which is divided" in known["c"][2] and not known["n"][2]


def test_a_place_behind_a_prefix_lies_in_the_table() -> None:
    """table[past : past + 1] is one row in every run that succeeds, and so the prefix is shorter than the table."""
    g = Raw(17)
    x, key = g.input("x", ("b", 1, 8)), g.input("key", ("b", 2, "past", 4))
    past = g.unsqueeze(g.size(key, 2), 0)
    place = g("Slice", g.weight(20, 8), past, g("Add", past, g.const([1])), g.const([0]))
    y = g.view(g("Add", x, place), g.size(x, 0), 1, 2, 4)
    _, _, shapes = operators(finished(g, g("Concat", key, g("Transpose", y, perm=[0, 2, 1, 3]), axis=2)))
    assert shapes == ["b, 2, past + 1, 4"]
    assert bounds_of(finished(g, y))["past"][:2] == (0, 19)

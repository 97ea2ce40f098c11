"""Each place where TVM's own importer is silently wrong, and its neighbours, against ONNX Runtime."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from evaluate import agree, evaluate, one_node, peer
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(7)


def noise(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("sizes", [(9, 13), (3, 4)])
def test_resize_at_scales_that_are_no_integers(coordinate: str, mode: str, sizes: tuple[int, int]) -> None:
    x = noise(1, 2, 5, 7)
    agree(
        "Resize", [x, None, None, np.array([1, 2, *sizes], "int64")],
        mode=mode, coordinate_transformation_mode=coordinate, atol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("scale", [2.0, 1.5, 0.75])
def test_resize_nearest_rounding(rounding: str, scale: float) -> None:
    scales = np.array([1, 1, scale, scale], "float32")
    agree("Resize", [noise(1, 3, 8, 6), None, scales], mode="nearest", nearest_mode=rounding)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [0, 1])
def test_resize_antialiased(mode: str, exclude: int) -> None:
    if mode == "linear" and exclude:
        exclude = 0  # ONNX gives exclude_outside to cubic and antialiasing alike; ONNX Runtime only to cubic
    scales = np.array([1, 1, 0.45, 0.6], "float32")
    agree(
        "Resize", [noise(1, 2, 11, 13), None, scales],
        mode=mode, antialias=1, exclude_outside=exclude, atol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_region_of_interest_leaves_the_size_that_scales_give(mode: str) -> None:
    roi, scales = (np.array(v, "float32") for v in ([0, 0, 0.2, 0.2, 1, 1, 0.6, 1.4], [1, 1, 2, 1.3]))
    agree("Resize", [noise(1, 1, 6, 5), roi, scales], mode=mode,
          coordinate_transformation_mode="tf_crop_and_resize", atol=1e-4)  # fmt: skip


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller", "stretch"])
@pytest.mark.parametrize("axes", [[-2, -1], [-1, -2], [-1], [0, -1]])
def test_negative_axes_keep_the_aspect_ratio_too(axes: list[int], policy: str) -> None:
    """ONNX Runtime forgets them: the size is that of ONNX's shape inference, values those of axes from the front."""
    x, sizes = noise(1, 2, 4, 6), np.array([7, 9][: len(axes)], "int64")
    results = []
    for given in (axes, [a % 4 for a in axes]):
        model, feeds = one_node("Resize", [x, None, None, sizes], axes=given, keep_aspect_ratio_policy=policy)
        (y,) = evaluate(model, feeds).values()
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output[0].type.tensor_type.shape
        assert y.shape == tuple(d.dim_value for d in inferred.dim)
        results.append(y)
    np.testing.assert_array_equal(*results)


def test_resize_crop_and_extrapolate() -> None:
    roi = np.array([0, 0, 0.4, -0.2, 1, 1, 1.2, 0.7], "float32")
    agree(
        "Resize", [noise(1, 1, 6, 6), roi, None, np.array([1, 1, 5, 4], "int64")],
        mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.5, atol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_image_without_elements_is_resized(mode: str) -> None:
    """Along an empty axis, whose length divided another, and beside one."""
    for shape in ((1, 2, 0, 4), (0, 2, 3, 4)):
        agree("Resize", [noise(*shape), None, np.array([1, 1, 2, 0.5], "float32")], mode=mode)
        model, _ = one_node("Resize", [noise(*shape), None, None, np.array([*shape[:2], 6, 2])], mode=mode)
        if 0 in shape[2:]:
            with pytest.raises(UnsupportedError, match="there is nothing of which 6"):
                import_model(model)
    agree("Upsample", [noise(1, 2, 0, 4), np.array([1, 1, 2, 2], "float32")], opset=9, mode="nearest")


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_resize_keeps_the_aspect_ratio(policy: str) -> None:
    sizes = np.array([7, 9], "int64")
    agree(
        "Resize", [noise(1, 1, 4, 6), None, None, sizes], axes=[2, 3], mode="linear",
        keep_aspect_ratio_policy=policy, atol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("output", [(10, 8), (9, 7)])
def test_conv_transpose_with_output_shape(auto_pad: str, output: tuple[int, int]) -> None:
    agree(
        "ConvTranspose", [noise(1, 3, 5, 4), noise(3, 2, 3, 3)],
        strides=[2, 2], output_shape=list(output), auto_pad=auto_pad,
    )  # fmt: skip


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_a_transposed_convolution_longer_than_its_full_result_ends_in_zeros(auto_pad: str) -> None:
    agree(
        "ConvTranspose", [noise(1, 3, 5, 4), noise(3, 2, 1, 2)],
        strides=[3, 4], output_shape=[15, 16], auto_pad=auto_pad,
    )  # fmt: skip


CONV_TRANSPOSED = [
    dict(strides=[2, 2], pads=[1, 0, 0, 1], output_padding=[1, 0]),
    dict(strides=[3, 2], dilations=[2, 1], group=2),
    dict(strides=[2, 2], dilations=[2, 2], pads=[1, 1, 2, 0]),
    dict(strides=[4, 3], dilations=[2, 3]),
    dict(strides=[3, 4], dilations=[2, 6], output_padding=[2, 3]),
]


@pytest.mark.parametrize("attributes", CONV_TRANSPOSED, ids=str)
def test_conv_transpose(attributes: dict) -> None:
    groups = attributes.get("group", 1)
    agree("ConvTranspose", [noise(2, 4, 5, 6), noise(4, 3, 3, 2), noise(3 * groups)], **attributes)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("size", [7, 8])
def test_pooling_same(operator: str, auto_pad: str, size: int) -> None:
    x = noise(1, 2, size, size) - 5  # negative, so that a border of zeros would show
    agree(operator, [x], auto_pad=auto_pad, kernel_shape=[3, 2], strides=[2, 3])


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("size", [6, 7, 9])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
def test_average_pool_ceil_mode(include: int, size: int, pads: list[int]) -> None:
    agree(
        "AveragePool", [noise(1, 2, size, size)], kernel_shape=[3, 3], strides=[2, 2], pads=pads, ceil_mode=1,
        count_include_pad=include,
    )  # fmt: skip


def test_ceil_mode_drops_a_window_that_starts_in_the_padding() -> None:
    # size 4, pads 1 and 1, window 1, step 4: a second window would start at 4, beyond the tensor
    (y,) = agree("MaxPool", [noise(1, 1, 4)], kernel_shape=[1], strides=[4], pads=[0, 0], ceil_mode=1)
    assert y.shape == (1, 1, 1)


def test_max_pool_indices_and_dilation() -> None:
    agree("MaxPool", [noise(2, 3, 9, 8)], 2, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])
    agree("MaxPool", [noise(1, 2, 12, 12)], kernel_shape=[3, 3], dilations=[2, 3])


@pytest.mark.parametrize("positive,negative", [(1, 0), (0, 1), (1, 1), (0, 0)])
def test_is_inf_signs(positive: int, negative: int) -> None:
    x = np.array([1, np.inf, -np.inf, np.nan], "float32")
    model, feeds = one_node("IsInf", [x], detect_positive=positive, detect_negative=negative)
    expected = [False, bool(positive), bool(negative), False]
    assert evaluate(model, feeds)["o0"].tolist() == expected


def test_space_to_depth_in_both_orders() -> None:
    x = noise(1, 2, 4, 6)
    blocks = x.reshape(1, 2, 2, 2, 3, 2)
    for mode, order in (("DCR", (0, 3, 5, 1, 2, 4)), ("CRD", (0, 1, 3, 5, 2, 4))):
        opset = 28 if mode == "CRD" else 13
        attributes = {"mode": mode} if mode == "CRD" else {}
        model, feeds = one_node("SpaceToDepth", [x], opset=opset, blocksize=2, **attributes)
        expected = blocks.transpose(order).reshape(1, 8, 2, 3)
        np.testing.assert_array_equal(evaluate(model, feeds)["o0"], expected)


def test_depth_to_space_in_both_orders() -> None:
    for mode in ("DCR", "CRD"):
        agree("DepthToSpace", [noise(1, 8, 2, 3)], blocksize=2, mode=mode)


@pytest.mark.parametrize(
    "operator,expected",
    [
        ("ReduceSum", 0.0), ("ReduceMean", 0.0), ("ReduceProd", 1.0), ("ReduceMax", -np.inf), ("ReduceMin", np.inf),
        ("ReduceL1", 0.0), ("ReduceL2", 0.0), ("ReduceSumSquare", 0.0), ("ReduceLogSum", -np.inf),
        ("ReduceLogSumExp", -np.inf),
    ],
)  # fmt: skip
def test_reductions_over_empty_sets(operator: str, expected: float) -> None:
    opset = 20 if operator in ("ReduceMax", "ReduceMin") else 18
    axes = np.array([1], "int64")
    model, feeds = one_node(operator, [np.empty((2, 0, 3), "float32"), axes], opset=opset)
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], np.full((2, 1, 3), expected, "float32"))


def test_names_are_kept_exactly() -> None:
    x = helper.make_tensor_value_info("in.put/0", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("out put:1", TensorProto.FLOAT, [2])
    node = helper.make_node("Neg", ["in.put/0"], ["out put:1"])
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]))
    imported = import_model(model)
    assert [i.name for i in imported.inputs] == ["in.put/0"]
    assert [o.name for o in imported.outputs] == ["out put:1"]


@pytest.mark.parametrize("operator", ["Max", "Min", "Clip", "Relu", "ReduceMax", "ReduceMin"])
def test_nan_is_kept(operator: str) -> None:
    x = np.array([[np.nan, 1, -2], [3, np.nan, 7]], "float32")
    other = np.zeros((2, 3), "float32")
    inputs = {
        "Max": [x, other], "Min": [other, x], "Clip": [x, np.float32(-1), np.float32(5)], "Relu": [x],
        "ReduceMax": [x], "ReduceMin": [x],
    }[operator]  # fmt: skip
    model, feeds = one_node(operator, inputs, run_time=[i for i, a in enumerate(inputs) if a.shape == (2, 3)])
    result = evaluate(model, feeds)["o0"]
    if operator.startswith("Reduce"):
        assert np.isnan(result).all()
    else:
        np.testing.assert_array_equal(np.isnan(result), np.isnan(x))


@pytest.mark.parametrize("a,b", list(itertools.product([7, -7], [2, -2])))
def test_integer_division_and_modulo_by_sign(a: int, b: int) -> None:
    x, y = np.array([a], "int32"), np.array([b], "int32")
    assert agree("Div", [x, y])[0][0] == int(a / b)
    assert agree("Mod", [x, y])[0][0] == a % b
    assert agree("Mod", [x, y], fmod=1)[0][0] == int(np.fmod(a, b))


def test_slices_are_clamped_and_walk_backwards() -> None:
    def ints(*values: int) -> np.ndarray:
        return np.array(values, "int64")

    x = noise(5, 6)
    big = 2**62
    for start, end, step in ((-1, -big, -2), (100, -100, -1), (1, big, 3), (-4, -1, 1), (3, 1, 1)):
        (y,) = agree("Slice", [x, ints(start), ints(end), ints(1), ints(step)])
        np.testing.assert_array_equal(y, x[:, slice(max(start, -7), max(min(end, 50), -50), step)])


def test_softmax_before_opset_13_flattens() -> None:
    x = noise(2, 3, 4)
    for opset, axis in ((11, 1), (11, 0), (13, 1)):
        agree("Softmax", [x], opset=opset, axis=axis)
        agree("LogSoftmax", [x], opset=opset, axis=axis)


def test_gather_counts_negative_indices_from_the_end() -> None:
    x, indices = noise(4, 3), np.array([[-1, 0], [2, -4]], "int64")
    for run_time in ((0,), (0, 1)):
        agree("Gather", [x, indices], run_time=run_time, axis=0)


def test_top_k_keeps_the_order_of_equals() -> None:
    x = np.array([[3, 1, 3, 2, 1, 3]], "float32")
    for largest in (1, 0):
        agree("TopK", [x, np.array([4], "int64")], 2, largest=largest, axis=1)


def test_arg_max_of_the_last_of_equals() -> None:
    x = np.array([[2, 5, 5, 1]], "float32")
    assert agree("ArgMax", [x], axis=1, select_last_index=1)[0].item() == 2
    assert agree("ArgMax", [x], axis=1, select_last_index=0)[0].item() == 1


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(mode: str, padding: str, align: int) -> None:
    grid = RNG.uniform(-1.6, 1.6, (1, 4, 5, 2)).astype("float32")
    agree(
        "GridSample", [noise(1, 2, 6, 5), grid], run_time=(0, 1), opset=20, mode=mode, padding_mode=padding,
        align_corners=align, atol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("opset", [18, 20])
def test_group_normalization_as_it_was_before_opset_21(opset: int) -> None:
    """ONNX has withdrawn that version, with a scale a group, and its checker refuses it; models still have it."""
    rng = np.random.default_rng(0)
    x, scale, bias = (rng.standard_normal(s).astype("float32") for s in ((2, 6, 5, 3), (3,), (3,)))
    weights = [numpy_helper.from_array(a, n) for n, a in (("s", scale), ("b", bias))]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=3, epsilon=1e-2)
    graph = helper.make_graph([node], "g", [given], [result], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    np.testing.assert_allclose(evaluate(model, {"x": x})["y"], peer(model, {"x": x})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("start", "end", "step"), [(-8, -6, -1), (-9, -20, -2), (-5, -6, -1), (-8, 2, -1), (-8, 2, 1), (9, -9, -3)]
)
def test_a_slice_that_begins_before_the_axis(start: int, end: int, step: int) -> None:
    """Walking backwards, ONNX moves the start to the first element; Python would take none."""
    bounds = [np.array([v], "int64") for v in (start, end, 1, step)]
    agree("Slice", [noise(3, 5, 2), *bounds])


@pytest.mark.parametrize("exponent", [1, 3, 4, 5, 6, 7, 8, 9])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_small_whole_powers_are_products(exponent: int, dtype: str) -> None:
    x = noise(3, 40, dtype=dtype)
    model, feeds = one_node("Pow", [x, np.array(exponent, dtype)])
    assert ("R.power" in import_model(model).module.script()) == (exponent == 9)
    tolerance = 1e-6 if dtype == "float32" else 2e-3
    np.testing.assert_allclose(evaluate(model, feeds)["o0"], peer(model, feeds)[0], rtol=tolerance, atol=1e-7)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 9])
@pytest.mark.parametrize("operator", ["LpPool", "GlobalLpPool"])
def test_norms_of_any_order_over_windows(operator: str, p: int) -> None:
    window = {"kernel_shape": [3, 2]} if operator == "LpPool" else {}
    agree(operator, [noise(2, 3, 7, 6)], p=p, **window)

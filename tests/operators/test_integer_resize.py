"""Linear and cubic Resize of integers: ONNX Runtime's own rounding, and float64 where it has none."""

from __future__ import annotations

from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from evaluate import evaluate, one_node, peer
from onnx import helper, numpy_helper

COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric")
SCALES = {  # by layout: none keeps the length of an axis that it changes, of which ONNX Runtime thinks otherwise
    "rows": ((13, 17), [(1.7, 0.6), (2.5, 3.0), (0.3, 2.0)]),
    "channels first": ((1, 2, 11, 7), [(1, 1, 1.3, 2.5), (1, 1, 2, 0.5), (1, 1, 1, 3)]),
    "channels last": ((1, 7, 11, 3), [(1, 1.3, 2.5, 1), (1, 2, 0.5, 1), (1, 0.7, 1.9, 1)]),
    "lines": ((1, 2, 19), [(1, 1, 1.6), (1, 1, 0.4)]),
    "volumes": ((1, 1, 4, 5, 6), [(1, 1, 1.5, 2, 0.7)]),
}
Case = tuple[np.ndarray, tuple[float, ...], dict[str, Any]]


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    limits = np.iinfo(dtype)
    low, high = (-10000, 10000) if dtype == "int32" else (limits.min, limits.max)
    return rng.integers(low, high, shape, endpoint=True).astype(dtype)


def model_of(cases: list[Case]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    kinds = [helper.np_dtype_to_tensor_dtype(x.dtype) for x, _, _ in cases]
    graph = helper.make_graph(
        [
            helper.make_node("Resize", [f"x{i}", "", f"s{i}"], [f"y{i}"], **a)
            for i, (_, _, a) in enumerate(cases)
        ],
        "resize",
        [
            helper.make_tensor_value_info(f"x{i}", k, x.shape)
            for i, (k, (x, _, _)) in enumerate(zip(kinds, cases))
        ],
        [helper.make_tensor_value_info(f"y{i}", k, None) for i, k in enumerate(kinds)],
        [numpy_helper.from_array(np.array(s, "float32"), f"s{i}") for i, (_, s, _) in enumerate(cases)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return model, {f"x{i}": x for i, (x, _, _) in enumerate(cases)}


@pytest.mark.sampled
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_linear_to_the_last_bit(dtype: str, exact: bool) -> None:
    rng, cases = np.random.default_rng(2), []
    for shape, each in SCALES.values():
        for i, scales in enumerate(each):
            x = numbers(rng, dtype, shape)
            if i == 1:
                x[...] = min(np.iinfo(dtype).max, 10000)  # flat: which weights make a little less of
            coordinate = COORDINATES[(len(cases) + exact) % 5]
            cases.append((x, scales, {"mode": "linear", "coordinate_transformation_mode": coordinate}))
    model, feeds = model_of(cases)
    results = halotile.compile(model, exact=exact)(feeds)
    for i, wanted in enumerate(peer(model, feeds)):
        np.testing.assert_array_equal(results[f"y{i}"], wanted, err_msg=str(cases[i][1:]))


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_antialiased(dtype: str) -> None:
    """To one unit of 32 bits: ONNX Runtime sums those in float32, and ties are ties only there."""
    rng, cases = np.random.default_rng(3), []
    for mode, layouts in (("linear", tuple(SCALES)), ("cubic", ("rows", "channels first"))):
        for layout in layouts:
            shape, each = SCALES[layout]
            coordinate = COORDINATES[len(cases) % 5]
            attributes = {"mode": mode, "antialias": 1, "coordinate_transformation_mode": coordinate}
            cases.append((numbers(rng, dtype, shape), each[0], attributes))
    model, feeds = model_of(cases)
    results = halotile.compile(model)(feeds)
    for i, wanted in enumerate(peer(model, feeds)):
        ours = results[f"y{i}"].astype("int64")
        assert np.abs(ours - wanted).max() <= (dtype == "int32"), cases[i][1:]


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "int32", "int64"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_what_onnx_runtime_lacks_is_truncated(mode: str, dtype: str) -> None:
    """Against the same in float64, truncated and held within the type; flat images stay flat."""
    x = numbers(np.random.default_rng(4), dtype, (1, 2, 5, 7))
    x = x // 16 if dtype == "int64" else x
    scales = np.array([1, 1, 1.3, 2.5], "float32")
    model, feeds = one_node("Resize", [x.astype("float64"), None, scales], mode=mode)
    wide = np.trunc(evaluate(model, feeds)["o0"])
    limits = np.iinfo(dtype)
    model, feeds = one_node("Resize", [x, None, scales], mode=mode)
    ours = evaluate(model, feeds)["o0"]
    assert ours.dtype == x.dtype
    near = (
        1 << 13 if dtype == "int64" else int(mode == "linear")
    )  # linear: ONNX Runtime's own sums in float32
    assert np.abs(ours.astype("float64") - np.clip(wide, float(limits.min), float(limits.max))).max() <= near
    model, feeds = one_node("Resize", [np.full_like(x, 77), None, scales], mode="cubic")
    assert (evaluate(model, feeds)["o0"] == 77).all()


def test_bytes_of_before_opset_11() -> None:
    x = numbers(np.random.default_rng(5), "uint8", (1, 2, 6, 7))
    scales = np.array([1, 1, 2.5, 1.5], "float32")
    for operator, opset in (("Resize", 10), ("Upsample", 9)):
        model, feeds = one_node(operator, [x, scales], mode="linear", opset=opset)
        np.testing.assert_array_equal(evaluate(model, feeds)["o0"], peer(model, feeds)[0])

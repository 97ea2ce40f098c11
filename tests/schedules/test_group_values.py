"""What one group of a convolution's channels holds reaches no other group, whatever it is: a NaN, an infinity."""

from __future__ import annotations

from collections.abc import Iterator

import halotile
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

# groups, inputs and outputs of a group, kernel, image
CONVS = [
    *(
        (4, 3, 2, (1, 1), (1, 1)),
        (4, 3, 2, (3, 3), (9, 10)),
        (3, 24, 24, (3, 3), (5, 7)),
        (6, 1, 2, (3, 3), (8, 8)),
    ),
    *(
        (5, 1, 3, (5, 1), (9, 3)),
        (16, 2, 1, (1, 1), (5, 5)),
        (8, 4, 4, (3, 3), (7, 7)),
        (2, 20, 12, (1, 1), (6, 6)),
    ),
    *(
        (7, 3, 5, (3,), (40,)),
        (3, 2, 2, (2, 2, 3), (4, 5, 6)),
        (10, 1, 1, (3, 3), (5, 9)),
        (2, 5, 5, (5, 5), (9, 9)),
    ),
]
# the same, the stride and the outputs' padding
TRANSPOSED = [
    *((2, 4, 4, (1, 1), (1, 1), 1), (3, 5, 3, (3, 3), (4, 5), 2), (4, 2, 6, (2, 2), (5, 4), 3)),
    *((2, 10, 10, (4, 3), (3, 6), 2), (5, 1, 2, (3,), (11,), 2), (1, 6, 9, (2, 2), (4, 4), 3)),
]
WRONG = (np.nan, np.inf, -np.inf)


def spoilt(
    rng: np.random.Generator, groups: int, inputs: int, image: tuple[int, ...], dtype: str
) -> np.ndarray:
    """An image, every third group of whose channels holds one of WRONG."""
    x = rng.standard_normal((2, groups * inputs, *image)).astype(dtype)
    for group in range(1, groups, 3):
        x[0, group * inputs + group % inputs].flat[group % int(np.prod(image))] = WRONG[group // 3 % 3]
    if groups == 1:
        x[0, 1].flat[0] = np.nan
    return x


def windows(x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    """Group by group in float64, the image as it is padded."""
    outputs, inputs, *kernel = w.shape
    spatial = tuple(range(2, 2 + len(kernel)))
    found = []
    for g in range(groups):
        own = x[:, g * inputs : (g + 1) * inputs].astype("float64")
        view = np.lib.stride_tricks.sliding_window_view(own, tuple(kernel), axis=spatial)
        for o in range(g * outputs // groups, (g + 1) * outputs // groups):
            weight = w[o].astype("float64").reshape(inputs, *[1] * len(kernel), *kernel)
            found.append((view * weight).sum(axis=(1, *range(-len(kernel), 0))))
    return np.stack(found, axis=1)


def scattered(x: np.ndarray, w: np.ndarray, groups: int, stride: int) -> np.ndarray:
    """A transposed convolution in float64: every element adds its products where they belong."""
    channels, per_group, *kernel = w.shape
    size = [(n - 1) * stride + k for n, k in zip(x.shape[2:], kernel)]
    y = np.zeros((x.shape[0], groups * per_group, *size))
    inputs = channels // groups
    for c in range(channels):
        own = y[:, c // inputs * per_group : (c // inputs + 1) * per_group]
        for at in np.ndindex(*x.shape[2:]):
            place = tuple(slice(a * stride, a * stride + k) for a, k in zip(at, kernel))
            value = x[(slice(None), c, *at)].astype("float64").reshape(-1, 1, *[1] * len(kernel))
            own[(slice(None), slice(None), *place)] += value * w[c].astype("float64")
    return y


def cases(dtype: str) -> Iterator[tuple[str, dict[str, object], np.ndarray, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(8)
    for groups, inputs, outputs, kernel, image in CONVS:
        x = spoilt(rng, groups, inputs, image, dtype)
        w = rng.standard_normal((groups * outputs, inputs, *kernel)).astype(dtype)
        pads = [(k - 1) // 2 for k in kernel]
        padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pads)])
        yield "Conv", {"group": groups, "pads": pads * 2}, x, w, windows(padded, w, groups)
    for groups, inputs, outputs, kernel, image, stride in TRANSPOSED:
        x = spoilt(rng, groups, inputs, image, dtype)
        w = rng.standard_normal((groups * inputs, outputs, *kernel)).astype(dtype)
        yield (
            "ConvTranspose",
            {"group": groups, "strides": [stride] * len(image)},
            x,
            w,
            scattered(x, w, groups, stride),
        )


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(("dtype", "exact"), [("float32", False), ("float64", True)])
def test_values_stay_in_their_group(dtype: str, exact: bool) -> None:
    nodes, feeds, weights, expected = [], {}, [], []
    for i, (operator, attributes, x, w, y) in enumerate(cases(dtype)):
        nodes.append(helper.make_node(operator, [f"x{i}", f"w{i}"], [f"y{i}"], **attributes))
        feeds[f"x{i}"] = x
        weights.append(numpy_helper.from_array(w, f"w{i}"))
        expected.append(y)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info(n, kind, a.shape) for n, a in feeds.items()]
    outputs = [helper.make_tensor_value_info(f"y{i}", kind, y.shape) for i, y in enumerate(expected)]
    graph = helper.make_graph(nodes, "groups", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert kind in (TensorProto.FLOAT, TensorProto.DOUBLE)
    results = halotile.compile(model, exact=exact)(feeds)
    for i, wanted in enumerate(expected):
        assert np.isfinite(wanted).any() and not np.isfinite(wanted).all()
        tolerance = 1e-3 if dtype == "float32" else 1e-9
        np.testing.assert_allclose(
            results[f"y{i}"], wanted, rtol=tolerance, atol=tolerance, err_msg=str(nodes[i])
        )

"""Norms of data far from zero, against float64: no digits are lost to the mean, and equal elements give zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import halotile
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"
TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16}
Reference = Callable[[np.ndarray], np.ndarray]


@dataclass
class Norms:
    """Independent norms in one model, each with an input of its own and a reference in float64."""

    nodes: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)
    inputs: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    expected: dict[str, Reference] = field(default_factory=dict)

    def tensor(self, values: Any, dtype: str = "float32") -> str:
        name = f"t{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def op(self, kind: str, *operands: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, operands, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def add(
        self, shape: tuple[int, ...], body: Callable[[str], str], wanted: Reference, dtype: str = "float32"
    ) -> None:
        x, y = f"x{len(self.inputs)}", f"y{len(self.inputs)}"
        self.inputs[x], self.expected[y] = (shape, dtype), wanted
        self.nodes.append(helper.make_node("Identity", [body(x)], [y]))

    def model(self) -> ModelProto:
        def infos(names: Any) -> list[Any]:
            given = zip(names, self.inputs.values())
            return [helper.make_tensor_value_info(n, TYPES[dtype], shape) for n, (shape, dtype) in given]

        graph = helper.make_graph(self.nodes, "norms", infos(self.inputs), infos(self.expected), self.tensors)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def errors(self, run: Any, feeds: dict[str, np.ndarray]) -> dict[str, float]:
        """The largest error of each output, for the largest number of that (one at least)."""
        found = run(feeds)
        errors = {}
        for (x, y), wanted in zip(zip(self.inputs, self.expected), self.expected.values()):
            right = wanted(feeds[x].astype(np.float64))
            errors[y] = float(np.abs(found[y] - right).max() / max(1.0, np.abs(right).max()))
        return errors


def standard(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    beyond = x - x.mean(axes, keepdims=True)
    return beyond / np.sqrt(np.square(beyond).mean(axes, keepdims=True) + epsilon)


def layer_norm(n: Norms, shape: tuple[int, ...], axis: int = -1, dtype: str = "float32", epsilon: float = 1e-5) -> None:
    rng, axes = np.random.default_rng(len(n.inputs)), tuple(range(axis % len(shape), len(shape)))
    own = tuple(shape[a] for a in axes)
    gamma, beta = rng.uniform(0.5, 1.5, own).astype(dtype), rng.standard_normal(own).astype(dtype)
    weights = n.tensor(gamma, dtype), n.tensor(beta, dtype)

    def wanted(x: np.ndarray) -> np.ndarray:
        return standard(x, axes, epsilon) * gamma.astype(np.float64) + beta.astype(np.float64)

    n.add(shape, lambda x: n.op("LayerNormalization", x, *weights, axis=axis, epsilon=epsilon), wanted, dtype)


def with_statistics(n: Norms, shape: tuple[int, ...], which: int, dtype: str = "float32") -> None:
    """A norm whose mean or deviation is read as well: x - mean, or the norm over 1 / deviation."""
    weights = n.tensor(np.ones(shape[-1]), dtype), n.tensor(np.zeros(shape[-1]), dtype)

    def body(x: str) -> str:
        y, mean, inverse = n.op("LayerNormalization", x, *weights, outputs=3)
        if which == 2:
            return str(n.op("Div", y, inverse))
        nothing = n.op("Sub", mean, mean)  # statistics are float32, whatever the data are
        return str(n.op("Add", y, n.op("Cast", nothing, to=TYPES[dtype]) if dtype != "float32" else nothing))

    def wanted(x: np.ndarray) -> np.ndarray:
        return standard(x, (-1,), 1e-5) if which == 1 else x - x.mean(-1, keepdims=True)

    n.add(shape, body, wanted, dtype)


def skip(n: Norms, shape: tuple[int, ...]) -> None:
    """x + 0.5 |x|, normalised: a sum that is computed in the norm's kernel."""
    gamma, half = n.tensor(np.ones(shape[-1])), n.tensor(0.5)

    def body(x: str) -> str:
        other = n.op("Mul", n.op("Abs", x), half)
        return str(n.op("SkipLayerNormalization", x, other, gamma, domain=MICROSOFT, epsilon=1e-6))

    n.add(shape, body, lambda x: standard((x + 0.5 * np.abs(x)).astype(np.float32).astype(np.float64), (-1,), 1e-6))


def written(n: Norms, shape: tuple[int, ...], axes: list[int], spelling: str, epsilon: float = 1e-5) -> None:
    """As exporters write it before opset 17."""
    over = n.tensor(axes, "int64")

    def mean(x: str) -> str:
        return str(n.op("ReduceMean", x, over))

    def body(x: str) -> str:
        beyond = n.op("Sub", x, mean(x))
        square = n.op("Pow", beyond, n.tensor(2.0)) if spelling == "power" else n.op("Mul", beyond, beyond)
        root = n.op("Sqrt", n.op("Add", mean(square), n.tensor(epsilon)))
        if spelling == "reciprocal":
            return str(n.op("Mul", beyond, n.op("Reciprocal", root)))
        return str(n.op("Div", beyond, root))

    n.add(shape, body, lambda x: standard(x, tuple(axes), epsilon))


def instances(n: Norms, shape: tuple[int, ...], dtype: str = "float32") -> None:
    weights = n.tensor(np.ones(shape[1]), dtype), n.tensor(np.zeros(shape[1]), dtype)
    axes = tuple(range(2, len(shape)))
    n.add(shape, lambda x: n.op("InstanceNormalization", x, *weights), lambda x: standard(x, axes, 1e-5), dtype)


def groups(n: Norms, shape: tuple[int, ...], count: int, behind: bool = False, dtype: str = "float32") -> None:
    """``behind``: a convolution that moves channels only, so that they lie in blocks."""
    channels = shape[1]
    weights = n.tensor(np.ones(channels), dtype), n.tensor(np.zeros(channels), dtype)

    def body(x: str) -> str:
        x = turned(n, x, channels) if behind else x
        return str(n.op("GroupNormalization", x, *weights, num_groups=count))

    def wanted(x: np.ndarray) -> np.ndarray:
        x = x[:, ::-1] if behind else x
        return standard(x.reshape(shape[0], count, -1), (2,), 1e-5).reshape(shape)

    n.add(shape, body, wanted, dtype)


def turned(n: Norms, x: str, channels: int) -> str:
    """The channels in reverse order, by a convolution."""
    return str(n.op("Conv", x, n.tensor(np.eye(channels)[::-1, :, None, None])))


def over_channels(n: Norms, shape: tuple[int, ...]) -> None:
    """Between convolutions, in blocks of channels."""
    channels = shape[1]
    axes = n.tensor([1], "int64")

    def body(x: str) -> str:
        x = turned(n, x, channels)
        beyond = n.op("Sub", x, n.op("ReduceMean", x, axes))
        variance = n.op("ReduceMean", n.op("Mul", beyond, beyond), axes)
        return turned(n, n.op("Div", beyond, n.op("Sqrt", n.op("Add", variance, n.tensor(1e-5)))), channels)

    n.add(shape, body, lambda x: standard(x, (1,), 1e-5))


def instances_in_blocks(n: Norms, shape: tuple[int, ...]) -> None:
    weights = n.tensor(np.ones(shape[1])), n.tensor(np.zeros(shape[1]))

    def body(x: str) -> str:
        y = n.op("InstanceNormalization", turned(n, x, shape[1]), *weights)
        return turned(n, str(y), shape[1])

    n.add(shape, body, lambda x: standard(x, (2, 3), 1e-5))


def batches(n: Norms, shape: tuple[int, ...]) -> None:
    weights = [n.tensor(np.full(shape[1], v)) for v in (1.0, 0.0, 0.0, 1.0)]
    axes = (0, *range(2, len(shape)))

    def body(x: str) -> str:
        return str(n.op("BatchNormalization", x, *weights, outputs=3, training_mode=1)[0])

    n.add(shape, body, lambda x: standard(x, axes, 1e-5))


def mean_and_variance(n: Norms, shape: tuple[int, ...], axes: list[int]) -> None:
    def wanted(x: np.ndarray) -> np.ndarray:
        beyond = x - x.mean(tuple(axes), keepdims=True)
        return beyond / (np.sqrt(np.square(beyond).mean(tuple(axes), keepdims=True)) + 1e-9)

    n.add(shape, lambda x: n.op("MeanVarianceNormalization", x, axes=axes), wanted)


def float32_norms(exact: bool) -> Norms:
    """``exact`` builds compute what is written out in the order in which it is."""
    n = Norms()
    for shape, axis in (((5, 384), -1), ((3, 7, 13), -1), ((2, 3, 5, 31), 2), ((37, 8), -1), ((2, 4099), -1)):
        layer_norm(n, shape, axis)
    layer_norm(n, (1, 20000))
    layer_norm(n, (6, 192), epsilon=1e-12)
    with_statistics(n, (4, 96), 1)
    with_statistics(n, (4, 96), 2)
    skip(n, (9, 64))
    for spelling in ("plain", "power", "reciprocal") if not exact else ():
        written(n, (3, 11, 48), [-1], spelling)
        written(n, (2, 6, 9, 17), [1], spelling)
        written(n, (2, 6, 9, 17), [2, 3], spelling)
    for shape in ((2, 5, 31, 17), (1, 3, 140, 150), (2, 4, 70), (1, 3, 5, 6, 7)):
        instances(n, shape)
    groups(n, (2, 12, 9, 7), 4)
    groups(n, (2, 12, 9, 7), 1)
    groups(n, (1, 16, 70, 61), 4, behind=True)
    instances_in_blocks(n, (1, 19, 23, 21))
    for channels in (24, 13) if not exact else ():
        over_channels(n, (2, channels, 5, 19))
    batches(n, (3, 5, 9, 8))
    batches(n, (40, 7))
    mean_and_variance(n, (2, 3, 8, 9), [0, 2, 3])
    mean_and_variance(n, (2, 3, 8, 9), [1])
    return n


def feeds_of(n: Norms, seed: int, offset: float, spread: float, outlier: int | None = None) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feeds = {}
    for x, (shape, dtype) in n.inputs.items():
        data = rng.standard_normal(shape) * spread + offset
        if outlier is not None:
            data.reshape(-1)[outlier] = 0.0  # as far from the others as zero is
        feeds[x] = data.astype(dtype)
    return feeds


@pytest.mark.parametrize("exact", [False, True])
def test_norms_of_shifted_data(exact: bool) -> None:
    n = float32_norms(exact)
    library = halotile.compile(n.model(), threads=2, exact=exact)
    if not exact:
        schedules = {k["schedule"].split(",")[0] for k in library.report["kernels"]}
        assert "norm over channels" in schedules
        assert any("halotile.moment" in k["operators"] for k in library.report["kernels"])
    cases = [(0.0, 1.0, None), (30.0, 1e-3, None), (1e4, 1.0, None), (-1e6, 1.0, None), (1e6, 30.0, None)]
    cases += [(1e7, 5.0, None), (-1e7, 1e3, None), (1e6, 1.0, 0), (1e6, 1.0, 7)]
    wrong = {}
    for seed, (offset, spread, outlier) in enumerate(cases):
        feeds = feeds_of(n, seed, offset, spread, outlier)
        errors = n.errors(library, feeds)
        wrong.update({(y, *cases[seed]): e for y, e in errors.items() if not e < 1e-5})
        one, two = (library(feeds, threads=t) for t in (1, 2))
        assert all(np.array_equal(one[y], two[y]) for y in one)
    assert not wrong


def test_equal_elements_give_zero() -> None:
    """And not what a sum of many rounds off, over an epsilon's small root."""
    n = Norms()
    layer_norm(n, (3, 500), epsilon=1e-12)
    written(n, (2, 5, 77), [-1], "plain", 1e-12)
    written(n, (2, 13, 7, 9), [1], "plain", 1e-12)
    groups(n, (1, 16, 70, 61), 4, behind=True)
    groups(n, (2, 6, 5, 5), 3)
    over_channels(n, (1, 11, 6, 7))
    mean_and_variance(n, (2, 3, 4, 5), [0, 2, 3])
    batches(n, (3, 5, 7))
    layer_norm(n, (3, 500), dtype="float64", epsilon=1e-12)
    layer_norm(n, (3, 500), dtype="float16", epsilon=1e-12)
    library = halotile.compile(n.model(), threads=1)
    bias = {y: wanted(np.zeros(n.inputs[x][0])) for x, (y, wanted) in zip(n.inputs, n.expected.items())}
    for value in (1e6, -123.4567, 0.1):
        most = {"float16": 6e4}
        feeds = {x: np.full(shape, min(value, most.get(d, value)), d) for x, (shape, d) in n.inputs.items()}
        found = library(feeds)
        for y, array in found.items():
            np.testing.assert_array_equal(array, bias[y].astype(array.dtype), err_msg=f"{y} of {value}")


def test_float16_and_float64() -> None:
    narrow, wide = Norms(), Norms()
    for dtype, n in (("float16", narrow), ("float64", wide)):
        for shape, axis in (((5, 384), -1), ((2, 3, 5, 31), 2), ((2, 4099), -1)):
            layer_norm(n, shape, axis, dtype)
        with_statistics(n, (4, 96), 1, dtype) if dtype == "float64" else None
        instances(n, (2, 5, 31, 17), dtype)
        groups(n, (2, 12, 9, 7), 4, dtype=dtype)
    for n, cases, limit in ((narrow, [(0.0, 1.0), (500.0, 1.0), (2e4, 50.0)], 2e-3), (wide, [(1e7, 1.0)], 1e-8)):
        library = halotile.compile(n.model(), threads=1)
        for seed, (offset, spread) in enumerate(cases):
            errors = n.errors(library, feeds_of(n, seed, offset, spread))
            assert max(errors.values()) < limit, (offset, errors)

"""A value that others read too is a second output of its group; what would make a circle, or a choice, stays out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, staged, weight
from halotile.passes.fuse.fuse import Fuse
from halotile.passes.fuse.graph import build_graph
from tvm import relax

R = relax.op
F = "float32"
X = np.zeros((1, 8, 6, 6), F)


def conv(x: Any, out: int = 8, kernel: int = 3) -> Any:
    """``x``'s channels to ``out``, weights that tell every tap and channel apart."""
    shape = (out, int(x.ty.shape[1]), kernel, kernel)
    return R.nn.conv2d(x, weight(np.sin(np.arange(np.prod(shape))).reshape(shape).astype(F)), padding=kernel // 2)


def groups(body: Callable[..., Any], *arrays: np.ndarray) -> list[tuple[tuple[str, ...], int]]:
    """(operators, number of outputs) of every group. ``body`` maps (emit, *inputs) to a list of outputs."""
    fusion = Fuse().apply(build_graph(_module(body, *arrays)))
    return [(tuple(o.split(".")[-1] for o in g.operators), len(g.outputs)) for g in fusion.groups]


def _module(body: Callable[..., Any], *arrays: np.ndarray) -> Any:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", relax.TensorType(a.shape, a.dtype.name)) for i, a in enumerate(arrays)]
    with builder.function("main", params):
        with builder.dataflow():
            made = [builder.emit(m) for m in body(builder.emit, *params)]
            out = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(out)
    return builder.get()


def residual(emit: Any, x: Any) -> list[Any]:
    """A pre-activation block: the sum goes on, and its activation into the next convolution."""
    total = emit(R.add(conv(x), x))
    active = emit(R.nn.relu(total))
    return [R.add(emit(conv(active)), total)]


def before_activation(emit: Any, x: Any) -> list[Any]:
    """The pre-activation is read by a second convolution and leaves the model."""
    y = emit(conv(x))
    return [conv(emit(R.nn.relu(y))), conv(y, kernel=1), y]


def three(emit: Any, x: Any) -> list[Any]:
    """Three outputs of one pooling, of which two read the first."""
    y = emit(R.nn.max_pool2d(x, (2, 2)))
    return [conv(emit(R.exp(y)), kernel=1), conv(emit(R.negative(y)), kernel=1), conv(y, kernel=1)]


def product(emit: Any, x: Any) -> list[Any]:
    y = emit(R.matmul(x, weight(np.eye(6, 7, 1, F))))
    return [y, R.tanh(y)]


CASES: dict[str, tuple[Callable[..., Any], list[tuple[tuple[str, ...], int]]]] = {
    "residual": (residual, [(("conv2d", "add", "relu"), 2), (("conv2d", "add"), 1)]),
    "before_activation": (before_activation, [(("conv2d", "relu"), 2), (("conv2d",), 1), (("conv2d",), 1)]),
    "three": (three, [(("max_pool2d", "exp", "negative"), 3), *[(("conv2d",), 1)] * 3]),
    "product": (product, [(("matmul", "tanh"), 2)]),
}


@pytest.mark.parametrize("name", CASES)
def test_others_get_a_second_output(name: str) -> None:
    body, expected = CASES[name]
    assert groups(body, X) == expected


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("channels", [8, 19])
def test_second_outputs_hold_the_same_numbers(name: str, channels: int) -> None:
    body, _ = CASES[name]
    width = 6
    x = np.random.default_rng(channels).standard_normal((1, channels, 6, width)).astype(F)
    if name == "residual" and channels != 8:
        body = lambda emit, x: residual(emit, emit(R.strided_slice(x, [1], [3], [11])))  # noqa: E731
    module = _module(body, x)
    for a, b in zip(
        Compiled(staged(module)).run([x]), Compiled(staged(module, fuse=False, layout=False)).run([x]), strict=True
    ):
        np.testing.assert_allclose(a, b, 1e-5, 1e-4)


def test_nothing_joins_that_depends_on_a_second_output_by_way_of_others() -> None:
    """z = relu(y) + f(y) with f in between: z may join f's group, never y's."""

    def body(emit: Any, x: Any) -> list[Any]:
        y = emit(conv(x))
        other = emit(R.nn.max_pool2d(y, (3, 3), padding=(1, 1)))
        return [R.add(emit(R.nn.relu(y)), other)]

    assert groups(body, X) == [(("conv2d", "relu"), 2), (("max_pool2d", "add"), 1)]


def test_a_view_of_the_group_is_a_circle_too() -> None:
    def body(emit: Any, x: Any) -> list[Any]:
        y = emit(R.nn.relu(x))
        swapped = emit(R.reshape(R.reshape(y, (1, 36, 8)), (1, 8, 6, 6)))
        return [R.add(y, swapped)]

    assert groups(body, X) == [(("relu",), 1), (("add",), 1)]


def test_a_concatenation_in_place_takes_no_epilogue() -> None:
    def body(emit: Any, x: Any) -> list[Any]:
        whole = emit(R.concat([emit(conv(x, 16)), emit(conv(x, 16, 1))], 1))
        return [conv(emit(R.nn.relu(whole))), conv(whole)]

    shapes = groups(body, X)
    assert (("concat",), 1) in shapes and (("relu",), 1) in shapes
    x = np.random.default_rng(1).standard_normal((1, 16, 5, 5)).astype(F)
    build = staged(_module(lambda emit, x: body(emit, emit(R.nn.relu(x))), x))
    assert not any("concat" in o for g in build.groups for o in g.operators), "the parts lie in place"


def test_a_concatenation_over_the_batch_does() -> None:
    module = module_of([np.zeros((2, 4, 3, 3), F)], lambda x: R.nn.relu(R.concat([x, R.negative(x)], 1)))
    assert len(Fuse().apply(build_graph(module)).groups) == 1


def test_the_group_says_why_a_reader_stays_out() -> None:
    def body(emit: Any, x: Any) -> list[Any]:
        y = emit(conv(x))
        other = emit(R.nn.max_pool2d(y, (3, 3), padding=(1, 1)))
        return [R.add(y, other)]

    fusion = Fuse().apply(build_graph(_module(body, X)))
    assert any("computed from" in note for note in fusion.groups[0].notes)

"""1 x 1 convolutions by seven products of halves: every form against NumPy, its error, and where it is not taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, Suite, module_of, native, staged, weight
from halotile.passes.fuse import closing
from halotile.schedules.conv import strassen
from tvm import relax

R = relax.op
F = "float32"
FORM = "seven products of halves"
SERVER = replace(
    native(), vector_bits=512, vector_registers=32, fma_ports=1, fma_latency=4, l2_bytes=1 << 20, cores=2, far_bytes=12
)
TARGETS = {
    "server": SERVER,
    "one core": replace(SERVER, cores=1),
    "small cache": replace(SERVER, l2_bytes=64 << 10, cores=1),  # several blocks of pairs a band
    "narrow": replace(SERVER, vector_bits=128, cores=3),
}

# batch, inputs, outputs, rows and columns, stride
SHAPES: dict[str, tuple[int, int, int, tuple[int, int], int]] = {
    "even": (1, 128, 128, (14, 14), 1),
    "odd": (1, 160, 192, (7, 7), 1),  # weights many times the image: cores share panels
    "one row": (1, 160, 96, (1, 53), 1),
    "strided": (2, 96, 160, (21, 17), 2),
    "images": (3, 192, 128, (9, 11), 1),
    "tall": (1, 96, 96, (61, 13), 1),
}


@pytest.fixture(autouse=True)
def not_the_last(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers of these tests stand for ones in the middle of a network."""
    if "closing" not in request.node.name:
        monkeypatch.setattr(closing, "closing_values", lambda *_: frozenset())


def case(name: str, dtype: str = F, margin: bool = False) -> tuple[list[np.ndarray], Any, np.ndarray]:
    """A convolution with bias, residual and ReLU; ``margin``: of a value that a 3 x 3 convolution reads as well, whose
    memory has margins."""
    batch, cin, cout, (height, width), stride = SHAPES[name]
    random = np.random.default_rng(cin * height)
    x = random.standard_normal((batch, cin, height, width)).astype(dtype)
    w = random.standard_normal((cout, cin, 1, 1)).astype(dtype)
    wide = random.standard_normal((5, cin, 3, 3)).astype(dtype)
    b = np.linspace(-1, 1, cout).reshape(1, cout, 1, 1).astype(dtype)
    exact = np.einsum("oc,nchw->nohw", w[:, :, 0, 0].astype("float64"), x[:, :, ::stride, ::stride].astype("float64"))
    r = np.cos(np.arange(exact.size)).reshape(exact.shape).astype(dtype)

    def body(x: Any, r: Any) -> Any:
        y = R.nn.relu(R.add(R.add(R.nn.conv2d(x, weight(w), strides=stride), weight(b)), r))
        return [y, R.nn.conv2d(x, weight(wide), padding=1)] if margin else y

    return [x, r], body, np.maximum(exact + b + r, 0)


def force(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the form wherever it is right, whatever the estimate says."""
    for gain in ("GAIN", "SHARED_GAIN", "PANELS_GAIN"):
        monkeypatch.setattr(strassen, gain, 100.0)


@pytest.mark.parametrize("where", TARGETS)
def test_equals_numpy(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch)
    suite = Suite(TARGETS[where])
    for name in SHAPES:
        dtype = "float64" if name == "odd" else F
        arrays, body, exact = case(name, dtype)
        suite.add(name, arrays, body, exact.astype(dtype), 1e-4, 3e-4)
    for name in SHAPES:
        suite.check(name)
        assert any(FORM in s for s in suite.schedules(name)), suite.schedules(name)


@pytest.mark.parametrize("name", ["odd", "images"])
def test_reads_inputs_and_writes_outputs_with_margins(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch)
    arrays, body, exact = case(name, margin=True)
    build = staged(module_of(arrays, body), SERVER, tiled=False)
    (kernel,) = [k for k in build.kernels if FORM in k.schedule]
    read = [v for v in kernel.operands if getattr(v, "shape", None) == arrays[0].shape]
    assert any(build.layouts[v].margins for v in read if v in build.layouts)
    np.testing.assert_allclose(Compiled(build).run(arrays)[0], exact, rtol=1e-4, atol=3e-4)


def test_bits_do_not_depend_on_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch)
    for name in ("odd", "even", "tall"):
        arrays, body, _ = case(name)
        results = []
        for cores in (1, 2, 4):
            build = staged(module_of(arrays, body), replace(SERVER, cores=cores), tiled=False)
            assert any(FORM in k.schedule for k in build.kernels)
            results.append(Compiled(build).run(arrays)[0])
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0], results[2])


def test_the_error_is_a_few_times_that_of_the_direct_form() -> None:
    """Of the largest element, on inputs of one sign, which lose most in the differences."""
    random = np.random.default_rng(1)
    x = (5 + random.standard_normal((1, 512, 14, 14))).astype(F)
    w = (5 + random.standard_normal((256, 512, 1, 1))).astype(F)
    exact = np.einsum("oc,nchw->nohw", w[:, :, 0, 0].astype("float64"), x.astype("float64"))
    errors = []
    for plainly in (True, False):
        build = staged(module_of([x], lambda x: R.nn.conv2d(x, weight(w))), SERVER, tiled=False, exact=plainly)
        assert any(FORM in k.schedule for k in build.kernels) is not plainly
        errors.append(np.abs(Compiled(build).run([x])[0] - exact).max() / np.abs(exact).max())
    assert errors[1] < 5e-6 and errors[1] < 12 * errors[0]


def schedule(cin: int, cout: int, size: int = 14, kernel: int = 1, groups: int = 1, **options: Any) -> str:
    x, w = np.zeros((1, cin, size, size), F), np.zeros((cout, cin // groups, kernel, kernel), F)
    body = lambda x: R.nn.conv2d(x, weight(w), padding=kernel // 2, groups=groups)  # noqa: E731
    found = staged(module_of([x], body), TARGETS["one core"], tiled=False, **options).kernels
    return next(k.schedule for k in found if "conv" in k.schedule or "winograd" in k.schedule)


@pytest.mark.parametrize("cin, cout, size", [(96, 576, 14), (576, 96, 14), (160, 960, 7), (1024, 256, 14)])
def test_taken_where_an_eighth_is_more_than_its_cost(cin: int, cout: int, size: int) -> None:
    assert FORM in schedule(cin, cout, size)


def test_declined() -> None:
    assert FORM not in schedule(32, 192, 28)  # a short sum: the state costs more
    assert FORM not in schedule(192, 32, 28)
    assert FORM not in schedule(144, 576)  # nine vectors of inputs have no halves
    assert FORM not in schedule(576, 144)
    assert FORM not in schedule(576, 576, groups=2)
    assert FORM not in schedule(256, 256, kernel=3)
    assert FORM not in schedule(256, 256, exact=True)
    assert FORM in schedule(256, 256)


@pytest.mark.parametrize("options", [{"memory_budget": 1 << 30}, {"optimize": "memory"}, {"winograd": False}])
def test_off_where_products_are_plain(options: dict[str, Any]) -> None:
    """A budget, or an ablation, leaves the eighth product in."""
    assert FORM not in schedule(256, 256, **options)


def test_the_closing_layer_is_plain() -> None:
    """Of two layers with views, maps and means behind them, the second writes what leaves the model."""
    x, w = np.ones((1, 256, 14, 14), F), np.zeros((256, 256, 1, 1), F)

    def body(x: Any) -> Any:
        y = R.nn.relu(R.nn.conv2d(R.nn.relu(R.nn.conv2d(x, weight(w))), weight(w)))
        return R.reshape(R.nn.softmax(R.reshape(R.mean(y, axis=(2, 3), keepdims=True), (1, 256))), (1, 256, 1, 1))

    schedules = [k.schedule for k in staged(module_of([x], body), SERVER, tiled=False).kernels if "conv" in k.schedule]
    assert [FORM in s for s in schedules] == [True, False]


TWO = replace(SERVER, fma_ports=2, l2_bytes=2 << 20, cores=1, far_bytes=10)


@pytest.mark.parametrize(
    "cin, cout, size, taken",
    [
        (256, 1024, 14, True),
        (1024, 256, 14, False),  # left operands leave the second level, and two ports wait for them
        (2048, 512, 7, False),  # a tile of five pairs reads more weights a cycle than the second level gives
    ],
)
def test_two_ports_wait_for_memory(
    cin: int, cout: int, size: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FORM in schedule(cin, cout, size)
    monkeypatch.setitem(TARGETS, "one core", TWO)
    assert (FORM in schedule(cin, cout, size)) is taken
    monkeypatch.setitem(TARGETS, "one core", replace(TWO, fma_ports=1))
    assert FORM in schedule(cin, cout, size)


def test_tiles_share_the_hints_for_the_next_product() -> None:
    """Seven tiles of 14 pairs ask for the 32 lines that 16 channels of the next product take, one hint a channel."""
    x, w = np.zeros((1, 256, 14, 14), F), np.zeros((1024, 256, 1, 1), F)
    module = module_of([x], lambda x: R.nn.conv2d(x, weight(w)))
    counts = {}
    for target in (TWO, replace(TWO, fma_ports=1)):
        (kernel,) = [k for k in staged(module, target, tiled=False).kernels if FORM in k.schedule]
        counts[target.fma_ports] = str(kernel.function).count("T.prefetch")
    assert counts == {2: 7 * 1, 1: 7 * 2}

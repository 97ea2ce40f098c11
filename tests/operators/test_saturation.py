"""NaN, infinities and what no integer holds, made integers: quantised alone, back to numbers, behind and before
products, in vectors and tails, by one rule (docs/numerics.md), against NumPy."""

from __future__ import annotations

from pathlib import Path

import halotile
import ml_dtypes
import numpy as np
import pytest
from board_tools import needs, needs_zig
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve
from numerics import Sheet
from onnx import TensorProto, helper, numpy_helper

KINDS = ["int8", "uint8", "int16", "uint16"]
ODD = [np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, -3e9, -0.0, 0.5, 1.5, -0.5, -2.5, 1e-40, 40000.0, -40000.0, 127.5]
CODE = {k: helper.np_dtype_to_tensor_dtype(np.dtype(k)) for k in (*KINDS, "int32", "uint32", "int64", "uint64")}


def codes(x: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int = 1) -> np.ndarray:
    """What QuantizeLinear gives: the least number for NaN."""
    limits = np.iinfo(zero.dtype)
    shape = [-1 if a == axis else 1 for a in range(x.ndim)] if scale.ndim else []
    with np.errstate(all="ignore"):
        whole = np.rint((x / scale.reshape(shape)).astype("float32")).astype("float64") + zero.reshape(shape)
    return np.fmin(np.fmax(whole, limits.min), limits.max).astype(zero.dtype)


def back(q: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int = 1) -> np.ndarray:
    shape = [-1 if a == axis else 1 for a in range(q.ndim)] if scale.ndim else []
    return (q.astype("int32") - zero.reshape(shape).astype("int32")).astype("float32") * scale.reshape(shape)


def numbers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    x = rng.standard_normal(shape) * 40
    return np.where(rng.random(shape) < 0.5, rng.choice(ODD, shape), x).astype("float32")


def parameters(rng: np.random.Generator, kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A scale and a zero point, or as many as channels."""
    limits = np.iinfo(kind)
    zero = rng.integers(limits.min, limits.max, count or None, endpoint=True)
    scale = (2.0 ** rng.integers(-3, 3, count or None)).astype("float32")
    return np.asarray(scale, "float32"), np.asarray(zero).astype(kind)


def quantised() -> Sheet:
    rng, s = np.random.default_rng(6), Sheet()
    for kind in KINDS:
        for channels in (False, True):
            for shape in ((3, 37), (1, 5), (1, 19, 3, 5)):
                x = numbers(rng, shape)
                scale, zero = parameters(rng, kind, shape[1] if channels else 0)
                q = codes(x, scale, zero)
                given = [s.constant(scale), s.constant(zero, kind)]
                name = f"{kind} {channels} {shape}"
                a = s.input(x)
                s.case(f"{name} alone", s.node("QuantizeLinear", a, *given), q)
                there = s.node("QuantizeLinear", a, *given)
                s.case(f"{name} back", s.node("DequantizeLinear", there, *given), back(q, scale, zero))
                known = s.node("QuantizeLinear", s.constant(x), *given)
                s.case(f"{name} known", known, q)
                if kind == "int8" and shape[0] == 3:
                    moved = s.node("Transpose", s.node("DequantizeLinear", there, *given))
                    s.case(f"{name} moved", moved, back(q, scale, zero).T)
        scale, zero = parameters(rng, kind, 0)  # at run time
        x = numbers(rng, (4, 21))
        a, given = s.input(x), [s.input(scale), s.input(zero)]
        there = s.node("QuantizeLinear", a, *given)
        s.case(f"{kind} open", there, codes(x, scale, zero))
        s.case(
            f"{kind} open back", s.node("DequantizeLinear", there, *given), back(codes(x, scale, zero), scale, zero)
        )
    return s


@pytest.mark.parametrize("exact", [False, True])
def test_every_form_alone(exact: bool) -> None:
    s = quantised()
    results = halotile.compile(s.model(), exact=exact)(s.feeds)
    for name in s.cases:
        s.check(name, results)


@pytest.mark.parametrize("exact", [False, True])
def test_behind_and_before_products(exact: bool) -> None:
    """The weights have one number a channel, so that each sum is one product."""
    rng, s = np.random.default_rng(9), Sheet()
    factors = np.array([1, -1, 2, 0.5, -4] * 7, "float32")[:33]
    image, rows = numbers(rng, (1, 1, 6, 7)), numbers(rng, (5, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        made = {"conv": image * factors.reshape(1, 33, 1, 1), "matmul": rows * factors}
    nodes = {
        "conv": s.node("Conv", s.input(image), s.constant(factors.reshape(33, 1, 1, 1))),
        "matmul": s.node("MatMul", s.input(rows), s.constant(factors.reshape(1, 33))),
    }
    for product, value in made.items():
        for kind in KINDS:
            for channels in (False, True):
                scale, zero = parameters(rng, kind, 33 if channels else 0)
                given = [s.constant(scale), s.constant(zero, kind)]
                name = f"{product} {kind} {channels}"
                q = codes(value, scale, zero)
                there = s.node("QuantizeLinear", nodes[product], *given)
                s.case(name, there, q)
                s.case(f"{name} back", s.node("DequantizeLinear", there, *given), back(q, scale, zero))
                positive = s.node("QuantizeLinear", s.node("Relu", nodes[product]), *given)
                s.case(f"{name} relu", positive, codes(np.maximum(value, 0), scale, zero))
    x = numbers(rng, (1, 9, 5, 7))
    scale, zero = parameters(rng, "uint8", 0)
    given = [s.constant(scale), s.constant(zero, "uint8")]
    there = s.node("DequantizeLinear", s.node("QuantizeLinear", s.input(x), *given), *given)
    mix = np.linspace(-1, 1, 11 * 9).reshape(11, 9, 1, 1).astype("float32")
    wanted = np.einsum("oc,ncyx->noyx", mix[:, :, 0, 0].astype("float64"), back(codes(x, scale, zero), scale, zero))
    s.case("before", s.node("Conv", there, s.constant(mix)), wanted, rtol=1e-4)
    results = halotile.compile(s.model(), exact=exact)(s.feeds)
    for name in s.cases:
        s.check(name, results)


def test_sums_of_bytes_by_scales_that_are_infinite_or_tiny() -> None:
    """0 * inf is NaN, and x / 1e-40 infinite: nothing says that such numbers are small."""
    rng, s = np.random.default_rng(2), Sheet()
    x = rng.integers(0, 4, (1, 8, 5, 7)).astype("uint8")
    w = rng.integers(-1, 2, (19, 8, 1, 1)).astype("int8")
    total = np.einsum("oc,ncyx->noyx", w[:, :, 0, 0].astype("int32"), x.astype("int32") - 1)
    a = s.input(x)
    one, zero = s.constant(1), s.constant(0, "int8")
    for kind in ("int8", "uint8"):
        for scale, by in (("x", np.inf), ("y", 1e-40)):
            given = [s.constant(by) if scale == n else one for n in "xy"]
            node = s.node(
                "QLinearConv", a, given[0], s.constant(1, "uint8"), s.constant(w, "int8"), one, zero, given[1],
                s.constant(3, kind),
            )  # fmt: skip
            with np.errstate(all="ignore"):
                factor = np.float32(by) if scale == "x" else np.float32(1) / np.float32(by)
                real = total.astype("float32") * factor
            s.case(f"{kind} {scale}", node, codes(real, np.ones((), "float32"), np.array(3, kind)))
    results = halotile.compile(s.model())(s.feeds)
    for name in s.cases:
        s.check(name, results)


def test_ranges_of_their_own() -> None:
    """A NaN is not lost: it makes the scale one, and codes and zero point 0. Behind a conversion by an infinite range
    all is 0."""
    s = Sheet()
    for name, odd, scale in (("nan", np.nan, np.nan), ("inf", np.inf, np.inf), ("-inf", -np.inf, np.inf)):
        for size in (3, 37):
            x = np.linspace(-1, 2, size).astype("float32")
            x[size // 2] = odd
            y, by, zero = s.node("DynamicQuantizeLinear", s.input(x), outputs=3)
            wanted = [np.zeros(size, "uint8"), np.float32(scale), np.uint8(0)]
            s.case(f"{name} {size}", [y, by, zero], wanted)
    results = halotile.compile(s.model())(s.feeds)
    for name in s.cases:
        s.check(name, results)


def test_int32_zero_points_and_codes() -> None:
    """Dequantised from int32 the difference wraps; to int32, ends are those of the type."""
    s = Sheet()
    q = np.array([-(2**31), 2**31 - 1, 0, 7, -9], "int32")
    zero, scale = np.array(5, "int32"), np.array(0.5, "float32")
    with np.errstate(over="ignore"):
        s.case("from", s.node("DequantizeLinear", s.input(q), s.constant(scale), s.constant(zero, "int32")),
               (q - zero).astype("float32") * scale)  # fmt: skip
    x = np.array([*ODD, 2.0**30, -(2.0**30)], "float32")
    there = s.node("QuantizeLinear", s.input(x), s.constant(scale), s.constant(zero, "int32"))
    s.case("to", there, codes(x, scale, zero))
    results = halotile.compile(s.model())(s.feeds)
    for name in s.cases:
        s.check(name, results)


@pytest.mark.parametrize("kind", ["int4", "uint4", "int2"])
def test_narrower_integers(kind: str) -> None:
    x = np.array(ODD * 3, "float32")
    limits = ml_dtypes.iinfo(kind)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]  # fmt: skip
    zero = helper.make_tensor("z", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), [], [1])
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [x.size])],
        [helper.make_tensor_value_info("y", 1, [x.size])], [zero, numpy_helper.from_array(np.float32(0.5), "s")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    with np.errstate(all="ignore"):
        q = np.fmin(np.fmax(np.rint(x / np.float32(0.5)) + 1, int(limits.min)), int(limits.max))
    np.testing.assert_array_equal(halotile.compile(model)({"x": x})["y"], (q - 1) * 0.5)


def held(x: np.ndarray, kind: str) -> np.ndarray:
    """What Cast gives: the least int32 (int64) for what it does not hold, and of that the low bits."""
    wide = "int32" if np.dtype(kind).itemsize < 4 or kind == "int32" else "int64"
    limit, x = 2.0 ** (np.iinfo(wide).bits - 1), np.trunc(x.astype("float64"))
    inside = np.abs(x) < limit
    found = np.where(inside, np.where(inside, x, 0).astype(wide), np.iinfo(wide).min).astype(kind)
    large = (x >= 2.0**63) & (x < 2.0**64) & (kind == "uint64")
    return np.where(large, np.where(large, x, 0).astype("uint64"), found).astype(kind)


def casts() -> Sheet:
    rng, s = np.random.default_rng(4), Sheet()
    for source in ("float32", "float64", "float16"):
        for size in (37, 3):
            with np.errstate(over="ignore"):
                x = np.resize([*ODD, 2.0**31, -(2.0**31), 2.0**63, 1e19, 2.0**64, 300, -129.7, 65535], size + 24)
                x = rng.permutation(x).astype(source)
            a = s.input(x)
            for kind in CODE:
                s.case(f"{source} {kind} {size}", s.node("Cast", a, to=CODE[kind]), held(x, kind))
                low, high = s.constant(-100, source), s.constant(100, source)
                clipped = s.node("Cast", s.node("Clip", a, low, high), to=CODE[kind])
                s.case(f"{source} {kind} {size} clip", clipped, held(np.clip(x, -100, 100), kind))
                if source == "float32":
                    known = s.node("Cast", s.constant(x), to=CODE[kind])
                    s.case(f"{source} {kind} {size} known", known, held(x, kind))
                    there = s.node("Cast", s.node("Cast", a, to=CODE[kind]), to=TensorProto.FLOAT)
                    s.case(f"{source} {kind} {size} back", there, held(x, kind).astype("float32"))
    return s


def test_casts_of_what_no_integer_holds() -> None:
    s = casts()
    results = halotile.compile(s.model())(s.feeds)
    for name in s.cases:
        s.check(name, results)


@pytest.mark.parametrize("board", ["raspberry-pi-4", "raspberry-pi-3-32"])
def test_boards_give_the_same(board: str, tmp_path: Path) -> None:
    """ARM's conversions hold at the ends of a type, and make 0 of NaN."""
    needs("qemu-aarch64-static", "qemu-arm-static")
    needs_zig()
    emulator = "qemu-arm-static -cpu max" if board.endswith("32") else "qemu-aarch64-static -cpu cortex-a72"
    for i, s in enumerate((quantised(), casts())):
        run_pipeline(s.model(), Options(resolve(board), threads=1, formats=("exe",)), output=tmp_path / str(i))
        with RemoteModel(tmp_path / str(i), emulator) as model:
            found = model(s.feeds)
        for name in s.cases:
            s.check(name, found)

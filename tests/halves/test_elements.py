"""Register tiles that hold vectors of what multiply-adds repeat: fewer instructions, the same bits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from board_tools import needs, needs_zig
from half_models import Net, stack
from halotile.benchmarks import machine_code as m
from halotile.benchmarks.boards import emulator
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Build, Options
from halotile.schedules.conv.direct import channel_vectors
from halotile.schedules.conv.register_tile import TapWindow
from halotile.schedules.instructions.by_element import FREE, MOST, most_rows, takes_elements
from halotile.schedules.matmul import row_elements
from halotile.schedules.matmul.register_tile import best_tiles
from halotile.schedules.words.group import Kernel
from halotile.targets.resolve import resolve

PI5 = "raspberry-pi-5"


def random(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(4).standard_normal(shape).astype(np.float32)


needs_objdump = pytest.mark.skipif(
    not any(shutil.which(f"llvm-objdump{v}") for v in ("", *(f"-{n}" for n in range(14, 31)))),
    reason="NOT RUN: llvm-objdump is not installed (Debian: llvm)",
)


def options(model: onnx.ModelProto, **more: Any) -> Options:
    halves = largest_of(model, "float16")
    return Options(resolve(PI5), precision="float16", halves=halves, threads=1, **{"tile": "off", **more})


def heaviest(model: onnx.ModelProto, **more: Any) -> Kernel:
    return max(run_pipeline(model, options(model, stop_after="plan", **more)).kernels, key=lambda k: k.flops)


def dense_loop(kernel: Kernel) -> m.MachineLoop:
    """The loop with the most multiply-adds."""
    code = m.functions(m.disassembly([m.object_of(kernel, resolve(PI5))], resolve(PI5), m.tools().objdump))[m.NAME]
    return max(m.loops(code), key=lambda loop: loop.multiply_adds)


def layers() -> onnx.ModelProto:
    """Channels that blocks don't divide, strides, dilation, groups and a residual, at sizes that tiles don't divide."""
    net = Net((1, 24, 17, 19), seed=3)
    a = net.conv("x0", 40, 24, 1, 1)
    b = net.conv(a, 36, 40, 3, 3, pads=[1] * 4)
    c = net.conv(b, 72, 36, 1, 1)
    d = net.conv(c, 72, 72, 3, 3, pads=[2] * 4, dilations=[2, 2], act="")
    e = net.add("Relu", net.add("Add", c, d))
    f = net.conv(e, 48, 72, 3, 3, pads=[1] * 4, strides=[2, 2])
    g = net.conv(f, 64, 48, 3, 3, pads=[1] * 4, group=2)
    return net.model(net.conv(g, 21, 64, 1, 1, act=""), e)


def images(taps: int, stride: int, height: int, width: int, channels: int = 3) -> onnx.ModelProto:
    """A first layer of an image, and one behind it."""
    net = Net((1, channels, height, width), seed=taps)
    pads = [taps // 2] * 4
    a = net.conv("x0", 32, channels, taps, taps, pads=pads, strides=[stride, stride])
    return net.model(net.conv(a, 8, 32, 1, 1, act=""))


def products(rows: int, depth: int, columns: int, batch: int = 1) -> onnx.ModelProto:
    """Two products, one behind the other, with a bias and a residual between."""
    net = Net((batch, rows, depth), seed=rows)
    a = net.add("MatMul", "x0", net.weight(depth, columns, fan=depth))
    a = net.add("Relu", net.add("Add", a, net.const(np.linspace(-1, 1, columns, dtype=np.float32))))
    b = net.add("Add", net.add("MatMul", a, net.weight(columns, depth, fan=columns)), "x0")
    return net.model(net.add("MatMul", b, net.weight(depth, 7, fan=depth)), a)


def on_board(model: onnx.ModelProto, folder: Path, inputs: dict[str, np.ndarray], **more: Any) -> tuple[Any, Build]:
    """Outputs under the emulator, and the build."""
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    build = run_pipeline(model, options(model, formats=("exe",), **more), output=folder)
    with RemoteModel(folder, " ".join(run)) as remote:
        return remote(inputs), build


def test_registers_are_counted() -> None:
    """Accumulators, what is repeated, and the weights that are on their way fit in all registers."""
    for name in (PI5, "graviton3"):
        target = resolve(name)
        assert takes_elements(target, "float16") and not takes_elements(target, "float32")
        for vectors in range(1, 9):
            rows = most_rows(target, vectors)
            assert 1 < rows <= MOST and rows * (vectors + 1) + FREE <= target.vector_registers
    for name in ("aarch64-linux-gnu+cortex-a55", "x86_64-linux-gnu+sapphirerapids", "x86-64-v3"):
        assert not takes_elements(resolve(name), "float16")


@needs_objdump
@pytest.mark.parametrize(
    ("sizes", "image", "kernel", "most"),
    [
        ((64, 256), (28, 28), 1, 1.25),
        ((64, 64), (56, 56), 1, 1.25),
        ((512, 128), (7, 7), 1, 1.5),  # LLVM moves elements to the lower registers
        ((128, 128), (14, 14), 3, 1.25),
    ],
)
def test_a_load_serves_eight_channels(
    sizes: tuple[int, int], image: tuple[int, int], kernel: int, most: float
) -> None:
    """In 1.8 to 2 instructions a multiply-add, where each number is loaded by itself."""
    loop = dense_loop(heaviest(stack(sizes, image, kernel), winograd=False))
    assert loop.multiply_adds >= 100 and 10 * loop.spills < loop.multiply_adds
    assert all(".8h" in i.text for i in loop.instructions if i.is_multiply_add)
    assert 8 * loop.loads < 2 * loop.multiply_adds and len(loop.lines) < most * loop.multiply_adds
    assert not any(i.text.startswith("ld1r") for i in loop.instructions)


@needs_objdump
@pytest.mark.parametrize(("sizes", "image"), [((384, 1536), (14, 14)), ((1536, 384), (14, 14)), ((768, 3072), (7, 7))])
def test_each_line_of_far_weights_is_asked_for_once(sizes: tuple[int, int], image: tuple[int, int]) -> None:
    """Of eight channels by vectors of 16 bytes, at four a line."""
    kernel = heaviest(stack(sizes, image, 1))
    vectors = int(kernel.schedule.split("tile ")[1].split(",")[0].split("x")[2])
    loop = dense_loop(kernel)
    assert loop.multiply_adds % (8 * vectors) == 0
    assert sum("pldl2keep" in i.text for i in loop.instructions) == 8 * vectors // 4


@needs_objdump
@pytest.mark.parametrize(("channels", "image"), [(64, 54), (128, 28), (256, 14)])
def test_products_of_transforms_do_so_too(channels: int, image: int) -> None:
    kernel = heaviest(stack((channels, channels), (image, image), 3))
    loop = dense_loop(kernel)
    assert kernel.schedule.startswith("winograd")
    assert loop.multiply_adds >= 100 and loop.spills <= 2
    assert len(loop.lines) < 1.45 * loop.multiply_adds


@needs_objdump
@pytest.mark.parametrize(
    "shape", [(128, 384, 1536), (128, 1536, 384), (197, 768, 768), (1024, 96, 384), (49, 768, 3072)]
)
def test_a_load_serves_eight_steps_of_a_row(shape: tuple[int, int, int]) -> None:
    """Of products, in 1.7 instructions a multiply-add where each number is loaded by itself."""
    loop = dense_loop(heaviest(products(*shape)))
    assert loop.multiply_adds >= 100 and 16 * loop.spills < loop.multiply_adds
    assert all(".8h" in i.text and "[" in i.text for i in loop.instructions if i.is_multiply_add)
    assert 6 * loop.loads < loop.multiply_adds and len(loop.lines) < 1.25 * loop.multiply_adds


def test_tiles_of_products_leave_registers_for_elements() -> None:
    for name in (PI5, "graviton3"):
        target = resolve(name)
        held, each = (best_tiles(target, 1000, 48, elements=elements) for elements in (True, False))
        assert all(rows <= most_rows(target, vectors) for rows, vectors in held)
        assert held[0][0] * held[0][1] >= 2 * target.fma_latency and max(r for r, _ in each) > MOST


@needs_objdump
@pytest.mark.parametrize(("taps", "stride"), [(7, 2), (3, 2), (11, 4), (5, 1)])
def test_rows_of_an_image_serve_the_taps(taps: int, stride: int) -> None:
    kernel = heaviest(images(taps, stride, 95, 91))
    loop = dense_loop(kernel)
    assert f"for {taps} taps" in kernel.schedule
    assert 8 * loop.loads < 2 * loop.multiply_adds and len(loop.lines) < 1.25 * loop.multiply_adds
    assert not loop.spills and all(".8h" in i.text for i in loop.instructions if i.is_multiply_add)


def test_vectors_of_a_row_end_with_what_is_read() -> None:
    for taps, stride in ((7, 2), (3, 1), (3, 2), (11, 4), (2, 2)):
        window = TapWindow(taps, stride, 1, 8)
        for columns in range(1, 20):
            reach = (columns - 1) * stride + taps
            starts, size = window.loads(columns)
            held = {s + i for s in starts for i in range(size)}
            assert held == set(range(reach)) and size in (8, 4, 1) and len(starts) == -(-reach // size)


@pytest.mark.parametrize("odd", [False, True])
def test_a_board_computes_the_same_bits(odd: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a load for each number: sums have their order. ``odd``: with a NaN and an infinity among the inputs."""
    model, found = layers(), []
    x = random((1, 24, 17, 19))
    if odd:
        x[0, 5, 3, 4], x[0, 23, 16, 18] = np.nan, np.inf
    for name in ("held", "each"):
        if name == "each":
            monkeypatch.setattr(channel_vectors, "takes_elements", lambda *_: False)
        outputs, build = on_board(model, tmp_path / name, {"x0": x}, winograd=False)
        found.append((outputs, [k.schedule for k in build.kernels]))
    (held, tiles), (each, others) = found
    assert tiles != others
    for name, value in each.items():
        assert np.isfinite(value).all() != odd
        np.testing.assert_array_equal(held[name], value)


@pytest.mark.parametrize("odd", [False, True])
def test_rows_of_products_have_the_same_bits(odd: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a load for each number, of rows, steps and columns that nothing divides. ``odd``: with a NaN and an
    infinity among the inputs."""
    model, found, x = products(29, 83, 61, 3), [], random((3, 29, 83))
    if odd:
        x[0, 5, 81], x[2, 28, 4] = np.nan, np.inf
    for name in ("held", "each"):
        if name == "each":
            monkeypatch.setattr(row_elements, "takes_elements", lambda *_: False)
        outputs, build = on_board(model, tmp_path / name, {"x0": x})
        found.append((outputs, [k.schedule for k in build.kernels]))
    (held, tiles), (each, others) = found
    assert tiles != others and any(k.startswith("matmul packed") for k in tiles)
    for name, value in each.items():
        assert np.isfinite(value).all() != odd
        np.testing.assert_array_equal(held[name], value)


@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(29, 83, 61), (1, 263, 149), (131, 149, 263), (7, 9, 5), (67, 7, 31), (13, 1031, 17)]
)
def test_a_board_computes_products(rows: int, depth: int, columns: int, tmp_path: Path) -> None:
    """Against sums in float64 of the same weights; where steps are left over, and in runs of 128 of them."""
    model, x = products(rows, depth, columns), random((1, rows, depth))
    outputs, build = on_board(model, tmp_path / "out", {"x0": x})
    assert any(k.schedule.startswith("matmul packed") for k in build.kernels)
    first, bias, second, third = (onnx.numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer)
    middle = np.maximum(x @ first + bias, 0)
    for value, expected in zip(outputs.values(), ((middle @ second + x) @ third, middle)):
        assert value.shape == expected.shape
        assert np.abs(value - expected).max() < 5e-3 * np.abs(expected).max()


@pytest.mark.parametrize("depth", [127, 131, 263, 384, 1031])
def test_no_run_of_a_product_is_longer_than_float16_counts(depth: int, tmp_path: Path) -> None:
    """Of terms of 15, 136 are exact in float16; with more every other sum of two is rounded, mostly up."""
    net = Net((1, 29, depth))
    model = net.model(net.add("MatMul", "x0", net.const(np.full((depth, 37), 15, np.float32))))
    outputs, build = on_board(model, tmp_path / "out", {"x0": np.ones((1, 29, depth), np.float32)})
    assert any(k.schedule.startswith("matmul packed") and k.schedule.endswith("x8") for k in build.kernels)
    (value,) = outputs.values()
    np.testing.assert_array_equal(value, np.full((1, 29, 37), np.float16(15 * depth), np.float32))


@pytest.mark.parametrize(
    ("taps", "stride", "height", "width", "channels"),
    [(7, 2, 37, 41, 3), (3, 2, 31, 29, 3), (3, 1, 7, 5, 1), (11, 4, 47, 43, 2), (5, 1, 6, 3, 4), (3, 2, 9, 1, 3)],
)
def test_a_board_computes_first_layers(
    taps: int, stride: int, height: int, width: int, channels: int, tmp_path: Path
) -> None:
    model, x = images(taps, stride, height, width, channels), random((1, channels, height, width))
    found, build = on_board(model, tmp_path / "out", {"x0": x})
    assert any(f"for {taps} taps" in k.schedule for k in build.kernels)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,), (value,) = session.run(None, {"x0": x}), found.values()
    assert np.abs(value - expected).max() < 5e-3 * np.abs(expected).max()


def test_tiles_of_a_board_compute_the_same_bits(tmp_path: Path) -> None:
    net = Net((1, 3, 67, 71), seed=6)
    a = net.conv("x0", 32, 3, 5, 5, pads=[2] * 4)
    b = net.conv(a, 48, 32, 3, 3, pads=[1] * 4)
    model = net.model(net.conv(b, 5, 48, 1, 1, act=""))
    x = random((1, 3, 67, 71))
    whole, first = on_board(model, tmp_path / "whole", {"x0": x}, winograd=False, optimize="memory")
    budget = first.report["planned_bytes"] * 6 // 10
    tiled, second = on_board(model, tmp_path / "tiled", {"x0": x}, winograd=False, tile="auto", memory_budget=budget)
    assert any("tiled" in k.schedule for k in second.kernels)
    for name, value in whole.items():
        np.testing.assert_array_equal(tiled[name], value)

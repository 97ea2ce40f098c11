"""Winograd's products ask for what the transforms behind them read from memory: all of it, and nothing that is near."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged
from halotile.benchmarks import layers
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import activation
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.cut_residuals import CutPlace
from halotile.schedules.conv.kernel import ConvKernel
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd import choose as choose
from halotile.schedules.conv.winograd import plan as winograd_plan
from halotile.schedules.conv.winograd import prefetch as winograd_ahead
from halotile.schedules.conv.winograd.prefetch import Ahead
from halotile.schedules.conv.winograd.transform import F4, F6, Transform
from halotile.schedules.tiled import TiledKernel
from halotile.schedules.words.group import Kernel, Limits
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from tvm import relax, sym
from winograd_layers import conv, facts_of, random, server

R = relax.op
LANES = 16


def layer(
    channels: int, width: int, plan: Any, asked: list[tuple[Any, int]], cut: tuple[int, int] | None = None
) -> Ahead:
    """Hints of a layer with ``width`` columns of tiles, whose tensors begin at zero; ``asked`` gets (buffer, line). The
    residual lies at the outputs' own place, or is a ``cut`` of a larger image, from that row and column on."""
    m, stride, columns = plan.transform.across.m, 8192, 2048  # elements between blocks, tiles of rows

    def origin(number: Any) -> Any:
        row, column = divmod(int(number), width)
        origins = [row * m, column * m]
        return SimpleNamespace(
            n=0, deep=[], origins=origins, position=lambda own: [o + int(i) for o, i in zip(origins, own)]
        )

    def place(block: Any, at: list[Any]) -> int:
        return (int(block) * stride + int(at[0]) * columns + int(at[1])) * LANES

    facts = SimpleNamespace(
        channels=channels, strides=(1, 1), before=(0, 0), dilation=(1, 1), data=SimpleNamespace(dtype="float32")
    )
    facing = SimpleNamespace(strides=(0, stride * LANES, 0, 0), elements=1 << 30)
    target = server(l2_bytes=4 << 20)
    request = SimpleNamespace(target=target, workers=1, box=None, limits=Limits(), layout=lambda _: facing)
    fake = SimpleNamespace(
        k=None,
        lanes=LANES,
        facts=facts,
        has_prologue=False,
        request=request,
        bind=lambda v, _: v,
        read=lambda _: "data",
        ctx=SimpleNamespace(buffer=lambda _: "residual"),
        offset=lambda n, channel, at: place(channel[0], at),
        is_windowed=lambda _: False,
        places=lambda: [(facts.data, False)] * (cut is None) + [(facts.data, True)],
        cuts=lambda: [] if cut is None else [CutPlace(facts.data, cut)],
        result=lambda value, n, block, at: place(block, at),
    )
    return Ahead(fake, plan, origin, 1 << 20)  # type: ignore


@pytest.mark.parametrize(
    "channels,rows,row_tiles,t",
    [(64, 13, 1, F6), (64, 13, 2, F6), (48, 9, 1, F6), (32, 13, 1, F6), (64, 13, 1, F4)],
)
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("cut", [None, (3, 5)])
def test_every_line_is_asked_for(
    channels: int,
    rows: int,
    row_tiles: int,
    t: Transform,
    at_once: bool,
    cut: tuple[int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside the channels several times; before them once, but for the lines that two runs share."""
    asked: list[tuple[Any, int]] = []
    monkeypatch.setattr(winograd_ahead, "hint", lambda k, buffer, at: asked.append((buffer, int(at) // LANES)))
    vectors, strip, blocks, width = 2, rows * row_tiles, channels // LANES, 1 << 9
    chunks = -(-blocks // vectors)
    plan = winograd_plan.WinogradPlan(t, (1 << 10, width), rows, vectors, strip, 9, chunks, 1, 0.0)
    ahead, first = layer(channels, width, plan, asked, cut), 3 * strip
    for chunk in range(chunks):
        for xi in range(t.products):
            for panel in range(row_tiles):
                runs = ahead.of((first, chunk, chunk), xi, panel)
                for block in range(blocks):
                    for run in runs(block):
                        before = len(asked)
                        if not at_once:
                            for c in range(LANES):
                                run.ask(None, c)
                        elif int(sym.Analyzer().simplify(run.first)):
                            run.ask_for_lines(SimpleNamespace(when=lambda _: nullcontext()))
                        lines_of_run = {line for _, line in asked[before:]}
                        assert len(lines_of_run) in ((0, t.across.m) if at_once else (t.across.m,))
    lines = {name: {line for buffer, line in asked if buffer == name} for name in ("data", "residual")}
    wanted = {
        b * 8192 + i * 2048 + tile * t.across.m + t.across.extent - t.across.m + j
        for tile in range(first + strip, first + 2 * strip)
        for b in range(blocks)
        for i in range(t.across.extent)
        for j in range(t.across.m)
    }
    assert lines["data"] == wanted
    down, right = cut or (0, 0)
    own = {
        b * 8192 + (i + down) * 2048 + tile * t.across.m + j + right
        for tile in range(first, first + strip)
        for b in range(chunks * vectors)
        for i in range(t.across.m)
        for j in range(t.across.m)
    }
    assert lines["residual"] == own
    if at_once:
        assert len(asked) <= 1.8 * len(set(asked))


def built(target: Target, inputs: list[np.ndarray], cut: bool = False) -> tuple[Kernel, np.ndarray]:
    """The last of three layers, which adds the first one's result, or a ``cut`` of a larger first one's; and what it
    gives."""
    k = random((32, 32, 3, 3), 2) / np.float32(17)

    def body(x: Any) -> Any:
        y = R.nn.relu(conv(x, k))
        if not cut:
            return R.nn.relu(conv(R.nn.relu(conv(y, k)), k) + y)
        rows, columns = inputs[0].shape[2:]
        inner = R.strided_slice(y, [2, 3], [0, 0], [rows - 3, columns - 1])
        return R.nn.relu(conv(R.nn.relu(conv(inner, k)), k) + R.strided_slice(y, [2, 3], [2, 1], [rows - 1, columns]))

    build = staged(module_of(inputs, body), target, tiled=False)
    found = [kernel for kernel in build.kernels if "winograd" in kernel.schedule]
    assert len(found) == 3
    return found[2], Compiled(build).run(inputs)[0]


def hints(kernel: Kernel) -> int:
    return str(kernel.function).count("T.prefetch")


@pytest.mark.parametrize("cores", [1, 2])
def test_only_tensors_from_memory_are_asked_for(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits either way; nothing where a last level keeps the tensors, or weights would push them out."""
    roomy = replace(native(), vector_registers=32, vector_bits=512, l2_bytes=8 << 20, l3_bytes=1 << 30, cores=cores)
    plan = next(p for p in choose.least_plans(roomy, facts_of(32, 32, 61, 75)) if p.transform is F6)
    monkeypatch.setattr(winograd_algorithm, "choose_plan", lambda *_, **__: replace(plan, cycles=0.0))
    inputs = [random((1, 32, 61, 75), 1)]
    small = replace(roomy, l3_bytes=1 << 20)  # of which 256 KiB are kept; the tensors have 600
    near, far, full = (built(t, inputs) for t in (roomy, small, replace(small, l2_bytes=1 << 18)))
    both = winograd_ahead.next_rows(plan)
    rest = hints(far[0]) - hints(near[0]) - both
    assert 0 < both <= 2 and 0 < rest <= 2
    assert hints(full[0]) == hints(near[0]) + rest  # residuals are read at once
    np.testing.assert_array_equal(far[1], near[1])
    np.testing.assert_array_equal(far[1], full[1])


def test_cuts_of_larger_images_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a skip that begin behind the kept ones: as many hints as for one of the output's size, the same bits."""
    roomy = replace(native(), vector_registers=32, vector_bits=512, l2_bytes=8 << 20, l3_bytes=1 << 30, cores=1)
    plan = next(p for p in choose.least_plans(roomy, facts_of(32, 32, 61, 75)) if p.transform is F6)
    monkeypatch.setattr(winograd_algorithm, "choose_plan", lambda *_, **__: replace(plan, cycles=0.0))
    inputs = [random((1, 32, 64, 76), 1)]
    near, far = (built(replace(roomy, l3_bytes=size), inputs, cut=True) for size in (1 << 30, 1 << 20))
    rest = hints(far[0]) - hints(near[0]) - winograd_ahead.next_rows(plan)
    assert 0 < rest <= 2
    np.testing.assert_array_equal(far[1], near[1])
    monkeypatch.setattr(ConvKernel, "cuts", lambda conv: [])
    plain = built(replace(roomy, l3_bytes=1 << 20), inputs, cut=True)
    assert hints(far[0]) == hints(plain[0]) + rest
    np.testing.assert_array_equal(far[1], plain[1])


@pytest.mark.parametrize("threads", [1, 2])
def test_windows_beyond_the_second_level_are_asked_for(threads: int) -> None:
    """Hints for input, residual and output where windows are larger than the cache, none where it holds them."""
    g = ModelGraph("windows", ExportForm(opset=17))
    x = activation(g, layers.conv(g, g.input("x", (1, 32, 72, 400)), 32, 3), "relu")
    y = activation(g, layers.conv(g, x, 32, 3), "relu")
    model = g.finish(y=g.op("Add", layers.conv(g, y, 32, 3), x))
    inputs, results, found = [random((1, 32, 72, 400), 1)], [], []
    for level in (1 << 20, 16 << 20):
        target = replace(native(), l2_bytes=level, l3_bytes=1 << 30, cores=threads)
        build = run_pipeline(model, Options(target, stop_after="plan", threads=threads, tile={"shape": (36, None)}))
        parts = [p for k in build.kernels if isinstance(k, TiledKernel) for p in k.parts]
        found.append([hints(p) for p in parts if "F(6x6,3x3), strip" in p.schedule])
        results.append(Compiled(build).run(inputs)[0])
    assert found[0] and len(found[0]) == len(found[1])
    assert max(f - n for f, n in zip(*found)) >= 3 and min(f - n for f, n in zip(*found)) >= 0, found
    np.testing.assert_allclose(*results, rtol=1e-3, atol=1e-3)


def test_windows_that_the_second_level_holds_one_by_one_are_asked_for() -> None:
    """Where it can't hold what a layer reads and writes together."""
    g = ModelGraph("windows", ExportForm(opset=17))
    x = activation(g, layers.conv(g, g.input("x", (1, 32, 72, 400)), 32, 3), "relu")
    model = g.finish(y=layers.conv(g, activation(g, layers.conv(g, x, 32, 3), "relu"), 32, 3))
    counts = []
    for level in (3, 4, 16):  # MiB; a window of 38 x 402 x 32 channels has 1.9
        target = replace(native(), l2_bytes=level << 20, l3_bytes=1 << 30, cores=1)
        build = run_pipeline(model, Options(target, stop_after="plan", threads=1, tile={"shape": (36, None)}))
        parts = [p for k in build.kernels if isinstance(k, TiledKernel) for p in k.parts]
        counts.append(max(hints(p) for p in parts if "F(6x6,3x3), strip" in p.schedule))
    assert counts[0] > counts[1] == counts[2], counts


@pytest.mark.skipif(shutil.which("objdump") is None, reason="NOT RUN: needs objdump")
def test_hints_leave_the_sums_in_sixteen_registers(tmp_path: Path) -> None:
    """The way to a line of a residual is long in boxes of any size: beside it, sums of products were stored and read
    again in the loop over the channels."""
    target = replace(resolve("x86_64-linux-gnu+znver3"), cores=1, l3_bytes=32 << 20)
    g = ModelGraph("apart", ExportForm(opset=17))
    x = activation(g, layers.conv(g, g.input("x", (1, 64, 180, 640)), 64, 3), "relu")
    for _ in range(2):
        y = activation(g, layers.conv(g, x, 64, 3), "relu")
        x = g.op("Add", layers.conv(g, y, 64, 3), x)
    model = g.finish(y=x)
    options = Options(target, stop_after="assemble", threads=1, tile={"shape": (12, 320)})
    build = run_pipeline(model, options)
    parts = [p for k in build.kernels if isinstance(k, TiledKernel) for p in k.parts]
    assert any("winograd" in p.schedule and hints(p) for p in parts)
    found = 0
    for number, code in enumerate(build.library.kernel_objects):
        (tmp_path / f"{number}.o").write_bytes(code)
        command = ["objdump", "-d", "--no-show-raw-insn", f"{number}.o"]
        text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for loop in inner_loops(text):
            if sum("vfmadd" in line for line in loop) >= 80 and not any("vaddps" in line for line in loop):
                found += 1
                assert not [line for line in loop if re.search(r"vmov[au]ps\s+%ymm\d+,.*\(%rsp\)", line)]
    assert found >= 4


@pytest.mark.skipif(shutil.which("objdump") is None, reason="NOT RUN: needs objdump")
def test_transforms_load_no_numbers_with_sixteen_registers(tmp_path: Path) -> None:
    g = ModelGraph("alone", ExportForm(opset=17))
    model = g.finish(y=layers.conv(g, g.input("x", (1, 64, 60, 60)), 64, 3))
    target = replace(resolve("x86_64-linux-gnu+znver3"), cores=1, l3_bytes=32 << 20)
    build = run_pipeline(model, Options(target, stop_after="assemble", threads=1, tile="off"))
    assert any("F(6x6,3x3)" in k.schedule for k in build.kernels)
    found = 0
    for number, code in enumerate(build.library.kernel_objects):
        (tmp_path / f"{number}.o").write_bytes(code)
        command = ["objdump", "-d", "--no-show-raw-insn", f"{number}.o"]
        text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for loop in inner_loops(text):
            if sum("vfmadd" in line or "vfnmadd" in line for line in loop) >= 80 and any("vaddps" in i for i in loop):
                found += 1
                assert not any("vbroadcastss" in line for line in loop)
    assert found


def inner_loops(text: str) -> list[list[str]]:
    """Instructions between a backward jump and where it goes, for loops that have no other in them."""
    lines = [(int(m[1], 16), m[2]) for m in re.finditer(r"^\s+([0-9a-f]+):\s+(.*)$", text, re.M)]
    jumps = [(at, re.match(r"j\w+\s+([0-9a-f]+)", what)) for at, what in lines]
    loops = [(int(m[1], 16), at) for at, m in jumps if m and int(m[1], 16) <= at]
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    return [[what for at, what in lines if first <= at <= last] for first, last in inner]

"""Direct convolutions ask for the next panel of weights beside the work on this one, where a stream falls behind."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.schedules.conv import kernel as conv_kernel
from halotile.schedules.conv import panel_sums
from halotile.schedules.conv.direct import data_prefetch, weight_panels
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.conv.register_tile import Space, Tile, choose_tile, step_cycles, tiles_of
from halotile.schedules.conv.weight_prefetch import MANY, MOST, NextPanel, next_panel, spread_runs
from halotile.schedules.emit.builder import KernelBuilder
from halotile.schedules.math.float16 import Widened
from halotile.schedules.words.group import Request, Scratch
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, sym, tirx

R = relax.op
F = "float32"
WEIGHTS = ", 0, 2, 1)"  # the end of a hint for the second level, in the text of a kernel
DATA = ", 0, 3, 1)"  # of one for the first level
WRITTEN = ", 1, 3, 1)"  # of one for a line that will be written
ONE = replace(
    resolve("x86-64-v4"), fma_ports=1, fma_latency=4, cores=1, l1_bytes=32 << 10, l2_bytes=1 << 20, far_bytes=12
)
TWO = replace(ONE, fma_ports=2, l2_bytes=2 << 20, far_bytes=10)
WIDE, LOW = Tile(2, 7, 2), Tile(1, 7, 2)


def hints(
    target: Target, cin: int, cout: int, size: int, kernel: int = 1, wanted: str = WEIGHTS
) -> tuple[int, int]:
    """Hints in the loop over the channels of a block, and before it."""
    x, w = np.zeros((1, cin, size, size), F), np.zeros((cout, cin, kernel, kernel), F)
    module = module_of([x], lambda x: R.nn.conv2d(x, weight(w), padding=kernel // 2))
    build = staged(module, target, tiled=False, exact=True)
    (kernel_,) = [k for k in build.kernels if "direct conv" in k.schedule]
    around: list[tuple[int, str]] = []  # open loops and their indentation
    found = [0, 0]
    for line in str(kernel_.function).splitlines():
        text = line.lstrip()
        depth = len(line) - len(text)
        around = [loop for loop in around if loop[0] < depth]
        if text.startswith("for "):
            around.append((depth, text.split(" in ")[0]))
        if wanted in text:
            found[not re.search(r"\bc\d+\b", around[-1][1])] += 1
    return found[0], found[1]


@pytest.mark.parametrize(
    "target,cin,cout,size,expected",
    [
        (TWO, 1024, 256, 14, (1, 0)),  # 14 tiles share 32 lines of each block: 3 lines for 16 channels
        (TWO, 2048, 512, 7, (2, 0)),  # 4 do, of two sizes
        (TWO, 128, 128, 14, (2, 0)),  # a small layer's are as far in a whole network; two loops, one asks for results
        (replace(TWO, l2_bytes=8 << 20), 64, 64, 112, (0, 0)),  # of hundreds of tiles one waits
        (ONE, 1024, 256, 14, (1, 0)),  # 2.2 bytes a cycle keep up, with hints in the stream itself
        (ONE, 2048, 512, 7, (2, 0)),
        (ONE, 128, 128, 14, (0, 0)),
    ],
)
def test_where_which_hints_are(target: Target, cin: int, cout: int, size: int, expected: tuple[int, int]) -> None:
    assert hints(target, cin, cout, size) == expected


@pytest.mark.parametrize(
    "target,cin,cout,size,kernel,expected",
    [
        (TWO, 512, 128, 28, 1, (1, 0)),  # 16 tiles a row of tiles, 56 lines of each block in the next one
        (TWO, 256, 64, 56, 1, (2, 0)),
        (TWO, 256, 64, 56, 3, (0, 0)),  # rows of taps: few lines in a step
        (replace(TWO, l2_bytes=8 << 20), 512, 128, 28, 1, (1, 0)),  # the image stays: groups, and their next panel
        (ONE, 512, 128, 28, 1, (0, 0)),
    ],
)
def test_rows_ask_for_the_input_of_the_next(
    target: Target, cin: int, cout: int, size: int, kernel: int, expected: tuple[int, int]
) -> None:
    assert hints(target, cin, cout, size, kernel) == expected


@pytest.mark.parametrize(
    "target,cin,size,kernel,expected",
    [
        (TWO, 512, 14, 1, (1, 0)),  # a line of the next block beside each channel, of one tile of 14 in a row
        (TWO, 512, 7, 1, (2, 0)),  # of two rows that follow each other, and of one
        (TWO, 16, 14, 1, (0, 0)),  # there is no next block
        (TWO, 512, 14, 3, (0, 0)),  # of several taps: few lines in a step
        (ONE, 512, 14, 1, (0, 0)),  # one multiply-add a cycle leaves time to wait
    ],
)
def test_tiles_ask_for_the_data_of_the_next_channels(
    target: Target, cin: int, size: int, kernel: int, expected: tuple[int, int]
) -> None:
    assert hints(target, cin, 256, size, kernel, DATA) == expected


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("block,blocks", [(2, 4), (3, 4)])
def test_the_channels_of_a_block_ask_for_all_lines_of_the_next(stride: int, block: int, blocks: int) -> None:
    """Behind the last block they are those of the first, of the next tile."""
    x, w = np.zeros((1, 64, 28, 28), F), np.zeros((64, 64, 1, 1), F)
    build = staged(module_of([x], lambda x: R.nn.conv2d(x, weight(w), strides=stride)), TWO, tiled=False, exact=True)
    group = next(g for g in build.groups if g.anchor is not None)
    assert group.anchor is not None
    request = Request(group, build.layouts, TWO)
    conv = conv_kernel.ConvKernel(request, ConvFacts.of(group.anchor), LOW, 16, conv_kernel.new_context(request))
    conv.bind = lambda value, extent: value  # type: ignore[method-assign]
    begin = data_prefetch.next_data(conv, 0, tirx.IntImm("int32", block), blocks, [5], 0)
    asked: set[int] = set()
    for channel in range(16):
        found = Lines(4)
        conv.k = found  # type: ignore[assignment]
        data_prefetch.ask_beside(conv, tirx_value(begin), channel)
        asked |= set(found.found)
    first, after = (0, 7 * stride) if block + 1 == blocks else (block + 1, 0)
    layout = build.layouts[conv.facts.data]
    wanted = [layout.offset([0, 0, 5 * stride, after + p * stride], first, 0) for p in range(7)]
    assert asked >= {int(tirx_value(place)) // 16 for place in wanted}


@pytest.mark.parametrize(
    "target,written_out", [(TWO, True), (ONE, False), (replace(TWO, triple="aarch64-linux-gnu"), False)]
)
def test_channels_are_written_out_where_two_multiply_adds_start(target: Target, written_out: bool) -> None:
    x, w = np.zeros((1, 64, 14, 14), F), np.zeros((64, 64, 1, 1), F)
    build = staged(module_of([x], lambda x: R.nn.conv2d(x, weight(w))), target, tiled=False, exact=True)
    (found,) = [k for k in build.kernels if "direct conv" in k.schedule]
    assert bool(re.search(r"for c\d+ in T.unroll\(4\)", str(found.function))) is written_out


@pytest.mark.parametrize(
    "stride,first,rows",
    [(1, 10, 2), (2, 19, 4)],  # the tile of rows 8 and 9 reads 8 and 9, or 16 and 18
)
def test_the_tiles_of_a_row_ask_for_the_next_rows(stride: int, first: int, rows: int) -> None:
    x, w = np.zeros((1, 64, 28, 28), F), np.zeros((64, 64, 1, 1), F)
    module = module_of([x], lambda x: R.nn.conv2d(x, weight(w), strides=stride))
    build = staged(module, TWO, tiled=False, exact=True)
    group = next(g for g in build.groups if g.anchor is not None)
    assert group.anchor is not None
    request = Request(group, build.layouts, replace(TWO, l2_bytes=64 << 10))
    conv = conv_kernel.ConvKernel(request, ConvFacts.of(group.anchor), WIDE, 16, conv_kernel.new_context(request))
    conv.order, columns, groups = "rows", -(-28 // stride // 7), 2 * stride
    below = conv.below = data_prefetch.below_of(conv, groups)
    assert below is not None
    layout, asked = build.layouts[conv.facts.data], set()
    for number in range(groups * columns):
        conv.across = number % columns
        begin = data_prefetch.row_below(conv, 0, number // columns, [8])(3)
        steps = range(below.lines)
        asked |= {int(tirx_value(begin + step * below.line)) // 16 for step in steps}
    wanted = [[0, 0, y, x] for y in range(first, first + rows) for x in range(28)]
    assert asked >= {int(tirx_value(layout.offset(at, 3, 0))) // 16 for at in wanted}
    assert len(asked) <= groups * columns * below.lines


def test_the_rate_decides() -> None:
    assert next_panel(TWO, WIDE, 1 << 15, 14, 64, 4) is not None
    assert next_panel(ONE, WIDE, 1 << 15, 14, 64, 4) is None
    assert next_panel(ONE, LOW, 1 << 15, 7, 64, 4) is None
    assert next_panel(replace(TWO, far_bytes=32), WIDE, 1 << 15, 14, 64, 4) is None
    assert next_panel(TWO, WIDE, 1 << 15, MANY + 1, 64, 4) is None
    assert next_panel(TWO, WIDE, MOST * 16 * 64 + 1, 1, 64, 4) is None, "one tile would ask in bursts"


@given(st.integers(1, 5000), st.integers(1, 40), st.integers(1, 80))
def test_the_tiles_of_a_panel_ask_for_all_of_the_next(vectors: int, tiles: int, steps: int) -> None:
    """Each line at least once, none far beyond the panel."""
    size = vectors * 16
    found = next_panel(TWO, LOW, size, tiles, steps, 4)
    if found is None:
        assert tiles > MANY or -(-vectors // (tiles * steps)) > MOST
        return
    shares = [int(tirx_value(found.share(lambda value, extent: value, number))) for number in range(tiles)]
    asked = {(share - size) // 16 + i for share in shares for i in range(steps * found.lines)}
    assert asked >= set(range(vectors)) and max(asked) < max(vectors, steps * found.lines)
    assert all(share < 2 * size + 1 for share in shares) and all(a <= b for a, b in pairwise(shares))
    again = found.share(lambda value, extent: value, tiles + 1)
    assert int(tirx_value(again)) == shares[1 % tiles], "the next panel's tiles begin anew"


class Lines:
    """Takes what hints are added, and keeps the lines they ask for."""

    def __init__(self, element: int) -> None:
        self.element = element
        self.found: list[int] = []

    def add(self, statement: tirx.Evaluate) -> None:
        place = statement.value.args[0].args[0]
        self.found.append(int(place.indices[0]) * self.element // 64)


@pytest.mark.parametrize("lines", [1, 3, 5, 11, 16])
@pytest.mark.parametrize("narrow", [False, True])
def test_hints_beside_the_channels_ask_for_what_bursts_ask_for(lines: int, narrow: bool) -> None:
    found, share = NextPanel(1 << 16, 7, 4, lines, 16), 4096
    assert found.spreads(16)
    stored = KernelBuilder("k").pointer("w", "float16" if narrow else "float32", 1 << 18)
    buffer: Any = Widened(stored) if narrow else stored
    burst, beside = Lines(2 if narrow else 4), Lines(2 if narrow else 4)
    for step in range(4):
        found.ask(burst, buffer, share, step)
        for channel in range(16):
            found.ask_beside(beside, buffer, share, step, channel, 16)
    assert sorted(set(beside.found)) == sorted(set(burst.found))
    assert len(beside.found) == 64


def test_few_or_unknown_channels_get_all_hints_at_once() -> None:
    found = NextPanel(1 << 16, 7, 4, 5, 16)
    assert not found.spreads(3) and not found.spreads(tirx.Var("count", "int32")) and not found.spreads(32)


@pytest.mark.parametrize(
    "cin,cout,size,kernel,expected",
    [
        (64, 256, 56, 1, (1, 0)),  # two runs of fourteen lines in the first of four steps of sixteen channels
        (128, 256, 56, 1, (1, 0)),
        (32, 256, 56, 1, (1, 0)),
        (16, 256, 56, 1, (2, 0)),  # two in the only step
        (3, 64, 56, 3, (2, 0)),  # twelve runs of three lines in nine steps of three channels
        (3, 64, 56, 5, (0, 0)),  # 75 steps, of so few channels that LLVM writes them out
        (4, 64, 56, 5, (1, 0)),  # which it does not here
        (128, 64, 56, 3, (0, 0)),  # a long reduction: the wait counts for nothing
    ],
)
def test_where_hints_for_results_are(
    cin: int, cout: int, size: int, kernel: int, expected: tuple[int, int]
) -> None:
    assert hints(TWO, cin, cout, size, kernel, WRITTEN) == expected


def test_no_step_asks_for_results_again() -> None:
    """Two runs, one a block of channels: six blocks of eight have a loop of their own."""
    text = str(kernel_of(TWO, 128, 56).function)
    loops = re.findall(r"for (cb\d+) in (?:T\.serial\(|range\()([\d, ]+)\)", text)
    assert [extent for _, extent in loops] == ["2", "2, 8"]
    assert text.index(WRITTEN) < text.index(loops[1][0]) and WRITTEN not in text[text.index(loops[1][0]) :]


@pytest.mark.parametrize("cin,kernel", [(64, 1), (32, 1), (40, 1), (16, 3), (3, 3)])
def test_a_tile_asks_for_all_lines_of_its_results(cin: int, kernel: int) -> None:
    x, w = np.zeros((1, cin, 28, 28), F), np.zeros((64, cin, kernel, kernel), F)
    build = staged(module_of([x], lambda x: R.nn.conv2d(x, weight(w), padding=kernel // 2)), TWO, False, exact=True)
    group = next(g for g in build.groups if g.anchor is not None)
    assert group.anchor is not None
    request = Request(group, build.layouts, TWO)
    conv = conv_kernel.ConvKernel(request, ConvFacts.of(group.anchor), WIDE, 16, conv_kernel.new_context(request))
    conv.bind = lambda value, extent: value  # type: ignore[method-assign]
    steps, channels = max(1, cin // 16) * kernel * kernel, min(cin, 16)
    runs = spread_runs(WIDE, 16, steps, channels, 4)
    assert runs is not None
    found = [r for s in range(steps) for r in conv.result_runs(0, 2, [8], 14, runs, tirx.IntImm("int32", s))]
    asked = {(int(tirx_value(begin)) + c * runs.stride) // 16 for _, begin, _ in found for c in range(channels)}
    layout = build.layouts[group.outputs[0]]
    wanted = [layout.offset([0, 0, y, x], block, 0) for y in (8, 9) for x in range(14, 21) for block in (2, 3)]
    assert asked >= {int(tirx_value(place)) // 16 for place in wanted}
    assert len(asked) <= len(wanted) + 8 and all(written for _, _, written in found)


def test_too_few_steps_for_the_results() -> None:
    assert spread_runs(WIDE, 16, 1, 16, 4) is None
    assert spread_runs(WIDE, 16, 49, tirx.Var("count", "int32"), 4) is None


def tirx_value(value: Any) -> Any:
    return value if isinstance(value, int) else sym.Analyzer().simplify(value)


def parts(target: Target, cin: int, cout: int, size: int, kernel: int, cores: int = 1) -> tuple[int, int]:
    """Into how many parts one direct convolution cuts its panels of weights, and elements of scratch for their sums."""
    x, w = np.zeros((1, cin, size, size), F), np.zeros((cout, cin, kernel, kernel), F)
    module = module_of([x], lambda x: R.nn.conv2d(x, weight(w), padding=kernel // 2))
    build = staged(module, replace(target, cores=cores), tiled=False, exact=True)
    (found,) = [k for k in build.kernels if "direct conv" in k.schedule]
    return turns(found), sum(o.bytes // 4 for o in found.operands if isinstance(o, Scratch))


def turns(kernel: Any) -> int:
    """How often a core passes over its rows of a group."""
    found = re.findall(r"for (.*turn.*) in [A-Za-z.]+\((.*)\):", str(kernel.function))
    counts = [int(e) for vars, ends in found for v, e in zip(vars.split(", "), ends.split(", ")) if "turn" in v]
    return max(counts, default=1)


@pytest.mark.parametrize("cores", [1, 2])
def test_panels_are_passed_in_parts_that_stay_in_the_first_level(cores: int) -> None:
    """Of 48 KB two thirds; sums wait on the stack. A step of 1 x 7 x 2 vectors reads 128 bytes, a part has 256."""
    target = replace(TWO, l1_bytes=48 << 10)
    assert parts(target, 2048, 512, 7, 1, cores) == (8, 0)
    assert parts(target, 1024, 256, 14, 1, cores) == (4, 0)
    assert parts(target, 728, 728, 19, 1, cores) == (3, 0), "half a block goes with the last part"
    assert parts(target, 256, 1024, 14, 1, cores) == (1, 0), "all of it fits"
    assert parts(target, 512, 512, 7, 3, cores) == (32, 0), "a block of channels is 18 KB"
    assert parts(target, 512, 512, 1, 1, cores) == (1, 0), "nobody reads a panel twice"
    assert parts(ONE, 2048, 512, 7, 1, cores) == (1, 0), "the second level keeps up"


def test_large_panels_are_passed_in_parts() -> None:
    near = replace(TWO, l2_bytes=128 << 10)
    group = 24 * 24 * 32  # sums of one group of channels at a time, too many for a stack
    assert parts(near, 256, 64, 24, 3) == (16, group), "295 KB of weights are gone with every tile, and rows don't help"
    assert parts(near, 256, 64, 24, 3, cores=2) == (16, 2 * group), "each core has its own"
    assert parts(ONE, 512, 512, 28, 3) == (1, 0), "a stream keeps up"


@pytest.mark.sampled
@pytest.mark.parametrize("images,cores", [(1, 1), (2, 1), (2, 2), (1, 2), (1, 3)])
@pytest.mark.parametrize("stack,channels", [(0, 64), (1 << 16, 64), (0, 71), (1 << 16, 71)])
def test_parts_change_no_bit(
    images: int, cores: int, stack: int, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums on the stack or in the arena; cores that share the rows in the middle; a block that is not whole."""
    random = np.random.default_rng(3)
    x = random.standard_normal((images, channels, 5, 9)).astype(F)
    w = random.standard_normal((192, channels, 3, 3)).astype(F)
    b = random.standard_normal((1, 192, 1, 1)).astype(F)
    y = random.standard_normal((images, 192, 5, 9)).astype(F)

    def body(x: Any, y: Any) -> Any:
        return R.nn.relu(R.nn.conv2d(x, weight(w), padding=1) + weight(b)) + y

    target = replace(native(), cores=cores, fma_ports=2, l2_bytes=256 << 10, far_bytes=1)
    for module in (weight_panels, panel_sums):
        monkeypatch.setattr(module, "STACK_SUMS", stack)
    found = []
    for panel in (1 / 16, 1 << 20):
        monkeypatch.setattr(weight_panels, "PANEL", panel)
        monkeypatch.setattr(weight_panels, "FIRST", panel)
        build = staged(module_of([x, y], body), target, tiled=False, exact=True)
        assert any(turns(k) > 1 for k in build.kernels) == (panel < 1)
        scratch = [o for k in build.kernels for o in k.operands if isinstance(o, Scratch)]
        assert bool(scratch) == (panel < 1 and not stack)
        found.append(Compiled(build).run([x, y])[0])
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.sampled
@pytest.mark.parametrize("l2", [1 << 20, 16 << 10])
@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize(
    "cin,cout,size,kernel,stride,groups", [(64, 96, 28, 1, 1, 1), (19, 53, 41, 3, 2, 1), (96, 64, 11, 3, 1, 2)]
)
def test_results(cin: int, cout: int, size: int, kernel: int, stride: int, groups: int, cores: int, l2: int) -> None:
    """Hints change no bit, on one core or several, with tails, groups and tiles that are moved back."""
    random = np.random.default_rng(7)
    x = random.standard_normal((2, cin, size, size)).astype(F)
    w = random.standard_normal((cout, cin // groups, kernel, kernel)).astype(F)

    def body(x: Any) -> Any:
        return R.nn.conv2d(x, weight(w), strides=stride, padding=kernel // 2, groups=groups)

    base = replace(native(), vector_bits=512, vector_registers=32, cores=cores, fma_ports=2, l2_bytes=l2)
    found = []
    for far in (1, 1000):
        build = staged(module_of([x], body), replace(base, far_bytes=far), tiled=False, exact=True)
        text = "".join(str(k.function) for k in build.kernels)
        found.append((text, Compiled(build).run([x])[0]))
    assert WEIGHTS in found[0][0] and found[0][0] != found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])


def kernel_of(target: Target, channels: int, size: int, batch: int = 1, kernel: int = 1) -> Any:
    x, w = np.zeros((batch, channels, size, size), F), np.zeros((64, channels, kernel, kernel), F)
    build = staged(
        module_of([x], lambda x: R.nn.conv2d(x, weight(w), padding=kernel // 2)), target, tiled=False, exact=True
    )
    (found,) = [k for k in build.kernels if "direct conv" in k.schedule]
    return found


@pytest.mark.parametrize(
    "cores,channels,size,batch,kernel,expected,schedule",
    [
        (2, 384, 14, 1, 1, True, "1x14x2"),
        (1, 384, 14, 1, 1, True, "1x14x2"),  # one core: from its second level
        (2, 384, 14, 2, 1, True, "1x14x2"),  # an image for each: so
        (2, 384, 14, 1, 3, False, "1x14x2"),  # neighbouring taps read the same lines
        (2, 384, 7, 1, 1, True, "1x7x2"),
        (2, 16, 14, 1, 1, False, "1x14x2"),  # one block: nothing is ahead
    ],
)
def test_where_data_is_asked_for(
    cores: int, channels: int, size: int, batch: int, kernel: int, expected: bool, schedule: str
) -> None:
    found = kernel_of(replace(TWO, cores=cores), channels, size, batch, kernel)
    assert (str(found.function).count(DATA) > 0) is expected
    assert schedule in found.schedule


def test_short_vectors_of_channels_share_lines_and_are_not_asked_for() -> None:
    assert DATA not in str(kernel_of(replace(resolve("x86-64-v3"), cores=2), 384, 14).function)


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_rows_of_tiles_are_even_where_that_costs_nothing(workers: int) -> None:
    for height, width, vectors in [(14, 14, 4), (28, 28, 15), (12, 12, 2), (7, 7, 4)]:
        alone = choose_tile(TWO, Space(height, width, vectors, vectors))
        shared = choose_tile(TWO, Space(height, width, vectors, vectors), workers)
        assert costs(shared, height, width, vectors) == pytest.approx(costs(alone, height, width, vectors))
        if height % workers == 0:
            even = -(-height // shared.rows) % workers == 0
            assert even or -(-height // alone.rows) % workers


def costs(tile_: Tile, height: int, width: int, vectors: int) -> float:
    return tiles_of(tile_, height, width) * (vectors // tile_.blocks) * step_cycles(TWO, tile_)


def test_data_that_is_asked_for_gives_the_same_bits() -> None:
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((1, 83, 14, 9)).astype(F), rng.standard_normal((37, 83, 1, 1)).astype(F)
    module = module_of([x], lambda x: R.nn.relu(R.nn.conv2d(x, weight(w))))
    alone, shared = (staged(module, replace(native(), cores=c), tiled=False) for c in (1, 2))
    expected = np.maximum(np.einsum("oc,nchw->nohw", w[:, :, 0, 0], x), 0)
    result = Compiled(shared).run([x], tasks=2)[0]
    np.testing.assert_array_equal(result, Compiled(alone).run([x], tasks=1)[0])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)

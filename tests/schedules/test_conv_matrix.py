"""Convolutions on the matrix unit against float64: strides, dilation, pads, channels that fill no register; boxes; the
places of a strip; errors; which layers take it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Suite, machine, native, weight
from halotile import compile as compile_model
from halotile.benchmarks.graph import ModelGraph
from halotile.benchmarks.layers import activation, conv
from halotile.schedules.conv import family
from halotile.schedules.conv.amx import algorithm as amx_algorithm
from halotile.schedules.conv.amx import choose as matrix_choose
from halotile.schedules.conv.amx import transposed
from halotile.schedules.conv.amx.algorithm import AmxStrips
from halotile.schedules.conv.amx.kernel import pack_weights
from halotile.schedules.conv.amx.pixel_strips import pixel_strips
from halotile.schedules.conv.amx.strips import Strip, strips_of
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.instructions.amx import has_matrix_unit
from halotile.schedules.words.choice import Choice
from halotile.schedules.words.group import Value
from halotile.targets.resolve import resolve
from tvm import relax
from winograd_layers import facts_of, random

R = relax.op
NAMED = replace(resolve("x86_64-linux-gnu+sapphirerapids"), cores=2)
NEEDS = pytest.mark.skipif(not has_matrix_unit(machine()), reason="NOT RUN: this machine has no matrix unit")

# batch, channels in and out, height, width, kernel, strides, dilation, pads (top, left, bottom, right)
LAYERS: dict[str, tuple[int, ...]] = {
    "pointwise": (1, 64, 48, 14, 14, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0),
    "primes": (2, 37, 53, 17, 19, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1),
    "one block of channels": (1, 16, 16, 23, 11, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1),
    "odd blocks": (1, 48, 80, 13, 29, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1),
    "strides": (1, 40, 33, 23, 31, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1),
    "strides past the kernel": (2, 64, 32, 21, 22, 1, 1, 3, 2, 1, 1, 0, 0, 0, 0),
    "unlike strides": (1, 33, 17, 20, 27, 5, 3, 1, 3, 1, 1, 2, 0, 1, 4),
    "dilation": (1, 32, 49, 25, 26, 3, 3, 1, 1, 3, 2, 3, 2, 3, 2),
    "dilated strides": (1, 48, 16, 30, 33, 3, 2, 2, 2, 2, 3, 1, 3, 2, 0),
    "asymmetric pads": (1, 64, 64, 15, 18, 3, 3, 1, 1, 1, 1, 0, 2, 1, 0),
    "large kernel": (1, 24, 40, 19, 17, 7, 7, 1, 1, 1, 1, 3, 3, 3, 3),
    "small image": (3, 96, 100, 7, 7, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1),
    "a single output": (1, 64, 65, 3, 3, 3, 3, 1, 1, 1, 1, 0, 0, 0, 0),
    "wide": (1, 32, 32, 3, 301, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1),
}


def exact(x: np.ndarray, k: np.ndarray, case: tuple[int, ...]) -> np.ndarray:
    *_, sy, sx, dy, dx, top, left, bottom, right = case
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    reach = (k.shape[2] - 1) * dy + 1, (k.shape[3] - 1) * dx + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    return np.einsum("nihwyx,oiyx->nohw", windows[:, :, ::sy, ::sx, ::dy, ::dx], k.astype(np.float64), optimize=True)


def forced(rows: int, columns: int, groups: int) -> Any:
    """A choice that takes strips of the size, and so many groups of output channels, wherever the kernel applies."""
    own = family.select

    def choice(request: Any, facts: ConvFacts) -> Choice:
        if not matrix_choose.matrix_applies(request, facts):
            return own(request, facts)
        height, width = (1, *facts.out_spatial)[-2:]
        strip = Strip.of(facts, min(rows, height), min(columns, width))
        groups_of = min(groups, -(-facts.outputs // 32))
        return Choice(AmxStrips.name, matrix_choose.MatrixPlan(strip, groups_of, 0.0))

    return choice


def filled(rows: int, columns: int, groups: int, cores: int = 2) -> Suite:
    suite = Suite(replace(machine(), cores=cores))
    for i, (name, case) in enumerate(LAYERS.items()):
        n, cin, cout, h, w, ky, kx, sy, sx, dy, dx, *pads = case
        x, k = random((n, cin, h, w), i), random((cout, cin, ky, kx), 100 + i) / np.float32(np.sqrt(cin * ky * kx))
        y = exact(x, k, case)
        b, r = random((1, cout, 1, 1), 200 + i), random(y.shape, 300 + i)

        def layer(x: Any, r: Any, k: Any = k, b: Any = b, case: Any = case) -> Any:
            *_, sy, sx, dy, dx, top, left, bottom, right = case
            pads = [top, left, bottom, right]
            y = R.nn.conv2d(x, weight(k), strides=(sy, sx), padding=pads, dilation=(dy, dx))
            return R.nn.relu(y + weight(b) + r)

        suite.add(name, [x, r], layer, np.maximum(y + b + r, 0).astype(np.float32), 0, 3e-5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family, "select", forced(rows, columns, groups))
        suite.compile()
    return suite


@pytest.fixture(scope="module", params=[(99, 999, 1), (2, 999, 1), (5, 7, 2)], ids=["whole", "rows", "parts"])
def suite(request: pytest.FixtureRequest) -> Suite:
    return filled(*request.param)


@NEEDS
@pytest.mark.parametrize("name", LAYERS)
def test_equals_float64(suite: Suite, name: str) -> None:
    suite.check(name)
    assert any("matrix conv" in s for s in suite.schedules(name))


@NEEDS
@pytest.mark.parametrize("threads", [1, 2])
def test_a_chain_has_the_same_bits_in_tiles_and_out_of_them_and_on_any_number_of_cores(threads: int) -> None:
    g = ModelGraph("chain")
    x = g.input("x", (1, 40, 67, 61))
    for kernel, stride in ((5, 1), (1, 1), (3, 2)):
        x = activation(g, conv(g, x, 72, kernel, stride=stride), "relu")
    model, feeds = g.finish(y=x), {"x": random((1, 40, 67, 61), 1)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix_choose, "MARGIN", 100.0)
        patch.setattr(amx_algorithm, "MARGIN", 100.0)
        whole = compile_model(model, tile="off", threads=1)
        found = compile_model(model, optimize="memory", threads=threads)
    assert sum("matrix conv" in k["schedule"] for k in whole.report["kernels"]) == 3
    assert any(k["schedule"].startswith("tiled") for k in found.report["kernels"])
    assert found.report["arena_bytes"] < whole.report["arena_bytes"] / 2
    (wanted,), (got,) = whole(feeds).values(), found(feeds).values()
    np.testing.assert_array_equal(got, wanted)


@NEEDS
def test_a_map_before_it_is_computed_where_numbers_are_split_and_pads_stay_zero() -> None:
    """exp(0) is 1, and so would the padding be."""
    x, k = random((1, 33, 21, 23), 1), random((48, 33, 3, 3), 2) / np.float32(17)
    case = (1, 33, 48, 21, 23, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1)
    y = exact(np.exp(x.astype(np.float64)).astype(np.float32), k, case)
    pads, suite = [1, 1, 1, 1], Suite(machine())
    suite.add("exp", [x], lambda x: R.nn.conv2d(R.exp(x), weight(k), padding=pads), y.astype(np.float32), 0, 1e-4)
    suite.check("exp")


@NEEDS
@pytest.mark.parametrize("kind", ["normal", "cancels", "scales", "positive", "worst"])
def test_errors_stay_within_the_bound(kind: str) -> None:
    """What three products leave out is 2**-15 of the sum of |x| |w|; sums in float32 come on top."""
    channels = 256
    x, k = random((1, channels, 9, 9), 3), random((32, channels, 3, 3), 4) / np.float32(48)
    if kind == "cancels":
        x[:, 1::2], k[:, 1::2] = x[:, ::2], -k[:, ::2] * np.float32(1 + 2.0**-12)
    if kind == "scales":
        x *= np.float32(10.0) ** np.random.default_rng(5).integers(-6, 7, x.shape).astype(np.float32)
    if kind == "worst":
        x[...] = k[...] = np.uint32(0x3F808040).view(np.float32)
    if kind == "positive":
        x, k = np.abs(x), np.abs(k)
    case = (1, channels, 32, 9, 9, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1)
    bound = exact(np.abs(x), np.abs(k), case) * (2.0**-15 + channels * 9 * 2.0**-24)
    g = ModelGraph("layer")
    y = g.op("Conv", g.input("x", x.shape), g.weight("w", k), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family, "select", forced(99, 999, 1))
        model = compile_model(g.finish(y=y))
    assert any("matrix conv" in kernel["schedule"] for kernel in model.report["kernels"])
    (found,) = model({"x": x}).values()
    assert (np.abs(found - exact(x, k, case)) <= bound).all()


# -- what needs no such machine ---------------------------------------------------------------------


@pytest.mark.parametrize("name", LAYERS)
def test_places_of_a_strip_hold_what_each_tap_reads(name: str) -> None:
    """Coordinates of the input, laid out as the kernel does, are those of the definition at every output and tap."""
    n, cin, cout, h, w, ky, kx, sy, sx, dy, dx, top, left, bottom, right = LAYERS[name]
    rows, columns = (h + top + bottom - (ky - 1) * dy - 1) // sy + 1, (w + left + right - (kx - 1) * dx - 1) // sx + 1
    facts = _facts(LAYERS[name], rows, columns)
    for strip in list(strips_of(facts, (rows, columns)))[:5]:
        planes = np.full((len(strip.phases), strip.height, strip.pitch, 2), 1 << 20)
        for i, (py, px) in enumerate(strip.phases):
            down, across = strip.reach(i)
            y, x = np.mgrid[: strip.rows + down, : strip.columns + across]
            planes[i, : strip.rows + down, : strip.columns + across] = np.stack([y * sy + py, x * sx + px], axis=-1)
        flat = planes.reshape(-1, 2)
        for tap, offset in zip(np.ndindex(ky, kx), strip.offsets(strip.places)):
            for row, column in np.ndindex(strip.rows, strip.columns):
                found = flat[offset + row * strip.pitch + column]
                assert tuple(found) == (row * sy + tap[0] * dy, column * sx + tap[1] * dx)


def test_weights_stand_where_the_words_of_their_channels_meet_them() -> None:
    k = random((20, 40, 1, 3), 1)
    data, result = Value("x", (1, 40, 4, 6), "float32"), Value("y", (1, 20, 4, 4), "float32")
    held = Value("w", k.shape, "float32", k)
    facts = ConvFacts(data, held, result, (1, 3), (1, 1), (1, 1), (0, 0), (0, 0), 1)
    packed = pack_weights(facts)
    assert packed.shape == (2, 2 * 3, 2, 256)
    words = packed.reshape(2, 2, 3, 2, 16, 16).view(np.uint32)
    for output, channel, tap in ((0, 0, 0), (17, 5, 1), (19, 39, 2), (3, 16, 1), (8, 31, 0)):
        pair, half, lane = channel // 32, channel % 32 // 16, channel % 16
        parts = words[output // 16, pair, tap, :, lane, output % 16] >> (16 * half) << 16
        assert parts.view(np.float32).sum() == pytest.approx(k[output, channel, 0, tap], rel=2.0**-16)
    assert not words[1, :, :, :, :, 4:].any() and not (words[:, 1, :, :, 8:] & 0xFFFF).any()


@pytest.mark.parametrize(
    ("layer", "wanted"),
    [
        ((256, 64, 56, 56, (1, 1)), True),
        ((512, 2048, 7, 7, (1, 1)), True),
        ((96, 576, 14, 14, (1, 1)), True),
        ((512, 512, 7, 7, (3, 3)), True),
        ((3, 64, 112, 112, (7, 7)), False),
    ],
)
def test_layers_that_take_it(layer: Any, wanted: bool) -> None:
    cin, cout, h, w, kernel = layer
    pad = (kernel[0] // 2, kernel[1] // 2)
    facts = facts_of(cin, cout, h, w, kernel=kernel, before=pad, after=pad)
    assert has_matrix_unit(NAMED) and not has_matrix_unit(native())
    plan = matrix_choose.best_plan(NAMED, facts, 2) if matrix_choose.suits(facts) else None
    assert (plan is not None and plan.cycles < matrix_choose.float_cycles(NAMED, facts)) == wanted
    if plan is not None:
        assert 4 * plan.strip.elements(cin, plan.parts) <= NAMED.l2_bytes
        assert matrix_choose.best_plan(NAMED, facts, 2, 1 << 10) is None


def test_whole_weights_groups_and_doubles_stay_with_multiply_adds() -> None:
    plain = facts_of(64, 64, 14, 14)
    assert matrix_choose.suits(plain)
    whole = replace(plain, weight=Value("w", (64, 64, 3, 3), "float32", np.ones((64, 64, 3, 3), np.float32)))
    double = replace(plain, output=Value("y", (1, 64, 14, 14), "float64"))
    assert not any(map(matrix_choose.suits, (whole, double, replace(plain, groups=2))))


def _facts(case: tuple[int, ...], rows: int, columns: int) -> ConvFacts:
    n, cin, cout, h, w, ky, kx, sy, sx, dy, dx, top, left, bottom, right = case
    data, result = Value("x", (n, cin, h, w), "float32"), Value("y", (n, cout, rows, columns), "float32")
    kernel = Value("w", (cout, cin, ky, kx), "float32")
    return ConvFacts(data, kernel, result, (ky, kx), (sy, sx), (dy, dx), (top, left), (bottom, right), 1)


# -- few channels ------------------------------------------------------------------------------------

# batch, channels in and out, height, width, kernel, strides, dilation, pads
FEW: dict[str, tuple[int, ...]] = {
    "stem": (1, 3, 64, 45, 53, 7, 7, 2, 2, 1, 1, 3, 3, 3, 3),
    "grey": (2, 1, 33, 21, 34, 5, 5, 1, 1, 1, 1, 2, 2, 2, 2),
    "pair": (1, 2, 20, 19, 37, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2),
    "asymmetric": (1, 4, 17, 23, 29, 4, 3, 1, 2, 1, 1, 0, 2, 3, 1),
    "patches": (1, 3, 48, 64, 68, 4, 4, 4, 4, 1, 1, 0, 0, 0, 0),
    "wide kernel": (1, 3, 16, 30, 63, 3, 11, 3, 1, 1, 1, 1, 5, 1, 5),
}


@NEEDS
@pytest.mark.parametrize("cores", [1, 2])
def test_few_channels_are_pixels(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = Suite(replace(machine(), cores=cores))
    for i, (name, case) in enumerate(FEW.items()):
        n, cin, cout, h, w, ky, kx, sy, sx, dy, dx, *pads = case
        x, k = random((n, cin, h, w), i), random((cout, cin, ky, kx), 100 + i) / np.float32(np.sqrt(cin * ky * kx))
        y, b = exact(x, k, case), random((1, cout, 1, 1), 200 + i)

        def layer(x: Any, k: Any = k, b: Any = b, case: Any = case) -> Any:
            *_, sy, sx, dy, dx, top, left, bottom, right = case
            pads = [top, left, bottom, right]
            y = R.nn.conv2d(x, weight(k), strides=(sy, sx), padding=pads, dilation=(dy, dx))
            return R.nn.max_pool2d(R.nn.relu(y + weight(b)), (1, 1))

        suite.add(name, [x], layer, np.maximum(y + b, 0).astype(np.float32), 0, 3e-5)
    monkeypatch.setattr(amx_algorithm, "MARGIN", 100.0)
    suite.compile()
    for name in FEW:
        suite.check(name)
        assert any("pixels of" in s for s in suite.schedules(name)), name


@pytest.mark.parametrize("name", FEW)
def test_pixels_meet_each_weight_once_and_each_where_its_tap_reads(name: str) -> None:
    n, cin, cout, h, w, ky, kx, sy, sx, dy, dx, top, left, bottom, right = FEW[name]
    rows, columns = (h + top + bottom - (ky - 1) * dy - 1) // sy + 1, (w + left + right - (kx - 1) * dx - 1) // sx + 1
    facts = _facts(FEW[name], rows, columns)
    for strip in {s.pixels: s for s in pixel_strips(facts)}.values():
        terms = strip.terms()
        assert sorted(terms[terms >= 0]) == list(range(cin * ky * kx))
        offsets = strip.offsets(strip.places * strip.apart)
        for step, pair, half in np.argwhere(terms >= 0):
            channel, row, column = np.unravel_index(terms[step, pair, half], (cin, ky, kx))
            place = offsets[step] + pair  # of the output in the corner, in words
            plane, rest = divmod(place, strip.places * strip.apart)
            line, word = divmod(rest, strip.pitch * strip.apart)
            pixel, word = divmod(word, strip.pixels.words)
            behind, found = strip.slots()[2 * word + half]
            assert found == channel and pixel == column * dx
            assert strip.phases[plane] + line * sy + behind * dy == row * dy


def test_a_stem_of_seven_by_seven_takes_pixels_and_one_of_three_by_three_may_not() -> None:
    seven = facts_of(3, 64, 112, 112, kernel=(7, 7), strides=(2, 2), before=(3, 3), after=(3, 3))
    three = facts_of(3, 32, 112, 112, kernel=(3, 3), strides=(2, 2))
    for facts, wanted in ((seven, True), (three, False)):
        plan = matrix_choose.best_pixels(NAMED, facts, 2)
        assert plan is not None
        assert (plan.cycles < matrix_choose.MARGIN * matrix_choose.float_cycles(NAMED, facts)) == wanted


# -- transposed --------------------------------------------------------------------------------------

# batch, channels in and out, height, width, kernel, stride, dilation, pad, output_padding
TRANSPOSED: dict[str, tuple[int, ...]] = {
    "upsampling": (1, 64, 32, 17, 19, 2, 2, 1, 0, 0),
    "overlapping": (2, 48, 40, 15, 16, 4, 2, 1, 1, 0),
    "unlike taps": (1, 33, 17, 20, 13, 5, 3, 1, 1, 0),
    "padded": (1, 64, 48, 16, 21, 3, 2, 1, 1, 1),
    "dilated": (1, 40, 16, 12, 15, 3, 2, 2, 0, 1),
    "phases without taps": (1, 32, 33, 11, 14, 1, 2, 1, 0, 1),
}


def scattered(x: np.ndarray, k: np.ndarray, case: tuple[int, ...]) -> np.ndarray:
    *_, stride, dilation, pad, more = case
    n, _, h, w = x.shape
    reach = (k.shape[2] - 1) * dilation + 1
    full = np.zeros((n, k.shape[1], (h - 1) * stride + reach + more, (w - 1) * stride + reach + more))
    for i, j in np.ndindex(*k.shape[2:]):
        part = np.einsum("nihw,io->nohw", x.astype(np.float64), k[:, :, i, j].astype(np.float64))
        down, right = i * dilation, j * dilation
        full[:, :, down : down + (h - 1) * stride + 1 : stride, right : right + (w - 1) * stride + 1 : stride] += part
    return full[:, :, pad : full.shape[2] - pad, pad : full.shape[3] - pad]


@NEEDS
@pytest.mark.parametrize("name", TRANSPOSED)
def test_phases_of_transposed_convolutions_share_what_is_split(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n, cin, cout, h, w, size, stride, dilation, pad, more = TRANSPOSED[name]
    x, k = random((n, 3, h, w), 1), random((cin, cout, size, size), 2) / np.float32(np.sqrt(cin))
    first, b = random((cin, 3, 1, 1), 3), random((cout,), 4)
    g = ModelGraph("transposed")
    y = g.op("Conv", g.input("x", x.shape), g.weight("first", first), kernel_shape=[1, 1])
    given = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2}
    y = g.op("ConvTranspose", y, g.weight("k", k), g.weight("b", b), output_padding=[more] * 2, **given)
    model = g.finish(y=g.op("Relu", y))
    wanted = scattered(exact(x, first, (1,) * 5 + (1, 1, 1, 1, 1, 1, 0, 0, 0, 0)), k, TRANSPOSED[name])
    wanted = np.maximum(wanted + b[:, None, None], 0)
    monkeypatch.setattr(transposed, "MARGIN", 100.0)
    for threads in (1, 2):
        found = compile_model(model, threads=threads, tile="off")
        assert any("transposed matrix conv" in kernel["schedule"] for kernel in found.report["kernels"])
        (got,) = found({"x": x}).values()
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


@NEEDS
def test_memory_of_transposed_convolutions_keeps_to_a_budget() -> None:
    g = ModelGraph("decoder")
    x = activation(g, conv(g, g.input("x", (1, 16, 40, 40)), 64), "relu")
    y = g.op("ConvTranspose", x, g.weight("k", random((64, 48, 2, 2), 1)), kernel_shape=[2, 2], strides=[2, 2])
    model = g.finish(y=activation(g, conv(g, y, 16), "relu"))
    free = compile_model(model, threads=2)
    for share in (0.9, 0.6, 0.4):
        budget = int(free.report["arena_bytes"] * share)
        found = compile_model(model, threads=2, memory_budget=budget)
        assert found.report["arena_bytes"] <= budget
        assert found.verify().ok

"""Convolutions by pairs of channels in bfloat16 whose batch, rows and columns are open, at sizes around their tiles:
against float64 of the rounded operands, in memory full of NaN, and the same bits whatever else is computed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from bfloat16_sums import convolved, rounded
from compiled import native
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import LoadedModel, load
from halotile.compiler.state import Build, Options
from halotile.schedules.conv.direct import pairs
from halotile.schedules.instructions.bf16_pairs import has_pairs
from halotile.targets.resolve import resolve
from open_models import Drawing
from open_runs import run_in

FORM = re.compile(r"direct conv C16, tile (\d+)x(\d+)x\d+, bfloat16")
NAMED = "x86_64-linux-gnu+znver4"

needs_pairs = pytest.mark.skipif(
    not has_pairs(native()), reason="NOT RUN: this machine's vectors do not multiply bfloat16 (AVX512_BF16)"
)


@dataclass(frozen=True)
class Case:
    """A layer behind one that stores bfloat16; with a ``residual``, the model's input is added behind it."""

    channels: int
    outputs: int
    kernel: tuple[int, ...]
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    residual: bool = False
    groups: int = 1

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def window(self) -> tuple[int, int, int, int]:
        return self.stride, self.pad, self.dilation, self.groups

    @property
    def least(self) -> tuple[int, ...]:
        return tuple(max(1, (k - 1) * self.dilation + 1 - 2 * self.pad) for k in self.kernel)

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(7)
        w = random.standard_normal((self.outputs, self.channels // self.groups, *self.kernel)).astype("float32")
        return w / np.float32(np.sqrt(w[0].size)), random.standard_normal(self.outputs).astype("float32")

    def model(self) -> onnx.ModelProto:
        g, (w, bias) = Drawing(), self.weights()
        x = g.input("x", "n", self.channels, *("h", "w")[-self.rank :])
        same = g.constant(np.eye(self.channels).reshape(self.channels, self.channels, *[1] * self.rank))
        window = {
            "strides": [self.stride] * self.rank,
            "pads": [self.pad] * (2 * self.rank),
            "dilations": [self.dilation] * self.rank,
        }
        y = g("Conv", g("Relu", g("Conv", x, same)), g.constant(w), g.constant(bias), group=self.groups, **window)
        y = g("Add", y, x) if self.residual else y
        g.output(g("Relu", y), 2 + self.rank)
        return g.model()

    def wanted(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The exact result, and how far from it one may be."""
        w, bias = self.weights()
        y = convolved(np.maximum(x, 0), rounded(w), *self.window)
        y = y + bias.reshape(1, -1, *[1] * self.rank) + (x if self.residual else 0)
        size = convolved(np.abs(x), np.abs(rounded(w)), *self.window) + np.abs(y) + np.abs(x if self.residual else 0)
        return np.maximum(y, 0), (w[0].size + 8) * 2.0**-24 * size + 1e-6


CASES = {
    "1x1": Case(64, 48, (1, 1)),
    "1x1 deep": Case(322, 530, (1, 1)),
    "1x1 sum": Case(48, 48, (1, 1), residual=True),
    "3x3": Case(34, 37, (3, 3), pad=1),
    "3x3 sum": Case(32, 32, (3, 3), pad=1, residual=True),
    "3x3 stride": Case(50, 33, (3, 3), stride=2, pad=1),
    "5x5": Case(6, 70, (5, 5), pad=2),
    "2x1 dilated": Case(96, 17, (2, 1), dilation=2),
    "1x1 odd": Case(35, 48, (1, 1)),
    "3x3 odd": Case(21, 32, (3, 3), pad=1),
    "3x3 groups": Case(96, 64, (3, 3), pad=1, groups=2),
    "1x1 groups": Case(48, 48, (1, 1), groups=3),
    "1x3 line": Case(40, 48, (3,), pad=1),
    "1x5 line": Case(16, 33, (5,), stride=2),
}


@pytest.fixture
def wherever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another algorithm is faster."""
    monkeypatch.setattr(pairs, "SHARE", 0.0)


def built(model: onnx.ModelProto, folder: Path, threads: int = 2, **options: object) -> Build:
    wish = {"tile": "off", **options}
    return run_pipeline(model, Options(native(), precision="bfloat16", threads=threads, **wish), output=folder)


def tiles_of(build: Build) -> list[tuple[int, int]]:
    """Rows and columns of the register tiles of kernels in pairs."""
    return [(int(r), int(c)) for k in build.kernels for r, c in FORM.findall(k.schedule)]


def sizes_around(case: Case, tiles: list[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Batch, and rows and columns of the input: the least, results about the tiles, primes, one far larger."""
    rows, columns = (sorted({1, *(n + more for n in own for more in (-1, 0, 1))} - {0}) for own in zip(*tiles))
    outputs = [(1, 1), (1, columns[-1]), (rows[-1], 1), (2 * rows[-1] + 1, 2 * columns[-1] + 1), (37, 5), (3, 53)]
    outputs += [(rows[i % len(rows)], columns[i % len(columns)]) for i in range(max(len(rows), len(columns)))]
    found = []
    for i, size in enumerate(dict.fromkeys(outputs)):
        inputs = [least + (n - 1) * case.stride for least, n in zip(case.least[-2:], size[-case.rank :])]
        found.append((1 + i % 3, *inputs))
    return [*found, (1, *(least + 70 for least in case.least))]


def input_of(case: Case, size: tuple[int, ...]) -> np.ndarray:
    x = np.random.default_rng(size).standard_normal((size[0], case.channels, *size[1:]))
    return rounded(x).astype("float32")


def answer(model: LoadedModel, x: np.ndarray, threads: int, poison: int) -> np.ndarray:
    known = dict(zip(("n", "c", *("h", "w")[3 - x.ndim + 1 :]), x.shape))
    return run_in(model, {s.name: known[s.name] for s in model.symbols}, x, threads, poison)


@needs_pairs
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("wherever")
def test_images_of_any_size_are_those_of_the_nearest_numbers(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    build = built(case.model(), tmp_path)
    tiles = tiles_of(build)
    assert tiles, [k.schedule for k in build.kernels]
    far = 0.0
    with load(tmp_path) as model:
        for size in sizes_around(case, tiles):
            x = input_of(case, size)
            found, other = (answer(model, x, threads, poison) for threads, poison in ((1, 0xFF), (2, 0x7F)))
            wanted, bound = case.wanted(x)
            assert (np.abs(found - wanted) <= bound).all(), size
            assert np.array_equal(found, other), size
            w, bias = case.weights()
            plain = convolved(np.maximum(x, 0), w, *case.window) + bias.reshape(1, -1, *[1] * case.rank)
            far = max(far, np.abs(found - np.maximum(plain + (x if case.residual else 0), 0)).max())
    assert far > 1e-4, "these are float32's"


@needs_pairs
@pytest.mark.parametrize("name", ["1x1", "3x3", "1x3 line"])
@pytest.mark.usefixtures("wherever")
def test_a_pixel_has_the_same_bits_in_any_image(name: str, tmp_path: Path) -> None:
    """Of any batch, and any width and height, where its window holds the same."""
    case = CASES[name]
    built(case.model(), tmp_path)
    x, reach = input_of(case, (3, 41, 67)[: 1 + case.rank]), case.pad
    with load(tmp_path) as model:
        y = answer(model, x, 2, 0xFF)
        assert np.array_equal(answer(model, x[1:2].copy(), 1, 0xFF), y[1:2])
        for rows, columns in ((1, 1), (2, 5), (7, 13), (16, 14), (33, 61)):
            size = (rows + 2 * reach, columns + 2 * reach)[-case.rank :]
            part = np.ascontiguousarray(x[(slice(2, 3), slice(None), *(slice(3, 3 + n) for n in size))])
            own = (..., *[slice(reach, n - reach) for n in size])
            there = (slice(2, 3), slice(None), *[slice(3 + reach, 3 + n - reach) for n in size])
            assert np.array_equal(answer(model, part, 2, 0x7F)[own], y[there]), size


@needs_pairs
@pytest.mark.usefixtures("wherever")
def test_nan_and_infinity_reach_their_windows_and_no_other(tmp_path: Path) -> None:
    g = Drawing()
    x = g.input("x", "n", 34, "h", "w")
    mixed = g("Relu", g("Conv", x, g.constant(np.full((34, 34, 1, 1), 0.03))))
    g.output(g("Conv", mixed, g.constant(np.full((33, 34, 3, 3), 0.2)), pads=[1] * 4), 4)
    assert tiles_of(built(g.model(), tmp_path))
    with load(tmp_path) as model:
        for h, w in ((16, 22), (17, 29), (31, 24)):
            x = np.random.default_rng(h).standard_normal((1, 34, h, w)).astype("float32")
            x[0, 33, 5, 7], x[0, 0, 14, 20] = np.nan, np.inf
            for poison in (0xFF, 0x7F):
                y = answer(model, x, 2, poison)
                odd = np.zeros(y.shape, bool)
                odd[:, :, 4:7, 6:9] = odd[:, :, 13:16, 19:22] = True
                assert np.isnan(y[:, :, 4:7, 6:9]).all() and (y[:, :, 13:16, 19:22] == np.inf).all()
                assert np.isfinite(y[~odd]).all()


def chain(layers: int = 4, channels: int = 32) -> onnx.ModelProto:
    g = Drawing()
    y = g.input("x", "n", channels, "h", "w")
    for _ in range(layers):
        y = g("Relu", g.conv(y, channels, channels, 3))
    g.output(y, 4)
    return g.model()


@needs_pairs
@pytest.mark.parametrize("options", [{"optimize": "memory", "tile": "auto"}, {"tile": "off"}], ids=["tiles", "whole"])
@pytest.mark.usefixtures("wherever")
def test_chains_in_tiles_have_pairs_and_rings_of_half_the_bytes(options: dict[str, str], tmp_path: Path) -> None:
    build = built(chain(), tmp_path / "half", **options)
    if options["tile"] == "auto":
        (tiled,) = (k for k in build.kernels if k.schedule.startswith("open tiles"))
        assert sum(bool(FORM.search(p.schedule)) for p in tiled.parts) > 2
    sizes = {"n": 1, "h": 150, "w": 131}
    plain = Options(native(), threads=2, winograd=False, **options)
    run_pipeline(chain(), plain, output=tmp_path / "whole")
    with load(tmp_path / "half") as model, load(tmp_path / "whole") as other:
        assert model.arena_bytes(1, sizes) < 0.8 * other.arena_bytes(1, sizes)
        for h, w in ((1, 1), (7, 3), (29, 31), (150, 131)):
            x = np.random.default_rng(h).standard_normal((2, 32, h, w)).astype("float32")
            found, same = (answer(model, x, threads, poison) for threads, poison in ((1, 0xFF), (2, 0x7F)))
            wanted = answer(other, x, 1, 0)
            assert np.array_equal(found, same), (h, w)
            assert np.abs(found - wanted).max() <= 0.02 * np.abs(wanted).max(), (h, w)


# -- on any machine -------------------------------------------------------------------------------


def test_what_models_leave_open_is_stored_and_multiplied_so() -> None:
    g = Drawing()
    y = g.input("x", "n", 64, "h", "w")
    for kernel in (1, 1, 3, 1):
        y = g("Relu", g.conv(y, 64, 64, kernel, strides=[2 if kernel == 3 else 1] * 2))
    g.output(y, 4)
    wish = {"threads": 1, "tile": "off", "winograd": False, "stop_after": "plan"}
    build = run_pipeline(g.model(), Options(resolve(NAMED), precision="bfloat16", **wish))
    assert sum(bool(FORM.search(k.schedule)) for k in build.kernels) == 3, "the first reads the model's input"
    assert build.report["precision"] == {"asked": "bfloat16", "kernels": 3, "of": 4} and not build.report["warnings"]
    assert build.details["layout"]["in_bfloat16"] == 3
    for target, precision in ((NAMED, "float32"), ("x86_64-linux-gnu+sapphirerapids", "bfloat16")):
        other = run_pipeline(g.model(), Options(resolve(target), precision=precision, **wish))
        assert not any(FORM.search(k.schedule) for k in other.kernels)
        assert not any(layout.stored for layout in other.layouts.values())


def test_winograd_begins_at_larger_images_where_pairs_are_the_others() -> None:
    since = {}
    for precision in ("float32", "bfloat16"):
        options = Options(resolve(NAMED), precision=precision, threads=1, tile="off", stop_after="schedule")
        build = run_pipeline(chain(3, 64), options)
        found = [re.search(r"winograd.*? from (\d+) x \d+", k.schedule) for k in build.kernels]
        since[precision] = [int(match[1]) for match in found if match][1]  # the first reads the model's input
    assert since["bfloat16"] > since["float32"]

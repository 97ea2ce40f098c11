"""Convolutions of every shape against NumPy: seeded random sweeps, one compiled module a family."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, Suite, module_of, narrow, native, staged, weight
from halotile.schedules.conv.register_tile import Space, Tile, choose_tile, left_over
from halotile.targets.target import Target
from tvm import relax
from winograd_layers import compiled_directly

R = relax.op
OPERATORS = {1: R.nn.conv1d, 2: R.nn.conv2d, 3: R.nn.conv3d}


@dataclass(frozen=True)
class Conv:
    """One convolution; tuples have an entry a spatial axis, ``pads`` is (befores, afters)."""

    batch: int
    channels: int
    outputs: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int = 1
    dtype: str = "float32"

    @property
    def fits(self) -> bool:
        rank = len(self.size)
        spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation)]
        return all(s + self.pads[i] + self.pads[rank + i] >= spans[i] for i, s in enumerate(self.size))

    @property
    def options(self) -> dict[str, Any]:
        return {
            "strides": self.strides,
            "padding": self.pads,
            "dilation": self.dilation,
            "groups": self.groups,
        }

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(abs(hash((self.channels, self.outputs, *self.size, *self.kernel))))
        x = generator.standard_normal((self.batch, self.channels, *self.size)).astype(self.dtype)
        shape = (self.outputs, self.channels // self.groups, *self.kernel)
        return x, generator.standard_normal(shape).astype(self.dtype)


def reference(conv: Conv, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """In float64, tap by tap on a padded copy."""
    rank = len(conv.size)
    pads = [(0, 0), (0, 0), *[(conv.pads[i], conv.pads[rank + i]) for i in range(rank)]]
    wide = np.pad(x.astype("float64"), pads)
    out = []
    for i in range(rank):
        span = (conv.kernel[i] - 1) * conv.dilation[i] + 1
        out.append((wide.shape[2 + i] - span) // conv.strides[i] + 1)
    result = np.zeros((conv.batch, conv.outputs, *out))
    per_in, per_out = conv.channels // conv.groups, conv.outputs // conv.groups
    for tap in np.ndindex(*conv.kernel):
        cut = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, o, s in zip(tap, conv.dilation, out, conv.strides)
        )
        for g in range(conv.groups):
            part = wide[(slice(None), slice(g * per_in, (g + 1) * per_in), *cut)]
            taps = w[(slice(g * per_out, (g + 1) * per_out), slice(None), *tap)].astype("float64")
            result[:, g * per_out : (g + 1) * per_out] += np.einsum("oc,nc...->no...", taps, part)
    return result


def sweep(kind: str, count: int) -> list[Conv]:
    """Random convolutions that fit: ``dense``, ``few`` (outputs for many inputs), ``grouped`` (odd groups, multipliers)
    or ``depthwise``."""
    rng = random.Random(kind)
    found: list[Conv] = []
    while len(found) < count:
        rank = rng.choice((1, 2, 2, 2, 3))
        most = {1: 40, 2: 20, 3: 7}[rank]
        kernel = tuple(rng.choice((1, 1, 2, 3, 3, 4, 5, 7)) if rank < 3 else rng.randint(1, 3) for _ in range(rank))
        per_in, per_out = (1, 1) if kind == "depthwise" else (rng.randint(1, 40), rng.randint(1, 40))
        groups = 1
        if kind == "grouped":
            groups, per_in, per_out = rng.choice((2, 3, 4, 5, 16)), rng.choice((1, 2, 3, 16)), rng.choice((1, 2, 5, 16))
        elif kind == "depthwise":
            groups = rng.randint(2, 40)
        elif kind == "few":
            per_in, per_out = rng.randint(8, 70), rng.randint(1, 2)
        conv = Conv(
            rng.randint(1, 3),
            per_in * groups,
            per_out * groups,
            tuple(rng.randint(1, most) for _ in range(rank)),
            kernel,
            tuple(rng.choice((1, 1, 2, 3)) for _ in range(rank)),
            tuple(rng.choice((1, 1, 1, 2, 3)) for _ in range(rank)),
            tuple(rng.choice((0, 1, 1, 2, 3)) for _ in range(2 * rank)),
            groups,
            rng.choice(("float32",) * 5 + ("float64",)),
        )
        if conv.fits:
            found.append(conv)
    return found


KINDS = {"dense": 16, "few": 10, "grouped": 16, "depthwise": 10}
MOST_FEW = {
    "few_three": Conv(2, 33, 3, (19, 23), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "few_four": Conv(1, 64, 4, (8, 41), (5, 1), (2, 1), (1, 2), (2, 0, 1, 0)),
    "few_large": Conv(1, 48, 3, (61, 67), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
}
LARGE = Conv(2, 37, 41, (33, 29), (3, 3), (1, 2), (1, 1), (1, 1, 1, 1))  # beyond the work that a launch takes


def named(kinds: tuple[str, ...]) -> dict[str, Conv]:
    convs = {f"{kind}{i}": c for kind in kinds for i, c in enumerate(sweep(kind, KINDS[kind]))}
    few = MOST_FEW if "few" in kinds else {}
    return {**convs, **few, "large": LARGE, "large2": replace(LARGE, kernel=(4, 3), strides=(1, 1))}


def filled(suite: Suite, kinds: tuple[str, ...]) -> Suite:
    """Every convolution with a bias and, in turn, nothing more, ReLU, a residual or a sigmoid behind it."""
    for n, (name, conv) in enumerate(named(kinds).items()):
        x, w = conv.arrays()
        operator = OPERATORS[len(conv.size)]
        exact = reference(conv, x, w)
        shape = (1, conv.outputs, *[1] * len(conv.size))
        b = np.linspace(-1, 2, conv.outputs).astype(conv.dtype).reshape(shape)
        r = np.cos(np.arange(exact.size)).astype(conv.dtype).reshape(exact.shape)
        y = exact + b
        wanted: Any = [y, np.maximum(y, 0), np.maximum(y + r, 0), 1 / (1 + np.exp(-y))][n % 4]

        def body(x: Any, r: Any, w: Any = w, b: Any = b, n: int = n, conv: Conv = conv, op: Any = operator) -> Any:
            y = R.add(op(x, weight(w), **conv.options), weight(b))
            y = R.add(y, r) if n % 4 == 2 else y
            return [y, R.nn.relu(y), R.nn.relu(y), R.sigmoid(y)][n % 4]

        tolerance = 1e-11 if conv.dtype == "float64" else 3e-6
        scale = tolerance * max(1.0, float(np.abs(exact).max()))
        suite.add(name, [x, r], body, wanted.astype(conv.dtype), tolerance, scale * 4)
    return suite


@pytest.fixture(scope="module")
def wide() -> Suite:
    return compiled_directly(filled(Suite(narrow(512)), tuple(KINDS)))


@pytest.fixture(scope="module")
def slim() -> Suite:
    """Four lanes: vectors that hold parts of two groups, or one whole."""
    return compiled_directly(filled(Suite(narrow(128)), ("grouped",)))


def check(suite: Suite, name: str) -> None:
    suite.check(name)
    used = [s for s in suite.schedules(name) if "conv" in s]
    assert len(used) == 1, f"one kernel of the family, not {suite.schedules(name)}"
    for kind in ("depthwise", "few"):
        assert not name.startswith(kind) or used[0].startswith(kind)


@pytest.mark.parametrize("name", named(tuple(KINDS)))
def test_equals_numpy(wide: Suite, name: str) -> None:
    check(wide, name)


@pytest.mark.parametrize("name", named(("grouped",)))
def test_equals_numpy_with_short_vectors(slim: Suite, name: str) -> None:
    check(slim, name)


AVX512 = replace(native(), vector_bits=512, vector_registers=32, fma_ports=2, fma_latency=4)
AVX2 = replace(native(), vector_bits=256, vector_registers=16, fma_ports=2, fma_latency=4)
NEON = replace(native(), vector_bits=128, vector_registers=32, fma_ports=2, fma_latency=4)
NARROW_NEON = replace(native(), vector_bits=128, vector_registers=16, fma_ports=1, fma_latency=4)


@pytest.mark.sampled
@pytest.mark.parametrize("target", [AVX512, AVX2, NEON, NARROW_NEON], ids=["avx512", "avx2", "neon", "neon32"])
@pytest.mark.parametrize("height, width, blocks", [(56, 56, 4), (28, 28, 8), (7, 7, 32), (1, 1, 64), (27, 27, 6)])
def test_tiles_fit_the_registers(target: Target, height: int, width: int, blocks: int) -> None:
    tile = choose_tile(target, Space(height, width, blocks, blocks))
    assert tile.positions * tile.blocks + tile.blocks + 1 <= target.vector_registers
    assert tile.rows <= height and tile.columns <= width and blocks % tile.blocks == 0


@pytest.mark.parametrize(
    "target, height, width, blocks",
    [(AVX512, 56, 56, 4), (AVX512, 28, 28, 8), (AVX2, 56, 56, 8), (NEON, 56, 56, 16)],
)
def test_tiles_hide_the_latency(target: Target, height: int, width: int, blocks: int) -> None:
    """Enough independent multiply-adds for the ports, and no more loads than two a cycle."""
    tile = choose_tile(target, Space(height, width, blocks, blocks))
    fmas = tile.positions * tile.blocks
    assert fmas >= target.fma_latency * target.fma_ports
    assert (tile.positions + tile.blocks) / 2 <= fmas / target.fma_ports + 1
    assert width % tile.columns == 0  # nothing is computed twice at the edge of these common widths


def test_tiles_of_common_layers() -> None:
    """What is chosen today, so that a change is seen."""
    chosen = {
        "avx512": choose_tile(AVX512, Space(56, 56, 4, 4)),
        "avx2": choose_tile(AVX2, Space(56, 56, 8, 8)),
        "neon": choose_tile(NEON, Space(56, 56, 16, 16)),
        "neon32": choose_tile(NARROW_NEON, Space(56, 56, 16, 16)),
    }
    assert chosen == TILES
    assert choose_tile(AVX512, Space(56, 56, 4, 4), flat=True) == Tile(1, 14, 2)  # as many positions in fewer rows
    assert choose_tile(AVX512, Space(7, 7, 4, 4), flat=True) == choose_tile(AVX512, Space(7, 7, 4, 4))


def test_rows_that_are_left_over_have_a_tile_of_their_own() -> None:
    """Seven rows in tiles of two and one of one: four passes over the weights, and none computed twice."""
    tile = choose_tile(AVX512, Space(7, 7, 32, 32, mixed=True))
    assert (tile, left_over(tile, 7)) == (Tile(2, 7, 2), Tile(1, 7, 2))
    assert left_over(choose_tile(AVX512, Space(14, 14, 4, 4, mixed=True)), 14) is None


@pytest.mark.sampled
@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize(
    "images,cin,cout,kernel,stride",
    [
        (1, 64, 96, 1, 1),
        (2, 512, 64, 1, 1),
        (1, 40, 64, 1, 2),
        (1, 64, 1024, 1, 1),
        (1, 128, 64, 3, 1),
        (1, 40, 64, 5, 2),
    ],
)
def test_rows_that_are_left_over(images: int, cin: int, cout: int, kernel: int, stride: int, cores: int) -> None:
    """Whatever cores share, in parts or not, behind a residual that the result may take over."""
    random = np.random.default_rng(cin)
    size, pad = 7 * stride, kernel // 2
    x = random.standard_normal((images, cin, size, size)).astype("float32")
    y = random.standard_normal((images, cout, 7, 7)).astype("float32")
    w = random.standard_normal((cout, cin, kernel, kernel)).astype("float32")

    def body(x: Any, y: Any) -> Any:
        return R.nn.relu(R.nn.conv2d(x, weight(w), strides=stride, padding=pad) + R.nn.relu(y))

    target = replace(AVX512, cores=cores)
    build = staged(module_of([x, y], body), target, tiled=False, exact=True)
    assert any(k.schedule == "direct conv C16, tile 2x7x2 and 1x7x2" for k in build.kernels)
    conv = Conv(images, cin, cout, (size, size), (kernel,) * 2, (stride,) * 2, (1, 1), (pad,) * 4)
    exact = reference(conv, x, w)
    results = [Compiled(build).run([x, y], tasks=tasks)[0] for tasks in (1, cores)]
    np.testing.assert_allclose(results[0], np.maximum(exact + np.maximum(y, 0), 0), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(results[0], results[1])


TILES = {
    "avx512": Tile(2, 7, 2),
    "avx2": Tile(3, 2, 2),
    "neon": Tile(2, 7, 2),
    "neon32": Tile(2, 7, 1),
}

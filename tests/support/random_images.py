"""Random graphs on images of open height and width: values branch, move their rows in every way, and join again.

Every value knows its height at several heights of the image, so that two values join, cut to the shorter one, exactly
if they differ by the same rows in all images: skips around strides, dilations, transposed convolutions, resizing,
pools that round up, pads and slices, also where sizes are odd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from stream_models import Maker

Sizes = tuple[int, ...]
FAR = 1 << 40


@dataclass(frozen=True)
class Made:
    """A value: its channels, and its rows and columns in each of the images that are looked at."""

    name: str
    channels: int
    rows: Sizes
    columns: Sizes


@dataclass
class Images:
    """A random graph under construction; ``multiple`` is that of heights and widths."""

    seed: int
    local: bool = False  # without what needs the place of a row in the image, or all columns
    known: list[Made] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.m = Maker(self.seed)
        self.random = self.m.random
        self.multiple = self.pick(1, 1, 1, 2, 4)
        first = -(-28 // self.multiple) * self.multiple
        self.samples = tuple(range(first, first + 16 * self.multiple, self.multiple))
        self.known = [Made("x", 3, self.samples, self.samples)]
        self.used: set[str] = set()

    # ------------------------------------------------------------------ chance

    def pick(self, *values: Any) -> Any:
        return values[int(self.random.integers(len(values)))]

    def whole(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def pairs(self, low: int, high: int) -> list[int]:
        return [self.whole(low, high), self.whole(low, high)]

    # ------------------------------------------------------------------ growth

    def grown(self, steps: int) -> Images:
        for _ in range(steps):
            recent = self.known[-4:]
            data = recent[int(self.random.integers(len(recent)))]
            if made := self.pick(*KINDS)(self, data):
                self._keep(data, made)
        return self

    def _keep(self, data: Made, made: Made) -> None:
        sizes = zip((*made.rows, *made.columns), (*self.samples, *self.samples))
        if all(2 <= n <= 4 * whole for n, whole in sizes):
            self.known.append(made)
            self.used.add(data.name)

    def moved(self, name: str, channels: int, data: Made, *moves: Callable[[int], int]) -> Made:
        rows, columns = moves if len(moves) == 2 else (moves[0], moves[0])
        return Made(name, channels, tuple(map(rows, data.rows)), tuple(map(columns, data.columns)))

    def model(self, width: Any, batch: int) -> onnx.ModelProto:
        """With the values that nothing reads as outputs, the last three of them."""
        loose = [v.name for v in self.known[1:] if v.name not in self.used][-3:]
        made = self.m.model(loose or [self.m.op("Relu", "x")], width, batch=batch)
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, "h", width])
        made.graph.input[0].CopyFrom(given)
        made.opset_import[0].version, made.ir_version = 19, 9
        return made


def _windows(
    kernel: int, stride: int, dilation: int, before: int, after: int, up: bool = False
) -> Callable[[int], int]:  # fmt: skip
    def size(n: int) -> int:
        left = n + before + after - (kernel - 1) * dilation - 1
        return (-(-left // stride) if up else left // stride) + 1

    return size


def conv(g: Images, x: Made) -> Made:
    c, out = x.channels, g.pick(2, 3, 4)
    kernel, strides, dilations = g.pairs(1, 4), g.pairs(1, g.pick(1, 1, 2, 3)), g.pairs(1, g.pick(1, 3))
    pads = [g.whole(0, 3) for _ in range(4)]
    group = g.pick(1, c)
    out = c * g.pick(1, 2) if group > 1 else out
    y = g.m.op("Conv", x.name, g.m.weights(out, c // group, *kernel), strides=strides, dilations=dilations, pads=pads,
               group=group)  # fmt: skip
    sizes = [_windows(kernel[i], strides[i], dilations[i], pads[i], pads[i + 2]) for i in (0, 1)]
    return g.moved(y, out, x, *sizes)


def same(g: Images, x: Made) -> Made:
    """A convolution of its own size, and what is behind it: skips meet again."""
    d = g.pick(1, 2, 3)
    y = g.m.conv(x.name, x.channels, 4, 3, dilations=[d, d])
    y = g.m.op(g.pick("Relu", "Sigmoid", "LeakyRelu"), y)
    return Made(y, 4, x.rows, x.columns)


def transposed(g: Images, x: Made) -> Made:
    out, strides = g.pick(2, 3), g.pairs(1, 3)
    kernel, dilations = [s + g.whole(0, 2) for s in strides], [g.pick(1, 2) if s == 1 else 1 for s in strides]
    more = [g.whole(0, s - 1) for s in strides]
    pads = [g.whole(0, k - 1) for k in (*kernel, *kernel)]
    y = g.m.op("ConvTranspose", x.name, g.m.weights(x.channels, out, *kernel), strides=strides, dilations=dilations,
               pads=pads, output_padding=more)  # fmt: skip

    def size(i: int) -> Callable[[int], int]:
        reach = (kernel[i] - 1) * dilations[i] + 1
        return lambda n: (n - 1) * strides[i] + reach + more[i] - pads[i] - pads[i + 2]

    return g.moved(y, out, x, size(0), size(1))


def pool(g: Images, x: Made) -> Made:
    kernel = g.pairs(2, 3)
    if g.random.random() < 0.4:  # open sizes take ceil_mode without pads, and steps no longer than the window
        strides = [g.whole(1, k) for k in kernel]
        y = g.m.op("MaxPool", x.name, kernel_shape=kernel, strides=strides, ceil_mode=1)
        return g.moved(y, x.channels, x, *(_windows(k, s, 1, 0, 0, True) for k, s in zip(kernel, strides)))
    strides, dilations, pads = g.pairs(1, 3), [1, 1], [g.whole(0, 1) for _ in range(4)]
    if g.random.random() < 0.5:
        dilations = g.pairs(1, 2)
        pads = [p * (dilations[i % 2] == 1) for i, p in enumerate(pads)]  # else windows may lie beside short images
        y = g.m.op("MaxPool", x.name, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads)
    else:
        y = g.m.op("AveragePool", x.name, kernel_shape=kernel, strides=strides, pads=pads,
                   count_include_pad=g.whole(0, 1))  # fmt: skip
    return g.moved(
        y, x.channels, x, *(_windows(kernel[i], strides[i], dilations[i], pads[i], pads[i + 2]) for i in (0, 1))
    )


def resized(g: Images, x: Made) -> Made | None:
    mode = g.pick("nearest", "linear", "cubic")
    scale = g.pick(2, 2, 2, 3, 4) if not g.local else 2
    if mode == "nearest":
        place = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        place = {"coordinate_transformation_mode": g.pick("half_pixel", "asymmetric")}
    scales = g.m.const(np.array([1, 1, scale, scale], np.float32))
    y = g.m.op("Resize", x.name, "", scales, mode=mode, **place)
    return g.moved(y, x.channels, x, lambda n: n * scale)


def halved(g: Images, x: Made) -> Made | None:
    """Resized to half of it, where that is whole in every image."""
    if any(n % 2 for n in (*x.rows, *x.columns)):
        return None
    scales = g.m.const(np.array([1, 1, 0.5, 0.5], np.float32))
    mode = g.pick("linear", "nearest")
    more = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} if mode == "nearest" else {}
    return g.moved(g.m.op("Resize", x.name, "", scales, mode=mode, **more), x.channels, x, lambda n: n // 2)


def padded(g: Images, x: Made) -> Made:
    (a, b), (c, d) = g.pairs(0, 3), g.pairs(0, 3)
    mode = g.pick("constant", "reflect", "edge")
    value = [g.m.const(np.float32(g.pick(0, 0.5)))] if mode == "constant" else []
    y = g.m.op("Pad", x.name, g.m.const(np.array([0, 0, a, c, 0, 0, b, d])), *value, mode=mode)
    return g.moved(y, x.channels, x, lambda n: n + a + b, lambda n: n + c + d)


def cut(g: Images, x: Made) -> Made:
    starts, steps = g.pairs(0, 3), g.pairs(1, 2)
    ends = [g.pick(FAR, -1, -2) for _ in range(2)]
    y = g.m.op("Slice", x.name, *(g.m.const(np.array(v)) for v in (starts, ends, (2, 3), steps)))
    less = [s + (0 if e == FAR else -e) for s, e in zip(starts, ends)]
    return g.moved(y, x.channels, x, *(lambda n, i=i: -(-(n - less[i]) // steps[i]) for i in (0, 1)))


def to_space(g: Images, x: Made) -> Made | None:
    if x.channels % 4:
        return None
    y = g.m.op("DepthToSpace", x.name, blocksize=2, mode=g.pick("DCR", "CRD"))
    return g.moved(y, x.channels // 4, x, lambda n: 2 * n)


def to_depth(g: Images, x: Made) -> Made | None:
    if x.channels > 3 or any(n % 2 for n in (*x.rows, *x.columns)):
        return None
    return g.moved(g.m.op("SpaceToDepth", x.name, blocksize=2), 4 * x.channels, x, lambda n: n // 2)


def by_itself(g: Images, x: Made) -> Made:
    """What works on each row by itself, over channels."""
    kind = g.pick("gate", "softmax", "mean", "norm", "split")
    if kind == "gate":
        y = g.m.op("Mul", x.name, g.m.op("Sigmoid", x.name))
    elif kind == "softmax":
        y = g.m.op("Softmax", x.name, axis=1)
    elif kind == "mean":
        y = g.m.op("Sub", x.name, g.m.op("ReduceMean", x.name, g.m.const(np.array([1])), keepdims=1))
    elif kind == "norm":
        c = x.channels
        one = [g.m.const(g.random.random(c).astype(np.float32) + 0.5) for _ in range(4)]
        y = g.m.op("BatchNormalization", x.name, *one)
    else:
        y = g.m.op("Transpose", x.name, perm=[0, 2, 3, 1])
        y = g.m.op("Transpose", g.m.op("LeakyRelu", y, alpha=0.3), perm=[0, 3, 1, 2])
    return Made(y, x.channels, x.rows, x.columns)


def joined(g: Images, x: Made) -> Made | None:
    """With a value that differs by the same rows and columns in every image, both cut to the smaller sizes."""

    def apart(v: Made) -> list[set[int]]:
        return [{b - a for a, b in zip(*pair)} for pair in ((x.rows, v.rows), (x.columns, v.columns))]

    others = [v for v in g.known if v is not x and all(len(d) == 1 and abs(min(d)) <= 9 for d in apart(v))]
    if not others:
        return None
    other = others[int(g.random.integers(len(others)))]
    more = [min(d) for d in apart(other)]
    one, two = _cropped(g, x, [max(0, -n) for n in more]), _cropped(g, other, [max(0, n) for n in more])
    g.used.add(other.name)
    kind = g.pick("Concat", "Add", "Mul") if x.channels == other.channels else "Concat"
    y = g.m.op(kind, one.name, two.name, **({"axis": 1} if kind == "Concat" else {}))
    return Made(y, x.channels + other.channels if kind == "Concat" else x.channels, one.rows, one.columns)


def _cropped(g: Images, x: Made, less: list[int]) -> Made:
    if not any(less):
        return x
    starts = [g.whole(0, n) for n in less]
    ends = [FAR if n == s else s - n for n, s in zip(less, starts)]
    y = g.m.op("Slice", x.name, *(g.m.const(np.array(v)) for v in (starts, ends, (2, 3))))
    return g.moved(y, x.channels, x, lambda n: n - less[0], lambda n: n - less[1])


def excited(g: Images, x: Made) -> Made:
    """Squeeze and excite, or a norm over the image: another pass."""
    c = x.channels
    if g.pick(True, False):
        y = g.m.op("Mul", x.name, g.m.op("Sigmoid", g.m.conv(g.m.op("GlobalAveragePool", x.name), c, c, 1)))
    else:
        more = [g.m.const(g.random.random(c).astype(np.float32) + 0.5) for _ in range(2)]
        y = g.m.op("InstanceNormalization", x.name, *more)
    return Made(y, c, x.rows, x.columns)


KINDS: tuple[Callable[[Images, Made], Made | None], ...] = (
    conv, conv, same, same, transposed, transposed, pool, pool, resized, padded, cut, to_space, to_depth,
    by_itself, joined, joined, joined,
)  # fmt: skip


def random_image_graph(seed: int, *, local: bool = False, passes: bool = False) -> Images:
    """A graph of four to ten values; with ``passes`` one behind them needs the whole image."""
    g = Images(seed, local).grown(4 + seed % 9)
    if passes:
        last = g.known[-1]
        g._keep(last, excited(g, last))
        g.grown(2)
    return g

"""Random networks whose rows reach a bounded way, with open height and width: strides, dilation, transposed
convolutions, resizing, pads of every mode and either side, slices, skips around all of these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from open_models import Drawing

CHANNELS = (2, 3, 4)


@dataclass
class Local:
    """A random network under construction."""

    g: Drawing
    random: np.random.Generator
    whole_numbers: bool = False  # of weights, so that sums are exact in whatever order

    def pick(self, *values: int) -> int:
        return int(values[self.random.integers(len(values))])

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def whole(self, low: int, high: int, count: int = 2) -> list[int]:
        return [int(n) for n in self.random.integers(low, high + 1, count)]

    def drawn(self, *shape: int) -> str:
        if not self.whole_numbers:
            return self.g.drawn(*shape)
        return self.g.constant(self.random.integers(-1, 2, shape) * self.random.integers(0, 2, shape))

    def step(self, x: str, c: int) -> tuple[str, int]:
        kinds = (self.conv, self.conv, self.deep, self.transposed, self.pool, self.nearest, self.linear, self.pad,
                 self.cut, self.skip)  # fmt: skip
        y, c = kinds[self.random.integers(len(kinds))](x, c)
        return (self.g("LeakyRelu", y, alpha=0.5), c) if self.chance(0.5) else (y, c)

    def conv(self, x: str, c: int) -> tuple[str, int]:
        out, kernel = self.pick(*CHANNELS), self.whole(1, 4)
        y = self.g("Conv", x, self.drawn(out, c, *kernel), strides=self.whole(1, self.pick(1, 2, 3)),
                   dilations=self.whole(1, 3), pads=self.whole(0, 4, 4))  # fmt: skip
        return y, out

    def deep(self, x: str, c: int) -> tuple[str, int]:
        kernel = self.whole(2, 4)
        return self.g("Conv", x, self.drawn(c, 1, *kernel), group=c, pads=self.whole(0, 3, 4)), c

    def transposed(self, x: str, c: int) -> tuple[str, int]:
        out, strides = self.pick(*CHANNELS), self.whole(1, 3)
        kernel = [s + int(self.random.integers(0, 3)) for s in strides]
        more = [int(self.random.integers(0, s)) for s in strides]
        dilations = [self.pick(1, 2) if s == 1 else 1 for s in strides]
        return self.g("ConvTranspose", x, self.drawn(c, out, *kernel), strides=strides, output_padding=more,
                      pads=self.whole(0, 1, 4), dilations=dilations), out  # fmt: skip

    def pool(self, x: str, c: int) -> tuple[str, int]:
        kernel = self.whole(2, 3)
        if self.chance(0.4):  # open sizes take ceil_mode without pads, and steps no longer than the window
            strides = [int(self.random.integers(1, k + 1)) for k in kernel]
            return self.g("MaxPool", x, kernel_shape=kernel, strides=strides, ceil_mode=1), c
        around = {"kernel_shape": kernel, "strides": self.whole(1, 3), "pads": self.whole(0, 1, 4)}
        if self.whole_numbers or self.chance(0.5):
            return self.g("MaxPool", x, **around), c
        return self.g("AveragePool", x, count_include_pad=self.pick(0, 1), **around), c

    def nearest(self, x: str, c: int) -> tuple[str, int]:
        scales = self.g.constant([1, 1, self.pick(1, 2, 3), self.pick(2, 3)])
        return self.g("Resize", x, "", scales, mode="nearest"), c

    def linear(self, x: str, c: int) -> tuple[str, int]:
        return self.g("Resize", x, "", self.g.constant([1, 1, 2, 2]), mode="linear"), c

    def pad(self, x: str, c: int) -> tuple[str, int]:
        mode = ("constant", "reflect", "edge")[self.pick(0, 1, 2)]
        before, after = self.whole(0, 4), self.whole(0, 4)
        return self.g("Pad", x, self.g.whole(0, 0, *before, 0, 0, *after), mode=mode), c

    def cut(self, x: str, c: int) -> tuple[str, int]:
        starts, steps = self.whole(0, 3), self.whole(1, 2)
        ends = [1 << 40] * 2
        return self.g("Slice", x, *(self.g.whole(*v) for v in (starts, ends, (2, 3), steps))), c

    def skip(self, x: str, c: int) -> tuple[str, int]:
        """Another way beside x, which keeps its size."""
        d, kernel = self.pick(1, 2, 3), self.pick(3, 5)
        y = self.g("Conv", x, self.drawn(c, c, kernel, kernel), dilations=[d, d], pads=[d * (kernel // 2)] * 4)
        return (self.g("Add", x, y), c) if self.chance(0.5) else (self.g("Concat", x, y, axis=1), 2 * c)

    def valley(self, x: str, c: int) -> tuple[str, int]:
        """Down by two, a layer, up again, and x beside: sizes have to be even."""
        y = self.g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        y = self.g("Conv", y, self.drawn(c, c, 3, 3), pads=[1] * 4)
        kind = self.pick(0, 1, 2)
        if kind == 0:
            y = self.g("ConvTranspose", y, self.drawn(c, c, 2, 2), strides=[2, 2])
        else:
            y = self.g("Resize", y, "", self.g.constant([1, 1, 2, 2]), mode=("nearest", "linear")[kind - 1])
        return self.g("Concat", y, x, axis=1), 2 * c


def local_model(
    seed: int, steps: int = 4, whole_numbers: bool = False, sides: tuple[int | str, int | str] = ("h", "w")
) -> onnx.ModelProto:
    """A random network of x[n, 2, h, w]; now and then with two outputs. With ``whole_numbers``, sums of whole inputs
    are exact, whichever way they are added up."""
    net = Local(Drawing(seed), np.random.default_rng(seed), whole_numbers)
    x, c = net.g.input("x", "n", 2, *sides), 2
    y = x
    if net.chance(0.4):  # where sizes are those of the image
        y, c = net.valley(y, c)
    for number in range(steps):
        y, c = net.step(y, c)
        if number == steps // 2 and net.chance(0.3):
            net.g.output(y, 4)
        if c > 6:
            c, y = 3, net.g("Conv", y, net.drawn(3, c, 1, 1))
    net.g.output(y, 4)
    return net.g.model()

"""Direct convolutions whose taps lie mostly in the padding (wide dilations) pass over them."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.words.group import Value
from tvm import relax

R = relax.op
F = "float32"


def facts(size: int, dilation: int, stride: int = 1, kernel: int = 3) -> ConvFacts:
    pad, span = dilation * (kernel // 2), (size - 1) // stride + 1
    values = (Value(n, s, F) for n, s in (("x", (1, 8, size, size)), ("w", (8, 8, kernel, kernel))))
    output = Value("y", (1, 8, span, span), F)
    return ConvFacts(*values, output, (kernel,) * 2, (stride,) * 2, (dilation,) * 2, (pad,) * 2, (pad,) * 2, 1)


@pytest.mark.parametrize("size,dilation,kernel", [(40, 24, 3), (40, 12, 3), (13, 1, 7), (9, 12, 3), (56, 1, 3)])
def test_the_share_inside_is_counted(size: int, dilation: int, kernel: int) -> None:
    taps = (np.arange(kernel) - kernel // 2) * dilation
    at = np.arange(size)[:, None] + taps
    share = ((at >= 0) & (at < size)).mean()
    made = facts(size, dilation, kernel=kernel)
    assert made.inside == pytest.approx(share**2)
    assert made.skips == (share**2 < 0.85)
    assert not made.cut(4, 4).skips  # boxes lie anywhere


@pytest.mark.parametrize("stride,dilation,before", [(1, 11, 11), (1, 7, 14), (2, 9, 9), (1, 20, 20)])
def test_numbers(stride: int, dilation: int, before: int) -> None:
    """Behind a map, too, whose value at zero is not zero."""
    random = np.random.default_rng(dilation)
    x = random.standard_normal((2, 20, 19, 17)).astype(F)
    w = random.standard_normal((40, 20, 3, 3)).astype(F)
    pads = (before, dilation, dilation, before)

    def body(v: relax.Expr) -> relax.Expr:
        mapped = R.add(v, R.add(v, weight(np.ones((1, 20, 1, 1), F))))
        return R.nn.conv2d(mapped, weight(w), strides=stride, padding=pads, dilation=dilation)

    build = staged(module_of([x], body), native(), tiled=False, exact=True)
    (kernel,) = [k for k in build.kernels if "direct conv" in k.schedule]
    assert "if " in str(kernel.function).split("for c")[0], "no tap is passed over"
    wide = np.pad(2 * x.astype("f8") + 1, ((0, 0), (0, 0), (before, dilation), (dilation, before)))
    rows, columns = ((wide.shape[i] - 2 * dilation - 1) // stride + 1 for i in (2, 3))
    wanted = np.zeros((2, 40, rows, columns))
    for i, j in np.ndindex(3, 3):
        part = wide[:, :, i * dilation :, j * dilation :][:, :, : rows * stride : stride, : columns * stride : stride]
        wanted += np.einsum("oc,nchw->nohw", w[:, :, i, j], part)
    np.testing.assert_allclose(Compiled(build).run([x])[0], wanted, rtol=1e-4, atol=1e-4)

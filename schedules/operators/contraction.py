"""Convolution and matrix multiplication as plain sums of products: what the families compute faster."""

from __future__ import annotations

from tvm import te, tirx
from tvm.ir import Call

from ..words.sizes import dim_of
from ..words.tvm_types import Expr
from .registry import override


@override("relax.nn.conv1d")
@override("relax.nn.conv2d")
@override("relax.nn.conv3d")
def conv(call: Call, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """y[n, o, x] = sum over c, k of data[n, g(o) + c, x * s + k * d - pad] * weight[o, c, k], zero outside."""
    attrs = call.attrs
    rank = len(data.shape) - 2
    strides = [int(v) for v in attrs.strides]
    dilation = [int(v) for v in attrs.dilation]
    pads = [int(v) for v in attrs.padding]
    groups = int(attrs.groups)
    begin, end = pads[:rank], pads[rank:]
    size = [dim_of(v) for v in data.shape[2:]]
    kernel = [int(v) for v in weight.shape[2:]]
    out_channels, group_in = int(weight.shape[0]), int(weight.shape[1])
    group_out = out_channels // groups
    out = [
        (size[i] + begin[i] + end[i] - dilation[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]
    c = te.reduce_axis((0, group_in), "c")
    taps = [te.reduce_axis((0, k), "k") for k in kernel]

    def element(n: Expr, o: Expr, *x: Expr) -> Expr:
        at = [x[i] * strides[i] + taps[i] * dilation[i] - begin[i] for i in range(rank)]
        inside = [tirx.all(a >= 0, a < s) for i, (a, s) in enumerate(zip(at, size)) if begin[i] or end[i]]
        value = data(n, (o // group_out) * group_in + c if groups > 1 else c, *at)
        if inside:
            value = tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, data.dtype))
        return te.sum(value * weight(o, c, *taps), axis=[c, *taps])

    return te.compute((data.shape[0], out_channels, *out), element, name="conv")


@override("relax.matmul")
def matmul(call: Call, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """numpy.matmul: batch axes broadcast; a 1-D operand is a row (left) or a column (right) that vanishes."""
    a_shape, b_shape = [dim_of(s) for s in a.shape], [dim_of(s) for s in b.shape]
    row, column = len(a_shape) == 1, len(b_shape) == 1
    a_batch, b_batch = a_shape[:-2], b_shape[:-2]
    rank = max(len(a_batch), len(b_batch))
    batch = []
    for i in range(rank):
        x = a_batch[i - rank + len(a_batch)] if i - rank + len(a_batch) >= 0 else 1
        y = b_batch[i - rank + len(b_batch)] if i - rank + len(b_batch) >= 0 else 1
        batch.append(y if x == 1 else x)
    k = te.reduce_axis((0, a_shape[-1]), "k")
    dtype = str(call.attrs.out_dtype) if getattr(call.attrs, "out_dtype", None) else str(a.dtype)
    if dtype in ("", "void", "None"):
        dtype = str(a.dtype)
    out = [*batch, *([] if row else [a_shape[-2]]), *([] if column else [b_shape[-1]])]

    def pick(shape: list[int], indices: tuple[Expr, ...]) -> list[Expr]:
        used = indices[rank - len(shape) :] if shape else []
        return [0 if s == 1 else i for s, i in zip(shape, used)]

    def element(*i: Expr) -> Expr:
        rest = list(i[rank:])
        left = [*pick(a_batch, i[:rank]), *([] if row else [rest.pop(0)]), k]
        right = [*pick(b_batch, i[:rank]), k, *([] if column else [rest.pop(0)])]
        return te.sum(a(*left).astype(dtype) * b(*right).astype(dtype), axis=k)

    return te.compute(out, element, name="matmul")

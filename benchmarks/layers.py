"""Layers on :class:`~.graph.Graph`: one network definition, written out as TorchScript's or dynamo's exporter would."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .graph import Dim, ModelGraph

if TYPE_CHECKING:
    from typing import Any

# E[x^2] / E[f(x)^2] for x ~ N(0, 1): what the weights behind an activation are scaled by, to keep the mean square.
GAIN = {"none": 1.0, "relu": 2.0, "relu6": 2.0, "silu": 2.8, "gelu": 2.35, "hardswish": 3.2, "sigmoid": 3.4}


def conv(
    g: ModelGraph,
    x: str,
    channels: int,
    kernel: int | tuple[int, int] = 3,
    *,
    stride: int = 1,
    pad: int | tuple[int, int] | None = None,
    groups: int = 1,
    dilation: int = 1,
    bias: bool = True,
    gain: float = 2.0,
    name: str = "conv",
) -> str:
    """Conv2d; ``pad`` is that of PyTorch (half the kernel unless given), ``gain`` that of the activation before it."""
    kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
    if pad is None:
        pad = (dilation * (kh // 2), dilation * (kw // 2))
    ph, pw = (pad, pad) if isinstance(pad, int) else pad
    shape = (channels, g.dim(x, 1) // groups, kh, kw)
    with g.scope(name):
        inputs = [x, g.weight("weight", g.fan_in(shape, gain))]
        if bias:
            inputs.append(g.weight("bias", g.normal((channels,), 0.1)))
        return g.op(
            "Conv",
            *inputs,
            dilations=[dilation, dilation],
            group=groups,
            kernel_shape=[kh, kw],
            pads=[ph, pw, ph, pw],
            strides=[stride, stride],
        )


def conv_transpose(g: ModelGraph, x: str, channels: int, kernel: int, *, stride: int, gain: float = 2.0) -> str:
    """ConvTranspose2d without padding, as decoders use it (kernel = stride)."""
    cin = g.dim(x, 1)
    with g.scope("up"):
        fan = max(1, cin * kernel * kernel // (stride * stride))
        weight = g.weight("weight", g.fan_in((cin, channels, kernel, kernel), gain, fan))
        bias = g.weight("bias", g.normal((channels,), 0.1))
        return g.op(
            "ConvTranspose",
            x,
            weight,
            bias,
            dilations=[1, 1],
            group=1,
            kernel_shape=[kernel, kernel],
            pads=[0, 0, 0, 0],
            strides=[stride, stride],
        )


def batch_norm(g: ModelGraph, x: str, *, scale: float = 1.0, name: str = "bn") -> str:
    """BatchNormalization in inference form, with statistics of the size that training leaves behind."""
    c = (g.dim(x, 1),)
    with g.scope(name):
        gamma = g.weight("weight", g.uniform(c, 0.7 * scale, 1.3 * scale))
        beta = g.weight("bias", g.normal(c, 0.1))
        mean = g.weight("running_mean", g.normal(c, 0.1))
        var = g.weight("running_var", g.uniform(c, 0.7, 1.4))
        return g.op("BatchNormalization", x, gamma, beta, mean, var, epsilon=1e-5, momentum=0.9)


def activation(g: ModelGraph, x: str, kind: str) -> str:
    """``none``, ``relu``, ``relu6``, ``silu``, ``gelu``, ``gelu_tanh``, ``hardswish``, ``hardsigmoid``, ``sigmoid``."""
    if kind == "none":
        return x
    if kind == "relu6":
        with g.scope("act"):
            return g.op("Clip", x, g.const(0.0), g.const(6.0))
    if kind == "silu":
        with g.scope("act"):
            return g.op("Mul", x, g.op("Sigmoid", x))
    if kind in ("gelu", "gelu_tanh"):
        with g.scope("act"):
            return _gelu(g, x, kind == "gelu_tanh")
    if kind == "hardsigmoid":
        return g.op("HardSigmoid", x, alpha=1.0 / 6.0, beta=0.5)
    return g.op({"relu": "Relu", "hardswish": "HardSwish", "sigmoid": "Sigmoid"}[kind], x)


def _gelu(g: ModelGraph, x: str, tanh: bool) -> str:
    if not g.form.torchscript and g.form.opset >= 20:
        return g.op("Gelu", x, approximate="tanh" if tanh else "none")
    if not tanh:
        erf = g.op("Erf", g.op("Div", x, g.const(math.sqrt(2.0))))
        return g.op("Mul", g.op("Mul", x, g.op("Add", erf, g.const(1.0))), g.const(0.5))
    cube = g.op("Mul", g.op("Pow", x, g.const(3.0)), g.const(0.044715))
    inner = g.op("Mul", g.op("Add", x, cube), g.const(math.sqrt(2.0 / math.pi)))
    return g.op("Mul", g.op("Mul", x, g.const(0.5)), g.op("Add", g.op("Tanh", inner), g.const(1.0)))


def conv_norm(
    g: ModelGraph,
    x: str,
    channels: int,
    kernel: int | tuple[int, int] = 3,
    *,
    act: str = "relu",
    scale: float = 1.0,
    **conv_options: Any,
) -> str:
    """Conv without bias, BatchNormalization, activation: the block that most CNNs repeat."""
    x = conv(g, x, channels, kernel, bias=False, **conv_options)
    return activation(g, batch_norm(g, x, scale=scale), act)


def reduce_mean(g: ModelGraph, x: str, axes: Sequence[int], keepdims: bool = True) -> str:
    if g.form.opset >= 18:
        return g.op("ReduceMean", x, g.const(list(axes), "int64"), keepdims=int(keepdims))
    return g.op("ReduceMean", x, axes=list(axes), keepdims=int(keepdims))


def layer_norm(g: ModelGraph, x: str, *, epsilon: float = 1e-5, name: str = "norm") -> str:
    """LayerNorm over the last axis: one operator from opset 17, nine before."""
    c = (g.dim(x, -1),)
    with g.scope(name):
        gamma = g.weight("weight", g.uniform(c, 0.8, 1.2))
        beta = g.weight("bias", g.normal(c, 0.1))
        if g.form.opset >= 17 and not g.form.raw:
            return g.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=epsilon)
        centred = g.op("Sub", x, reduce_mean(g, x, [-1]))
        variance = reduce_mean(g, g.op("Pow", centred, g.const(2.0)), [-1])
        deviation = g.op("Sqrt", g.op("Add", variance, g.const(epsilon)))
        return g.op("Add", g.op("Mul", g.op("Div", centred, deviation), gamma), beta)


def linear(
    g: ModelGraph, x: str, features: int, *, gain: float = 1.0, bias: bool = True, name: str = "linear"
) -> str:
    """Fully connected over the last axis: Gemm for rank 2, MatMul then Add (bias first, as TorchScript) above that."""
    k = g.dim(x, -1)
    weight = g.fan_in((features, k), gain)
    with g.scope(name):
        if len(g.shape(x)) == 2:
            inputs = [x, g.weight("weight", weight)]
            if bias:
                inputs.append(g.weight("bias", g.normal((features,), 0.1)))
            return g.op("Gemm", *inputs, alpha=1.0, beta=1.0, transB=1)
        y = g.op("MatMul", x, g.weight("weight", weight.T))
        return g.op("Add", g.weight("bias", g.normal((features,), 0.1)), y) if bias else y


def reshape(g: ModelGraph, x: str, shape: Sequence[Dim]) -> str:
    """Reshape to ``shape``; a dim name, or in raw form a dim that the input has in that place, is read at run time."""
    source = g.shape(x)
    at_run_time = [
        isinstance(d, str) or (g.form.raw and i < len(source) and d == source[i]) for i, d in enumerate(shape)
    ]
    if not any(at_run_time):
        target = g.const(list(shape), "int64")
    else:
        parts = [
            _dimension(g, x, source.index(d)) if live else g.const([d], "int64")
            for d, live in zip(shape, at_run_time)
        ]
        target = g.op("Concat", *parts, axis=0)
    attributes = {} if g.form.torchscript else {"allowzero": 1 if g.form.opset >= 14 else 0}
    return g.op("Reshape", x, target, shape=shape, **attributes)


def _dimension(g: ModelGraph, x: str, axis: int) -> str:
    """The run-time size of one axis as a tensor of shape [1], in the exporter's own arithmetic."""
    if g.form.torchscript or g.form.opset < 15:
        scalar = g.op("Gather", g.op("Shape", x), g.const(axis, "int64"), axis=0)
        return g.op("Unsqueeze", scalar, g.const([0], "int64"))
    return g.op("Shape", x, start=axis, end=axis + 1)


def flatten(g: ModelGraph, x: str) -> str:
    """[N, C, H, W] to [N, C*H*W]."""
    if g.form.raw:
        n, *rest = g.shape(x)
        parts = [_dimension(g, x, 0), g.const([-1], "int64")]
        return g.op("Reshape", x, g.op("Concat", *parts, axis=0), shape=(n, math.prod(int(d) for d in rest)))
    return g.op("Flatten", x, axis=1)


def transpose(g: ModelGraph, x: str, *perm: int) -> str:
    return g.op("Transpose", x, perm=list(perm))


def slice_(g: ModelGraph, x: str, axis: int, start: int, end: int) -> str:
    bounds = [g.const([v], "int64") for v in (start, end, axis, 1)]
    return g.op("Slice", x, *bounds)


def max_pool(g: ModelGraph, x: str, kernel: int, stride: int, pad: int = 0, ceil: bool = False) -> str:
    return g.op(
        "MaxPool", x, ceil_mode=int(ceil), kernel_shape=[kernel] * 2, pads=[pad] * 4, strides=[stride] * 2
    )


def avg_pool(g: ModelGraph, x: str, kernel: int, stride: int, pad: int = 0) -> str:
    return g.op(
        "AveragePool",
        x,
        ceil_mode=0,
        count_include_pad=1,
        kernel_shape=[kernel] * 2,
        pads=[pad] * 4,
        strides=[stride] * 2,
    )


def resize(g: ModelGraph, x: str, factor: int, mode: str = "nearest") -> str:
    """Upsampling by a whole factor, with the attributes that PyTorch's exporters set."""
    transform = "asymmetric" if mode == "nearest" else "half_pixel"
    scales = g.const([1.0, 1.0, float(factor), float(factor)])
    options = {"nearest_mode": "floor"} if mode == "nearest" else {"cubic_coeff_a": -0.75}
    n, c, h, w = g.shape(x)
    shape = (n, c, int(h) * factor, int(w) * factor)
    return g.op(
        "Resize", x, "", scales, shape=shape, coordinate_transformation_mode=transform, mode=mode, **options
    )


def attention(
    g: ModelGraph,
    x: str,
    heads: int,
    *,
    mask: str | None = None,
    fused_qkv: bool = False,
    context: str | None = None,
) -> str:
    """Multi-head attention on [N, T, C] with an additive ``mask``; ``context`` gives keys and values of another length.

    TorchScript divides the scores; dynamo scales q and k each by the fourth root, as its attention decomposition does.
    """
    n, t, c = g.shape(x)
    width = int(c) // heads
    source = context or x
    s = g.shape(source)[1]
    if fused_qkv:
        packed = reshape(g, linear(g, x, 3 * int(c), name="qkv"), (n, t, 3, heads, width))
        packed = transpose(g, packed, 2, 0, 3, 1, 4)
        q, k, v = (g.op("Gather", packed, g.const(i, "int64"), axis=0) for i in range(3))
    else:
        q = transpose(g, reshape(g, linear(g, x, int(c), name="query"), (n, t, heads, width)), 0, 2, 1, 3)
        k = transpose(g, reshape(g, linear(g, source, int(c), name="key"), (n, s, heads, width)), 0, 2, 1, 3)
        v = transpose(
            g, reshape(g, linear(g, source, int(c), name="value"), (n, s, heads, width)), 0, 2, 1, 3
        )
    if g.form.torchscript:
        scores = g.op("Div", g.op("MatMul", q, transpose(g, k, 0, 1, 3, 2)), g.const(math.sqrt(width)))
    else:
        root = g.const(width**-0.25)
        k = transpose(g, k, 0, 1, 3, 2)
        scores = g.op("MatMul", g.op("Mul", q, root), g.op("Mul", k, root))
    if mask is not None:
        scores = g.op("Add", scores, mask)
    y = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
    return linear(g, reshape(g, transpose(g, y, 0, 2, 1, 3), (n, t, int(c))), int(c), name="proj")


def global_pool(g: ModelGraph, x: str) -> str:
    """[N, C, H, W] to [N, C, 1, 1]; dynamo writes a mean over the last two axes."""
    return g.op("GlobalAveragePool", x) if g.form.torchscript else reduce_mean(g, x, [-1, -2])


def classifier(g: ModelGraph, x: str, classes: int) -> str:
    """Global pooling, flatten, fully connected."""
    return linear(g, flatten(g, global_pool(g, x)), classes, name="fc")


def extended_mask(g: ModelGraph, mask: str) -> str:
    """A 0/1 mask [N, T] as an additive [N, 1, 1, T] one: 0 where attended, the lowest float elsewhere."""
    axes = g.const([1, 2], "int64")
    m = g.op("Cast", g.op("Unsqueeze", mask, axes), to=1)
    return g.op("Mul", g.op("Sub", g.const(1.0), m), g.const(float(np.finfo(np.float32).min)))

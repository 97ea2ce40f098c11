"""Runs a graph on arrays: the yardstick of the translation check and of the tests.

Simple operators are computed by :mod:`.evaluate`, anchors and normalisations by the short definitions below, and
whatever is left through its TE expression, compiled once for each operator and shape. Slow and plain on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te
from tvm.ir import GlobalVar

from ...schedules.operators import control, reference
from ...schedules.operators import registry as operator
from ...schedules.operators.of_sizes import TABLE, at_sizes
from ...schedules.words.group import CONTROL
from ...schedules.words.tvm_types import Expr
from .convert import expression, read
from .evaluate import evaluate
from .graph import CONST, ITEM, OPAQUE, GraphNode

_WIDE = np.float64


def interpret(outputs: Sequence[GraphNode], feeds: Mapping[GraphNode, np.ndarray]) -> list[np.ndarray]:
    """The values of ``outputs``, given those of enough nodes to cut every path to an input."""
    known: dict[GraphNode, np.ndarray] = dict(feeds)
    stack = list(outputs)
    while stack:
        node = stack[-1]
        if node in known:
            stack.pop()
        elif node.op == CONST:
            known[node] = node.array
        else:
            missing = [i for i in node.inputs if i not in known]
            if missing:
                stack.extend(missing)
                continue
            with np.errstate(all="ignore"):
                known[node] = _value(node, [known[i] for i in node.inputs])
    return [known[o] for o in outputs]


def _value(node: GraphNode, inputs: list[Any]) -> Any:
    if node.op == OPAQUE:
        return inputs[0]
    if node.op == ITEM and isinstance(inputs[0], (list, tuple)):
        return inputs[0][node.attrs]
    if node.op in CONTROL:
        results = control.evaluate(node.op, operator.attributes(node), inputs, _body)
        return results[0] if node.is_tensor else results
    if node.op == TABLE:
        return _table(node, inputs)
    value = evaluate(node, inputs)
    if value is None:
        value = _by_definition(node, inputs)
    return compiled(node, inputs) if value is None else value


def _by_definition(node: GraphNode, inputs: list[np.ndarray]) -> np.ndarray | None:
    """What the definitions below say, or the record of an operator of ours; None if neither does."""
    record = operator.own(node.op)
    if node.op in _TABLE:
        value = _TABLE[node.op](node, *inputs)
    elif record is not None and record.reference is not None:
        value = record.reference(*(x.astype(_WIDE) for x in inputs), **operator.attributes(node))
    else:
        return None
    return value.astype(inputs[0].dtype) if isinstance(value, np.ndarray) else value


def _body(function: relax.Function, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of the body of a loop or a branch."""
    graph = read(function)
    return interpret(graph.outputs, dict(zip(graph.inputs, map(np.asarray, inputs))))


def _table(node: GraphNode, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """A table of sizes that are known."""
    graph = read(at_sizes(node.attrs["body"], node.operands[0]))
    return interpret(graph.outputs, dict(zip(graph.inputs[1:], inputs)))[0]


def _windows(
    x: np.ndarray, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> np.ndarray:
    """A view [N, C, *out, *kernel] of the padded tensor ``x``."""
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation))
    axes = tuple(range(2, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    n = len(kernel)
    index = (slice(None),) * 2 + tuple(slice(None, None, s) for s in strides)
    return view[index + tuple(slice(None, None, d) for d in dilation)] if n else view


def _spatial(values: Sequence[Expr]) -> list[int]:
    return [int(v) for v in values]


def _padded(x: np.ndarray, padding: Sequence[int], fill: float) -> np.ndarray:
    n = len(padding) // 2
    return np.pad(
        x, [(0, 0), (0, 0), *((padding[k], padding[n + k]) for k in range(n))], constant_values=fill
    )


def _conv(node: GraphNode, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    a = node.attrs
    groups = int(a.groups)
    view = _windows(
        _padded(x.astype(_WIDE), _spatial(a.padding), 0),
        w.shape[2:],
        _spatial(a.strides),
        _spatial(a.dilation),
    )
    n, c, *rest = view.shape
    letters = "xyz"[: w.ndim - 2]
    taps = "ijk"[: w.ndim - 2]
    out = np.einsum(
        f"ngc{letters}{taps},goc{taps}->ngo{letters}",
        view.reshape(n, groups, c // groups, *rest),
        w.astype(_WIDE).reshape(groups, -1, *w.shape[1:]),
    )
    return out.reshape(n, -1, *out.shape[3:])


def _conv_transpose(node: GraphNode, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    a = node.attrs
    groups, strides, dilation = int(a.groups), _spatial(a.strides), _spatial(a.dilation)
    padding, extra = _spatial(a.padding), _spatial(a.output_padding)
    d = w.ndim - 2
    size = [
        (x.shape[2 + k] - 1) * strides[k] + (w.shape[2 + k] - 1) * dilation[k] + 1 + extra[k]
        for k in range(d)
    ]
    out = np.zeros((x.shape[0], groups, w.shape[1], *size))
    grouped = x.astype(_WIDE).reshape(x.shape[0], groups, -1, *x.shape[2:])
    weight = w.astype(_WIDE).reshape(groups, -1, *w.shape[1:])
    for tap in np.ndindex(*w.shape[2:]):
        part = np.einsum("ngi...,gio->ngo...", grouped, weight[(..., *tap)])
        place = tuple(
            slice(t * s, t * s + (n - 1) * r + 1, r)
            for t, s, n, r in zip(tap, dilation, x.shape[2:], strides)
        )
        out[(slice(None),) * 3 + place] += part
    crop = tuple(slice(padding[k], size[k] - padding[d + k]) for k in range(d))
    return out.reshape(x.shape[0], -1, *size)[(slice(None),) * 2 + crop]


def _softmax(node: GraphNode, x: np.ndarray) -> np.ndarray:
    axis = int(node.attrs.axis)
    e = np.exp(x.astype(_WIDE) - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def _log_softmax(node: GraphNode, x: np.ndarray) -> np.ndarray:
    axis = int(node.attrs.axis)
    shifted = x.astype(_WIDE) - np.max(x, axis=axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _axes(node: GraphNode, rank: int) -> tuple[int, ...]:
    return tuple(int(a) % rank for a in node.attrs.axes)


def _squares(wide: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Squares that overflow where those of the operator do."""
    return np.square(wide.astype(like.dtype)).astype(_WIDE)


def _layer_norm(node: GraphNode, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    axes = _axes(node, x.ndim)
    wide = x.astype(_WIDE)
    centred = wide - wide.mean(axes, keepdims=True)
    normal = centred / np.sqrt(_squares(centred, x).mean(axes, keepdims=True) + float(node.attrs.epsilon))
    return normal * gamma.astype(_WIDE) + beta.astype(_WIDE)


def _standardised(node: GraphNode, x: np.ndarray) -> np.ndarray:
    axes = tuple(int(a) for a in node.attr("axes"))
    wide = x.astype(_WIDE)
    centred = wide - wide.mean(axes, keepdims=True)
    return centred / np.sqrt(_squares(centred, x).mean(axes, keepdims=True) + float(node.attr("epsilon")))


def _centred(node: GraphNode, x: np.ndarray) -> np.ndarray:
    wide = x.astype(_WIDE)
    return wide - wide.mean(tuple(int(a) for a in node.attr("axes")), keepdims=True)


def _rms_norm(node: GraphNode, x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    wide = x.astype(_WIDE)
    mean = _squares(wide, x).mean(_axes(node, x.ndim), keepdims=True)
    return wide / np.sqrt(mean + float(node.attrs.epsilon)) * gamma.astype(_WIDE)


def _batch_norm(node: GraphNode, x: np.ndarray, *parameters: np.ndarray) -> tuple[np.ndarray, ...]:
    shape = [-1] + [1] * (x.ndim - int(node.attrs.axis) % x.ndim - 1)
    gamma, beta, mean, variance = (p.astype(_WIDE).reshape(shape) for p in parameters)
    y = gamma * (x - mean) / np.sqrt(variance + float(node.attrs.epsilon)) + beta
    return (y.astype(x.dtype), parameters[2], parameters[3])


def _pool(fill: float, reduce: Callable[..., np.ndarray]) -> Callable[..., Expr]:
    def apply(node: GraphNode, x: np.ndarray) -> np.ndarray | None:
        a = node.attrs
        if bool(a.ceil_mode):
            return None
        kernel, strides, dilation = _spatial(a.pool_size), _spatial(a.strides), _spatial(a.dilation)
        padding = _spatial(a.padding)
        view = _windows(_padded(x.astype(_WIDE), padding, fill), kernel, strides, dilation)
        total = reduce(view, axis=tuple(range(-len(kernel), 0)))
        if fill != 0:
            return total
        ones = _padded(np.ones_like(x, _WIDE), padding, float(bool(a.count_include_pad)))
        return total / np.sum(_windows(ones, kernel, strides, dilation), axis=tuple(range(-len(kernel), 0)))

    return apply


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + _erf(x / np.sqrt(2.0)))


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.vectorize(erf, otypes=[_WIDE])(x.astype(_WIDE)) if x.size else x


def _split(node: GraphNode, x: np.ndarray) -> list[np.ndarray]:
    return np.split(x, node.attr("indices_or_sections"), int(node.attrs.axis))


def _global_mean(node: GraphNode, x: np.ndarray) -> np.ndarray | None:
    size = node.attrs.output_size
    if size is None or any(int(s) != 1 for s in size):
        return None
    return x.astype(_WIDE).mean(tuple(range(2, x.ndim)), keepdims=True)


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


_TABLE: dict[str, Callable[..., Any]] = {
    **{f"relax.nn.conv{d}d": _conv for d in (1, 2, 3)},
    **{f"relax.nn.conv{d}d_transpose": _conv_transpose for d in (1, 2, 3)},
    **{f"relax.nn.max_pool{d}d": _pool(-np.inf, np.fmax.reduce) for d in (1, 2, 3)},
    **{f"relax.nn.avg_pool{d}d": _pool(0.0, np.sum) for d in (1, 2, 3)},
    **{f"relax.nn.adaptive_avg_pool{d}d": _global_mean for d in (1, 2, 3)},
    "relax.nn.softmax": _softmax,
    "relax.nn.log_softmax": _log_softmax,
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.rms_norm": _rms_norm,
    "relax.nn.batch_norm": _batch_norm,
    "relax.erf": lambda node, x: _erf(x),
    "relax.nn.gelu": lambda node, x: _gelu(x.astype(_WIDE)),
    "relax.nn.gelu_tanh": lambda node, x: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3.0)))
    ),
    "relax.nn.silu": lambda node, x: _silu(x.astype(_WIDE)),
    "halotile.standardise": _standardised,
    "halotile.centre": _centred,
    "relax.split": _split,
}

_cache: dict[str, tuple[Expr, list[tuple[list[int], str]]]] = {}


def compiled(node: GraphNode, inputs: Sequence[np.ndarray], most: int | None = None) -> np.ndarray | list[np.ndarray]:
    """The operator's TE expression, compiled for these shapes and run. More than ``most`` steps of loops are a
    ValueError, and so are loops and branches, which are no expression."""
    if node.op in CONTROL:
        raise ValueError(f"{node.op} has no expression")
    variables = [
        relax.Var(f"p{k}", relax.TensorType(list(a.shape), str(a.dtype))) for k, a in enumerate(inputs)
    ]
    call = relax.BlockBuilder().normalize(_untyped(expression(node, variables)))
    key = f"{call}|{[(a.shape, str(a.dtype)) for a in inputs]}"
    if key not in _cache:
        function, outputs = reference.call_function(call)
        if most is not None and _steps(outputs) > most:
            raise ValueError("it takes too many steps")
        library = reference.compile_functions({GlobalVar("main"): function.with_attr("global_symbol", "main")})
        _cache[key] = (library, [([int(d) for d in t.shape], str(t.dtype)) for t in outputs])
    library, types = _cache[key]
    results = [tvm.runtime.empty(shape, dtype) for shape, dtype in types]
    library["main"](*map(reference.to_tensor, inputs), *results)
    arrays = list(map(reference.to_array, results))
    return arrays[0] if len(arrays) == 1 else arrays


def _steps(outputs: Sequence[te.Tensor]) -> int:
    """How often the bodies of the loops that compute ``outputs`` are entered."""
    total = 0
    pending, seen = [*outputs], set()
    while pending:
        tensor = pending.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        pending.extend(tensor.op.input_tensors)
        reduced = (int(axis.dom.extent) for axis in getattr(tensor.op, "reduce_axis", ()))
        total += math.prod(int(d) for d in tensor.shape) * math.prod(reduced)
    return total


def _untyped(call: Expr) -> Expr:
    return tvm.ir.Call(call.op, call.args, call.attrs)

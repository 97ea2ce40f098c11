"""Zero mean and unit variance over some axes: what layer, group and instance norms share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx


def standardised(
    x: te.Tensor,
    axes: Sequence[int],
    epsilon: float,
    name: str,
    after: Callable[[Any, tuple[Any, ...]], Any] = lambda value, _: value,
) -> te.Tensor:
    """``after((x - mean) / sqrt(mean((x - mean)^2) + epsilon), indices)``, means over ``axes``; the variance is that
    of the centred values."""
    dtype = str(x.dtype)
    count = 1.0
    for a in axes:
        count *= int(x.shape[a])
    scale = tirx.const(1.0 / max(count, 1.0), dtype)  # without elements there is nothing to scale
    shape = [1 if a in axes else d for a, d in enumerate(x.shape)]

    def over(name: str, value: Any) -> te.Tensor:
        along = {a: te.reduce_axis((0, x.shape[a]), name=f"{name}{a}") for a in axes}
        return te.compute(
            shape,
            lambda *i: te.sum(value([along.get(a, p) for a, p in enumerate(i)]), axis=list(along.values())),
            name=name,
        )

    def at_mean(i: Any) -> list[Any]:
        return [0 if a in axes else p for a, p in enumerate(i)]

    total = over("total", lambda i: x(*i))
    centred = te.compute(x.shape, lambda *i: x(*i) - total(*at_mean(i)) * scale, name="centred")
    square = over("square", lambda i: centred(*i) * centred(*i))

    def normalised(*i: Any) -> Any:
        variance = square(*at_mean(i)) * scale
        inverse = tirx.const(1.0, dtype) / tirx.sqrt(variance + tirx.const(epsilon, dtype))
        return after(centred(*i) * inverse, i)

    return te.compute(x.shape, normalised, name=name)

"""What an entry of the catalogue is, and the short words that its models are written in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import halotile.schedules.operators  # noqa: F401
import numpy as np
from halotile.schedules.operators.registry import call
from tvm import relax

op = relax.op
F32, I32, I64, BOOL = "float32", "int32", "int64", "bool"
END = 2**31 - 1
B = "batch"


@dataclass(frozen=True)
class Entry:
    """``inputs`` are (shape, dtype) with B for the batch; ``left`` the operators that must remain, in any order.

    ``open_left`` says so for an open batch where that leaves something else; ``dynamic`` is the reason why there is no
    case with an open batch. In a trap, ``left`` is what may remain at the
    least: nothing of it goes.
    """

    title: str
    inputs: Sequence[tuple]
    body: Callable[..., Any]
    left: str
    mode: str = "strict"
    dynamic: str = ""
    open_left: str | None = None

    def remaining(self, batch: int | str) -> str:
        left = self.left if self.open_left is None or not isinstance(batch, str) else self.open_left
        return " ".join(sorted(left.split()))


def c(*shape: int, seed: int = 1) -> Any:
    return relax.const(np.asarray(np.random.default_rng(seed).standard_normal(shape), F32), F32)


def k(value: Any, dtype: str = F32) -> Any:
    return relax.const(np.asarray(value, dtype), dtype)


X3 = [((B, 3, 4), F32)]
X2 = [((B, 4), F32)]
IMAGE = [((B, 3, 8, 8), F32)]
FLAGS = [((B, 4), BOOL)]


class Emit:
    """Emits operators by name, so that a body reads like the formula."""

    def __init__(self, emit: Callable[[Any], Any]) -> None:
        self.emit = emit

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(op, name, None) or getattr(op.nn, name)
        return lambda *args, **kwargs: self.emit(function(*args, **kwargs))

    def linear(self, x: Any, rows: int = 4, columns: int = 5, seed: int = 1) -> Any:
        return self.matmul(x, c(rows, columns, seed=seed))

    def norm(self, x: Any, channels: int) -> Any:
        variance = relax.const(np.full(channels, 0.7, F32))
        out = self.batch_norm(
            x, c(channels), c(channels, seed=2), c(channels, seed=3), variance, axis=1, training=False
        )
        return self.emit(out[0])

    def cut(self, x: Any, *axes: tuple[int, int, int, int]) -> Any:
        return self.strided_slice(x, *([a[j] for a in axes] for j in range(4)))

    def own(self, name: str, *args: Any, **attributes: Any) -> Any:
        return self.emit(call(f"halotile.{name}", *args, **attributes))

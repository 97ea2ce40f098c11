"""TensorSpec: name, dtype and shape of a model's input or output. Plain data, shared by every room and the runtime."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}
DTYPES = tuple(_BYTES)
MOST_ELEMENTS = (1 << 31) - 1  # of a tensor with open dimensions: kernels count them in 32 bits


def length_name(output: str) -> str:
    """The output that tells how much of ``output`` is there, where that depends on the data."""
    return f"{output}.length"


@dataclass(frozen=True)
class Symbol:
    """An open dimension: its name in the model, the least and the largest size (None: whatever memory holds), what
    sizes are multiples of, the size that a build plans for, and why the bounds are what they are."""

    name: str
    low: int = 0
    high: int | None = None
    multiple: int = 1
    typical: int = 1
    why: tuple[str, ...] = ()

    @property
    def least(self) -> int:
        """The smallest size that is allowed."""
        return -(-self.low // self.multiple) * self.multiple

    @property
    def most(self) -> int:
        """The largest size that is allowed, whatever memory there is."""
        high = MOST_ELEMENTS if self.high is None else min(self.high, MOST_ELEMENTS)
        return high // self.multiple * self.multiple

    @property
    def allowed(self) -> str:
        """``from 1 to 64``, ``a multiple of 32 that is at least 64``."""
        if self.least == self.most:
            return str(self.least)
        words = f"from {self.least} to {self.most}" if self.bounded else f"at least {self.least}"
        if self.multiple == 1:
            return words
        return f"a multiple of {self.multiple} {'' if self.bounded else 'that is '}{words}".removesuffix(
            " that is at least 0"
        )

    def refusal(self, size: int) -> str:
        """What to say of a size that is not allowed; empty for one that is."""
        if self.least <= size <= self.most and size % self.multiple == 0:
            return ""
        if size > self.most and not self.bounded:
            return f"{self.name} is {size}, and kernels count to {self.most}"
        return f"{self.name} is {size}, and must be {self.must_be}"

    @property
    def must_be(self) -> str:
        """What is allowed, with what asks for it, which may have said it already."""
        why = "; ".join(self.why)
        if why.startswith(self.allowed):
            return why
        return f"{self.allowed} ({why})" if why else self.allowed

    @property
    def bounded(self) -> bool:
        """Whether anything but the kernels' counting bounds it."""
        return self.most + self.multiple <= MOST_ELEMENTS


@dataclass(frozen=True)
class Condition:
    """What a run must satisfy besides the bounds of its symbols: ``left`` is ``right``, at least or at most that, or is
    1 or that. Both sides are numbers or Dims; ``why`` says it in words, and ``fits`` which sizes satisfy it, where
    these are easily told (frontend/fitting.py)."""

    left: Any
    relation: str
    right: Any
    why: str = ""
    fits: str = ""

    @property
    def told(self) -> str:
        """Why, and which sizes do."""
        return "; ".join(filter(None, [self.why, self.fits]))


@dataclass(frozen=True)
class TensorSpec:
    """``name`` is the exact ONNX name, ``dtype`` numpy's (``bfloat16`` and the float8s as in ml_dtypes). An open
    dimension of ``shape`` is an expression of :class:`Symbol` names: a Dim in the compiler, its text in a manifest."""

    name: str
    dtype: str
    shape: tuple[Any, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return _BYTES[self.dtype]

    @property
    def nbytes(self) -> int:
        return self.elements * self.itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"

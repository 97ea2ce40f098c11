"""Value: one ONNX tensor on its way to Relax, with its exact static shape and, when known, its contents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ml_dtypes  # noqa: F401  (registers bfloat16 and the float8s with numpy)
import numpy as np
import tvm
from tvm import relax

from ...schedules.words.dims import Dim, Open, as_dim, is_open, is_whole, to_relax
from ...schedules.words.refusal import Refusal
from ...schedules.words.sizes import dim_of
from ...schedules.words.tvm_types import Expr, RuntimeTensor
from .deciding import deciding, flags

if TYPE_CHECKING:
    from ...passes.simplify.graph import GraphNode
    from ...schedules.words.size_like import SizeLike

LARGE = 1 << 20  # bytes from which a constant is worth sharing instead of copying
_SEVERAL = ("sizes", "starts", "ends", "axes", "pads", "repeats", "scales", "steps", "points", "weights", "indices")
PLAIN = frozenset(
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64".split()
)  # the types that run; others may only be folded away
ALIGNMENT = 64  # what TVM asks of memory it has not allocated


@dataclass(frozen=True)
class FilledPart:
    """Only the first ``count`` (int64 [1], of run time) positions along ``axis`` are there (see partial.py)."""

    axis: int
    count: OnnxValue


@dataclass(frozen=True)
class Asked:
    """Whether ``left`` is ``right``; ``equal``: a truth says so, else it says that they differ (see questions.py)."""

    left: SizeLike
    right: SizeLike
    equal: bool = True


class Recipe:
    """How a value is computed from known ones: a call, in the view that simplification has of it, on ``operands``; of
    several results, which one. ``weight``: a convolution or a product reads it as weights, which its kernel packs."""

    def __init__(self, call: GraphNode, operands: Sequence[OnnxValue], weight: bool, item: int | None = None) -> None:
        self.call = call
        self.operands = operands
        self.weight = weight
        self.item = item


Below = frozenset[tuple["SizeLike", "SizeLike"]]


class OnnxValue:
    """A tensor with a known shape: a run-time expression, a compile-time constant, or both.

    A constant becomes a ``relax.const`` only when an operator asks for ``expr``, so constants that merely
    feed shape arithmetic never reach the module. Dims are integers, or Dims where the model is imported with open
    dimensions; then ``contents`` also knows tensors that are arithmetic on those (the Shape of something).
    """

    __slots__ = (
        "_array", "_contents", "_expr", "asks", "below", "between", "carried", "chosen", "dtype", "everywhere", "input",
        "part", "recipe", "repeats", "shape", "told", "wide",
    )  # fmt: skip

    def __init__(
        self, shape: Sequence[SizeLike], dtype: str, expr: Expr | None = None, array: np.ndarray | None = None
    ):
        self.shape: tuple[SizeLike, ...] = tuple(as_dim(d) for d in shape)
        self.dtype = dtype
        self._expr = expr
        self._array = array
        self._contents: np.ndarray | None = None
        self.wide: OnnxValue | None = None  # the same in float32, unrounded (see precision.py)
        self.carried: OnnxValue | None = None  # its numbers in float32, of a type that does not run (see narrow.py)
        self.part: FilledPart | None = None
        self.told: np.ndarray | None = None  # its elements, as numbers and lengths of run time (see lengths.py)
        self.chosen: OnnxValue | None = None  # where it is not zero, once something has asked for that
        self.everywhere = False  # that it is nowhere zero (see everywhere.py)
        self.input: str | None = None  # the name of the model's input that it is
        self.repeats: tuple[OnnxValue, int] | None = None  # a tensor whose elements it has so many times each
        self.between: tuple[SizeLike, SizeLike] | None = None  # that all its elements lie between (positions.py)
        self.asks: Asked | None = None  # whether two dims are equal, if it says that (questions.py)
        self.below: Below = frozenset()  # (a, b): that all a < b, if it says that and nothing else (questions.py)
        self.recipe: Recipe | None = None  # how it is computed from what is known (see ahead.py)

    @classmethod
    def of_array(cls, array: list[int] | np.ndarray, dtype: str | None = None) -> OnnxValue:
        array = np.asarray(array) if dtype is None else np.asarray(array).astype(dtype, copy=False)
        return cls(array.shape, array.dtype.name, array=array)

    @classmethod
    def of_contents(cls, contents: object, dtype: str) -> OnnxValue:
        """A tensor whose elements are numbers and Dims; a plain constant when all are numbers."""
        contents = np.asarray(contents, object)
        if not is_open(contents.reshape(-1)):
            return cls.of_array(contents.astype(dtype))
        value = cls(contents.shape, dtype)
        value._contents = contents
        return value

    @classmethod
    def of_expr(cls, expr: Expr) -> OnnxValue:
        """The value of a normalised Relax expression, whose type gives shape and dtype."""
        ty = expr.ty
        if not isinstance(ty.shape, relax.ShapeExpr):
            raise Open("the shape of its result can't be told while dimensions are open")
        return cls([dim_of(d) for d in ty.shape.values], str(ty.dtype.dtype), expr=expr)

    def with_part(self, part: FilledPart | None) -> OnnxValue:
        """The same tensor with other words on how much of it is there."""
        other = OnnxValue(self.shape, self.dtype, self._expr, self._array)
        other._contents, other.wide, other.part, other.told = self._contents, self.wide, part, self.told
        other.carried, other.recipe = self.carried, self.recipe
        return other

    def learn(self, array: np.ndarray | None) -> None:
        """Makes it a constant of these contents, if they are some."""
        if array is not None:
            self._array, self._expr = array.reshape(self.shape), None

    @property
    def numbers(self) -> np.ndarray | None:
        """The elements as an array of objects: numbers, and lengths that are known at run time."""
        return self.told if self._array is None else self._array.astype(object)

    @property
    def array(self) -> np.ndarray | None:
        """The contents when they are known at compile time."""
        return self._array

    @property
    def is_constant(self) -> bool:
        return self._array is not None

    @property
    def contents(self) -> np.ndarray | None:
        """The elements as an array of objects, numbers and Dims, when they are known or follow from the shapes."""
        return self._contents if self._array is None else self._array.astype(object)

    @property
    def is_symbolic(self) -> bool:
        """Whether the contents are known, but depend on open dimensions."""
        return self._contents is not None

    @property
    def expr(self) -> Expr:
        if self._expr is None and self._contents is not None:
            self._expr = _from_shape(self._contents, self.dtype)
        if self._expr is None:
            if self.carried is not None or self.dtype not in PLAIN:
                raise Refusal(f"the type {self.dtype} is not supported")
            self._expr = relax.const(_shared(np.asarray(self._array), self.shape), self.dtype)
        return self._expr

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> SizeLike:
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        return "float" in self.dtype

    @property
    def is_integer(self) -> bool:
        return "int" in self.dtype

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def _from_shape(contents: np.ndarray, dtype: str) -> SizeLike:
    """Shape arithmetic that has to be a tensor at run time after all."""
    numbers = contents.reshape(-1).tolist()
    if not all(is_whole(n) if isinstance(n, Dim) else n == int(n) for n in numbers):
        raise Open("its operand is a fraction of an open dimension")
    expr = relax.op.shape_to_tensor(relax.ShapeExpr([to_relax(n) for n in numbers]))
    if contents.ndim != 1:
        expr = relax.op.reshape(expr, list(contents.shape))
    return expr if dtype == "int64" else relax.op.astype(expr, dtype)


def _shared(array: np.ndarray, shape: tuple[int, ...]) -> RuntimeTensor | np.ndarray:
    """The array as TVM takes it: without a copy when it is large and aligned (mapped external data), else copied."""
    array = np.ascontiguousarray(array).reshape(shape)
    known = array.dtype.kind in "iuf" and array.dtype.name != "bool"
    if known and array.nbytes >= LARGE and array.flags.writeable and not array.ctypes.data % ALIGNMENT:
        return tvm.runtime.from_dlpack(array)
    return array


class Poison:
    """Stands for the output of a node that can't be converted, so that the walk can go on and find the others."""


POISON = Poison()


def unknown(what: str, value: OnnxValue) -> Refusal:
    """The statement that ``what``, which ``value`` holds, is needed at compile time. The model's user can give the
    contents of an input, or of those that it is computed from."""
    hint, names = "", deciding(value._expr) if value.input is None else (value.input,)
    several = what.startswith("its ") and what.endswith(_SEVERAL)
    told = "is computed at run time; it must be a constant"
    it, one = "it follows", "it one"
    if several:
        told = "are computed at run time; they must be constants"
        it, one = "they follow", "them constants"
    if value.input is not None:
        name = value.input
        hint = f": --fix {name}=VALUE makes the model's input '{name}' one (from Python fixed={{{name!r}: VALUE}})"
    elif names:
        hint = f": {it} from {', '.join(map(repr, names))}, and {flags(names)} makes {one}"
    return Refusal(f"{what} {told}{hint}", names)

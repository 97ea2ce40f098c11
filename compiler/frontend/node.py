"""Node: what a converter sees of an ONNX node, and the few verbs with which it writes Relax."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax
from tvm.ir import Op
from tvm.tirx import IntImm
from tvm_ffi import structural_equal

from ...schedules import operators as _operators  # noqa: F401  (registers them)
from ...schedules.operators import registry as own
from ...schedules.words.cases import settled
from ...schedules.words.dims import Dim, Open, as_dim, is_open, to_relax
from ...schedules.words.refusal import Refusal
from ...schedules.words.sizes import SYMBOLS, dim_of
from ...schedules.words.tvm_types import Attribute, Expr, Type
from .ahead import LARGEST, computed, is_known, recipe
from .implied import broadcast
from .origins import Writer
from .value import OnnxValue, Recipe, unknown

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

_ELEMENTWISE = frozenset(
    Op.get(f"relax.{name}")
    for name in "add subtract multiply divide power maximum minimum mod floor_mod floor_divide where equal not_equal "
    "less less_equal greater greater_equal logical_and logical_or logical_xor".split()
)
MOST = 1 << 31  # elements of a tensor: kernels count in 32 bits
SMALL = 1 << 16  # elements up to which a broadcast constant is stored broadcast


class OnnxNode:
    """One ONNX node with its operands resolved.

    ``node[i]`` is operand ``i`` or None where it was left out; ``attr`` reads an attribute; ``do`` emits a Relax
    operator and ``own`` one of Halotile's, both taking and returning values whose shapes are exact; on operands that
    are known they compute (ahead.py). ``guarded`` says that a condition of run time stands before it: what it gives
    counts only where that holds. ``weight``: a kernel packs what it gives.
    """

    def __init__(
        self,
        operator: str,
        domain: str,
        opset: int,
        inputs: Sequence[OnnxValue | None],
        attributes: dict[str, Any],
        outputs: Sequence[str],
        builder: Writer,
        used: Sequence[bool] | None = None,
        guarded: bool = False,
        weight: bool = False,
    ) -> None:
        self.operator = operator
        self.domain = domain
        self.opset = opset
        self.inputs = list(inputs)
        self.attributes = attributes
        self.outputs = list(outputs)
        self.used = list(used) if used is not None else [bool(o) for o in outputs]
        self.builder = builder
        self.guarded = guarded
        self.weight = weight

    def on(self, inputs: Sequence[OnnxValue | None]) -> OnnxNode:
        """The same node on other operands."""
        return OnnxNode(
            self.operator, self.domain, self.opset, inputs, self.attributes, self.outputs, self.builder, self.used,
            self.guarded, self.weight,
        )  # fmt: skip

    def __getitem__(self, index: int) -> OnnxValue | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def has(self, index: int) -> bool:
        return self[index] is not None

    def need(self, index: int) -> OnnxValue:
        value = self[index]
        if value is None:
            raise Refusal(f"operand {index} is missing")
        return value

    def attr(self, name: str, default: object = None) -> Any:
        return self.attributes.get(name, default)

    def wants(self, index: int) -> bool:
        """True when something reads output ``index``."""
        return index < len(self.used) and self.used[index]

    def constant(self, index: int, what: str) -> np.ndarray | None:
        """The contents of operand ``index`` (None when left out); refuses when it is only known at run time."""
        value = self[index]
        if value is None:
            return None
        value = computed(value, self.builder.limits)
        if value.array is None and value.is_symbolic:
            raise Open(f"{what} depends on open dimensions")
        if value.array is None:
            raise unknown(what, value)
        return value.array

    def ints(self, index: int, what: str, attribute: str | None = None) -> list[SizeLike] | None:
        """Integers that newer opsets take as operand ``index`` and older ones as ``attribute``; Dims among them where
        they follow from open dimensions."""
        if attribute is not None and attribute in self.attributes:
            return [int(v) for v in self.attributes[attribute]]
        value = self[index]
        if value is not None and value.array is None and value.contents is not None:
            return [as_dim(v) for v in value.contents.reshape(-1)]
        array = self.constant(index, what)
        return None if array is None else [int(v) for v in array.reshape(-1)]

    # ------------------------------------------------------------------ writing Relax

    def emit(self, expr: Expr) -> OnnxValue:
        value = OnnxValue.of_expr(self._emitted(expr))
        require_addressable(value.shape)
        return value

    def _emitted(self, expr: Expr) -> Expr:
        """The variable of ``expr``, whose open dims are written in the one form that each has: Relax can't see that two
        forms are equal where that follows from what is known of the symbols."""
        if SYMBOLS.get():
            expr = self.builder.normalize(expr)
            if isinstance(expr, relax.Call) and (ty := _broadcast_type(expr) or _in_one_form(expr.ty)) is not None:
                expr = relax.Call(expr.op, expr.args, expr.attrs, ret_ty=ty)
        return self.builder.emit(expr)

    def do(self, function: Callable[..., Expr], *operands: object, **attributes: Attribute) -> OnnxValue:
        """Emits ``function(*operands)``; values among the operands (also inside lists) become their expressions."""

        def write(of: Callable[[OnnxValue], Expr]) -> Expr:
            return function(
                *(_expr(o, of) for o in operands), **{k: _expr(v, of) for k, v in attributes.items()}
            )

        return self._one(write, (*operands, *attributes.values()))

    def shaped(self, shape: Sequence[SizeLike], function: Callable[..., Expr], *operands: object) -> OnnxValue:
        """The value of ``function(*operands)``, as :meth:`do` makes it, with a shape that is known better than Relax
        infers it."""
        call = function(*map(_expr, operands))
        values = [v for o in operands for v in (o if isinstance(o, list) else [o])]
        dtype = next(v.dtype for v in values if isinstance(v, OnnxValue))
        ty = relax.TensorType([to_relax(d) for d in shape], dtype)
        return self.emit(relax.Call(call.op, call.args, call.attrs, ret_ty=ty))

    def own(self, name: str, *operands: OnnxValue, **attributes: object) -> OnnxValue:
        """Emits one of Halotile's operators with a single output."""
        return self._one(lambda of: own.call(name, *map(of, operands), **attributes), operands)

    def own_many(self, name: str, *operands: OnnxValue, **attributes: object) -> list[OnnxValue]:
        """Emits one of Halotile's operators with several outputs."""
        made = self._recipe(lambda of: own.call(name, *map(of, operands), **attributes), operands)
        result = self._emitted(own.call(name, *map(_expr, operands), **attributes))
        values = [self.emit(relax.TupleGetItem(result, i)) for i in range(len(result.ty.fields))]
        if made is not None:
            for item, value in enumerate(values):
                value.recipe = Recipe(made.call, made.operands, self.weight, item)
        return values

    def _one(self, write: Callable[[Callable[[OnnxValue], Expr]], Expr], operands: Iterable[object]) -> OnnxValue:
        """The tensor that the call gives which ``write`` makes; computed where numpy can, else emitted."""
        made = self._recipe(write, operands)
        if made is not None:
            require_addressable(made.call.shape)
            known = self.builder.kept.once(made, self.builder.limits)
            if known is not None:
                return known
        value = self.emit(write(_expr))
        value.recipe = made
        return value

    def _recipe(
        self, write: Callable[[Callable[[OnnxValue], Expr]], Expr], operands: Iterable[object]
    ) -> Recipe | None:
        values = [*_values(operands)]
        return recipe(write, self.weight) if values and all(map(is_known, values)) else None

    def const(self, array: Attribute, dtype: str | None = None) -> OnnxValue:
        value = OnnxValue.of_array(array, dtype)
        self.builder.limits.charge(value.size * np.dtype(value.dtype).itemsize)
        return value

    def empty(self, shape: Sequence[SizeLike], dtype: str) -> OnnxValue:
        """A tensor without elements, of which other dims may be open."""
        if is_open(shape):
            return self.broadcast(self.const(np.zeros((), bool if dtype == "bool" else "int32"), dtype), shape)
        return self.const(np.empty(shape, dtype))

    def counting(self, count: SizeLike, dtype: str = "int64") -> OnnxValue:
        """0, 1, ... below ``count``; a table only while it is small."""
        require_addressable((count,))
        if not is_open([count]) and 8 * count <= LARGEST:
            return self.const(np.arange(count), dtype)
        return self.do(relax.op.arange, 0, count, 1, dtype=dtype)

    def require_room(self, elements: int, what: str) -> None:
        """Refuses a table of so many numbers, before it is made, that is more than import may make."""
        if not self.builder.limits.allow(8 * elements):
            raise Refusal(f"{what} would be a table of {elements} numbers")

    def scalar(self, number: float | int | bool, like: OnnxValue) -> OnnxValue:
        """A rank-0 constant of the dtype of ``like``; Relax broadcasts it for free."""
        return OnnxValue.of_array(np.array(number).astype(like.dtype))

    def cast(self, x: OnnxValue, dtype: str) -> OnnxValue:
        return x if x.dtype == dtype else self.do(relax.op.astype, x, dtype)

    def reshape(self, x: OnnxValue, shape: Sequence[SizeLike]) -> OnnxValue:
        shape = tuple(as_dim(d) for d in shape)
        if shape == x.shape:
            return x
        if x.array is not None:
            return OnnxValue.of_array(x.array.reshape(shape))
        return _repeated(self.do(relax.op.reshape, x, shape), x)

    def transpose(self, x: OnnxValue, axes: Sequence[int]) -> OnnxValue:
        if list(axes) == list(range(x.rank)):
            return x
        return self.do(relax.op.permute_dims, x, list(axes))

    def broadcast(self, x: OnnxValue, shape: Sequence[SizeLike]) -> OnnxValue:
        shape = tuple(as_dim(d) for d in shape)
        if shape == x.shape:
            return x
        if not is_open(shape) and math.prod(shape) <= SMALL or not is_known(x):
            return _repeated(self.do(relax.op.broadcast_to, x, shape), x)
        require_addressable(shape)
        value = self.emit(relax.op.broadcast_to(x.expr, [to_relax(d) for d in shape]))
        value.recipe = self._recipe(
            lambda of: relax.op.broadcast_to(of(x), [to_relax(d) for d in shape]), [x]
        )
        return _repeated(value, x)

    def slice(self, x: OnnxValue, axis: int, begin: SizeLike, end: SizeLike) -> OnnxValue:
        """x[begin:end] along ``axis`` (bounds already resolved, step one)."""
        if begin == 0 and end == x.shape[axis]:
            return x
        shape = [end - begin if a == axis else d for a, d in enumerate(x.shape)]
        return self.cut(x, shape, [axis], [begin], [end], [1])

    def cut(
        self,
        x: OnnxValue,
        shape: Sequence[SizeLike],
        axes: list[int],
        begin: list[SizeLike],
        end: list[SizeLike],
        step: list[int],
    ) -> OnnxValue:
        """A strided slice with bounds within the tensor; on an open axis they count from the end where they can, so
        that no bound depends on the length."""
        if not is_open([*shape, *x.shape, *begin, *end]):
            return self.do(relax.op.strided_slice, x, axes, begin, end, step)
        places = list(zip(axes, begin, end))
        first = [_from_the_end(b, x.shape[a]) if isinstance(b, Dim) else b for a, b, _ in places]
        last = [_from_the_end(e, x.shape[a]) if isinstance(e, Dim) else e for a, _, e in places]
        return self.shaped(shape, relax.op.strided_slice, x, axes, first, last, step)

    def in_float32(self, function: Callable[..., OnnxValue], *operands: OnnxValue | None) -> OnnxValue:
        """``function`` evaluated in float32 when the operands are narrower floats, and rounded back once."""
        dtype = next(o.dtype for o in operands if o is not None)
        if dtype not in ("float16", "bfloat16"):
            return function(*operands)
        wide = [None if o is None else (self.cast(o, "float32") if o.dtype == dtype else o) for o in operands]
        return self.cast(function(*wide), dtype)


def _broadcast_type(call: relax.Call) -> Type:
    """The type of an elementwise call whose operands go together only by what runs must satisfy, which is learned;
    None where Relax tells the shape."""
    if call.op not in _ELEMENTWISE or not isinstance(call.ty, relax.TensorType):
        return None
    shapes = [a.ty.shape for a in call.args]
    if isinstance(call.ty.shape, relax.ShapeExpr) or not all(isinstance(s, relax.ShapeExpr) for s in shapes):
        return None
    shape = broadcast(*(tuple(map(dim_of, s.values)) for s in shapes))
    return relax.TensorType([to_relax(d) for d in shape], str(call.ty.dtype.dtype))


def _in_one_form(ty: Type) -> Type | None:
    """The type with every dim as :func:`to_relax` writes it; None where nothing changes, or it can't be told."""
    if isinstance(ty, relax.TupleType):
        fields = [_in_one_form(f) for f in ty.fields]
        return relax.TupleType([n or f for n, f in zip(fields, ty.fields)]) if any(fields) else None
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    dims = [settled(dim_of(d)) for d in ty.shape.values]
    forms = [to_relax(d) if isinstance(d, Dim) else d for d in dims]
    if all(map(_same, forms, ty.shape.values)):
        return None
    return relax.TensorType(forms, str(ty.dtype.dtype))


def _same(form: Expr, dim: Expr) -> bool:
    return isinstance(dim, (int, IntImm)) and int(dim) == form if isinstance(form, int) else structural_equal(form, dim)


def _from_the_end(bound: Dim, length: Dim) -> SizeLike:
    """A bound of an axis: -k for length - k, a number beyond every length for the length itself."""
    left = length - bound
    if isinstance(left, Dim):
        return bound
    return 2**31 - 1 if left == 0 else -left


def _repeated(y: OnnxValue, x: OnnxValue) -> OnnxValue:
    """``y``, which has the elements of ``x``, each as often."""
    if not is_open((*x.shape, *y.shape)) and x.size:
        base, times = x.repeats or (x, 1)
        y.repeats = (base, times * (y.size // x.size))
    return y


def _value_expr(value: OnnxValue) -> Expr:
    return value.expr


def _expr(operand: object, of: Callable[[OnnxValue], Expr] = _value_expr) -> Expr:
    """An operand as Relax takes it, of values what ``of`` gives."""
    if isinstance(operand, OnnxValue):
        return of(operand)
    if isinstance(operand, Dim):
        return to_relax(operand)
    if isinstance(operand, (list, tuple)) and any(isinstance(o, (OnnxValue, Dim)) for o in operand):
        return [_expr(o, of) for o in operand]
    return operand


def _values(operands: Iterable[object]) -> Iterator[OnnxValue]:
    for operand in operands:
        if isinstance(operand, OnnxValue):
            yield operand
        elif isinstance(operand, (list, tuple)):
            yield from (o for o in operand if isinstance(o, OnnxValue))


def require_addressable(shape: SizeLike) -> None:
    """Refuses a tensor that kernels could not number the elements of, or with a negative length."""
    if is_open(shape):
        return
    if any(d < 0 for d in shape):
        raise Refusal(f"a result would have the shape {list(shape)}")
    if math.prod(shape) >= MOST:
        raise Refusal(f"a result of the shape {list(shape)} has more than {MOST - 1} elements, which is the limit")


def normal_axis(axis: int, rank: int) -> int:
    """``axis`` counted from the front; refuses one outside the tensor."""
    if not -rank <= axis < max(rank, 1):
        raise Refusal(f"axis {axis} is outside a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def normal_axes(axes: Sequence[int], rank: int) -> list[int]:
    return [normal_axis(int(a), rank) for a in axes]

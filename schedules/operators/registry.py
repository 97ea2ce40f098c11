"""Operators: each is written once, as a TE expression, and everything else is derived from it.

Two kinds of operators reach the scheduler. Relax's own (``relax.add``, ``relax.nn.conv2d`` ...) and Halotile's
(``halotile.resize`` ...), which are first-class Relax operators registered from here, for whatever Relax lacks or gets
wrong. Both answer the same question, :func:`expression`: given TE tensors for the inputs, what are the outputs?

    @define("halotile.celu")
    def celu(x: te.Tensor, *, alpha: float) -> te.Tensor:
        return te.compute(x.shape, lambda *i: ...)

    y = bb.emit(call("halotile.celu", x, alpha=1.0))

A Relax operator's expression is its FLegalize rule's TE function, unless :func:`override` replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te
from tvm.ir import Call, Op
from tvm.ir import _ffi_api as _ir_ffi

from ..words.dims import to_relax
from ..words.sizes import dim_of
from ..words.tvm_types import Attribute, Expr, Tensor, Type
from .loops import types_alone
from .open_shapes import Rule, same
from .wrapping_elements import with_wrapping

TEFunction = Callable[..., "te.Tensor | Sequence[te.Tensor]"]

Reference = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Operator:
    """What is known of an operator of ours: all that others ask of it by its name.

    ``expression``  the results as TE tensors, of which types, fusion, cost and numbers follow
    ``shapes``      result shapes where dims are open, if the expression needs numbers for them (:mod:`.open_shapes`)
    ``dtypes``      of the results, where they are not that of the first operand
    ``movable``     a function of one element, past which rewrites may move views, slices and repetitions
    ``reference``   the result by NumPy, of operands in a wide dtype and the attributes: what ``--check`` compares with
    ``typed``       the type of the results from the call alone, where operands are no tensors
    """

    name: str
    expression: TEFunction
    shapes: Rule | None = None
    dtypes: tuple[str | None, ...] = ()
    movable: bool = False
    reference: Reference | None = None
    typed: Callable[[Call], Type] | None = None


_OWN: dict[str, Operator] = {}
_OVERRIDES: dict[str, Callable[..., Expr]] = {}


def define(
    name: str,
    *,
    shapes: Rule | None = None,
    dtypes: Sequence[str | None] = (),
    movable: bool = False,
    reference: Reference | None = None,
    typed: Callable[[Call], Type] | None = None,
) -> Callable[[TEFunction], TEFunction]:
    """Registers ``name`` as a Relax operator whose meaning (and so its type) is the decorated TE function.

    The function takes one TE tensor per operand (positional) and the attributes as keywords (plain Python values:
    int, float, bool, str, None, lists of these). It returns one tensor, or a sequence for several outputs. The other
    arguments are fields of :class:`Operator`.
    """

    def register(function: TEFunction) -> TEFunction:
        if name in _OWN:
            raise ValueError(f"operator {name} is defined twice")
        rule = same if movable and shapes is None else shapes
        _OWN[name] = Operator(name, function, rule, tuple(dtypes), movable, reference, typed)
        _ir_ffi.RegisterOp(name, function.__doc__ or name)
        op = Op.get(name)
        op.set_attr("FInferType", _infer_type)
        op.set_attr("FPurity", True)
        return function

    return register


def own(name: str) -> Operator | None:
    """The record of an operator of ours; None for Relax's."""
    return _OWN.get(name)


def operators() -> Iterable[Operator]:
    """The records of all operators of ours whose files were imported."""
    return _OWN.values()


def override(name: str) -> Callable[[Callable[..., Expr]], Callable[..., Expr]]:
    """Replaces the TE expression of a Relax operator; the function takes ``(call, *inputs)``."""

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        _OVERRIDES[name] = function
        return function

    return register


def call(name: str, *operands: relax.Expr, **attributes: Attribute) -> Call:
    """A call of one of our own operators, to be given to ``BlockBuilder.emit``."""
    if name not in _OWN:
        raise ValueError(f"operator {name} is not defined")
    present = {k: v for k, v in attributes.items() if v is not None}
    return Call(Op.get(name), list(operands), tvm.ir.make_node("ir.DictAttrs", **present))


def is_own(name: str) -> bool:
    return name in _OWN


def attributes(call_: Call) -> dict[str, Attribute]:
    """The attributes of a call as plain Python values."""
    return {str(k): _plain(v) for k, v in dict(call_.attrs).items()} if call_.attrs is not None else {}


def expression(call_: Call, inputs: Sequence[Expr | Tensor | list[Expr | Tensor]]) -> list[te.Tensor]:
    """The TE tensors that ``call_`` computes, given one entry of ``inputs`` for each operand.

    An entry is a TE tensor for a tensor operand, a list of them for a tuple, and the operand itself for shapes and
    prim values. Integers wrap (:mod:`.wrapping_elements`).
    """
    return with_wrapping(_written(call_, inputs), inputs)


def _written(call_: Call, inputs: Sequence[Expr | Tensor | list[Expr | Tensor]]) -> list[te.Tensor]:
    name = call_.op.name
    if name in _OWN:
        return _as_list(_OWN[name].expression(*inputs, **attributes(call_)))
    if name in _OVERRIDES:
        return _as_list(_OVERRIDES[name](call_, *inputs))
    return _as_list(_from_legalize(call_, inputs))


class _Recorder:
    """Stands in for a BlockBuilder (legalisation rules take any object) and applies the TE function that a rule hands
    to ``call_te``."""

    _table: list[tuple[object, object]]
    result: Sequence[Expr] | Tensor

    @staticmethod
    def of(call_: Call, inputs: Sequence[Expr | Tensor | list[Expr | Tensor]]) -> _Recorder:
        recorder = _Recorder()
        recorder.result = None
        recorder._table = []
        for operand, tensor in zip(call_.args, inputs):
            if isinstance(tensor, te.Tensor):
                recorder._table.append((operand, tensor))
            elif isinstance(operand, relax.Tuple):
                recorder._table.extend(zip(operand.fields, tensor))
        return recorder

    def _lookup(self, value: Attribute) -> Attribute:
        if isinstance(value, relax.ShapeExpr):
            return list(value.values)
        if isinstance(value, relax.Tuple):
            return [self._lookup(v) for v in value.fields]
        if isinstance(value, (list, tuple, tvm_ffi.Array)):
            return [self._lookup(v) for v in value]
        if isinstance(value, tvm.runtime.Object):
            for operand, tensor in self._table:
                if value.same_as(operand):
                    return tensor
        return value

    def call_te(self, func: Callable[..., Sequence[Expr] | Tensor], *args: Attribute, **kwargs: Attribute) -> Tensor:
        kwargs = {k: v for k, v in kwargs.items() if k not in ("primfunc_name_hint", "primfunc_attrs", "te_grad_name")}
        self.result = func(*map(self._lookup, args), **{k: self._lookup(v) for k, v in kwargs.items()})
        return self.result

    def normalize(self, expr: Expr) -> Expr:
        return expr

    def emit(self, expr: Expr, name_hint: str = "") -> Expr:
        return expr


def _from_legalize(call_: Call, inputs: Sequence[Expr | Tensor | list[Expr | Tensor]]) -> Tensor:
    rule = call_.op.get_attr("FLegalize")
    if rule is None:
        raise ValueError(f"{call_.op.name} has no TE expression")
    call_ = _without_literals(call_)
    recorder = _Recorder.of(call_, inputs)
    rule(recorder, call_)
    if recorder.result is None:
        raise ValueError(f"{call_.op.name} has no TE expression in this form")
    return recorder.result


_ARITHMETIC = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide")


def _without_literals(call_: Call) -> Call:
    """Arithmetic with its constant operands as variables: as literals they would be folded while the expression is
    built, ``x * 0`` to 0, which is wrong for NaN and infinity, and ``x + 0`` to x, which is wrong for -0."""
    if call_.op.name not in _ARITHMETIC:
        return call_
    args = [relax.Var("c", a.ty) if isinstance(a, tvm.ir.GenericConst) else a for a in call_.args]
    return Call(call_.op, args, call_.attrs, ret_ty=call_.ty)


def _infer_type(call_: Call, _context: object) -> Type:
    record = _OWN[call_.op.name]
    if record.typed is not None:
        return record.typed(call_)
    shapes = [[getattr(d, "value", d) for d in a.ty.shape.values] for a in call_.args]
    if record.shapes is not None and not all(isinstance(d, int) for s in shapes for d in s):
        open_ = record.shapes(shapes, attributes(call_))
        first, dtypes = str(call_.args[0].ty.dtype.dtype), record.dtypes or (None,) * len(open_)
        types = [relax.TensorType(s, t or first) for s, t in zip(open_, dtypes)]
        return types[0] if len(types) == 1 else relax.TupleType(types)
    inputs = []
    for i, arg in enumerate(call_.args):
        inputs.append(te.placeholder([dim_of(d) for d in arg.ty.shape], str(arg.ty.dtype.dtype), f"arg{i}"))
    with types_alone():
        outputs = _written(call_, inputs)
    types = [relax.TensorType([to_relax(dim_of(d)) for d in t.shape], str(t.dtype)) for t in outputs]
    return types[0] if len(types) == 1 else relax.TupleType(types)


def _as_list(value: Tensor | list[Tensor]) -> list[te.Tensor]:
    return [value] if isinstance(value, te.Tensor) else list(value)


def _plain(value: Attribute) -> Attribute:
    if isinstance(value, (bool, int, float, str, relax.Function, relax.TupleType)) or value is None:
        return value
    if hasattr(value, "value") and not isinstance(value, (list, tuple)):
        return _plain(value.value)
    if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        return [_plain(v) for v in value]
    raise ValueError(f"attribute of type {type(value).__name__} can't be read")

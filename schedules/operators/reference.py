"""Runs operators from their TE expressions, unscheduled: one call for what is folded, a Relax module for tests.

It is slow and plain on purpose: every call becomes one PrimFunc straight from ``operator.expression``, so what it
computes is what the operators mean, whatever the scheduler makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te
from tvm.ir import Call, GlobalVar

from ..words.group import CONTROL
from ..words.tvm_types import Expr, PrimFunc, RuntimeTensor, Tensor, Type
from .control import evaluate
from .registry import attributes, expression

Run = Callable[..., "list[np.ndarray]"]

# They change no result, and take half of the time where an expression is long: 4 of 9.4 s for a cubic GridSample.
NEEDLESS = ["s_tir.StmtSimplify", "s_tir.CompactBufferAllocation", "tirx.CommonSubexprElim", "tirx.RemoveNoOp"]


def compile_reference(module: tvm.IRModule) -> Run:
    """A function from numpy arrays (one per parameter) to the list of numpy outputs."""
    main = module["main"]
    functions: dict[GlobalVar, PrimFunc] = {}
    known: dict[int, str] = {}  # structural hash -> name: equal functions are compiled once
    steps: list[tuple[relax.Var, Expr | tuple[str, Expr]]] = []
    for block in main.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, Call) and value.op.name in CONTROL:
                steps.append((binding.var, (_flow(value), value)))
            elif isinstance(value, Call):
                function, _ = call_function(value)
                name = known.setdefault(tvm_ffi.structural_hash(function), f"f{len(functions)}")
                if name == f"f{len(functions)}":
                    functions[GlobalVar(name)] = function.with_attr("global_symbol", name)
                steps.append((binding.var, (name, value)))
            else:
                steps.append((binding.var, value))
    library = compile_functions(functions) if functions else None

    def run(*inputs: np.ndarray) -> list[np.ndarray]:
        values: dict[Expr, RuntimeTensor | list[RuntimeTensor]] = {p: to_tensor(a) for p, a in zip(main.params, inputs)}

        def of(expr: Expr) -> RuntimeTensor | list[RuntimeTensor]:
            if expr in values:
                return values[expr]
            if isinstance(expr, relax.Tuple):
                return [of(f) for f in expr.fields]
            if isinstance(expr, relax.TupleGetItem):
                return of(expr.tuple_value)[expr.index]
            if hasattr(expr, "data") or hasattr(expr, "value"):
                return expr.data if hasattr(expr, "data") else expr.value
            raise ValueError(f"{type(expr).__name__} can't be evaluated")

        for variable, step in steps:
            values[variable] = _result(step[0], step[1], of, library) if isinstance(step, tuple) else of(step)
        result = of(main.body.body)
        return [to_array(t) for t in _flat(result)]

    return run


def _result(
    name: str, call: Call, of: Callable[[Expr], RuntimeTensor | list[RuntimeTensor]], library: Expr
) -> RuntimeTensor | list[RuntimeTensor]:
    """What a call gives by its compiled function, or of a loop or a branch, by what runs it."""
    operands = [t for a in call.args if _is_data(a) for t in _flat(of(a))]
    if isinstance(name, str):
        types = list(call.ty.fields) if isinstance(call.ty, relax.TupleType) else [call.ty]
        outputs = [tvm.runtime.empty([int(d) for d in t.shape], str(t.dtype.dtype)) for t in types]
        library[name](*operands, *outputs)
    else:
        outputs = [to_tensor(a) for a in name([to_array(t) for t in operands])]
    return outputs if isinstance(call.ty, relax.TupleType) else outputs[0]


def _flow(call: Call) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    """A loop or a branch, whose bodies are compiled in the same way."""
    given = attributes(call)
    runs = {n: compile_reference(tvm.IRModule({"main": f})) for n, f in given.items() if isinstance(f, relax.Function)}
    return lambda inputs: evaluate(call.op.name, {**given, **runs}, inputs, lambda body, values: body(*values))


def _is_data(operand: Expr) -> bool:
    return isinstance(operand.ty, (relax.TensorType, relax.TupleType)) and not _is_attribute_tuple(operand)


def _is_attribute_tuple(operand: Expr) -> bool:
    """The bounds of strided_slice and the like are tuples of prim values, not data."""
    return isinstance(operand.ty, relax.TupleType) and not any(
        isinstance(f, relax.TensorType) for f in operand.ty.fields
    )


def _flat(value: Expr) -> list[RuntimeTensor]:
    return [t for v in value for t in _flat(v)] if isinstance(value, list) else [value]


def compile_functions(functions: dict[GlobalVar, PrimFunc]) -> Expr:
    """An executable of PrimFuncs for this machine, made as fast as it can be made."""
    with tvm.transform.PassContext(disabled_pass=NEEDLESS):
        return tvm.compile(tvm.IRModule(functions), tvm.target.Target({"kind": "llvm", "opt-level": 1}))


def call_function(call: Call) -> tuple[PrimFunc, list[te.Tensor]]:
    """The PrimFunc of a call, from its data operands and tuples' fields, in order, to its results; and these as TE
    tensors."""
    placeholders: list[te.Tensor] = []

    def placeholder(ty: Type) -> te.Tensor:
        tensor = te.placeholder(list(ty.shape), str(ty.dtype.dtype), f"p{len(placeholders)}")
        placeholders.append(tensor)
        return tensor

    def operand(arg: Expr) -> Expr | Tensor | list[Tensor]:
        if not _is_data(arg):
            return arg
        if isinstance(arg.ty, relax.TupleType):
            return [placeholder(f) for f in arg.ty.fields]
        return placeholder(arg.ty)

    inputs = [operand(a) for a in call.args]
    outputs: Sequence[te.Tensor] = expression(call, inputs)
    identity = [
        te.compute(o.shape, lambda *i, o=o: o(*i), name="copied")
        if any(o.same_as(p) for p in placeholders)
        else o
        for o in outputs
    ]
    return te.create_prim_func([*placeholders, *identity]), identity


def to_tensor(array: np.ndarray) -> RuntimeTensor:
    """The array as TVM takes it."""
    return tvm.runtime.tensor(np.ascontiguousarray(array).reshape(np.shape(array)))


def to_array(tensor: RuntimeTensor) -> np.ndarray:
    """A tensor of TVM as an array, of the dtypes of ml_dtypes too."""
    if str(tensor.dtype) == "bfloat16":
        raw = tensor.numpy()
        return raw if raw.dtype == ml_dtypes.bfloat16 else raw.view(ml_dtypes.bfloat16)
    return tensor.numpy()

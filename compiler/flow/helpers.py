"""The few functions that a loop or a branch needs beside kernels: numbers in memory are read and written by these.

They are objects of their own, as kernels are: for all that the caller knows they touch any memory, so that no read of a
condition moves before what computes it.
"""

from __future__ import annotations

from functools import cache

import tvm
from tvm import tirx

from ...schedules.words.group import Kernel
from ...schedules.words.tvm_types import Expr, PrimFunc, Stmt

READ_FLAG, READ_NUMBER, WRITE_NUMBER, COPY, CLEAR = range(5)


def helpers() -> tuple[Kernel, ...]:
    """The functions, in the order of their numbers above, as parts of a kernel."""
    made = (_read("uint8"), _read("int64"), _write(), _copy(), _clear())
    return tuple(Kernel(function, (), (), "memory") for function in made)


def _pointer(name: str, dtype: str) -> tuple[Expr, Expr, Expr]:
    var = tirx.Var(name, tvm.ir.PointerType(tvm.ir.PrimType(dtype)))
    size = tvm.DataType(dtype).bits // 8
    buffer = tirx.decl_buffer((1 << 40,), dtype, name=f"{name}_", data=var, data_alignment=size, layout=None)
    return var, buffer, tirx.DeclBuffer(buffer, data=var)


def _function(params: list[Expr], body: list[Stmt]) -> PrimFunc:
    function = tirx.PrimFunc(
        params, tirx.SeqStmt([*body, tirx.Return(tirx.IntImm("int32", 0))]), ret_type=tvm.ir.PrimType("int32")
    )
    return function.with_attrs({"tirx.noalias": True, "s_tir": True})


@cache
def _read(dtype: str) -> PrimFunc:
    """The number at a place, in 64 bits."""
    var, buffer, first = _pointer("place", dtype)
    to, into, second = _pointer("to", "int64")
    zero = tirx.IntImm("int64", 0)
    value = buffer[zero] if dtype == "int64" else tirx.Cast("int64", buffer[zero])
    return _function([to, var], [first, second, tirx.BufferStore(into, value, [zero])])


@cache
def _write() -> PrimFunc:
    """Puts a number to a place."""
    var, buffer, declared = _pointer("place", "int64")
    number = tirx.Var("number", "int64")
    store = tirx.BufferStore(buffer, number, [tirx.IntImm("int64", 0)])
    return _function([var, number], [declared, store])


@cache
def _copy() -> PrimFunc:
    """Copies bytes from one place to another, which do not overlap."""
    to, into, first = _pointer("to", "uint8")
    source, out, second = _pointer("source", "uint8")
    count, i = tirx.Var("count", "int64"), tirx.Var("i", "int64")
    loop = tirx.For(i, tirx.IntImm("int64", 0), count, tirx.stmt.ForKind.SERIAL, tirx.BufferStore(into, out[i], [i]))
    return _function([to, source, count], [first, second, loop])


@cache
def _clear() -> PrimFunc:
    """Puts zeros to a place."""
    to, into, declared = _pointer("to", "uint8")
    count, i = tirx.Var("count", "int64"), tirx.Var("i", "int64")
    zero = tirx.BufferStore(into, tirx.IntImm("uint8", 0), [i])
    loop = tirx.For(i, tirx.IntImm("int64", 0), count, tirx.stmt.ForKind.SERIAL, zero)
    return _function([to, count], [declared, loop])

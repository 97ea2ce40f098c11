"""What a library of open dimensions computes of their sizes: bytes, dims and offsets, each by a closed formula.

    int32_t halotile_kernel_shapes(const int64_t *symbols, int64_t *facts)

    facts[0]   planned bytes of the arena         facts[1]   bytes of a worker's workspace
    then       dims of the inputs, of the outputs, and the arena's offsets by slot

facts[0] is -1 where a tensor would have more elements than kernels count. ``main`` reads the same two arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import tvm
from tvm import tirx

from ...passes.memory.open_offsets import in_order
from ...passes.memory.plan import MemoryPlan
from ...schedules.kernel.context import LARGEST
from ...schedules.words.alignment import ALIGNMENT
from ...schedules.words.atoms import Atom, variable
from ...schedules.words.dims import Size, is_dim, is_open, to_relax
from ...schedules.words.group import Kernel, Value
from ...schedules.words.tvm_types import Buffer, Expr, PrimFunc, Stmt
from .names import SHAPES

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

HEAD = 2  # facts before the dims
TOO_LARGE = -1  # what facts[0] is then
ABOUT = LARGEST * 1.001  # elements in float64, whose sums are rounded


def first_offset(inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
    """Where among the facts the offsets begin."""
    return HEAD + sum(len(v.shape) for v in (*inputs, *outputs))


def count_facts(inputs: Sequence[Value], outputs: Sequence[Value], memory: MemoryPlan) -> int:
    """How many facts there are; 0 where nothing is open."""
    shapes = [d for v in (*inputs, *outputs) for d in v.shape]
    return first_offset(inputs, outputs) + len(memory.sizes) if memory.sizes or is_open(shapes) else 0


def open_sizes(symbols: Sequence[str], params: list[Expr], declare: list[Stmt]) -> Buffer:
    """The facts as main reads them; its parameters for both arrays are added to ``params``, and the variables of the
    symbols to ``declare``."""
    given, facts = _array("symbols", params, declare), _array("facts", params, declare)
    declare += _variables(symbols, given)
    return facts


def shapes_function(
    kernels: Sequence[Kernel],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    memory: MemoryPlan,
    symbols: Sequence[str],
) -> PrimFunc:
    """The function that fills the facts of a size."""
    params: list[Expr] = []
    body: list[Stmt] = []
    given, facts = _array("symbols", params, body), _array("facts", params, body)
    body += _variables(symbols, given)
    counts = {v.elements for v in (*inputs, *outputs) if is_dim(v.elements)} | set(memory.counts)
    fits = tirx.all(*(c for n in sorted(counts, key=str) for c in (_about(n) < ABOUT, _wide(n) < LARGEST)), True)
    for at, dim in enumerate((d for v in (*inputs, *outputs) for d in v.shape), HEAD):
        body.append(tirx.BufferStore(facts, _wide(dim), [tirx.IntImm("int32", at)]))
    body += _offsets(facts, memory, first_offset(inputs, outputs))
    workspace: Expr = tirx.IntImm("int64", 0)
    for kernel in kernels:
        if is_dim(kernel.workspace) or kernel.workspace:
            workspace = tirx.max(workspace, _aligned(kernel.workspace))
    body.append(tirx.BufferStore(facts, workspace, [tirx.IntImm("int32", 1)]))
    body.append(tirx.IfThenElse(fits, _nothing(), _too_large(facts)))
    body.append(tirx.Return(tirx.IntImm("int32", 0)))
    function = tirx.PrimFunc(params, tirx.SeqStmt(body), ret_type=tvm.ir.PrimType("int32"))
    return function.with_attrs({"global_symbol": SHAPES, "calling_conv": 1, "s_tir": True})


def _offsets(facts: Buffer, memory: MemoryPlan, first: int) -> Iterator[Stmt]:
    """The statements that compute every offset, and the planned bytes; without slots these are a number."""
    total: Expr = tirx.IntImm("int64", 0 if memory.sizes else memory.planned_bytes)
    ends: dict[int, Expr] = {}
    for slot in in_order(memory.below):
        begin: Expr = tirx.IntImm("int64", 0)
        for under in memory.below[slot]:
            begin = tirx.max(begin, ends[under])
        place = tirx.IntImm("int32", first + slot)
        yield tirx.BufferStore(facts, begin, [place])
        end = tirx.Var(f"end{slot}", "int64")
        yield tirx.Bind(end, facts[place] + _aligned(memory.sizes[slot]))
        ends[slot] = end
        total = tirx.max(total, end)
    yield tirx.BufferStore(facts, total, [tirx.IntImm("int32", 0)])


def _about(dim: SizeLike) -> Expr:
    """The dim in float64, in which no product of sizes overflows."""
    if not is_dim(dim):
        return tirx.FloatImm("float64", float(dim))
    total: Expr = tirx.FloatImm("float64", 0.0)
    for monomial, factor in dim.terms.items():
        term: Expr = tirx.FloatImm("float64", float(factor))
        for atom in monomial:
            term = term * _about_atom(atom)
        total = total + term
    return total


def _about_atom(atom: Atom) -> Expr:
    if atom.kind == "symbol":
        return tirx.Cast("float64", variable(atom.text, "int64"))
    a, b = map(_about, atom.operands)
    if atom.kind == "floor":
        return tirx.floor(a / b)
    return tirx.max(a, b) if atom.kind == "max" else tirx.min(a, b)


def _nothing() -> Stmt:
    return tirx.Evaluate(tirx.IntImm("int32", 0))


def _too_large(facts: Buffer) -> Stmt:
    return tirx.BufferStore(facts, tirx.IntImm("int64", TOO_LARGE), [tirx.IntImm("int32", 0)])


def _array(name: str, params: list[Expr], declare: list[Stmt]) -> Buffer:
    var = tirx.Var(name, tvm.ir.PointerType(tvm.ir.PrimType("int64")))
    params.append(var)
    buffer = tirx.decl_buffer((1 << 20,), "int64", name=f"{name}_", data=var, data_alignment=8, layout=None)
    declare.append(tirx.DeclBuffer(buffer, data=var))
    return buffer


def _variables(symbols: Sequence[str], given: Buffer) -> Iterator[Stmt]:
    for i, name in enumerate(symbols):
        wide = variable(name, "int64")
        yield tirx.Bind(wide, given[tirx.IntImm("int32", i)])
        yield tirx.Bind(variable(name, "int32"), tirx.Cast("int32", wide))


def _wide(dim: Size) -> Expr:
    return to_relax(dim) if is_dim(dim) else tirx.IntImm("int64", dim)


def _aligned(size: Size) -> Expr:
    return tirx.floordiv(_wide(size) + (ALIGNMENT - 1), tirx.IntImm("int64", ALIGNMENT)) * ALIGNMENT

"""Operators that are a loop over time and not a map: written as statements on flat buffers inside a TE stage.

    written("cumsum", [x], [(shape, dtype)], write)     write(k, [x flat], [y flat]) emits the loops by a KernelBuilder

TE sees one opaque stage, so such an operator is a kernel of its own in plain layout
(schedules/general/loop_operators.py, which asks for the stage with :func:`recording`), and what the reference evaluator
runs is the same loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tvm import te, tirx

from ..emit.builder import KernelBuilder, dtype_size, sequence
from ..words.dims import is_dim, to_index
from ..words.sizes import dim_of, product, usual
from ..words.tvm_types import Buffer, Expr, Stmt
from .common import shape_of

PARALLEL_WORK = 32 * 1024  # element operations below which a launch costs more than it saves
Write = Callable[[KernelBuilder, list[Buffer], list[Buffer]], None]


@dataclass(frozen=True)
class Loops:
    """A stage of statements: what it reads, shape and dtype of what it writes, and how."""

    inputs: tuple[te.Tensor, ...]
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    write: Write


_RECORD: ContextVar[list[Loops] | None] = ContextVar("_RECORD", default=None)
_TYPES: ContextVar[bool] = ContextVar("_TYPES", default=False)


@contextmanager
def recording() -> Iterator[list[Loops]]:
    """Collects the stages that operators' expressions make inside."""
    stages: list[Loops] = []
    token = _RECORD.set(stages)
    yield stages
    _RECORD.reset(token)


@contextmanager
def types_alone() -> Iterator[None]:
    """Inside, stages have shapes and dtypes, but no statements."""
    token = _TYPES.set(True)
    try:
        yield
    finally:
        _TYPES.reset(token)


def written(
    name: str, inputs: Sequence[te.Tensor], outputs: Sequence[tuple[Sequence[int], str]], write: Write
) -> list[te.Tensor]:
    """One stage that computes ``outputs`` (shape and dtype each) by the statements that ``write`` emits."""

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        k = KernelBuilder(name)
        with k.capture() as statements:
            write(k, [_flat(k, b) for b in ins], [_flat(k, b) for b in outs])
        return sequence(statements)

    shapes = [tuple(map(dim_of, shape)) for shape, _ in outputs]
    record = _RECORD.get()
    if record is not None:
        record.append(Loops(tuple(inputs), tuple(zip(shapes, (d for _, d in outputs))), write))
    extents = [tuple(map(to_index, shape)) for shape in shapes]
    if _TYPES.get():
        return [te.placeholder(extent, dtype, name) for extent, (_, dtype) in zip(extents, outputs)]
    result = te.extern(extents, list(inputs), body, name=name, dtype=[dtype for _, dtype in outputs])
    return [result] if isinstance(result, te.Tensor) else list(result)


def _flat(k: KernelBuilder, buffer: Buffer) -> Buffer:
    elements = product(map(dim_of, buffer.shape))
    dtype = str(buffer.dtype)
    size = dtype_size(dtype)  # aligned to one element only
    flat = tirx.decl_buffer(
        (to_index(elements),), dtype, name=k.fresh("flat"), data=buffer.data, data_alignment=size, layout=None
    )
    k.add(tirx.DeclBuffer(flat, data=buffer.data))
    return flat


def split_at(x: te.Tensor | Sequence[Expr], axis: int) -> tuple[int, int, int]:
    """(outer, length, inner): the sizes before, of and after ``axis``."""
    shape = shape_of(x) if isinstance(x, te.Tensor) else list(x)
    return product(shape[:axis]), shape[axis], product(shape[axis + 1 :])


def kind_of(work: int) -> str:
    """The kind of a loop whose rounds are independent, by the element operations in all of them."""
    return "parallel" if usual(work) >= PARALLEL_WORK else "serial"


@dataclass(frozen=True)
class VectorRun:
    """Vectors of ``lanes`` neighbouring columns, as many as ``blocks``; ``first`` gives a block's first column."""

    blocks: Expr
    lanes: int
    first: Callable[[Expr], Expr]


def runs(columns: Expr, most: int) -> list[VectorRun]:
    """All columns in vectors of at most ``most``. Of a known number the last vector overlaps the one before it; of an
    open one those that are left behind whole vectors come one by one."""
    if not is_dim(columns):
        lanes = min(columns, most)
        return [VectorRun(-(-columns // lanes), lanes, lambda block: tirx.min(block * lanes, columns - lanes))]
    whole = columns // most
    rest = VectorRun(columns - whole * most, 1, lambda block: block + whole * most)
    return [run for run in (VectorRun(whole, most, lambda block: block * most), rest) if run.blocks != 0]


def accumulator(dtype: str) -> str:
    """Half-width floats add up in float32."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def cast(dtype: str, value: Expr) -> Expr:
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)


@contextmanager
def until(k: KernelBuilder) -> Iterator[Buffer]:
    """Repeats its body until the body has stored something else than 0 in the flag that it is given.

    Memory for the body must be taken outside of it.
    """
    flag = k.local("done", "int32", 1)
    k.store(flag, 0, tirx.IntImm("int32", 0))
    with k.capture() as statements:
        yield flag
    k.add(tirx.While(flag[0] == 0, sequence(statements)))

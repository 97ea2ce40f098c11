"""Operators that are a loop over time and not a map: written as statements on flat buffers inside a TE stage.

    written("cumsum", [x], [(shape, dtype)], write)     write(k, [x flat], [y flat]) emits the loops by a KernelBuilder

TE sees one opaque stage, so such an operator is a kernel of its own in plain layout
(schedules/general/loop_operators.py, which asks for the stage with :func:`recording`), and what the reference evaluator
runs is the same loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from ..emit.builder import KernelBuilder, dtype_size, sequence
from .common import shape_of

PARALLEL_WORK = 32 * 1024  # element operations below which a launch costs more than it saves
Write = Callable[[KernelBuilder, list[Any], list[Any]], None]


@dataclass(frozen=True)
class Loops:
    """A stage of statements: what it reads, shape and dtype of what it writes, and how."""

    inputs: tuple[te.Tensor, ...]
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    write: Write


_RECORD: ContextVar[list[Loops] | None] = ContextVar("_RECORD", default=None)


@contextmanager
def recording() -> Iterator[list[Loops]]:
    """Collects the stages that operators' expressions make inside."""
    stages: list[Loops] = []
    token = _RECORD.set(stages)
    yield stages
    _RECORD.reset(token)


def written(
    name: str, inputs: Sequence[te.Tensor], outputs: Sequence[tuple[Sequence[int], str]], write: Write
) -> list[te.Tensor]:
    """One stage that computes ``outputs`` (shape and dtype each) by the statements that ``write`` emits."""

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        k = KernelBuilder(name)
        with k.capture() as statements:
            write(k, [_flat(k, b) for b in ins], [_flat(k, b) for b in outs])
        return sequence(statements)

    shapes = [tuple(int(d) for d in shape) for shape, _ in outputs]
    record = _RECORD.get()
    if record is not None:
        record.append(Loops(tuple(inputs), tuple(zip(shapes, (d for _, d in outputs))), write))
    result = te.extern(shapes, list(inputs), body, name=name, dtype=[dtype for _, dtype in outputs])
    return [result] if isinstance(result, te.Tensor) else list(result)


def _flat(k: KernelBuilder, buffer: Any) -> Any:
    elements = math.prod(int(d) for d in buffer.shape)
    dtype = str(buffer.dtype)
    size = dtype_size(dtype)  # aligned to one element only
    flat = tirx.decl_buffer(
        (elements,), dtype, name=k.fresh("flat"), data=buffer.data, data_alignment=size, layout=None
    )
    k.add(tirx.DeclBuffer(flat, data=buffer.data))
    return flat


def split_at(x: te.Tensor | Sequence[int], axis: int) -> tuple[int, int, int]:
    """(outer, length, inner): the sizes before, of and after ``axis``."""
    shape = shape_of(x) if isinstance(x, te.Tensor) else list(x)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def accumulator(dtype: str) -> str:
    """Half-width floats add up in float32."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def cast(dtype: str, value: Any) -> Any:
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)


@contextmanager
def until(k: KernelBuilder) -> Iterator[Any]:
    """Repeats its body until the body has stored something else than 0 in the flag that it is given.

    Memory for the body must be taken outside of it.
    """
    flag = k.local("done", "int32", 1)
    k.store(flag, 0, tirx.IntImm("int32", 0))
    with k.capture() as statements:
        yield flag
    k.add(tirx.While(flag[0] == 0, sequence(statements)))

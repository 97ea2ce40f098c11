"""The function that runs a tile group's program: loops, and calls with pointers and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import tirx

from ..emit import KernelBuilder
from ..group import Kernel, Packed, Scratch
from .program import Loop, LoopedCall, Program


def build_driver(
    parts: Sequence[Kernel],
    names: Sequence[str],
    operands: Sequence[Any],
    offsets: Mapping[Any, int],
    program: Program,
    before: Sequence[int],
    workers: int,
    worker_bytes: int,
    tasks: int,
) -> Any:
    """A PrimFunc whose parameters are ``operands``, the last two being the table and the scratch of all workers."""
    k = KernelBuilder("driver")
    pointers: dict[Any, Any] = {}
    for i, operand in enumerate(operands):
        if isinstance(operand, Packed) and operand is operands[-2]:
            table = k.pointer("table", "int32", operand.data.size)
        elif isinstance(operand, Scratch):
            scratch = k.pointer("scratch", "uint8", max(1, operand.bytes))
        else:
            pointers[operand] = k.pointer(f"p{i}", "uint8", 1)
    width = program.table.shape[1]

    def call(part: int, numbers: Sequence[Any], worker: Any) -> None:
        arguments = []
        for operand in parts[part].operands:
            if operand in pointers:
                arguments.append(tirx.address_of(pointers[operand][0]))
            else:
                at = tirx.Cast("int64", worker) * worker_bytes + tirx.IntImm("int64", offsets[operand])
                arguments.append(tirx.address_of(scratch[at]))
        k.add(tirx.Evaluate(tirx.call_extern("int32", names[part], *arguments, *numbers)))

    def number(c: LoopedCall, j: int, row: Any, iteration: Any) -> Any:
        column = c.columns[j]
        value: Any = tirx.IntImm("int32", c.numbers[j]) if column is None else table[row * width + column]
        return value + iteration * c.growth[j] if c.growth[j] else value

    def form(loops: Sequence[Loop], row: Any, worker: Any) -> None:
        for loop in loops:
            with k.loop(loop.count, name="s") as s:
                for c in loop.calls:
                    call(c.part, [number(c, j, row, s) for j in range(len(c.numbers))], worker)

    for part in before:
        call(part, [], tirx.IntImm("int32", 0))
    with k.loop(workers, "parallel" if workers > 1 else "serial", "w") as w:
        first = tirx.floordiv(w * tasks, workers)
        count = tirx.floordiv((w + 1) * tasks, workers) - first
        with k.loop(count, name="t") as t:
            row = first + t
            if len(program.forms) == 1:
                form(program.forms[0], row, w)
            else:
                for i, loops in enumerate(program.forms):
                    with k.when(tvm.tirx.EQ(table[row * width], tirx.IntImm("int32", i))):
                        form(loops, row, w)
    return k.finish()

"""The function that runs a tile group's program: loops, and calls with pointers and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import tvm
from tvm import tirx

from ..emit.builder import KernelBuilder
from ..words.group import Kernel, Packed, Scratch, Value
from ..words.tvm_types import Buffer, Expr, PrimFunc
from .program import DriverProgram, Loop, LoopedCall

if TYPE_CHECKING:
    from ..words.size_like import SizeLike


def build_driver(
    parts: Sequence[Kernel],
    names: Sequence[str],
    operands: Sequence[Expr],
    offsets: Mapping[Expr, SizeLike],
    program: DriverProgram,
    before: Sequence[int],
    workers: int,
    worker_bytes: int,
    tasks: int,
    sharing: int = 1,
) -> PrimFunc:
    """The PrimFunc that runs ``program``. Its parameters are ``operands``, the last two being the table and the scratch
    of all workers, at ``worker_bytes`` each; where cores are ``sharing`` steps, these are the bytes of a core's own
    part, behind the windows that all share. The parts ``before`` are called once, first."""
    k = KernelBuilder("driver")
    pointers: dict[Packed | Value, Buffer] = {}
    for i, operand in enumerate(operands):
        if isinstance(operand, Packed) and operand is operands[-2]:
            table = k.pointer("table", "int32", operand.data.size)
        elif isinstance(operand, Scratch):
            scratch = k.pointer("scratch", "uint8", max(1, operand.bytes))
        else:
            pointers[operand] = k.pointer(f"p{i}", "uint8", 1)
    driver = _Driver(k, parts, names, pointers, offsets, table, scratch, program, worker_bytes, sharing)
    for part in before:
        driver.call(part, [], tirx.IntImm("int32", 0))
    with k.loop(workers, "parallel" if workers > 1 else "serial", "w") as w:
        first = tirx.floordiv(w * tasks, workers)
        count = tirx.floordiv((w + 1) * tasks, workers) - first
        with k.loop(count, name="t") as t:
            driver.task(first + t, w)
    return k.finish({"tirx.noalias": False})  # an output may lie where an input lies


@dataclass
class _Driver:
    k: KernelBuilder
    parts: Sequence[Kernel]
    names: Sequence[str]
    pointers: Mapping[Expr, Buffer]
    offsets: Mapping[Expr, SizeLike]
    table: Buffer
    scratch: Buffer
    program: DriverProgram
    worker_bytes: int
    sharing: int

    def task(self, row: Expr, worker: Expr) -> None:
        """The task of a row of the table."""
        if len(self.program.forms) == 1:
            self._form(self.program.forms[0], row, worker)
            return
        for i, loops in enumerate(self.program.forms):
            kind = self.table[row * self.program.table.shape[1]]
            with self.k.when(tvm.tirx.EQ(kind, tirx.IntImm("int32", i))):
                self._form(loops, row, worker)

    def call(self, part: int, numbers: Sequence[Expr], worker: Expr) -> None:
        arguments = []
        for operand in self.parts[part].operands:
            if operand in self.pointers:
                arguments.append(tirx.address_of(self.pointers[operand][0]))
                continue
            at: Expr = tirx.IntImm("int64", self.offsets[operand])
            if self.sharing == 1 or isinstance(operand, Scratch):
                at = tirx.Cast("int64", worker) * self.worker_bytes + at
            arguments.append(tirx.address_of(self.scratch[at]))
        self.k.add(tirx.Evaluate(tirx.call_extern("int32", self.names[part], *arguments, *numbers)))

    def _form(self, loops: Sequence[Loop], row: Expr, worker: Expr) -> None:
        for loop in loops:
            with self.k.loop(loop.count, name="s") as s:
                if self.sharing == 1:
                    self._calls(loop.calls, row, s, worker)
                    continue
                for _, of_phase in groupby(loop.calls, lambda c: (c.turn, c.phase)):
                    self._shared(list(of_phase), row, s)

    def _shared(self, calls: Sequence[LoopedCall], row: Expr, iteration: Expr) -> None:
        """Each core its own of a phase's calls; they wait for each other."""
        with self.k.loop(self.sharing, "parallel", "core") as core:
            for own in range(self.sharing):
                with self.k.when(tvm.tirx.EQ(core, tirx.IntImm("int32", own))):
                    self._calls([c for c in calls if c.core == own], row, iteration, core)

    def _calls(self, calls: Sequence[LoopedCall], row: Expr, iteration: Expr, worker: Expr) -> None:
        for c in calls:
            self.call(c.part, [self._number(c, j, row, iteration) for j in range(len(c.numbers))], worker)

    def _number(self, c: LoopedCall, j: int, row: Expr, iteration: Expr) -> Expr:
        column, width = c.columns[j], self.program.table.shape[1]
        value: Expr = tirx.IntImm("int32", c.numbers[j]) if column is None else self.table[row * width + column]
        return value + iteration * c.growth[j] if c.growth[j] else value

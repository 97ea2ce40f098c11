"""The matrix unit of x86-64 (AMX): eight registers of sixteen rows of 64 bytes, and a multiply-add of two of them.

    C[16 rows][16 columns] += A[16 rows][16 pairs][2] * B[16 pairs][16 columns][2]      bfloat16, sums in float32

starts every 16 cycles and takes 52 until the same C may be added to again, so four of them take turns. Registers are
written and read through memory alone, 64 bytes a row: rows of A are as far apart as the caller says, which makes
neighbouring positions of an image, whose channels lie together, rows of A without a copy.

Every kernel shares one configuration, all registers whole. Rows of A that no output needs are computed with the others:
rows don't meet, so what lies there only has to be memory that may be read.

The system must have let the process use the unit, which the library's ``create`` asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from tvm import tirx

from ...targets import llvm
from ...targets.target import Target
from ..words.group import Request
from ..words.tvm_types import Buffer, Expr, PrimFunc

if TYPE_CHECKING:
    pass

ROWS = 16  # of a register
ROW_BYTES = 64
REGISTER_BYTES = ROWS * ROW_BYTES
COLUMNS = 16  # float32 of a row of C
PAIRS = 16  # of bfloat16 in a row of A
DEPTH = 2 * PAIRS  # terms of a sum that one multiply-add takes
REGISTERS = 8
SUMS = 4  # registers that a block of C may take: the other four hold A and B
MULTIPLY_CYCLES = 16  # from one multiply-add to the next
LOAD_CYCLES = 8  # of a register from the first-level cache

# Of a function: how many multiply-adds of the unit stand for one of numbers over 64 terms of a sum, as many as one of
# bytes takes: 1 for bytes, 2 for each product of bfloat16 parts. A library with such a function asks for the unit.
ATTRIBUTE = "halotile.matrix"
BFLOAT16_ONCE = 2

BFLOAT16 = "bf16ps"  # kinds of products
UNSIGNED_SIGNED, SIGNED_SIGNED = "busd", "bssd"  # bytes of A by bytes of B, summed in int32


@cache
def has_matrix_unit(target: Target, kind: str = "amx-bf16") -> bool:
    """True if ``target`` multiplies registers of bfloat16, or bytes ("amx-int8")."""
    if not target.triple.startswith("x86_64-") or target.system != "linux" or target.vector_bits != 512:
        return False
    return {"amx-tile", kind} <= llvm.features(llvm.architecture(target.triple), target.cpu, target.features)


def may_split(request: Request) -> bool:
    """True if products of float32 may be sums of products of parts (:mod:`.bf16_parts`): not under ``exact``, not if
    switched off, and not where weights are to take half of their bytes."""
    return request.policy.parts and has_matrix_unit(request.target)


@dataclass(frozen=True)
class RegisterRows:
    """Where a register's rows lie: in ``buffer`` from element ``begin`` on, ``apart`` bytes from one to the next."""

    buffer: Buffer
    begin: Expr
    apart: int = ROW_BYTES


class MatrixUnit:
    """Adds the unit's instructions to the kernel that ``k`` builds."""

    def __init__(self, k: Any) -> None:
        self.k = k

    def configure(self) -> None:
        """Makes all registers whole; at the beginning of each task, in the thread that multiplies."""
        k = self.k
        table = k.local("tiles", "int32", 16, "global")
        words = [1, 0, 0, 0, *[ROW_BYTES << 16 | ROW_BYTES] * 4, 0, 0, 0, 0, *[0x10101010] * 2, 0, 0]
        for i, word in enumerate(words):
            k.store(table, i, tirx.IntImm("int32", word))
        self._call("llvm.x86.ldtilecfg", tirx.address_of(table[0]))
        self._note(1)

    def release(self) -> None:
        """Leaves the unit empty, so that the system saves nothing of it; at the end of each task."""
        self._call("llvm.x86.tilerelease")

    def zero(self, register: int) -> None:
        self._call("llvm.x86.tilezero", _register(register))

    def load(self, register: int, rows: RegisterRows) -> None:
        self._call("llvm.x86.tileloadd64", _register(register), *_place(rows))

    def store(self, register: int, rows: RegisterRows) -> None:
        self._call("llvm.x86.tilestored64", _register(register), *_place(rows))

    def multiply(self, sums: int, a: int, b: int, kind: str = BFLOAT16) -> None:
        """``sums += a * b``"""
        self._call(f"llvm.x86.tdp{kind}", _register(sums), _register(a), _register(b))

    def _call(self, name: str, *arguments: Expr) -> None:
        self.k.add(tirx.Evaluate(tirx.call_llvm_intrin("void", name, *arguments)))

    def _note(self, work: int) -> None:
        self.k.attributes[ATTRIBUTE] = max(work, self.k.attributes.get(ATTRIBUTE, 0))

    # -- blocks of C -----------------------------------------------------------------------------

    def step(
        self,
        shape: tuple[int, int],
        products: tuple[tuple[int, int], ...],
        a: Callable[[int, int], RegisterRows],
        b: Callable[[int, int], RegisterRows],
        kind: str = BFLOAT16,
    ) -> None:
        """One step of the sums of a block of ``shape`` (registers of rows, of columns; C in the first of all
        registers, row by row): for each of ``products`` (part of A, part of B) that of ``a(row, part)`` and
        ``b(column, part)``. What is in a register already is not loaded again."""
        rows, columns = shape
        assert rows * columns <= SUMS
        self._note(len(products) * (2 if kind == BFLOAT16 else 1))
        free = list(range(SUMS, REGISTERS))
        own_b = free[: min(columns, 2 if rows > 1 else 3)]
        own_a = [r for r in free if r not in own_b][: rows if rows <= 2 else None]
        held: dict[int, tuple[str, int, int]] = {}
        turn = {"a": 0, "b": 0}

        def register(
            side: str, own: list[int], number: int, part: int, rows_of: Callable[[int, int], RegisterRows]
        ) -> int:
            name = (side, number, part)
            for r, what in held.items():
                if what == name:
                    return r
            r = own[turn[side] % len(own)]
            turn[side] += 1
            held[r] = name
            self.load(r, rows_of(number, part))
            return r

        for part_a, part_b in products:
            for i in range(rows):
                for j in range(columns):
                    right = register("b", own_b, j, part_b, b)
                    left = register("a", own_a, i, part_a, a)
                    self.multiply(i * columns + j, left, right, kind)


def block_cycles(shape: tuple[int, int], products: int) -> float:
    """Cycles of one :meth:`MatrixUnit.step`: few sums wait for each other."""
    rows, columns = shape
    return max(rows * columns * MULTIPLY_CYCLES, 52.0) * products


def work_of(function: PrimFunc) -> int:
    """What :data:`ATTRIBUTE` says of a finished function; 0 where it leaves the unit alone."""
    return int((function.attrs or {}).get(ATTRIBUTE, 0))


class _CountedUnit(MatrixUnit):
    """Counts what would be loaded."""

    loads = 0

    def load(self, register: int, rows: RegisterRows) -> None:
        self.loads += 1

    def multiply(self, sums: int, a: int, b: int, kind: str = BFLOAT16) -> None:
        pass

    def _note(self, work: int) -> None:
        pass


@cache
def loads_of(shape: tuple[int, int], products: tuple[tuple[int, int], ...]) -> int:
    """Registers that one :meth:`MatrixUnit.step` loads."""
    unit, nowhere = _CountedUnit(None), RegisterRows(None, 0)
    unit.step(shape, products, lambda row, part: nowhere, lambda column, part: nowhere)
    return unit.loads


def _register(number: int) -> Expr:
    return tirx.IntImm("int8", number)


def _place(rows: RegisterRows) -> tuple[Expr, Expr]:
    return tirx.address_of(rows.buffer[rows.begin]), tirx.IntImm("int64", rows.apart)

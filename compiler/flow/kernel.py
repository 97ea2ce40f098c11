"""The kernel of a loop or a branch: a function that calls the kernels of its bodies.

    state 0 = the first carried values
    i = 0
    while i < limit and go:
      round = i
      for kernel of the body: kernel(state i % 2, row i of what is scanned -> state (i + 1) % 2, row i of what is kept)
      go = what the body says
      i = i + 1
    the results = state i % 2; rows behind the last are zero

Carried values lie twice in the kernel's scratch, of which a round reads one and writes the other. Rows are places in
the tensors themselves: nothing is copied for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tvm import tirx

from ...errors import several
from ...schedules.emit.builder import KernelBuilder, sequence
from ...schedules.emit.open_sizes import sizes_of
from ...schedules.operators.control import BRANCH, Rounds, bodies_of
from ...schedules.operators.registry import attributes
from ...schedules.tiled import TiledKernel
from ...schedules.words.alignment import aligned
from ...schedules.words.atoms import variable
from ...schedules.words.dims import is_dim, maximum, to_relax
from ...schedules.words.group import Group, Kernel, Packed, Scratch, Value, dtype_bytes
from ...schedules.words.sizes import symbols_of, usual
from ...schedules.words.tvm_types import Attribute, Expr, PrimFunc
from .helpers import CLEAR, COPY, READ_FLAG, READ_NUMBER, WRITE_NUMBER, helpers
from .program import FlowProgram

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

Place = Callable[[], Expr]  # gives an address


@dataclass(frozen=True, eq=False)
class FlowKernel(TiledKernel):
    """A loop or a branch. Its driver reads numbers that kernels write, and so is an object of its own."""


def build_flow(group: Group, program_of: Callable[[Expr], FlowProgram]) -> FlowKernel:
    """The kernel of a group whose only node is control flow; ``program_of`` compiles a body."""
    (node,) = group.nodes
    programs = tuple(program_of(body) for body in bodies_of(node.call))
    return _Flow(group, programs).build()


@dataclass
class _Flow:
    group: Group
    programs: tuple[FlowProgram, ...]
    operands: list[Value | Packed | Scratch] = field(default_factory=list)
    size: SizeLike = 0  # bytes of scratch

    def build(self) -> FlowKernel:
        (node,) = self.group.nodes
        self.node = node
        given = attributes(node.call)
        self.operands = list(dict.fromkeys(node.inputs))
        self.results = [v if v in self.group.outputs else Scratch(_bytes(v)) for v in node.results]
        self.operands += self.results
        for program in self.programs:
            self.operands += [o for o in _constants(program) if o not in self.operands]
        if node.operator == BRANCH:
            emit, text = self._branch(), "branch"
        else:
            emit, text = self._rounds(Rounds.of(given)), "loop"
        self.scratch = Scratch(maximum(64, self.size))
        self.operands.append(self.scratch)
        parts = tuple(k for p in self.programs for k in p.kernels)

        def driver(names: tuple[str, ...]) -> PrimFunc:
            return self._written(emit, names)

        times = 1 if node.operator == BRANCH else max(1, *(usual(v.shape[0]) for v in self._rows(given)), 1)
        workspace: SizeLike = 0
        for part in parts:
            workspace = maximum(workspace, part.workspace)
        kernels = " or ".join(str(len(p.kernels)) for p in self.programs)
        everything = (*parts, *helpers())
        return FlowKernel(
            function=driver(tuple(f"part{i}" for i in range(len(everything)))),
            operands=tuple(self.operands),
            outputs=self.group.outputs,
            schedule=f"{text} over {several(kernels, 'kernel')}",
            flops=times * max((sum(k.flops for k in p.kernels) for p in self.programs), default=0),
            workspace=workspace,
            notes=tuple(dict.fromkeys((*self._told(), *(n for p in parts for n in p.notes)))),
            parts=everything,
            driver=driver,
            counts=tuple(dict.fromkeys(c for p in self.programs for c in p.memory.counts)),
        )

    def _told(self) -> Iterator[str]:
        """What the bodies are made of, for reports."""
        whens = ("if so", "if not") if self.node.operator == BRANCH else ("in each round",)
        for when, program in zip(whens, self.programs):
            yield f"{when}: {'; '.join(k.schedule for k in program.kernels) or 'nothing'}"

    def _rows(self, given: Mapping[str, Attribute]) -> Sequence[Value]:
        """The tensors that have a row for each round."""
        if self.node.operator == BRANCH:
            return ()
        it = Rounds.of(given)
        scanned = self.node.inputs[2 + it.state : 2 + it.state + it.scans]
        return (*scanned, *self.node.results[it.state : it.state + it.kept])

    def room(self, size: SizeLike) -> SizeLike:
        """The offset of so many bytes of scratch."""
        offset = self.size
        self.size = offset + aligned(size)
        return offset

    def _written(self, emit: Callable[[CallEmitter], None], names: tuple[str, ...]) -> PrimFunc:
        k = KernelBuilder("flow")
        pointers = {o: k.pointer(f"p{i}", "uint8", 1) for i, o in enumerate(self.operands)}
        emit(CallEmitter(k, pointers, names, self.scratch))
        return k.finish({"tirx.noalias": False})

    # ------------------------------------------------------------------ the two kinds

    def _branch(self) -> Callable[[CallEmitter], None]:
        self.size = maximum(self.programs[0].bytes, self.programs[1].bytes)
        condition, *seen = self.node.inputs
        results = self.results

        def emit(e: CallEmitter) -> None:
            bodies = []
            for program, first in zip(self.programs, self._firsts()):
                with e.k.capture() as statements:
                    places = dict(zip(program.inputs, (e.at(v) for v in seen)))
                    places.update(zip(program.outputs, (e.at(r) for r in results)))
                    e.run(program, first, places, 0)
                bodies.append(sequence(statements))
            holds = e.read(self._help(READ_FLAG), e.at(condition))
            e.k.add(tirx.IfThenElse(holds[0] != e.number(0), *bodies))

        return emit

    def _firsts(self) -> list[int]:
        """The number of each program's first kernel among the parts."""
        return [sum(len(p.kernels) for p in self.programs[:i]) for i in range(len(self.programs))]

    def _help(self, which: int) -> int:
        return sum(len(p.kernels) for p in self.programs) + which

    def _rounds(self, it: Rounds) -> Callable[[CallEmitter], None]:
        (program,) = self.programs
        block = self.room(program.bytes)
        number, flag = self.room(8), self.room(1)
        limit, go, *rest = self.node.inputs
        state, scanned, seen = rest[: it.state], rest[it.state : it.state + it.scans], rest[it.state + it.scans :]
        versions = [(self.room(_bytes(v)), self.room(_bytes(v))) for v in state]
        final, kept = self.results[: it.state], self.results[it.state : it.state + it.kept]
        tensors = self.node.results[it.state : it.state + it.kept]

        def emit(e: CallEmitter) -> None:
            k = e.k
            for value, (first, _) in zip(state, versions):
                e.do(self._help(COPY), e.scratch(first)(), e.at(value)(), e.wide(_bytes(value)))
            most = e.read(self._help(READ_NUMBER), e.at(limit))
            going = e.read(self._help(READ_FLAG), e.at(go))
            at = k.local("at", "int64", 1)
            k.store(at, 0, e.number(0))
            with k.capture() as statements:
                e.do(self._help(WRITE_NUMBER), e.scratch(number)(), at[0])
                turn = k.bind(tirx.bitwise_and(at[0], e.number(1)), "turn")
                places: dict[Value, Place] = {program.inputs[0]: e.scratch(number)}
                own = program.inputs[1:]
                now = [e.version(v, turn) for v in versions]
                after = [e.version(v, e.number(1) - turn) for v in versions]
                rows = [e.row(v, v, b, at[0]) for v, b in zip(scanned, it.rows_in)]
                places.update(zip(own, [*now, *rows, *(e.at(v) for v in seen)]))
                made = [*after, *(e.row(o, v, b, at[0]) for o, v, b in zip(kept, tensors, it.rows_out))]
                places.update(zip(program.outputs, [*([e.scratch(flag)] if it.asks else []), *made]))
                e.run(program, 0, places, block)
                if it.asks:
                    e.do(self._help(READ_FLAG), tirx.address_of(going[0]), e.scratch(flag)())
                k.store(at, 0, at[0] + e.number(1))
            goes_on = tirx.all(at[0] < most[0], going[0] != e.number(0))
            k.add(tirx.While(goes_on, sequence(statements)))
            last = k.bind(tirx.bitwise_and(at[0], e.number(1)), "turn")
            for value, result, own_versions in zip(state, final, versions):
                e.do(self._help(COPY), e.at(result)(), e.version(own_versions, last)(), e.wide(_bytes(value)))
            if it.counted:
                for result, tensor in zip(kept, tensors):
                    row = _row_bytes(tensor)
                    rest_ = (e.wide(tensor.shape[0]) - at[0]) * e.wide(row)
                    e.do(self._help(CLEAR), e.at(result, at[0] * e.wide(row))(), rest_)
                e.do(self._help(WRITE_NUMBER), e.at(self.results[-1])(), at[0])

        return emit


@dataclass
class CallEmitter:
    """Writes calls. Places are functions that give an address, so that it is written where it is used."""

    k: KernelBuilder
    pointers: Mapping[Expr, Expr]
    names: tuple[str, ...]
    block: Scratch

    def number(self, value: int) -> Expr:
        return tirx.IntImm("int64", value)

    def wide(self, dim: SizeLike) -> Expr:
        """A dim in 64 bits, of the sizes that kernels have in 32."""
        if not is_dim(dim):
            return self.number(dim)
        return to_relax(dim, {s: tirx.Cast("int64", variable(s, "int32")) for s in symbols_of(dim)})

    def at(self, operand: Value | Packed | Scratch, offset: SizeLike = 0) -> Place:
        """A place in an operand, so many bytes from its beginning: a number, a dim or an expression."""
        place = self.wide(offset) if isinstance(offset, int) or is_dim(offset) else offset
        return lambda: tirx.address_of(self.pointers[operand][place])

    def scratch(self, offset: SizeLike) -> Place:
        return self.at(self.block, offset)

    def version(self, pair: tuple[SizeLike, SizeLike], turn: Expr) -> Place:
        """One of two places of scratch."""
        even, odd = map(self.wide, pair)
        return self.at(self.block, even + turn * (odd - even))

    def row(self, operand: Value | Packed | Scratch, tensor: Value, back: bool, at: Expr) -> Place:
        """A row of a tensor along its first axis."""
        index = self.wide(tensor.shape[0]) - self.number(1) - at if back else at
        return self.at(operand, index * self.wide(_row_bytes(tensor)))

    def do(self, part: int, *arguments: Expr) -> None:
        """A call of a part."""
        self.k.add(tirx.Evaluate(tirx.call_extern("int32", self.names[part], *arguments)))

    def read(self, part: int, place: Place) -> Expr:
        """A variable with the number at a place, which ``part`` reads."""
        found = self.k.local("number", "int64", 1)
        self.do(part, tirx.address_of(found[0]), place())
        return found

    def run(
        self, program: FlowProgram, first: int, places: Mapping[Any, Place], block: SizeLike
    ) -> None:
        """Calls the kernels of a program; ``places`` has its inputs and outputs, its memory begins at ``block``."""
        offsets = program.offsets()

        def place(operand: Value | Packed | Scratch) -> SizeLike:
            offset: SizeLike = 0
            if isinstance(operand, Value):
                operand, offset = program.places.resolve(operand)
            if operand in places:
                whole = isinstance(offset, int) and offset == 0
                return places[operand]() if whole else self._moved(places[operand], offset)
            if operand in offsets:
                return self.scratch(block + offsets[operand] + offset)()
            return self.at(operand, offset)()

        for number, kernel in enumerate(program.kernels, first):
            self.do(number, *map(place, kernel.operands), *sizes_of(kernel.function))

    def _moved(self, base: Place, offset: SizeLike) -> Expr:
        load = base().args[0]
        return tirx.address_of(load.source[load.indices[0] + self.wide(offset)])


def _bytes(value: Value) -> SizeLike:
    return maximum(1, value.elements * dtype_bytes(value.dtype))


def _row_bytes(tensor: Value) -> SizeLike:
    total: SizeLike = dtype_bytes(tensor.dtype)
    for dim in tensor.shape[1:]:
        total = total * dim
    return total


def _constants(program: FlowProgram) -> list[Value | Packed]:
    """What a program's kernels read of the library's weights."""
    found: dict[Value | Packed, None] = {}
    for kernel in program.kernels:
        for operand in kernel.operands:
            source = program.places.root(operand) if isinstance(operand, Value) else operand
            if isinstance(source, Packed) or isinstance(source, Value) and source.constant is not None:
                found[source] = None
    return list(found)


def kernels_of(kernel: Kernel) -> list[Kernel]:
    """A kernel's parts, down to those that call no others."""
    return [k for p in kernel.parts for k in kernels_of(p)] if isinstance(kernel, TiledKernel) else [kernel]

"""Assembles the object code: every kernel once, and one ``main`` that calls them on arena offsets.

    int32_t halotile_kernel_main(in0, ..., out0, ..., const void *weights, void *arena[, const void *made]
                                 [, void *scratchpad])

Kernels are C functions on raw pointers, equal ones are emitted once (a network's repeated blocks share code and
differ in pointers only). Each is an object of its own and is named after its structure, not its place in the model, so
that the cache has it for every model with the same one. ``main`` is an object of its own, and must be: TVM tells LLVM
that two buffers of different names never overlap, which holds inside a kernel but not between two kernels that use the
same arena bytes one after the other. Inlined into one function, their loads and stores would be reordered.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from ...errors import UnsupportedError
from ...passes.memory.open_offsets import Slot
from ...passes.memory.places import Places, places_of
from ...passes.memory.plan import MemoryPlan
from ...schedules.emit.open_sizes import sizes_of
from ...schedules.instructions.amx import BFLOAT16_ONCE, work_of
from ...schedules.instructions.bf16_pairs import multiplies_pairs
from ...schedules.kernel.context import SLACK
from ...schedules.tiled import TiledKernel
from ...schedules.words.alignment import aligned
from ...schedules.words.dims import is_dim, to_relax
from ...schedules.words.group import Kernel, Packed, Scratch, Scratchpad, Value
from ...schedules.words.sizes import usual
from ...schedules.words.tvm_types import Buffer, Expr, PrimFunc, Stmt
from ...targets.target import Target
from ..cache.store import Cache
from ..flow.kernel import FlowKernel, kernels_of
from .forms import Alike
from .launches import tell
from .llvm_options import held_options
from .names import MAIN, SHAPES
from .objects import build_object
from .open_sizes import first_offset, open_sizes, shapes_function
from .shared_kernels import caller_of, shared_kernels
from .steps import LevelForm

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

C_CALL = 1  # TVM's name for "already has its final signature": a plain C function


@dataclass(frozen=True)
class WeightBlob:
    """Constants in the order of the blob; ``offsets`` by Value or Packed, ``denormals`` how many are floats below the
    normal ones, and not zero. Of a library for several levels of processors, ``alike`` knows the floats in the blob,
    ``made`` are offsets in memory that ``form`` fills from it when the library is used."""

    chunks: tuple[np.ndarray, ...]
    offsets: Mapping[Value | Packed | Scratch, int]
    bytes: int
    denormals: int = 0
    known: Mapping[str, tuple[int, np.ndarray]] = field(default_factory=dict)  # by digest: place in the blob, bytes
    alike: Alike | None = None
    made: Mapping[Any, int] = field(default_factory=dict)
    form: LevelForm = field(default_factory=LevelForm)

    def stream(self) -> Any:
        """The blob as bytes-like pieces, padding included, never whole."""
        position = 0
        for chunk in self.chunks:
            yield np.ascontiguousarray(chunk).data.cast("B") if chunk.size else b""
            position += chunk.nbytes
            padding = _padded(chunk.nbytes) - chunk.nbytes
            yield b"\0" * padding


def _padded(size: int) -> int:
    return int(aligned(size + SLACK))


def gather_weights(
    kernels: Sequence[Kernel], places: Places | Mapping[Value, Value], before: WeightBlob | None = None
) -> WeightBlob:
    """Every constant that some kernel reads from memory, once, whatever its shape and type. What ``before`` has in the
    same blob already stays where it is, and what can be made of that is not stored; ``bytes`` and ``denormals`` count
    it in, ``chunks`` are the new ones.

    Kernels pack a weight each for itself: what several of them read in one form is made, found to be there already,
    and dropped, one after the other, so that memory holds one of them."""
    places = places_of(places)
    chunks: list[np.ndarray] = []
    offsets: dict[Value | Packed | Scratch, int] = {}
    known: dict[str, tuple[int, np.ndarray]] = {} if before is None else dict(before.known)
    total, denormals = (0, 0) if before is None else (before.bytes, before.denormals)
    alike, form = None if before is None else before.alike, LevelForm()
    made: dict[Any, int] = {}
    own: dict[str, int] = {}

    def store(data: np.ndarray, digest: str = "") -> int:
        """Where the array lies in the blob, from now on at the latest."""
        nonlocal total
        chunk = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        place, _ = known.setdefault(digest or _digest(chunk), (total, chunk))
        if place == total:
            chunks.append(chunk)
            total += _padded(chunk.nbytes)
        return place

    for kernel in kernels:
        for operand in kernel.operands:
            source: Value | Packed | Scratch = places.root(operand) if isinstance(operand, Value) else operand
            if source in offsets or source in made or (data := constant_of(source)) is None:
                continue
            data = np.ascontiguousarray(data)
            digest = _digest(data.reshape(-1).view(np.uint8))
            if digest in known:
                offsets[source], same = known[digest]
                if isinstance(source, Packed):
                    source.keep(same.view(data.dtype).reshape(data.shape))
                continue
            if alike is not None and before is not None and before.bytes:  # of all levels but the last
                place = own[digest] if digest in own else alike.make(source, data, store, form)
                if place is not None:
                    made[source] = own[digest] = place
                    continue
            offsets[source] = store(data, digest)
            denormals += _denormals(data)
            if alike is not None:
                alike.add(offsets[source], data)
    return WeightBlob(tuple(chunks), offsets, total, denormals, known, alike, made, form)


def _digest(chunk: np.ndarray) -> str:
    """Of one build's own arrays. BLAKE2 takes less than half of SHA-256's time where no instruction computes that."""
    return hashlib.blake2b(chunk.data, digest_size=32).hexdigest()


def constant_of(source: Packed | Scratch | Value) -> np.ndarray | None:
    """The data of an operand that is known at compile time."""
    return source.data if isinstance(source, Packed) else getattr(source, "constant", None)


def _denormals(data: np.ndarray) -> int:
    """How many elements of float32 or float64 are below the normal ones, and not zero."""
    if data.dtype not in (np.float32, np.float64):
        return 0
    flat, least, count = data.reshape(-1), np.finfo(data.dtype).tiny, 0
    for start in range(0, flat.size, 1 << 18):
        sizes = np.abs(flat[start : start + (1 << 18)])
        count += int(np.count_nonzero((sizes < least) & (sizes > 0)))
    return count


def assemble(
    kernels: Sequence[Kernel],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    places: Places | Mapping[Value, Value],
    memory: MemoryPlan,
    weights: WeightBlob,
    target: Target,
    timers: bool = False,
    cache: Cache | None = None,
    symbols: Sequence[str] = (),
    suffix: str = "",
) -> tuple[bytes, tuple[bytes, ...], list[str], dict[str, int]]:
    """The objects of main and of the kernels, for each kernel the name of the function that computes it, and how many
    stores of a function go past the caches. What ``cache`` holds is not compiled again. ``suffix`` ends the names of
    main and of the function of shapes, where a library has several."""
    functions: dict[str, PrimFunc] = {}
    labels: dict[str, str] = {}  # what kernels say of themselves, by the names of their functions
    unique: dict[int, list[tuple[PrimFunc, str]]] = {}

    def named(function: PrimFunc, label: str = "") -> str:
        structure = tvm_ffi.structural_hash(function, map_free_vars=True) & (1 << 64) - 1
        same = unique.setdefault(structure, [])
        equal = (n for f, n in same if tvm_ffi.structural_equal(f, function, map_free_vars=True))
        name = next(equal, "")
        if not name:
            name = f"halotile_k_{structure:016x}" + (f"_{len(same)}" if same else "")
            same.append((function, name))
            functions[name], labels[name] = _known_as(name, function), label
        return name

    callers: dict[str, PrimFunc] = {}  # they only pass pointers on, so they may lie with main
    flows: dict[str, PrimFunc] = {}  # these read memory
    called: dict[str, set[str]] = {}

    def callable_(kernel: Kernel) -> str:
        """The name of the function that computes a kernel, which is entered where it belongs."""
        if not isinstance(kernel, TiledKernel):
            return named(kernel.function, kernel.schedule)
        parts = tuple(map(callable_, kernel.parts))
        own = flows if isinstance(kernel, FlowKernel) else callers
        name = f"halotile_{'f' if own is flows else 't'}{len(own)}"
        driver, called[name] = kernel.link(parts), set(parts).union(*(called.get(p, ()) for p in parts))
        own[name] = _known_as(name, driver)
        return name

    names = [callable_(k) for k in kernels]
    if symbols:
        alike = shared_kernels([(name, labels[name], function) for name, function in functions.items()])
        passed: dict[str, set[str]] = {}
        for name, kernel in alike.items():
            general = named(kernel.function)
            callers[name], passed[name] = _known_as(name, caller_of(functions.pop(name), kernel, general)), {general}
        called = {**passed, **called}
    main = _main(list(zip(names, kernels)), inputs, outputs, places_of(places), memory, weights, timers, symbols)
    first = {MAIN: main}
    if symbols:
        first[SHAPES] = shapes_function(kernels, inputs, outputs, memory, symbols)
    if suffix:
        first = {n + suffix: f.with_attr("global_symbol", n + suffix) for n, f in first.items()}
    functions.update(flows)
    modules = [tvm.IRModule({**first, **callers}), *(tvm.IRModule({n: f}) for n, f in functions.items())]
    stores: dict[str, int] = {}
    with held_options(target), ThreadPoolExecutor(os.cpu_count()) as pool:  # LLVM runs without the interpreter's lock
        objects = list(pool.map(lambda module: build_object(module, target, stores, cache), modules))
    for name, own in called.items():
        if count := sum(stores.get(part, 0) for part in own):
            stores[name] = count
    return objects[0], tuple(objects[1:]), names, stores


def _known_as(name: str, function: PrimFunc) -> PrimFunc:
    return function.with_attrs({"global_symbol": name, "calling_conv": C_CALL})


def _main(
    calls: Sequence[tuple[str, Kernel]],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    owners: Places,
    memory: MemoryPlan,
    weights: WeightBlob,
    timers: bool,
    symbols: Sequence[str] = (),
) -> PrimFunc:
    params: list[Expr] = []
    declare: list[Stmt] = []
    places: dict[Value | Packed | Scratch, Buffer] = {}

    def parameter(name: str) -> Buffer:
        var = tirx.Var(name, tvm.ir.PointerType(tvm.ir.PrimType("uint8")))
        params.append(var)
        buffer = tirx.decl_buffer((1 << 40,), "uint8", name=f"{name}_bytes", data=var, data_alignment=1, layout=None)
        declare.append(tirx.DeclBuffer(buffer, data=var))
        return buffer

    for i, value in enumerate(inputs):
        places[value] = parameter(f"in{i}")
    for i, value in enumerate(outputs):
        places[value] = parameter(f"out{i}")
    blob, arena = parameter("weights"), parameter("arena")
    own = None if weights.alike is None else parameter("made")
    pads = [o for _, kernel in calls for o in kernel.operands if isinstance(o, Scratchpad)]
    if pads:
        places.update(dict.fromkeys(pads, parameter("scratchpad")))
    sizes = open_sizes(symbols, params, declare) if symbols else None
    first = first_offset(inputs, outputs)

    def address(operand: Any) -> Expr:
        offset = 0
        if isinstance(operand, Value):
            operand, offset = owners.resolve(operand)
        if operand in places:
            return _at(places[operand], offset)
        if operand in weights.offsets:
            return _at(blob, weights.offsets[operand] + offset)
        if operand in weights.made:
            return _at(own, weights.made[operand] + offset)
        if operand in memory.offsets:
            place = memory.offsets[operand]
            begin: SizeLike = place
            if isinstance(place, Slot):
                assert sizes is not None
                begin = sizes[tirx.IntImm("int32", first + place.number)]
            return _at(arena, begin + (to_relax(offset) if is_dim(offset) else offset))
        raise UnsupportedError(f"value {operand} has no place in memory")

    body = [*declare]
    for i, (name, kernel) in enumerate(calls):
        body += tell(kernel) if symbols else []
        arguments = [*(address(o) for o in kernel.operands), *sizes_of(kernel.function)]
        body.append(tirx.Evaluate(tirx.call_extern("int32", name, *arguments)))
        if timers:
            body.append(tirx.Evaluate(tirx.call_extern("int32", "halotile_timer", tirx.IntImm("int32", i))))
    body.append(tirx.Return(tirx.IntImm("int32", 0)))
    main = tirx.PrimFunc(params, tirx.SeqStmt(body), ret_type=tvm.ir.PrimType("int32"))
    return main.with_attrs({"global_symbol": MAIN, "calling_conv": C_CALL, "s_tir": True})


def _at(buffer: Buffer, offset: int) -> Expr:
    offset = tirx.IntImm("int64", offset) if isinstance(offset, int) else to_relax(offset) if is_dim(offset) else offset
    return tirx.address_of(buffer[offset])


def matrix_work(kernel: Kernel) -> int:
    """Multiply-adds of the matrix unit for each 64 terms of a kernel's sums, or the most of its parts'; 0 for none."""
    return max((work_of(k.function) for k in kernels_of(kernel)), default=0)


def in_bfloat16(kernel: Kernel) -> bool:
    """Whether a kernel, or a part of it, has one product of bfloat16 for each of float32."""
    return any(work_of(k.function) == BFLOAT16_ONCE or multiplies_pairs(k.function) for k in kernels_of(kernel))


def workspace_bytes(kernels: Sequence[Kernel]) -> int:
    """What one worker may need at a time, over all kernels."""
    most = max((usual(kernel.workspace) for kernel in kernels), default=0)
    return int(aligned(most))

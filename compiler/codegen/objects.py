"""One TVM module of kernels -> an ELF object, by TVM's passes and LLVM, or from where it was kept.

    build_object(module, target, stores, cache)

The object depends on the module (its functions' structure and names), on the target as TVM sees it, on the versions of
TVM, LLVM and of the code below, and on nothing else: that is its key in the cache (compiler/cache/). What LLVM keeps
of the modules before is put back (jump_tables.py), and its options are held (llvm_options.py).
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import tvm
import tvm_ffi
from tvm import tirx

from ...schedules.emit import builder
from ...schedules.emit.builder import STACK_BYTES, sequence
from ...schedules.instructions import bf16_pairs, prefetch
from ...schedules.instructions import byte_tables as lookups
from ...schedules.instructions.bf16_pairs import has_pairs, narrows
from ...schedules.words.tvm_types import Buffer, IRModule, PrimFunc, Stmt
from ...targets.target import Target
from ...version import __version__
from ..cache import keys
from ..cache.keys import key_of
from ..cache.store import Cache
from . import (
    byte_tables,
    byte_tables_narrow,
    extremes,
    held_sizes,
    imported_ir,
    jump_tables,
    llvm_options,
    narrowing,
    pair_products,
    streaming,
)
from .byte_tables import with_tables
from .extremes import extremes as with_extremes
from .extremes import has_extremes
from .held_sizes import held
from .llvm_options import held_options
from .narrowing import narrow
from .pair_products import with_pairs
from .streaming import ATTRIBUTE, stream


def build_object(
    module: tvm.IRModule, target: Target, stores: dict[str, int] | None = None, cache: Cache | None = None
) -> bytes:
    """Compiles a module of PrimFuncs to an object file, unless ``cache`` has it. ``stores`` is told of those functions
    that go past the caches, and how many stores they are."""

    def make() -> bytes:
        code, counts = _compiled(module, target)
        return json.dumps(counts, sort_keys=True).encode() + b"\n" + code

    entry = make() if cache is None else cache.entry(key_of_object(module, target), make)
    counts, _, code = entry.partition(b"\n")
    if stores is not None:
        stores.update(json.loads(counts))
    return code


def key_of_object(module: tvm.IRModule, target: Target) -> str:
    """Of all that the object depends on. The text of a function says what its variables are called, which TVM writes
    into the object for debuggers; the hash of its structure says what a text may round or leave out."""
    functions = sorted((var.name_hint, _hash(f), f.script()) for var, f in module.functions.items())
    context = tvm.transform.PassContext.current()
    return key_of(
        "object", _versions(), json.dumps(dict(target.tvm().export()), sort_keys=True, default=str), _hash(module),
        *(part for function in functions for part in function),
        repr((NEEDLESS, NEEDLESS_OF_FLAT, STACK_BYTES)),
        repr((context.opt_level, list(context.required_pass), list(context.disabled_pass), str(context.config))),
    )  # fmt: skip


def _hash(node: IRModule | PrimFunc) -> str:
    """Of the structure of a function or module, as two that are equal have it."""
    return f"{tvm_ffi.structural_hash(node, map_free_vars=True) & (1 << 64) - 1:016x}"


@functools.cache
def _versions() -> str:
    """Of TVM, its LLVM, and of this code: what turns one module into one object."""
    llvm = tvm.get_global_func("target.llvm_version_major")()
    sources = [Path(str(m.__file__)).read_bytes() for m in CODE] + [Path(__file__).read_bytes()]
    return key_of(__version__, tvm.__version__, tvm_ffi.__version__, str(llvm), *sources)


# And this file: what follows the key.
CODE = (
    byte_tables, byte_tables_narrow, extremes, held_sizes, imported_ir, jump_tables, llvm_options, lookups, narrowing,
    pair_products, streaming, bf16_pairs, builder, prefetch, keys,
)  # fmt: skip


def _compiled(module: tvm.IRModule, target: Target) -> tuple[bytes, dict[str, int]]:
    """The object, and the functions with stores that go past the caches."""
    stores: dict[str, int] = {}
    tvm_target = target.tvm()
    lower, finalize, _ = tvm.tirx.get_tir_pipeline("s_tir")
    bound = target.tvm_of_loops()
    module = tvm.IRModule({var: held(f) for var, f in module.functions.items()}, attrs=module.attrs)
    module = tirx.transform.BindTarget(bound.with_host(bound))(module)
    flat = {var: function for var, function in module.functions.items() if is_flat(function.body)}
    lowered = {}
    for functions, disabled in (
        (flat, NEEDLESS_OF_FLAT),
        ({var: function for var, function in module.functions.items() if var not in flat}, NEEDLESS),
    ):
        if functions:
            with tvm.transform.PassContext(disabled_pass=disabled):
                lowered.update(lower(tvm.IRModule(functions, attrs=module.attrs)).functions)
    for var, function in lowered.items():
        if ATTRIBUTE in (function.attrs or {}):
            lowered[var], count = stream(function)
            if count:
                stores[var.name_hint] = count
    if has_pairs(target):
        lowered = {var: with_pairs(function, target) for var, function in lowered.items()}
    if narrows(target):
        lowered = {var: narrow(function, target) for var, function in lowered.items()}
    if lookups.has_lookup(target):
        lowered = {var: with_tables(function, target) for var, function in lowered.items()}
    if has_extremes(target):
        lowered = {var: with_extremes(function, target) for var, function in lowered.items()}
    module = _on_cpu(tvm.IRModule(lowered, attrs=module.attrs))
    module = finalize()(module)
    # A file without a name leaves nothing, however the process ends.
    with tempfile.TemporaryFile() as file, held_options(target):
        built = tvm.get_global_func("target.build.llvm")(module, tvm_target)
        built.write_to_file(f"/proc/self/fd/{file.fileno()}", "o")
        return file.read(), stores


# Passes that take longer than what they are worth (a seventh of a build's time): our buffers have their exact size, and
# LLVM finds common subexpressions and dead code itself. The machine code is as large without them.
NEEDLESS = ["s_tir.CompactBufferAllocation", "tirx.CommonSubexprElim", "tirx.RemoveNoOp"]

# The same where buffers are flat already: the first simplifies every index once more, at 0.4 ms each (more than LLVM
# takes for code that is written out), the second does what ``tirx.StmtSimplify`` does again.
NEEDLESS_OF_FLAT = [*NEEDLESS, "tirx.FlattenBuffer", "s_tir.StmtSimplify"]

# TVM would take even a register tile from the heap, through a callback
STACK = {"disable_lower_builtin": tirx.IntImm("bool", 1)}


def is_flat(statement: Stmt) -> bool:
    """True where every buffer has one axis and no bool in it, for which TVM would have to choose another form."""
    if isinstance(statement, tirx.SeqStmt):
        return all(is_flat(s) for s in statement.seq)
    if isinstance(statement, (tirx.AllocBuffer, tirx.DeclBuffer)):
        buffer = statement.buffer
        return len(buffer.shape) == 1 and not len(buffer.strides) and not str(buffer.dtype).startswith("bool")
    if isinstance(statement, tirx.IfThenElse):
        otherwise = statement.else_case
        return is_flat(statement.then_case) and (otherwise is None or is_flat(otherwise))
    if isinstance(statement, (tirx.For, tirx.While, tirx.AttrStmt)):
        return is_flat(statement.body)
    return isinstance(statement, (tirx.BufferStore, tirx.Bind, tirx.Evaluate, tirx.Return))


def _on_cpu(module: tvm.IRModule) -> tvm.IRModule:
    """Puts local memory on the stack, and marks the rest as the CPU's (TVM asks when it lowers it, and only its own
    packed calling convention says). After lowering, since TVM's storage pass drops annotations. What a kernel returns
    comes behind all that: memory of the workspace is given back where its scope ends, which must be before."""
    functions = {}
    for var, function in module.functions.items():
        body, last = _on_stack(function.body), []
        if isinstance(body, tirx.SeqStmt) and isinstance(body.seq[-1], tirx.Return):
            body, last = sequence(body.seq[:-1]), [body.seq[-1]]
        for attribute, number in (("device_type", 1), ("device_id", 0)):
            body = tirx.AttrStmt("default", attribute, tirx.IntImm("int32", number), body)
        functions[var] = _rebuilt(function, sequence([body, *last]))
    return tvm.IRModule(functions, attrs=module.attrs)


def _on_stack(statement: Stmt) -> Stmt:
    if isinstance(statement, tirx.AllocBuffer):
        return tirx.AllocBuffer(statement.buffer, STACK) if _bytes(statement.buffer) <= STACK_BYTES else statement
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([_on_stack(s) for s in statement.seq])
    if isinstance(statement, tirx.For):
        s = statement
        return tirx.For(
            s.loop_var, s.min, s.extent, s.kind, _on_stack(s.body), s.thread_binding, s.annotations, s.step
        )
    if isinstance(statement, tirx.AttrStmt):
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, _on_stack(statement.body))
    if isinstance(statement, tirx.IfThenElse):
        otherwise = statement.else_case
        return tirx.IfThenElse(
            statement.condition, _on_stack(statement.then_case), None if otherwise is None else _on_stack(otherwise)
        )
    return statement


def _bytes(buffer: Buffer) -> int:
    size = 1
    for extent in buffer.shape:
        if not isinstance(extent, tirx.IntImm):
            return 1 << 62
        size *= int(extent)
    dtype = tvm.DataType(str(buffer.dtype))
    return int(size * dtype.lanes * dtype.bits // 8)


def _rebuilt(function: PrimFunc, body: Stmt) -> PrimFunc:
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)

"""Kernel replay: which kernels of the benchmark zoo a change altered.

    python -m halotile.benchmarks.replay [NAME ...] [--target T] [--update]

Without an option, every model of the zoo is compiled for five targets up to its memory plan, and every kernel is held
against the one that ``replayed/<target>.json`` has at its place. A kernel is first compared as a TIR function, by a
structural hash, which takes no time; where that differs, LLVM compiles it, and the hash of its object decides:

    altered   the object is another one: the change altered what the processor does
    same      another function, the same object: the change moved code about, which is what a refactoring may do

Arenas and packed weights are compared as well, since a kernel may stay while what it is called on does not.
``--update`` writes the table (objects of functions that it knows are not compiled again). Exit code 1 if anything is
altered, with one line for each kernel.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import tvm
import tvm_ffi

from ..compiler.codegen.llvm_options import held_options
from ..compiler.codegen.module import C_CALL, gather_weights
from ..compiler.codegen.objects import build_object
from ..compiler.codegen.streaming import streamed
from ..compiler.pipeline import run_pipeline
from ..compiler.state import Build, Options
from ..errors import HalotileError, several
from ..schedules.tiled import TiledKernel
from ..schedules.words.tvm_types import PrimFunc
from ..targets.resolve import resolve
from ..targets.target import Target
from .models import MODELS

if TYPE_CHECKING:
    import onnx

    from ..targets.plain import Json, JsonView

# By the name of their table. All compute the same on every machine that compiles for them.
TARGETS = {
    "x86-64-v3": "x86-64-v3",
    "x86-64-v4": "x86-64-v4",
    "sapphirerapids": "x86_64-linux-gnu+sapphirerapids",
    "raspberry-pi-4": "raspberry-pi-4",
    "raspberry-pi-5": "raspberry-pi-5",
}
TABLES = Path(__file__).parent / "replayed"
THREADS = 2
DIGITS = 12  # of a hash, in hexadecimal


class ModelRecord(msgspec.Struct, frozen=True):
    """One model for one target: bytes of its arena, the hash of its constants, and its kernels in the order of their
    calls, each by the hash of its function (those of a tile group one after the other, its driver last)."""

    arena: int
    weights: str
    kernels: list[str]


class ReplayTable(msgspec.Struct):
    """All models for one target, and the hash of the object that each function became."""

    models: dict[str, ModelRecord] = {}
    objects: dict[str, str] = {}


@dataclass(frozen=True)
class Replayed:
    """A model as it is compiled now. ``functions`` and ``names`` (what a kernel computes) are by hash."""

    record: ModelRecord
    functions: Mapping[str, PrimFunc]
    names: Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    """One thing of a model that is not as it was. ``same``: the function is another one, its object is not."""

    what: str
    was: str
    now: str
    same: bool = False

    def __str__(self) -> str:
        verdict = "same object" if self.same else "altered"
        return f"{self.what}: {self.was or 'nothing'} -> {self.now or 'nothing'} ({verdict})"


def replay(model: onnx.ModelProto, target: Target, **options: Any) -> Replayed:
    """The record of ``model`` (a ModelProto) for ``target``, from a build that ends before LLVM."""
    build = run_pipeline(model, Options(target, threads=THREADS, stop_after="plan", **options))
    weights = gather_weights(build.kernels, build.places)
    constants = hashlib.sha256()
    for chunk in weights.stream():
        constants.update(chunk)
    kernels: list[str] = []
    functions: Json = {}
    names: dict[str, str] = {}
    for name, function in _functions(build):
        key = hash_of(function)
        kernels.append(key)
        functions[key] = function
        names.setdefault(key, name)
    record = ModelRecord(build.memory.planned_bytes, constants.hexdigest()[:DIGITS], kernels)
    return Replayed(record, functions, names)


def _functions(build: Build) -> Iterator[tuple[str, PrimFunc]]:
    """All functions as they are assembled, with what they compute."""
    kernels = streamed(build.kernels, build.places, build.memory, build.target)
    for kernel in kernels:
        if not isinstance(kernel, TiledKernel):
            yield kernel.schedule, kernel.function
            continue
        for part in kernel.parts:
            yield f"part of a tile group, {part.schedule}", part.function
        yield "driver of a tile group", kernel.link(tuple(f"part{i}" for i in range(len(kernel.parts))))


def hash_of(function: PrimFunc) -> str:
    """A hash of a PrimFunc's structure, whatever its variables are called."""
    number = tvm_ffi.structural_hash(function, map_free_vars=True) & (1 << 64) - 1
    return f"{number:016x}"[:DIGITS]


def object_of(function: PrimFunc, target: Target) -> str:
    """The hash of the object that LLVM makes of one function."""
    named = function.with_attrs({"global_symbol": "kernel", "calling_conv": C_CALL})
    return hashlib.sha256(build_object(tvm.IRModule({"kernel": named}), target)).hexdigest()[:DIGITS]


def objects_of(functions: JsonView, target: Target) -> dict[str, str]:
    """The objects' hashes by those of the functions, compiled side by side."""
    with held_options(target), ThreadPoolExecutor() as pool:
        return dict(zip(functions, pool.map(partial(object_of, target=target), functions.values())))


def differences(was: ModelRecord, objects: Mapping[str, str], now: Replayed, target: Target) -> list[Difference]:
    """What is not as it was, in the order of the calls; ``objects`` are the table's."""
    found = []
    if was.arena != now.record.arena:
        found.append(Difference("arena", f"{was.arena} bytes", f"{now.record.arena} bytes"))
    if was.weights != now.record.weights:
        found.append(Difference("constants", was.weights, now.record.weights))
    pairs = list(_pairs(was.kernels, now.record.kernels))
    compiled = objects_of({new: now.functions[new] for _, new, _ in pairs if new and new not in objects}, target)
    compiled = {**objects, **compiled}
    for old, new, place in pairs:
        same = bool(old and new) and compiled.get(old) == compiled[new]
        name = f"kernel {place}" + (f", {now.names[new]}" if new else "")
        found.append(Difference(name, old, new, same))
    return found


def _pairs(was: Sequence[str], now: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """(the old one or "", the new one or "", the place of the call) of all kernels that differ."""
    for tag, i, j, k, m in difflib.SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        for step in range(max(j - i, m - k)):
            old = was[i + step] if i + step < j else ""
            new = now[k + step] if k + step < m else ""
            yield old, new, k + step


def read_table(name: str) -> ReplayTable:
    """The table of a target's name; an empty one if there is none yet."""
    path = TABLES / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=ReplayTable) if path.is_file() else ReplayTable()


def write_table(name: str, table: ReplayTable) -> None:
    """Writes the table of a target: a line a model and a line an object, which git compares well."""
    used = {k for record in table.models.values() for k in record.kernels}
    table.models = {n: table.models[n] for n in MODELS if n in table.models}
    table.objects = {k: table.objects[k] for k in sorted(used)}
    lines = [
        '{"models": {',
        ",\n".join(f'"{n}": {msgspec.json.encode(r).decode()}' for n, r in table.models.items()),
        '}, "objects": {',
        ",\n".join(f'"{k}": "{o}"' for k, o in table.objects.items()),
        "}}",
    ]
    TABLES.mkdir(exist_ok=True)
    (TABLES / f"{name}.json").write_text("\n".join(lines) + "\n")


def _update(table: ReplayTable, name: str, now: Replayed, target: Target) -> int:
    """Takes a model over into the table; how many functions LLVM had to compile for it."""
    fresh = {k: f for k, f in now.functions.items() if k not in table.objects}
    table.objects.update(objects_of(fresh, target))
    table.models[name] = now.record
    return len(fresh)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="models of the registry")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="one of the five")
    parser.add_argument("--update", action="store_true", help="write the table instead of comparing with it")
    o = parser.parse_args(arguments)
    if unknown := [n for n in o.names if n not in MODELS]:
        parser.error(f"unknown model {', '.join(unknown)}; known: {', '.join(MODELS)}")
    names = o.names or [n for n, e in MODELS.items() if "bench" in e.tags]
    altered = 0
    for place in o.target or TARGETS:
        table, target = read_table(place), resolve(TARGETS[place])
        for name in names:
            start = time.perf_counter()
            try:
                now = replay(MODELS[name].model(), target)
            except HalotileError as error:
                print(f"{place} {name}: {error}", flush=True)
                altered += 1
                continue
            if o.update:
                said = f"{_update(table, name, now, target)} functions compiled"
                write_table(place, table)
            elif name not in table.models:
                said, altered = "not in the table", altered + 1
            else:
                found = differences(table.models[name], table.objects, now, target)
                altered += sum(not d.same for d in found)
                said = f"{sum(d.same for d in found)} with the same object, {sum(not d.same for d in found)} altered"
                for difference in found:
                    print(f"  {difference}", flush=True)
            kernels, seconds = len(now.record.kernels), time.perf_counter() - start
            print(f"{place} {name}: {several(kernels, 'kernel')}, {said} ({seconds:.0f} s)", flush=True)
    return 1 if altered else 0


if __name__ == "__main__":
    sys.exit(main())

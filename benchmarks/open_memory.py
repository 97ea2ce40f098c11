"""What thousands of sizes in one process do to its memory: nothing grows, no run allocates, no arena is left.

    python -m halotile.benchmarks.open_memory FOLDER [NAME ...] --count 10000 --every 100

Of each model, sizes at random up to the largest it is measured at. Each runs in memory of exactly the bytes that the
arena's formula says, on two threads, between guards that must stay; the allocator's calls during the run are counted
in all threads, and resident memory is read between runs. Every so many results are compared with ONNX Runtime, in a
process of its own, whose memory does not count.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx

from ..compiler.api import compile as compile_model
from ..compiler.distances import Arrays
from ..compiler.runtime.loader import LoadedModel, load, numpy_dtype
from ..compiler.sized import Sizable, possible
from ..errors import OutputError, RunError
from .check_models import TOLERANCE, compare
from .open_models import OPEN_MODELS, OpenEntry
from .open_shapes import as_there, feeds_at, most_of
from .peers.environment import PEERS
from .peers.process import EngineProcess

MODELS = ("encoder", "tagger", "gated", "step", "sound", "tokens", "espcn", "detector", "text_reader", "detector_full")
SOURCE = Path(__file__).with_name("allocations.c")
GUARD, PATTERN, THREADS = 4096, 0xA5, 2
SETTLED = 10  # a tenth of the sizes, after which the process has what the allocator keeps of freed memory
WORD = ctypes.c_void_p
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "131072"}  # arrays of ours go back at once


@dataclass
class Kept:
    """Of one model: sizes that ran and were compared, what was asked of the allocator, and resident kilobytes."""

    name: str
    ran: int = 0
    compared: int = 0
    allocations: int = 0
    broken_guards: int = 0
    smallest_arena: int = 0
    largest_arena: int = 0
    resident: list[int] = field(default_factory=list)  # after the largest, a tenth of the sizes, each tenth then
    wrong: list[str] = field(default_factory=list)

    @property
    def growth(self) -> int:
        """Kilobytes between the first tenth and the end."""
        return max(self.resident[1:]) - self.resident[1]


class GuardedArena:
    """Memory for the largest of many arenas, of which each run gets its bytes between guards."""

    def __init__(self, model: LoadedModel, most: int) -> None:
        binding = model._binding
        assert binding.open is not None
        self.calls, self.destroy = binding.open, binding.destroy
        self.memory = np.full(most + 2 * GUARD + 64, PATTERN, np.uint8)
        self.start = GUARD + -(self.memory.ctypes.data + GUARD) % 64
        counter = ctypes.CDLL(None)
        self._counted = counter.halotile_counted
        self._counted.argtypes = (WORD, WORD, WORD, WORD, WORD, ctypes.POINTER(ctypes.c_long))
        if counter.halotile_counts() != 1:
            raise RunError("calls of the allocator are not counted; preload the library of allocations.c")
        self._run = ctypes.cast(self.calls.run, WORD)
        self._found = ctypes.c_long()

    def run(self, sizes: Sequence[int], size: int, inputs: Any, outputs: Any) -> tuple[int, bool]:
        """Allocations in the run, and whether all guards stayed."""
        memory, at = self.memory, self.start
        memory[at : at + size] = 0xFF
        shape = self.calls.shape(sizes)
        code, instance = self.calls.create_in(THREADS, ctypes.addressof(shape), memory.ctypes.data + at, size)
        if code:
            raise RunError(f"an instance in {size} bytes was refused with code {code}")
        code = self._counted(self._run, instance, ctypes.addressof(shape), inputs, outputs, ctypes.byref(self._found))
        self.destroy(instance)
        if code:
            raise RunError(f"a run failed with code {code}")
        stayed = guarded(memory, at, size)
        memory[at : at + size + GUARD] = PATTERN
        return int(self._found.value), stayed


def guarded(memory: np.ndarray, at: int, size: int) -> bool:
    """Whether the bytes around ``size`` bytes at ``at`` are what they were."""
    around = (memory[at - GUARD : at], memory[at + size : at + size + GUARD])
    return all(bool((guard == PATTERN).all()) for guard in around)


def sizes_at_random(entry: OpenEntry, model: Sizable, count: int, seed: int = 0) -> list[dict[str, int]]:
    """The largest sizes first, then any that go together, small ones as often as large ones."""
    rng, most, limits = random.Random(seed), most_of(entry), {}
    for s in model.symbols:
        high = most[s.name] if s.high is None else min(most[s.name], s.high)
        limits[s.name] = (max(1, s.least), high, s.multiple)
    found = [{name: high // multiple * multiple for name, (_, high, multiple) in limits.items()}]
    found = [at for at in found if possible(model, at)]
    for _ in range(100 * count):
        if len(found) >= count:
            break
        at = {}
        for name, (low, high, multiple) in limits.items():
            size = round(math.exp(rng.uniform(math.log(low), math.log(high + 0.49))))
            at[name] = max(-(-low // multiple), size // multiple) * multiple
        if possible(model, at):
            found.append(at)
    return found


def kept(entry: OpenEntry, folder: Path, count: int, every: int) -> Kept:
    """Runs every size in this process, which has the counter preloaded; ``folder`` holds the library and the model."""
    found, proto = Kept(entry.name), onnx.load(folder / "model.onnx")
    peer = PEERS["onnxruntime"]
    with load(folder / "open") as model, EngineProcess(peer.name, Path(sys.executable), peer.engine_file) as reference:
        reference.load(folder / "model.onnx", 1)
        sizes = sizes_at_random(entry, model, count)
        bytes_of = [model.arena_bytes(THREADS, at) for at in sizes]
        found.smallest_arena, found.largest_arena = min(bytes_of), max(bytes_of)
        arena = GuardedArena(model, max(bytes_of))
        order = [bytes_of.index(max(bytes_of)), *range(len(sizes))]  # the largest first
        for index, which in enumerate(order):
            given = feeds_at(model, entry, proto, sizes[which], which)
            results = _run(model, arena, sizes[which], bytes_of[which], given, found)
            if index == 0 or which % every == 0:
                _compare(model, reference, sizes[which], given, results, found)
            if index % max(1, len(sizes) // SETTLED) == 0:
                found.resident.append(_resident())
        found.resident.append(_resident())
    return found


def _run(
    model: LoadedModel, arena: GuardedArena, sizes: Mapping[str, int], size: int, given: Arrays, found: Kept
) -> dict[str, np.ndarray]:
    shapes = model.output_shapes(sizes)
    results = {spec.name: np.empty(shapes[spec.name], numpy_dtype(spec.dtype)) for spec in model.outputs}
    inputs = (WORD * len(model.inputs))(*(given[spec.name].ctypes.data for spec in model.inputs))
    outputs = (WORD * len(results))(*(array.ctypes.data for array in results.values()))
    ordered = [sizes[symbol.name] for symbol in model.symbols]
    asked, stayed = arena.run(ordered, size, ctypes.addressof(inputs), ctypes.addressof(outputs))
    found.ran += 1
    found.allocations += asked
    found.broken_guards += not stayed
    return results


def _compare(
    model: LoadedModel, reference: EngineProcess, sizes: Mapping[str, int], given: Arrays, results: Arrays, found: Kept
) -> None:
    """The ordinary call against ONNX Runtime, and the run in exact memory against the ordinary call, bit by bit."""
    theirs = reference.compute(given)
    called = model(given, threads=1)
    found.compared += 1
    at = " ".join(f"{name}={size}" for name, size in sizes.items())
    found.wrong += [f"{at}: {line}" for line in compare(as_there(called, theirs), theirs, TOLERANCE)]
    for name, array in called.items():
        there = results[name][tuple(slice(n) for n in array.shape)]
        if there.tobytes() != array.tobytes():
            found.wrong.append(f"{at}: {name}: other bits in memory that is exact for the size")


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def counter(folder: Path) -> Path:
    """The library of allocations.c, to preload."""
    library = folder.resolve() / "allocations.so"
    command = ["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", str(SOURCE), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OutputError(f"the counter of allocations does not compile: {done.stderr.strip()[-300:]}")
    return library


def measured(entry: OpenEntry, folder: Path, count: int, every: int) -> Kept:
    """Compiles, then runs in a process of its own that counts."""
    folder.mkdir(parents=True, exist_ok=True)
    proto = entry.model()
    onnx.save(proto, folder / "model.onnx")
    with compile_model(proto, typical=entry.typical, threads=THREADS) as model:
        model.save(folder / "open")
    words = [sys.executable, "-m", __spec__.name, str(folder.parent), entry.name, "--inside"]
    words += ["--count", str(count), "--every", str(every)]
    environment = {**os.environ, **ALLOCATOR, "LD_PRELOAD": str(counter(folder))}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RunError(f"{entry.name}: the counted process failed: {done.stderr.strip()[-500:]}")
    return Kept(**json.loads(done.stdout))


def table(found: Sequence[Kept]) -> str:
    """Markdown: what each model's sizes did."""
    head = ["model", "runs", "allocations", "guards broken", "arena KB", "resident MB", "growth KB"]
    head += ["compared", "wrong"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for k in found:
        arena = f"{k.smallest_arena / 1024:.0f} to {k.largest_arena / 1024:.0f}"
        cells = [k.name, k.ran, k.allocations, k.broken_guards, arena, f"{k.resident[-1] / 1024:.0f}"]
        lines.append(f"| {' | '.join(map(str, [*cells, k.growth, k.compared, len(k.wrong)]))} |")
    lines += [f"- {k.name}: {line}" for k in found for line in k.wrong[:3]]
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("names", nargs=-1, type=click.Choice(sorted(OPEN_MODELS)))
@click.option("--count", default=10_000, show_default=True, help="Sizes of all models together.")
@click.option("--every", default=100, show_default=True, help="Every so many results are compared.")
@click.option("--inside", is_flag=True, hidden=True)
def main(folder: Path, names: Sequence[str], count: int, every: int, inside: bool) -> None:
    """Run NAMES at COUNT random sizes and tell what it did to memory."""
    wanted = names or MODELS
    if inside:
        click.echo(json.dumps(asdict(kept(OPEN_MODELS[wanted[0]], folder / wanted[0], count, every))))
        return
    share = -(-count // len(wanted))
    found = []
    for name in wanted:
        click.echo(f"{name}: {share} sizes", err=True)
        found.append(measured(OPEN_MODELS[name], folder / name, share, every))
    click.echo(table(found), nl=False)


if __name__ == "__main__":
    main()

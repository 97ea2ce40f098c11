"""Instructions, cycles and milliseconds of an inference on 64-bit ARM boards that are not at hand.

    apt-get install qemu-user llvm-19        (the dynamic qemu-user, whose plugins count; any LLVM from 14 on)
    python -m halotile.benchmarks.emulated [-m mobilenet_v2,bert] [-t raspberry-pi-4,raspberry-pi-5] [--json FILE]
    python -m halotile.benchmarks.emulated -m model.onnx --kernels        what each kernel takes of it
    python -m halotile.benchmarks.emulated -m resnet50 --peers onnxruntime,mnn,mnn-float16

Each model is built for one thread of each target, linked into a small static program, and run twice under QEMU: the
second run is counted, exactly, by its instructions (emulation/count_blocks.c), and goes through two simulated levels of
cache. Each block of instructions then goes through llvm-mca, which says how many cycles it takes in the steady state
with all its data near; their sum, and the bytes beyond the second level, give the least milliseconds that the board can
take (emulation/predict.py). neoverse-n1 stands for cortex-a76, and cortex-a55 for cortex-a53, as in mca.py.

Peers are their own wheels for this processor, in a Python of Debian's for arm64 (emulation/peers.py), one thread, the
same inputs; where their outputs differ from ONNX Runtime's, the table says so. The first run with peers downloads some
80 MB.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler.narrow import narrowed
from ..compiler.state import Options
from ..errors import HalotileError, ModelError, TargetError
from ..targets.resolve import resolve
from ..targets.target import Target
from .emulation.counts import CLASSES, Block, Counts, by_class, disassembled
from .emulation.cycles import block_cycles, doubt, total_cycles
from .emulation.ours import StaticProgram, build
from .emulation.peers import ENGINES, Root, run_peer
from .emulation.predict import CLOCKS, FunctionWork, predict
from .emulation.qemu import Caches, Emulator
from .machine_code import tools
from .models import MODELS, ModelFile

if TYPE_CHECKING:
    import numpy as np
    import onnx

LINE = 64
SHOWN = 12  # functions of a model


@dataclass(frozen=True)
class FunctionShare:
    """What one function of a program took of the whole: a kernel's schedule, or a function's name."""

    name: str
    instructions: int
    cycles: float
    multiply_adds: int
    far_bytes: int


@dataclass(frozen=True)
class EmulatedRow:
    """One model on one board: instructions by class, cycles, bytes beyond the second level, milliseconds (0: the clock
    is not known) and the part of them that waits for memory."""

    model: str
    target: str
    engine: str
    instructions: int
    classes: Mapping[str, int]
    cycles: float
    far_bytes: int
    milliseconds: float
    waiting: float
    parts: tuple[FunctionShare, ...]
    wrong: str = ""  # where its outputs differ from ONNX Runtime's


def measure(
    name: str,
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    target: Target,
    hertz: float,
    **options: object,
) -> EmulatedRow:
    """The row of one model of ours; ``options`` are the build's."""
    nm = tools().mca.replace("llvm-mca", "llvm-nm")
    with tempfile.TemporaryDirectory(prefix="halotile-emulated-") as scratch:
        folder = Path(scratch)
        emulator = Emulator(folder)
        program = build(model, feeds, target, folder, nm, **options)
        counts = emulator.run(target, [str(program.path)], folder, Caches(target.l1_bytes, target.l2_bytes))
    return _told(name, "halotile", target, hertz, counts, program)


def measure_peer(
    engine: str,
    name: str,
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    target: Target,
    hertz: float,
    root: Root,
) -> EmulatedRow:
    """The row of one model of a peer's."""
    caches = Caches(target.l1_bytes, target.l2_bytes)
    with tempfile.TemporaryDirectory(prefix="halotile-emulated-") as scratch:
        folder = Path(scratch)
        counts, wrong = run_peer(engine, root, Emulator(folder), target, model, feeds, caches, folder)
    return replace(_told(name, engine, target, hertz, counts), wrong=wrong)


def _told(
    name: str, engine: str, target: Target, hertz: float, counts: Counts, program: StaticProgram | None = None
) -> EmulatedRow:
    found = tools()
    texts = disassembled({w for b in counts.blocks for w in b.words}, found.mca.replace("llvm-mca", "llvm-mc"))
    each = block_cycles(counts, texts, target, found.mca)
    return row(name, engine, target, hertz, counts, texts, each, program)


def row(
    name: str, engine: str, target: Target, hertz: float, counts: Counts, texts: Mapping[int, str],
    each: Mapping[Block, float], program: StaticProgram | None = None,
) -> EmulatedRow:  # fmt: skip
    """What a run took, in all and by function (without a ``program`` that knows them: by file)."""
    cycles: Counter[str] = Counter()
    instructions: Counter[str] = Counter()
    products: Counter[str] = Counter()
    far: Counter[str] = Counter()
    for block in counts.blocks:
        at = counts.file_at(block.address) if program is None else program.function_at(block.address)
        cycles[at] += block.runs * each.get(block, 0.0)  # type: ignore[assignment]
        instructions[at] += block.executed
        products[at] += by_class([block], texts).get("multiply-adds", 0)
        far[at] += block.missed[1] * LINE
    parts = [
        FunctionShare(
            at if program is None else program.kernel_of(at), instructions[at], cycles[at], products[at], far[at]
        )
        for at in sorted(instructions, key=lambda f: -cycles[f])
    ]
    expected = predict([FunctionWork(p.cycles, p.far_bytes) for p in parts], target, hertz or 1.0)
    return EmulatedRow(
        name, target.id, engine, counts.executed, by_class(counts.blocks, texts), total_cycles(counts, each),
        counts.missed[1] * LINE, 1000 * expected.seconds if hertz else 0.0, expected.waiting, tuple(parts),
    )  # fmt: skip


def table(rows: Sequence[EmulatedRow]) -> str:
    """Markdown, a line for each row, in millions."""
    shown = [c for c in CLASSES if any(r.classes.get(c) for r in rows)]
    head = ["model", "target", "engine", "instructions", *shown, "cycles", "MB beyond L2", "least ms"]
    lines = ["| " + " | ".join(head) + " |", "|---|---|---|" + "---:|" * (len(head) - 3)]
    for r in rows:
        numbers = [r.instructions, *(r.classes.get(c, 0) for c in shown), r.cycles, r.far_bytes]
        time = f"{r.milliseconds:.1f}" if r.milliseconds else "-"
        engine = f"{r.engine} (outputs differ)" if r.wrong else r.engine
        cells = [r.model, r.target, engine, *(f"{n / 1e6:.1f}" for n in numbers), time]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def kernel_table(r: EmulatedRow) -> str:
    """Markdown, a line for each of the functions that take most."""
    lines = [
        f"\n{r.model} on {r.target}, {r.engine}: functions by cycles, in millions\n",
        "| of cycles | cycles | instructions | multiply-adds a cycle | MB beyond L2 | function |",
        "|---:|---:|---:|---:|---:|---|",
    ]
    for p in r.parts[:SHOWN]:
        rate = p.multiply_adds / p.cycles if p.cycles else 0.0
        lines.append(
            f"| {p.cycles / max(r.cycles, 1):.1%} | {p.cycles / 1e6:.2f} | {p.instructions / 1e6:.2f} | {rate:.2f}"
            f" | {p.far_bytes / 1e6:.2f} | {p.name} |"
        )
    return "\n".join(lines)


def _entry(name: str) -> Any:
    if name in MODELS:
        return MODELS[name]
    if name.endswith(".onnx"):
        return ModelFile(Path(name))
    raise ModelError(f"{name!r} is neither a model of the harness nor a .onnx file; halotile bench --list names them")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m halotile.benchmarks.emulated", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("-m", "--models", default="mobilenet_v2", help="of the harness, or .onnx files; with commas")
    parser.add_argument("-t", "--targets", default="raspberry-pi-4,raspberry-pi-5", help="64-bit ARM, with commas")
    kinds = ["float32", "float16", "bfloat16"]
    parser.add_argument("--precision", default="float32", choices=kinds, help="of the builds")
    parser.add_argument("--error", type=float, help="of outputs' largest value, that float16 may make")
    parser.add_argument("--tile", default=None, help="off: no tile groups")
    parser.add_argument("--hertz", type=float, default=0.0, help="the clock, where it is not the board's own")
    parser.add_argument("--small", action="store_true", help="the tests' sizes")
    parser.add_argument("--kernels", action="store_true", help="also what each kernel takes")
    parser.add_argument("--peers", default="", help=f"beside ours, with commas: {', '.join(ENGINES)}")
    parser.add_argument("--root", type=Path, help="where the peers' Python for arm64 is, or will be")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args(arguments)
    peers = [p for p in options.peers.split(",") if p]
    if unknown := [p for p in peers if p not in ENGINES]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(ENGINES)}")
    rows: list[EmulatedRow] = []
    try:
        root = Root.made(options.root) if peers else None
        for name in filter(None, options.models.split(",")):
            entry = _entry(name)
            model = entry.model(small=options.small)
            for place in filter(None, options.targets.split(",")):
                target = resolve(place)
                if not target.is_aarch64 or target.system != "linux":
                    raise TargetError(f"{place} is no 64-bit ARM under Linux: nothing else is counted")
                if text := doubt(target, tools().mca):
                    print(f"warning: {text}", file=sys.stderr)
                hertz = options.hertz or CLOCKS.get(target.id, 0.0)
                feeds = entry.inputs(model, seed=1)
                own = narrowed(model, Options(target), options.precision, error=options.error)
                asked = {"precision": own.precision, "halves": own.halves, "half_error": own.half_error}
                rows.append(measure(name, model, feeds, target, hertz, tile=options.tile, **asked))
                if root is not None:
                    rows += [measure_peer(p, name, model, feeds, target, hertz, root) for p in peers]
                print(f"{name} for {place}: {rows[-1].instructions / 1e6:.1f} M instructions", file=sys.stderr)
    except HalotileError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(table(rows))
    if options.kernels:
        print("\n".join(kernel_table(r) for r in rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What layers in float16 take beside the same in float32, on a 64-bit ARM board that is not at hand.

    apt-get install qemu-user llvm-19        (as for emulated.py)
    python -m halotile.benchmarks.half_counts [-m mobilenet_v2,resnet50] [--size size=128] [-t BOARD] [--json FILE]

Each model is built in both precisions, as a user would, and one inference of each counted under the emulator:

    of lanes        multiply-adds of kernels with convolutions, products or attentions that are of eight halves, as a
                    part of all lanes multiplied and added there: transforms, GELU and exponentials count, too
    of peak         multiply-adds of halves a cycle in the blocks that are dense of them, by llvm-mca, over as many as
                    the core can begin, weighed by how many run; the part of these that runs in blocks at MARK, and
                    the part of all that runs in dense blocks (depthwise layers have none)
    instructions    float16's over float32's, all of an inference

The file has cycles as well. Of LLVM 14 those of float32 are too many: its model of the Cortex-A76 begins one
multiply-add of four floats in a cycle, where the core begins two, as it does of halves.

Exit code 1 where a model whose layers are all in float16 has less than LANES of them, or is below the mark of the peak.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..compiler.narrow import narrowed
from ..compiler.state import Options
from ..errors import HalotileError, TargetError
from ..targets.resolve import resolve
from ..targets.target import Target
from .emulation.counts import Block, Counts, class_of, disassembled
from .emulation.cycles import block_cycles, total_cycles
from .emulation.ours import StaticProgram, build
from .emulation.qemu import Emulator
from .machine_code import tools
from .mca import FAMILIES, PRODUCTS
from .mca import cycles as mca_cycles
from .models import MODELS

if TYPE_CHECKING:
    import numpy as np
    import onnx

LANES, MARK, FEWER = 0.90, 0.85, 0.55  # of multiply-adds, of the peak, of the instructions
LEAST = 0.01  # of the multiply-adds of halves, that a block must have to be told
HALVES = "multiply-adds of halves"
TILED = "tiled"
PEAK_LOOP = [f"fmla v{i}.8h, v1.8h, v2.h[0]" for i in range(8, 32)]  # wait for their own sums alone
_SIZE = re.compile(r"\w+=\d+")
_LANES = re.compile(r"^\w+ v\d+\.(\d+)[hsd]\b")


@dataclass(frozen=True)
class DenseBlock:
    """A block with so many multiply-adds of halves, which takes so many cycles; ``part`` of all of these run in it."""

    schedule: str
    multiply_adds: int
    instructions: int
    cycles: float
    part: float
    share: float


@dataclass(frozen=True)
class HalfRow:
    """One model: layers ``in_float16`` of ``products``, and what the module says of it; numbers in ``of_...`` and of
    ``at_mark`` are parts, ``instructions`` and ``cycles`` float16's and float32's."""

    model: str
    target: str
    in_float16: int
    products: int
    of_lanes: float
    of_peak: float
    at_mark: float
    instructions: tuple[int, int]
    cycles: tuple[float, float]
    blocks: tuple[DenseBlock, ...]

    @property
    def dense(self) -> float:
        """The part of the multiply-adds of halves that runs in dense blocks."""
        return sum(b.part for b in self.blocks)

    @property
    def fewer(self) -> float:
        return self.instructions[0] / self.instructions[1]

    @property
    def falls_short(self) -> bool:
        """Whether marks that have nothing to do with what else a model computes are missed."""
        whole = 0 < self.in_float16 == self.products
        return whole and (self.of_lanes < LANES or self.of_peak < MARK)


@dataclass(frozen=True)
class _Run:
    """One inference: what ran, as text, with the cycles of its blocks."""

    counts: Counts
    texts: Mapping[int, str]
    each: Mapping[Block, float]
    program: StaticProgram

    @property
    def cycles(self) -> float:
        return total_cycles(self.counts, self.each)

    def schedule_of(self, block: Block) -> str:
        return self.program.kernel_of(self.program.function_at(block.address))


def measure(name: str, model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], target: Target) -> HalfRow:
    """The row of one model, in float16 as far as its usual error lets it."""
    own = narrowed(model, Options(target), "float16")
    half = _run(model, feeds, target, precision=own.precision, halves=own.halves, half_error=own.half_error)
    wide = _run(model, feeds, target)
    known = half.program.report["precision"]
    (taken,) = mca_cycles([PEAK_LOOP], target, tools().mca)
    blocks = dense_blocks(half, min(round(len(PEAK_LOOP) / taken, 2), target.fma_ports))
    return HalfRow(
        name, target.id, int(known.get("in_float16", 0)), int(known.get("products", 0)), of_lanes(half),
        _mean([(b.share, b.part) for b in blocks]), _mean([(float(b.share >= MARK), b.part) for b in blocks]),
        (half.counts.executed, wide.counts.executed), (half.cycles, wide.cycles), tuple(blocks),
    )  # fmt: skip


def _run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], target: Target, **options: object) -> _Run:
    found = tools()
    with tempfile.TemporaryDirectory(prefix="halotile-halves-") as scratch:
        folder = Path(scratch)
        program = build(model, feeds, target, folder, found.mca.replace("llvm-mca", "llvm-nm"), **options)
        counts = Emulator(folder).run(target, [str(program.path)], folder)
    texts = disassembled({w for b in counts.blocks for w in b.words}, found.mca.replace("llvm-mca", "llvm-mc"))
    return _Run(counts, texts, block_cycles(counts, texts, target, found.mca), program)


def multiplies(schedule: str) -> bool:
    """True for kernels that multiply by weights, or values by values; tile groups, which call them."""
    return schedule.startswith((*FAMILIES, TILED))


def lanes_of(text: str) -> int:
    """Lanes that a multiply-add of floats works on; 0 for other instructions."""
    if class_of(text) not in ("multiply-adds", HALVES) or text.startswith(("bf", "fmlal")):
        return 0
    found = _LANES.match(text)
    return int(found[1]) if found else 1


def of_lanes(run: _Run) -> float:
    """The part of all lanes multiplied and added in products that are of eight halves."""
    eight = every = 0
    for block in run.counts.blocks:
        if multiplies(run.schedule_of(block)):
            for word in block.words:
                lanes = lanes_of(run.texts[word])
                every += lanes * block.runs
                eight += lanes * block.runs if class_of(run.texts[word]) == HALVES and lanes == 8 else 0
    return eight / every if every else 0.0


def dense_blocks(run: _Run, rate: float) -> list[DenseBlock]:
    """Blocks that are for multiply-adds of halves, of which ``rate`` begin in a cycle, most of these first."""
    made = {b: sum(class_of(run.texts[w]) == HALVES for w in b.words) for b in run.each}
    every = sum(n * b.runs for b, n in made.items())
    found = []
    for block, count in made.items():
        length = len(block.words)
        if count >= PRODUCTS * length and count * block.runs >= LEAST * every and run.each[block]:
            share = count / (run.each[block] * rate)
            part = count * block.runs / every
            found.append(DenseBlock(run.schedule_of(block), count, length, run.each[block], part, share))
    return sorted(found, key=lambda b: -b.part)


def _mean(weighed: Sequence[tuple[float, float]]) -> float:
    total = sum(weight for _, weight in weighed)
    return sum(value * weight for value, weight in weighed) / total if total else 0.0


def table(rows: Sequence[HalfRow]) -> str:
    """Markdown, a line for each model; what misses its mark is bold."""
    lines = [
        "| model | products in float16 | of lanes | of peak, dense blocks | at 85% of it | in dense blocks "
        "| instructions, M | of float32's | slowest dense block |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for r in rows:
        worst = min(r.blocks, key=lambda b: b.share, default=None)
        told = f"{worst.share:.0%} ({worst.part:.0%} of them): {worst.schedule}" if worst else "none"
        cells = [
            r.model, f"{r.in_float16} of {r.products}", _marked(r.of_lanes, r.of_lanes >= LANES),
            _marked(r.of_peak, r.of_peak >= MARK), f"{r.at_mark:.1%}", f"{r.dense:.1%}",
            f"{r.instructions[0] / 1e6:.1f}",
            _marked(r.fewer, r.fewer <= FEWER, 3), told,
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _marked(value: float, good: bool, digits: int = 0) -> str:
    text = f"{value:.{digits}f}" if digits else f"{value:.1%}"
    return text if good else f"**{text}**"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m halotile.benchmarks.half_counts", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("-m", "--models", default="mobilenet_v2", help="of the harness, with commas")
    parser.add_argument("-t", "--target", default="raspberry-pi-5", help="64-bit ARM with float16")
    parser.add_argument("--small", action="store_true", help="the tests' sizes")
    parser.add_argument("--size", default="", help="instead of the full ones, with commas: height=144,width=256")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args(arguments)
    names = [name for name in options.models.split(",") if name]
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"unknown model {unknown[0]!r}; halotile bench --list names them")
    if wrong := [part for part in filter(None, options.size.split(",")) if not _SIZE.fullmatch(part)]:
        parser.error(f"--size takes NAME=NUMBER, with commas: {wrong[0]!r}")
    sizes = {part.split("=")[0]: int(part.split("=")[1]) for part in filter(None, options.size.split(","))}
    rows: list[HalfRow] = []
    try:
        target = resolve(options.target)
        if not (target.is_aarch64 and target.has_halves and target.system == "linux"):
            raise TargetError(f"{options.target} is no 64-bit ARM under Linux that computes in float16")
        for name in names:
            entry = MODELS[name]
            model = entry.model(small=options.small, **sizes)
            told = f"{name} {options.size}" if options.size else name
            rows.append(measure(told, model, entry.inputs(model, seed=1), target))
            print(f"{name}: {rows[-1].fewer:.3f} of the instructions", file=sys.stderr, flush=True)
            if options.json:
                options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    except HalotileError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(table(rows))
    return 1 if any(row.falls_short for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

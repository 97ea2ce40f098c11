"""Inner loops of the kernels for other processors, through LLVM's static analyser: their share of the FMA rate.

    apt-get install llvm-19          (any version with llvm-mca and llvm-objdump; newer ones know more processors)
    pip install unicorn              (an emulator, which counts how often a loop runs)
    python -m halotile.benchmarks.mca [--cpus cortex-a76,haswell] [--models resnet50,bert] [--json FILE]

The same generators emit each case for each processor, or all kernels of models of the harness. Every loop with more
than a hundredth of a kernel's multiply-adds is cut out of the object code (an outer loop without those within it), and
llvm-mca says how many cycles an iteration takes when all its data is in the first level:

    share = multiply-adds an iteration / (cycles an iteration * multiply-adds a cycle)

How often each loop runs is counted under an emulator (executed.py). LLVM may write one loop of ours twice, well and
badly; a loop with ``spills`` has vectors that go to the stack and come back in each iteration.

The rate is that of LLVM's own model of the processor, measured on a loop of independent multiply-adds, and no more than
the target's facts say. LLVM takes some processors for others: cortex-a76 for cortex-a57, with half its rate, so
neoverse-n1, the same core, stands in for it. Its model of cortex-a53 lets no load end before the multiply-adds that
began earlier, which the core does: code for it is judged by the model of cortex-a55, its successor of the same width.
Kernels on a matrix unit are left out: LLVM's models know little of one, and nothing of sums that wait for each other.
The mark of 90% is for processors that execute out of order; those in order show what static scheduling is worth.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..compiler.pipeline import run_pipeline
from ..compiler.state import Options
from ..errors import HalotileError, ToolchainError
from ..schedules.words.group import Kernel
from ..targets.resolve import resolve
from ..targets.target import Target
from .cases import Case, conv_case, matmul_case
from .executed import executions
from .machine_code import (
    NAME,
    Instruction,
    MachineLoop,
    Tools,
    disassembly,
    functions,
    loops,
    object_of,
    tools,
)
from .models import MODELS
from .replay import hash_of

CPUS = {
    "cortex-a53": "aarch64-linux-gnu",
    "cortex-a55": "aarch64-linux-gnu",
    "cortex-a72": "aarch64-linux-gnu",
    "cortex-a76": "aarch64-linux-gnu",
    "neoverse-v1": "aarch64-linux-gnu",
    "haswell": "x86_64-linux-gnu",
    "znver2": "x86_64-linux-gnu",
    "skylake-avx512": "x86_64-linux-gnu",
    "znver4": "x86_64-linux-gnu",
}
# whose model llvm-mca should use instead; cortex-a78ae, which multiplies as cortex-a76 does, is new to LLVM
MODELS_OF = {"cortex-a76": "neoverse-n1", "cortex-a78ae": "neoverse-n1", "cortex-a53": "cortex-a55"}
WANTED = 0.90  # of those below, out of order
LEAST = 0.01  # of a kernel's multiply-adds that a loop must have
DENSE = ("conv", "matmul", "winograd")  # of the last its products: transforms are other arithmetic
PRODUCTS = 0.5  # of a loop's instructions, spills aside, that are multiply-adds in such products
STEADY = (100, 300)  # iterations: the difference is free of the start
# family, case, whether Winograd may be chosen
CASES: tuple[tuple[str, Case, bool], ...] = (
    ("conv", conv_case(64, 64, 56, 3), False),
    ("conv", conv_case(256, 256, 14, 3), False),
    ("conv", conv_case(256, 64, 56, 1), False),
    ("conv", conv_case(64, 256, 56, 1), False),
    ("conv", conv_case(32, 192, 28, 1), False),
    ("conv", conv_case(144, 24, 56, 1), False),
    ("conv", conv_case(128, 128, 56, 3, stride=2), False),
    ("matmul", matmul_case(128, 384, 1536), False),
    ("matmul", matmul_case(512, 512, 512), False),
    ("matmul", matmul_case(49, 768, 3072), False),
    ("winograd", conv_case(64, 64, 56, 3), True),
    ("depthwise", conv_case(96, 96, 56, 3, groups=96), False),
)
# What a kernel's schedule begins with -> its family
FAMILIES = {
    "direct conv": "conv",
    "conv by seven": "conv",
    "depthwise": "depthwise",
    "winograd": "winograd",
    "matmul": "matmul",
    "attention": "attention",
}


@dataclass(frozen=True)
class McaRow:
    """What one processor makes of one loop of a kernel, which has the share ``part`` of its multiply-adds."""

    cpu: str
    family: str
    case: str
    schedule: str
    part: float
    multiply_adds: int
    instructions: int
    loads: int
    spills: int
    cycles: float
    rate: float
    share: float
    in_order: bool = False

    @property
    def is_dense(self) -> bool:
        """Multiply-adds are what the loop is for."""
        products = self.multiply_adds >= PRODUCTS * (self.instructions - self.spills)
        return self.family in DENSE and (self.family != "winograd" or products)

    @property
    def falls_short(self) -> bool:
        return self.is_dense and not self.in_order and self.share < WANTED


def analyse(cpus: Sequence[str], models: Sequence[str] = ()) -> Iterator[McaRow]:
    """The rows of each processor: of all cases, or of the models' kernels."""
    found = tools()
    for cpu in cpus:
        target = resolve(f"{CPUS[cpu]}+{cpu}")
        rate = min(own_rate(target, found.mca), target.fma_ports)
        for family, case, kernel in _of_models(models, target) if models else _of_cases(target):
            yield from rows_of(kernel, target, found, rate, family, case)


def _of_cases(target: Target) -> Iterator[tuple[str, str, Kernel]]:
    """(family, case, kernel) of the main kernel of each case."""
    for family, case, winograd in CASES:
        options = Options(target, threads=1, winograd=winograd, matrix=False, tile="off", stop_after="plan")
        kernels = run_pipeline(case.model(), options).kernels
        yield family, case.name, max(kernels, key=lambda k: k.flops)


def _of_models(models: Sequence[str], target: Target) -> Iterator[tuple[str, str, Kernel]]:
    """(family, model, kernel) of every kernel with a family, once for each processor."""
    seen = set()
    for name in models:
        options = Options(target, threads=1, matrix=False, tile="off", stop_after="plan")
        for kernel in run_pipeline(MODELS[name].model(), options).kernels:
            family = next((f for begin, f in FAMILIES.items() if kernel.schedule.startswith(begin)), "")
            key = hash_of(kernel.function)
            if family and key not in seen:
                seen.add(key)
                yield family, name, kernel


def rows_of(
    kernel: Kernel, target: Target, found: Tools, rate: float, family: str = "", case: str = ""
) -> list[McaRow]:
    """The rows of one kernel, the loop with the most multiply-adds first; HalotileError if it has none."""
    text = disassembly([object_of(kernel, target)], target, found.objdump)
    code = functions(text)[NAME]
    counts = executions(code, target, len(kernel.operands))
    heavy = heavy_loops(code, counts)
    if not heavy:
        raise HalotileError(f"{family} {case} for {target.cpu}: no loop with multiply-adds was found")
    rows = []
    for (loop, part), taken in zip(heavy, cycles([loop for loop, _ in heavy], target, found.mca)):
        share = round(loop.multiply_adds / (taken * rate), 4)
        rows.append(
            McaRow(
                target.cpu, family, case, kernel.schedule, round(part, 4), loop.multiply_adds, len(loop.lines),
                loop.loads, loop.spills, round(taken, 2), rate, share, target.in_order,
            )
        )  # fmt: skip
    return rows


def heavy_loops(code: Sequence[Instruction], counts: Mapping[int, int]) -> list[tuple[MachineLoop, float]]:
    """The loops with at least LEAST of the multiply-adds that ``counts`` of executions by address say, with their
    shares; what most iterations pass over is left out of them."""
    total = sum(counts.get(i.address, 0) for i in code if i.is_multiply_add)
    heavy = []
    for loop in loops(code):
        done = sum(counts.get(i.address, 0) for i in loop.instructions if i.is_multiply_add)
        if done and done >= LEAST * total:
            rounds = counts.get(loop.instructions[-1].address, 0)
            usual = (i for i in loop.instructions if 2 * counts.get(i.address, 0) >= rounds)
            heavy.append((replace(loop, instructions=tuple(usual)), done / total))
    return sorted(heavy, key=lambda entry: -entry[1])


PEAK_LOOP = 24  # independent multiply-adds: more than latency times ports of any processor


def own_rate(target: Target, mca: str) -> float:
    """Multiply-adds a cycle of the analyser's own model of the processor."""
    (peak,) = cycles([_independent(target)], target, mca)
    return round(PEAK_LOOP / peak, 2)


def _independent(target: Target) -> Sequence[str]:
    """Multiply-adds that wait for nothing but their own accumulators, as many as there are registers for."""
    if target.is_aarch64:
        return tuple(f"fmla v{i}.4s, v30.4s, v31.4s" for i in range(PEAK_LOOP))
    half, register = PEAK_LOOP // 2, "zmm" if target.vector_bits == 512 else "ymm"
    return 2 * tuple(f"vfmadd231ps %{register}14, %{register}15, %{register}{i}" for i in range(half))


def cycles(bodies: Sequence[MachineLoop | Sequence[str]], target: Target, mca: str) -> list[float]:
    """Cycles of an iteration of each loop in the steady state."""
    parts = [".Lloop:"]
    for i, body in enumerate(bodies):
        lines = body.lines if isinstance(body, MachineLoop) else body
        parts += [f"# LLVM-MCA-BEGIN {i}", *lines, f"# LLVM-MCA-END {i}"]
    totals = []
    for iterations in STEADY:
        cpu = MODELS_OF.get(target.cpu, target.cpu)
        command = [mca, f"-mtriple={target.triple}", f"-mcpu={cpu}", f"-iterations={iterations}"]
        command += ["-all-views=false", "-summary-view"]
        done = subprocess.run(command, input="\n".join(parts) + "\n", capture_output=True, text=True, check=False)
        found = [int(n) for n in re.findall(r"^Total Cycles:\s+(\d+)", done.stdout, re.MULTILINE)]
        if done.returncode or len(found) != len(bodies):
            lines = [line for line in done.stderr.splitlines() if "error" in line] or ["no cycles in its answer"]
            raise ToolchainError(f"{mca} refuses the loop for {target.cpu}: {lines[0][:200]}")
        totals.append(found)
    return [(last - first) / (STEADY[1] - STEADY[0]) for first, last in zip(*totals)]


def table(rows: Sequence[McaRow]) -> str:
    """Markdown, a line for each loop; those of DENSE families below the mark are marked."""
    lines = [
        "| processor | family | case | schedule | of multiply-adds | multiply-adds | instructions | loads | spills"
        " | cycles | rate | of FMA rate |",
        "|---|---|---|---|" + "---:|" * 8,
    ]
    for row in rows:
        mark = " (short)" if row.falls_short else "" if row.is_dense else " (not judged)"
        words = (row.cpu, row.family, row.case, row.schedule)
        numbers = (row.multiply_adds, row.instructions, row.loads, row.spills, row.cycles, row.rate)
        cells = [*map(str, words), f"{row.part:.0%}", *map(str, numbers), f"{row.share:.0%}{mark}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _names(text: str, known: Mapping[str, object], parser: argparse.ArgumentParser) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join(known)}")
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m halotile.benchmarks.mca", description=__doc__.splitlines()[0])
    parser.add_argument("--cpus", default=",".join(CPUS), help="processors, separated by commas")
    parser.add_argument("--models", default="", help="models of the harness, all kernels of which are taken")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args(arguments)
    cpus, models = _names(options.cpus, CPUS, parser), _names(options.models, MODELS, parser)
    try:
        rows = []
        for row in analyse(cpus, models):
            rows.append(row)
            print(f"{row.cpu} {row.family} {row.case}: {row.part:.0%} at {row.share:.0%}", file=sys.stderr)
    except HalotileError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    short = [row for row in rows if row.falls_short]
    print(f"\n{len(short)} of {len(rows)} loops fall short of {WANTED:.0%}" if short else "\nevery loop keeps its rate")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())

"""Inner loops of the kernels for other processors, through LLVM's static analyser: their share of the FMA rate.

    apt-get install llvm-19          (any version with llvm-mca and llvm-objdump; newer ones know more processors)
    python -m halotile.benchmarks.mca [--cpus cortex-a76,haswell] [--json FILE]

The same generators emit each case for each processor. The loop with the most multiply-adds is cut out of the object
code and llvm-mca says how many cycles an iteration takes when all its data is in the first level:

    share = multiply-adds an iteration / (cycles an iteration * multiply-adds a cycle)

The rate is that of LLVM's own model of the processor, measured on a loop of independent multiply-adds, and no more than
the target's facts say. LLVM takes some processors for others: cortex-a76 for cortex-a57, with half its rate, so
neoverse-n1, the same core, stands in for it. Its model of cortex-a53 lets no load end before the multiply-adds that
began earlier, which the core does: code for it is judged by the model of cortex-a55, its successor of the same width.
Kernels on a matrix unit are left out: LLVM's models know little of one, and nothing of sums that wait for each other.
The mark of 85% is for processors that execute out of order; those in order show what static scheduling is worth.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..compiler.pipeline import run_pipeline
from ..compiler.state import Options
from ..errors import HalotileError, ToolchainError
from ..targets.resolve import resolve
from ..targets.target import Target
from .cases import Case, conv_case, matmul_case

CPUS = {
    "cortex-a53": "aarch64-linux-gnu",
    "cortex-a55": "aarch64-linux-gnu",
    "cortex-a72": "aarch64-linux-gnu",
    "cortex-a76": "aarch64-linux-gnu",
    "neoverse-v1": "aarch64-linux-gnu",
    "haswell": "x86_64-linux-gnu",
    "znver2": "x86_64-linux-gnu",
}
MODELS = {"cortex-a76": "neoverse-n1", "cortex-a53": "cortex-a55"}  # whose model llvm-mca should use instead
WANTED = 0.85  # of those below, out of order
DENSE = ("conv", "matmul", "winograd")  # of the last its products: transforms are other arithmetic
STEADY = (100, 300)  # iterations: the difference is free of the start
# family, case, whether Winograd may be chosen
CASES: tuple[tuple[str, Case, bool], ...] = (
    ("conv", conv_case(64, 64, 56, 3), False),
    ("conv", conv_case(256, 256, 14, 3), False),
    ("conv", conv_case(256, 64, 56, 1), False),
    ("conv", conv_case(128, 128, 56, 3, stride=2), False),
    ("matmul", matmul_case(128, 384, 1536), False),
    ("matmul", matmul_case(512, 512, 512), False),
    ("matmul", matmul_case(49, 768, 3072), False),
    ("winograd", conv_case(64, 64, 56, 3), True),
    ("depthwise", conv_case(96, 96, 56, 3, groups=96), False),
)
_FMA = re.compile(r"^(vfn?m(add|sub)\d+p[sd]|fml[as])\b")
_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S.*)$")
_COMMENT = re.compile(r"\s(//|# ).*$")
_BRANCH = re.compile(r"^(j\w+|b(\.\w+)?|cbn?z|tbn?z)\b.*?(?:0x)?([0-9a-f]+) <")


@dataclass(frozen=True)
class Loop:
    """The instructions of an innermost loop, its branch last, as the assembler reads them."""

    lines: tuple[str, ...]

    @property
    def multiply_adds(self) -> int:
        return sum(bool(_FMA.match(line)) for line in self.lines)


@dataclass(frozen=True)
class Row:
    """What one processor makes of one kernel's inner loop."""

    cpu: str
    family: str
    case: str
    schedule: str
    multiply_adds: int
    instructions: int
    cycles: float
    rate: float
    share: float
    in_order: bool = False

    @property
    def falls_short(self) -> bool:
        return self.family in DENSE and not self.in_order and self.share < WANTED


def tools() -> tuple[str, str]:
    """llvm-mca and llvm-objdump, the newest that are installed; ToolchainError says how to get them."""
    for version in ("", *(f"-{v}" for v in range(30, 13, -1))):
        names = [f"llvm-mca{version}", f"llvm-objdump{version}"]
        if version and all(shutil.which(n) for n in names):
            return names[0], names[1]
    if all(shutil.which(n) for n in ("llvm-mca", "llvm-objdump")):
        return "llvm-mca", "llvm-objdump"
    raise ToolchainError("llvm-mca or llvm-objdump is missing: apt-get install llvm-19 (or llvm), then try again")


def analyse(cpus: Sequence[str]) -> Iterator[Row]:
    """One row for each processor and case."""
    mca, objdump = tools()
    for cpu in cpus:
        target = resolve(f"{CPUS[cpu]}+{cpu}")
        rate = min(round(PEAK_LOOP / _cycles(_independent(target), target, mca), 2), target.fma_ports)
        for family, case, winograd in CASES:
            schedule, code = _compile(case, target, winograd)
            found = loops(_disassembly(code, target, objdump))
            loop = densest(found) if family == "winograd" else busiest(found)
            if loop is None:
                raise HalotileError(f"{family} {case.name} for {cpu}: no loop with multiply-adds was found")
            cycles = _cycles(loop, target, mca)
            share = round(loop.multiply_adds / (cycles * rate), 4)
            yield Row(
                cpu, family, case.name, schedule, loop.multiply_adds, len(loop.lines), round(cycles, 2), rate, share,
                target.in_order,
            )  # fmt: skip


def _compile(case: Case, target: Target, winograd: bool) -> tuple[str, tuple[bytes, ...]]:
    """The schedule of the case's main kernel, and the objects of all its kernels."""
    options = Options(target, threads=1, winograd=winograd, matrix=False, tile="off", stop_after="assemble")
    build = run_pipeline(case.model(), options)
    main = max(build.report["kernels"], key=lambda k: k["flops"])
    return main["schedule"], tuple(build.library.kernel_objects)


def _disassembly(objects: Sequence[bytes], target: Target, objdump: str) -> str:
    text = []
    with tempfile.TemporaryDirectory(prefix="halotile-mca-") as folder:
        for i, code in enumerate(objects):
            path = Path(folder) / f"{i}.o"
            path.write_bytes(code)
            command = [objdump, "-d", "--no-show-raw-insn", "--no-leading-headers", f"--mcpu={target.cpu}", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ToolchainError(f"{objdump} can't read code for {target.cpu}: {done.stderr.strip()[:200]}")
            text.append(done.stdout)
    return "\n".join(text)


def loops(disassembly: str) -> Iterator[Loop]:
    """All innermost loops: from the target of a backward branch to the branch, with no other loop between."""
    code: list[tuple[int, str]] = []
    found: list[tuple[int, int]] = []
    for line in (*disassembly.splitlines(), "<end>:"):
        match = _LINE.match(line)
        if match:
            code.append((int(match[1], 16), _COMMENT.sub("", match[2]).strip()))
            branch = _BRANCH.match(code[-1][1])
            if branch and code[0][0] <= int(branch[3], 16) <= code[-1][0]:
                found.append((int(branch[3], 16), code[-1][0]))
        elif line.endswith(":") and code:
            for first, last in found:
                if not any((a, b) != (first, last) and first <= a and b <= last for a, b in found):
                    yield Loop(tuple(_assembly(text) for at, text in code if first <= at <= last))
            code, found = [], []


def _assembly(instruction: str) -> str:
    """An instruction as the assembler takes it: branches go to a label, everything else stays."""
    if _BRANCH.match(instruction):
        return re.sub(r"(?:0x)?[0-9a-f]+ <[^>]*>", ".Lloop", instruction)
    return instruction.replace("\t", " ")


def busiest(candidates: Iterator[Loop]) -> Loop | None:
    """The loop with the most multiply-adds; of equals the shortest."""
    best = max(candidates, key=lambda loop: (loop.multiply_adds, -len(loop.lines)), default=None)
    return best if best is not None and best.multiply_adds else None


PEAK_LOOP = 24  # independent multiply-adds: more than latency times ports of any processor


def _independent(target: Target) -> Loop:
    """Multiply-adds that wait for nothing but their own accumulators, as many as there are registers for."""
    if target.is_aarch64:
        return Loop(tuple(f"fmla v{i}.4s, v30.4s, v31.4s" for i in range(PEAK_LOOP)))
    half = PEAK_LOOP // 2
    return Loop(tuple(f"vfmadd231ps %ymm14, %ymm15, %ymm{i}" for _ in range(2) for i in range(half)))


def densest(candidates: Iterator[Loop]) -> Loop | None:
    """The loop with the highest share of multiply-adds: Winograd's products, not its transforms."""
    large = [loop for loop in candidates if loop.multiply_adds >= 8]
    return max(large, key=lambda loop: (loop.multiply_adds / len(loop.lines), loop.multiply_adds), default=None)


def _cycles(loop: Loop, target: Target, mca: str) -> float:
    """Cycles of an iteration in the steady state."""
    source = ".Lloop:\n" + "\n".join(loop.lines) + "\n"
    totals = []
    for iterations in STEADY:
        cpu = MODELS.get(target.cpu, target.cpu)
        command = [mca, f"-mtriple={target.triple}", f"-mcpu={cpu}", f"-iterations={iterations}"]
        done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        match = re.search(r"^Total Cycles:\s+(\d+)", done.stdout, re.MULTILINE)
        if done.returncode or not match:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or ["no cycles in its answer"]
            raise ToolchainError(f"{mca} refuses the loop for {target.cpu}: {lines[0][:200]}")
        totals.append(int(match[1]))
    return (totals[1] - totals[0]) / (STEADY[1] - STEADY[0])


def table(rows: Sequence[Row]) -> str:
    """Markdown, a line for each loop; those of DENSE families below the mark are marked."""
    lines = [
        "| processor | family | case | schedule | multiply-adds | instructions | cycles | rate | of FMA rate |",
        "|---|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        mark = " (short)" if row.falls_short else ""
        words = (row.cpu, row.family, row.case, row.schedule)
        numbers = (row.multiply_adds, row.instructions, row.cycles, row.rate)
        lines.append("| " + " | ".join(map(str, (*words, *numbers))) + f" | {row.share:.0%}{mark} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m halotile.benchmarks.mca", description=__doc__.splitlines()[0])
    parser.add_argument("--cpus", default=",".join(CPUS), help="processors, separated by commas")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args(arguments)
    cpus = [name.strip() for name in options.cpus.split(",") if name.strip()]
    unknown = [name for name in cpus if name not in CPUS]
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join(CPUS)}")
    try:
        rows = []
        for row in analyse(cpus):
            rows.append(row)
            print(f"{row.cpu} {row.family} {row.case}: {row.share:.0%}", file=sys.stderr)
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

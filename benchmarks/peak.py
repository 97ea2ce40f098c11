"""The machine's limits as a small C program measures them: FMA peak, and triad bandwidth in L2 and in memory."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..compiler.codegen.toolchain import find_toolchain
from ..errors import ToolchainError
from ..targets.detect import native
from ..targets.target import Target

_SOURCE = Path(__file__).parent / "peak.c"


@dataclass(frozen=True)
class Peak:
    """FLOP/s of f32 fused multiply-adds (two each) and bytes/s of a triad, at ``threads`` threads."""

    threads: int
    flops: float
    cache_bytes: float
    memory_bytes: float

    def limit(self, flops: float, moved: float) -> float:
        """Seconds below which no kernel with so much arithmetic and memory traffic can stay."""
        return max(flops / self.flops, moved / self.memory_bytes)


def measure(threads: tuple[int, ...], seconds: float = 0.4) -> dict[int, Peak]:
    """Limits for each thread count; about three times ``seconds`` each. Needs a C compiler (ToolchainError)."""
    target = native()
    toolchain = find_toolchain(target)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "peak"
        flags = ["-O3", "-march=native", "-ffp-contract=fast", "-pthread", "-std=gnu11"]
        toolchain.run(
            [*flags, str(_SOURCE), "-o", str(program)], Path(folder), "building the peak measurement"
        )
        return {t: _measure(program, t, seconds, target) for t in threads}


def _measure(program: Path, threads: int, seconds: float, target: Target) -> Peak:
    in_cache = max(3 * 4096, target.l2_bytes // 2)
    # Past the last cache, but never more than half a GiB a thread: a shared cache may be larger than what we are given.
    in_memory = min(max(64 << 20, 4 * target.l3_bytes // threads), 512 << 20)
    return Peak(
        threads,
        _run(program, "fma", threads, seconds),
        _run(program, "triad", threads, seconds, in_cache),
        _run(program, "triad", threads, seconds, in_memory),
    )


def _run(program: Path, kind: str, threads: int, seconds: float, size: int | None = None) -> float:
    command = [str(program), kind, str(threads), str(seconds), *([str(size)] if size else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 20 * seconds, check=False)
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"the {kind} measurement did not end") from None
    if done.returncode not in (0, 1) or not done.stdout:
        raise ToolchainError(f"the {kind} measurement failed with code {done.returncode}")
    return float(done.stdout)

"""The machine's limits as a small C program measures them: FMA peak, and the bandwidth of triads of several sizes."""

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
    """FLOP/s of f32 fused multiply-adds (two each) at ``threads`` threads, and what triads of growing size reach.

    ``triads``: (bytes of all threads together, bytes/s), from half the second-level cache to well past it.
    """

    threads: int
    flops: float
    triads: tuple[tuple[int, float], ...]

    @property
    def cache_bytes(self) -> float:
        """Bytes/s in the second-level cache."""
        return self.triads[0][1]

    @property
    def memory_bytes(self) -> float:
        """Bytes/s of the largest working set."""
        return self.triads[-1][1]

    def bandwidth(self, working_set: float) -> float:
        """Bytes/s of the smallest triad that is at least as large."""
        return next((rate for size, rate in self.triads if size >= working_set), self.memory_bytes)

    def limit(self, flops: float, moved: float) -> float:
        """Seconds below which no kernel with so much arithmetic and memory traffic can stay."""
        return max(flops / self.flops, moved / self.bandwidth(moved))


def measure(threads: tuple[int, ...], seconds: float = 0.4) -> dict[int, Peak]:
    """Limits for each thread count; about four times ``seconds`` each. Needs a C compiler (ToolchainError)."""
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
    # Half of the second level, several times it (where a third level serves), and past that one; at most half a GiB a
    # thread, since a shared cache may be larger than the part that we are given.
    l2 = target.l2_bytes or 1 << 19
    last = min(max(64 << 20, 4 * target.l3_bytes // threads), 512 << 20)
    triads = tuple(
        (size * threads, _run(program, "triad", threads, seconds / 2, size))
        for size in (l2 // 2, 4 * l2, 12 * l2, last)
    )
    return Peak(threads, _run(program, "fma", threads, seconds), triads)


def _run(program: Path, kind: str, threads: int, seconds: float, size: int | None = None) -> float:
    command = [str(program), kind, str(threads), str(seconds), *([str(size)] if size else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 20 * seconds, check=False)
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"the {kind} measurement did not end") from None
    if done.returncode not in (0, 1) or not done.stdout:
        raise ToolchainError(f"the {kind} measurement failed with code {done.returncode}")
    return float(done.stdout)

"""The machine's limits as a small C program measures them: FMA peak, that of the matrix unit, and the bandwidth of
memory, of triads of several sizes or of one size with as many reads to a write as asked."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ToolchainError
from ...targets.detect import native
from ..codegen.toolchain import find_toolchain

if TYPE_CHECKING:
    from ...targets.plain import JsonView

SOURCES = 8  # arrays that a stream reads, at most
_SOURCE = Path(__file__).parent / "peak.c"


@dataclass(frozen=True)
class Peak:
    """FLOP/s of f32 fused multiply-adds (two each) at ``threads`` threads, and what triads of growing size reach.

    ``triads``: (bytes of all threads together, bytes/s), from half the second-level cache to well past it. ``matrix``:
    FLOP/s of products of bfloat16 on the matrix unit, 0 where there is none.
    """

    threads: int
    flops: float
    triads: tuple[tuple[int, float], ...]
    matrix: float = 0.0

    @property
    def as_float32(self) -> float:
        """FLOP/s of products of float32 on the matrix unit, where three of their parts' make one."""
        return self.matrix / 3

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

    def rate_of(self, kernel: JsonView) -> float:
        """FLOP/s that the arithmetic of a kernel, as a report describes it, can reach: on the matrix unit several
        products of bfloat16 may make one, elsewhere an instruction may take several products of bytes."""
        if kernel.get("matrix") and self.matrix:
            return float(self.matrix / kernel["matrix"])
        return float(self.flops * kernel.get("at_once", 1))

    def limit_of(self, kernel: JsonView) -> float:
        """Seconds below which this kernel can't stay."""
        return replace(self, flops=self.rate_of(kernel)).limit(kernel["flops"], kernel["bytes"])


class Meter:
    """Measures limits on demand; a context manager that keeps the built program. Needs a C compiler (ToolchainError).

    A processor's clock follows its load and, in a virtual machine, its neighbours': a figure should be set against
    what the machine could do at that moment, which :meth:`now` asks.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="halotile-peak-")
        self._program = Path(self._folder.name) / "peak"
        self._target = native()
        self._triads: dict[int, tuple[tuple[int, float], ...]] = {}
        self._streams: dict[tuple[int, int, int], float] = {}
        self._library: ctypes.CDLL | None = None
        try:
            self._build("-o", str(self._program))
        except ToolchainError:
            self._folder.cleanup()
            raise

    def _build(self, *flags: str) -> None:
        common = ["-O3", "-march=native", "-ffp-contract=fast", "-pthread", "-std=gnu11", str(_SOURCE)]
        find_toolchain(self._target).run([*common, *flags], Path(self._folder.name), "building the peak measurement")

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def now(self, threads: int, seconds: float = 0.15) -> Peak:
        """The arithmetic's peaks measured afresh; the bandwidths, which take longer, once for each thread count."""
        if threads not in self._triads:
            self._triads[threads] = tuple(
                (size * threads, _run(self._program, "stream", threads, seconds, size, 2))
                for size in self._sizes(threads)
            )
        # imports TVM: not before a command's options are read
        from ...schedules.instructions.amx import has_matrix_unit

        flops = _run(self._program, "fma", threads, seconds)
        matrix = _run(self._program, "matrix", threads, seconds) if has_matrix_unit(self._target) else 0.0
        return Peak(threads, flops, self._triads[threads], matrix)

    def stream(self, threads: int, read: float, written: float, seconds: float = 0.15) -> float:
        """Bytes/s, reads and writes together, of plain loops over a working set of ``read + written`` bytes that all
        threads share, with as many arrays read to one written (8 at most, above that none is written)."""
        size = max(4096, int(read + written) // threads)
        sources = round(read / written) if written else SOURCES + 1
        key = (threads, size, sources if sources <= SOURCES else -1)
        if key not in self._streams:
            self._streams[key] = _run(self._program, "stream", threads, seconds, *key[1:])
        return self._streams[key]

    def multiply_adds(self, seconds: float = 0.15) -> float:
        """Fused multiply-adds of a number that one core starts in a second."""
        return _run(self._program, "fma", 1, seconds) / 2

    def matrix(self, seconds: float = 0.15) -> float:
        """FLOP/s of products of bfloat16 on one core's matrix unit, 0 where there is none."""
        return _run(self._program, "matrix", 1, seconds)

    def clock(self, seconds: float = 0.15) -> float:
        """Cycles a second of one core, by additions that wait for each other."""
        return _run(self._program, "clock", 1, seconds)

    def latency(self, seconds: float = 0.15) -> float:
        """Seconds from a fused multiply-add to one that needs its result."""
        return 1 / _run(self._program, "latency", 1, seconds)

    def pulse(self, threads: int, seconds: float = 3e-4) -> float:
        """FLOP/s at this moment, in this process: for one thread on the very core that the caller runs on."""
        if self._library is None:
            library = Path(self._folder.name) / "peak.so"
            self._build("-shared", "-fPIC", "-o", str(library))
            self._library = ctypes.CDLL(str(library))
            self._library.halotile_pulse.argtypes = [ctypes.c_int, ctypes.c_double]
            self._library.halotile_pulse.restype = ctypes.c_double
        return float(self._library.halotile_pulse(threads, seconds))

    def _sizes(self, threads: int) -> tuple[int, ...]:
        """Half of the second level, several times it (where a third level serves), and past that one.

        At most half a GiB a thread: a shared cache may be larger than the part that we are given.
        """
        l2 = self._target.l2_bytes or 1 << 19
        return l2 // 2, 4 * l2, 12 * l2, min(max(64 << 20, 4 * self._target.l3_bytes // threads), 512 << 20)


def _run(program: Path, kind: str, threads: int, seconds: float, *size: int) -> float:
    command = [str(program), kind, str(threads), str(seconds), *map(str, size)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 20 * seconds, check=False)
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"the {kind} measurement did not end") from None
    if done.returncode not in (0, 1) or not done.stdout:
        raise ToolchainError(f"the {kind} measurement failed with code {done.returncode}")
    return float(done.stdout)

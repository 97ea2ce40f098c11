"""A stream from file to file in a process that may not have more than so much memory, Python and libraries in it.

    run_limited(Job(...), limit)    in a memory control group of its own (version 1 or 2), where this process may make
                                    one, with the source mapped; else in an address space of that size (``ulimit -v``),
                                    with the source read, as what is mapped would count

The process loads what runs a library and no compiler. It writes bytes to a file, which no one maps: each new page of a
mapped target costs a fault. Of some crops it keeps the numbers as they came, beside their bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..compiler.model import load
from ..compiler.stream import abreast
from ..compiler.stream import run as stream_run
from ..compiler.stream.files import NpyFile
from ..compiler.stream.lanes import Lane
from ..compiler.stream.machine import Stream
from ..errors import RunError

if TYPE_CHECKING:
    from ..compiler.given import ArraysGiven
    from ..compiler.stream.words import Port, StreamPlan

Crop = tuple[int, int, int, int]  # rows and columns of a target, from and to
Say = Callable[[int, int], None]
_LIMITS, _MOST = ("memory.max", "memory.limit_in_bytes"), ("memory.peak", "memory.max_usage_in_bytes")


@dataclass(frozen=True)
class Job:
    """A library, the .npy file of bytes that it reads and the one that it writes (rows, columns, channels), what
    numbers are multiplied by, and the crops of the target to keep, in ``crop-0.npy`` and so on beside it."""

    library: str
    source: str
    target: str
    shape: tuple[int, int, int]
    scale: float
    target_scale: float
    threads: int
    crops: tuple[Crop, ...]


@dataclass(frozen=True)
class Ended:
    """Seconds of the stream, and of processors; the steps that it took; the most bytes of pages of the process's own,
    and of all that the limit counts (0: not known), which ``kind`` says (``cgroup`` or ``ulimit -v``)."""

    seconds: float
    busy: float
    steps: int
    own: int
    counted: int
    kind: str


def run_limited(job: Job, limit: int, say: Say = lambda done, rows: None) -> Ended:
    """Runs the job in a process that has ``limit`` bytes. RunError if it does not get to its end."""
    with memory_group(limit) as group:
        if group is None:
            entered = f"ulimit -v {limit >> 10} && exec \"$@\""
        else:
            entered = f"echo $$ > '{group}/cgroup.procs' && exec \"$@\""
        inside = [sys.executable, "-m", "halotile.benchmarks.limited", "mapped" if group else "read"]
        command = ["sh", "-c", entered, "sh", *inside, json.dumps(asdict(job))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = [json.loads(line) for line in _said(process.stdout, say)]
        counted = 0 if group is None else _used(group)
    if process.returncode or not told:
        raise RunError(f"the process ended with {process.returncode} before the image did, in {limit} bytes of memory")
    seconds, busy, steps, own = told[0]
    return Ended(seconds, busy, steps, own, counted, "ulimit -v" if group is None else "cgroup")


def _said(lines: Iterable[str], say: Say) -> Iterator[str]:
    """The lines that are no progress."""
    for line in lines:
        if line.startswith("rows "):
            say(*map(int, line.split()[1:]))
        else:
            yield line


@contextmanager
def memory_group(limit: int) -> Iterator[Path | None]:
    """A control group whose processes have ``limit`` bytes together; None where this process may not make one."""
    made = None
    for parent in _own_groups():
        made = parent / f"halotile-{os.getpid()}"
        try:
            made.mkdir()
        except OSError:
            made = None
            continue
        if _limited(made, limit):
            break
        made.rmdir()
        made = None
    try:
        yield made
    finally:
        if made is not None:
            _remove(made)


def _own_groups() -> list[Path]:
    """Folders of the groups of this process that limit memory, and of those above it, innermost first."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return []
    own = {"cgroup2" if not kinds else kind: path for _, kinds, path in groups for kind in kinds.split(",") or [""]}
    found = []
    for fields in mounts:
        system, options = fields[fields.index("-") + 1], fields[-1].split(",")
        path = own.get("cgroup2") if system == "cgroup2" else own.get("memory") if "memory" in options else None
        if system in ("cgroup", "cgroup2") and path is not None:
            inside = path[len(fields[3]) :] if fields[3] != "/" and path.startswith(fields[3]) else path
            place = Path(fields[4], inside.strip("/"))
            found += [p for p in (place, *place.parents) if p.is_relative_to(fields[4])]
    return found


def _limited(group: Path, limit: int) -> bool:
    for name in _LIMITS:
        try:
            (group / name).write_text(str(limit))
            return True
        except OSError:
            continue
    return False


def _used(group: Path) -> int:
    """The most bytes that a group has had; 0 where that is not counted."""
    for name in _MOST:
        try:
            return int((group / name).read_text())
        except (OSError, ValueError):
            continue
    return 0


def _remove(group: Path) -> None:
    """Removes a group, whose process is about to end."""
    for _ in range(100):
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return


# ---------------------------------------------------------------------- in the process


@contextmanager
def crops_kept(crops: Sequence[Crop], kept: Sequence[np.ndarray]) -> Iterator[None]:
    """Streams of images of one output keep the numbers of ``crops`` in ``kept``, (rows, columns, channels), before they
    become bytes."""

    class Keeping(Lane):
        def _take(self, plan: StreamPlan, port: Port, rows: np.ndarray) -> None:
            top, left, own = self.written[port.name], 0, rows
            if self.strip is not None and plan.columns is not None:
                left = self.strip.placed[port.name][0]
                own = plan.columns.cut(port.name, rows, self.strip.taken)
            bottom, right = top + own.shape[2], left + own.shape[3]
            for (first, end, begin, stop), place in zip(crops, kept):
                a, b, c, d = max(top, first), min(bottom, end), max(left, begin), min(right, stop)
                if a < b and c < d:
                    part = own[0, :, a - top : b - top, c - left : d - left]
                    place[a - first : b - first, c - begin : d - begin] = part.transpose(1, 2, 0)
            super()._take(plan, port, rows)

    vars(stream_run)["Lane"] = Keeping
    try:
        yield
    finally:
        vars(stream_run)["Lane"] = Lane


def as_bytes(numbers: np.ndarray, scale: np.float32) -> np.ndarray:
    """``numbers``, which change, times ``scale``, rounded and held between 0 and 255."""
    np.multiply(numbers, scale, out=numbers)
    return np.clip(np.rint(numbers, out=numbers), 0, 255, out=numbers)


def own_bytes() -> int:
    """Bytes of anonymous pages of this process; pages of mapped files, which the system may drop, are none of them. 0
    where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)


def _stream(job: Job, mapped: bool) -> list[float]:
    """Seconds, those of processors, steps, and the most bytes of the process's own."""
    source: ArraysGiven = np.load(job.source, mmap_mode="r") if mapped else job.source
    target, folder = NpyFile(Path(job.target), job.shape, "uint8"), Path(job.target).parent
    shapes = [(b - a, d - c, job.shape[2]) for a, b, c, d in job.crops]
    paths = [folder / f"crop-{i}.npy" for i in range(len(shapes))]
    kept = [np.lib.format.open_memmap(p, "w+", np.float32, shape) for p, shape in zip(paths, shapes)]
    most, seen = 0, 0

    def progress(done: int, rows: int) -> None:
        nonlocal most, seen
        most = max(most, own_bytes())
        if done * 100 // rows > seen or done == rows:
            seen = done * 100 // rows
            print("rows", done, rows, flush=True)

    counted = _counted_steps()
    with load(job.library, job.threads) as model, crops_kept(job.crops, kept):
        start, busy = time.perf_counter(), time.process_time()
        model.stream(source, target, scale=job.scale, target_scale=job.target_scale, progress=progress,
                     threads=job.threads)  # fmt: skip
        seconds, busy = time.perf_counter() - start, time.process_time() - busy
    target.close()
    return [seconds, busy, counted(), max(most, own_bytes())]


def _counted_steps() -> Callable[[], int]:
    """Counts the steps that streams take from now on: how many it were, when it is called."""
    count = 0

    class Counted(Stream):
        def _compute(self) -> None:
            nonlocal count
            count += 1
            super()._compute()

    vars(abreast)["Stream"] = Counted
    return lambda: count


def _main() -> None:
    how, text = sys.argv[1:]
    told = json.loads(text)
    job = Job(**{**told, "shape": tuple(told["shape"]), "crops": tuple(map(tuple, told["crops"]))})
    print(json.dumps(_stream(job, how == "mapped")))


if __name__ == "__main__":
    _main()

"""Single kernels at given shapes: how near each family comes to the limits of this machine.

    python -m halotile.benchmarks.kernels [conv matmul depthwise pool elementwise ...] [--threads 1] [--seconds 1]
        [--wide] [--winograd] [--matrix]

One line a shape: milliseconds, GFLOP/s and its share of the FMA peak, which is measured on the same core before and
after every hundredth of a second of runs (a clock moves by a third within a tenth of a second, and with it both), GB/s
and its share of the bandwidth of a plain loop whose working set is as large as inputs, weights and outputs together and
that reads as many arrays to one that it writes (of the next larger triad, for convolutions and products).
Convolutions and products are timed by themselves, by timers in the library, and without Winograd (``--winograd``
allows it: its share may pass 100%) and the matrix unit (``--matrix`` allows it: the share is of its own peak, divided
by the products of parts that make one). Where an element costs many operations, the share of the arithmetic limit
stands beside, with the limit that is met first.
The last lines count the shapes that reach the mark: 95% of the FMA peak, 88% for odd ones, 80% of bandwidth, or of
whichever of the two limits a depthwise layer meets first; and those at 80% of bandwidth alone, and of the limit met
first.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from ..compiler.page.peak import Meter, Peak
from ..compiler.pipeline import run_pipeline
from ..compiler.state import Options
from ..targets.detect import native
from .cases import ANCHORED, CASES, Case, network_layers
from .check_models import TOLERANCE, compare, reference
from .models import random_inputs
from .peers.engine_halotile import HalotileEngine

SLICE = 0.01  # seconds of runs between two looks at the peak
STEADY = 0.02  # a slice is left out where the clock moved by more, unless it did in all
ALONE = (*ANCHORED, "gemv", "depthwise")  # timed apart from the conversions at a model's edges


@dataclass(frozen=True)
class Figure:
    seconds: float
    flops: float
    moved: float
    wrong: str | None
    operations: float = 0.0  # of all elements
    peak: float = 0.0  # FLOP/s that the machine could do meanwhile, if asked
    written: float = 0.0  # of the bytes moved
    matrix: float = 0.0  # products of bfloat16 on the matrix unit to one of ours, as a report says; 0: not there


def measure(
    case: Case,
    threads: int,
    seconds: float,
    winograd: bool = False,
    matrix: bool = False,
    pulse: Callable[[], float] | None = None,
) -> Figure:
    """Compiles ``case``, compares it with ONNX Runtime, and takes the median of short slices of ``seconds``; with
    ``pulse``, which tells the peak of the moment, that of their shares of it."""
    model = case.model()
    feeds = random_inputs(model, seed=1)
    with tempfile.TemporaryDirectory(prefix="halotile-kernel-") as folder:
        # tiles would take the conversions at the model's edges into the timed kernel
        tile = "off" if case.family in ALONE else None
        options = Options(native(), threads=threads, winograd=winograd, matrix=matrix, timers=True, tile=tile)
        report = run_pipeline(model, options, output=Path(folder) / "library").report
        kernels: Sequence[int] = range(len(report["kernels"]))
        if case.family in ALONE:
            kernels = [max(kernels, key=lambda i: report["kernels"][i]["flops"])]
        engine = HalotileEngine(str(Path(folder) / "library"), threads, {})
        engine.bind({name: _aligned(array) for name, array in feeds.items()})
        engine.run()
        wrong = "; ".join(compare(engine.outputs(), reference(model, feeds), TOLERANCE)) or None

        def run() -> float:
            engine.run()
            spent = engine.profile()
            return sum(spent[i] for i in kernels)

        taken, peak = _slices(run, seconds, pulse)
        elements = sum(array.size for array in engine.outputs().values())
    flops = 2.0 * report["macs"]
    read, written = _least_bytes(model)
    unit = max(report["kernels"][i].get("matrix", 0.0) for i in kernels)
    return Figure(taken, flops, read + written, wrong, float(case.operations * elements), peak, written, unit)


def _slices(run: Callable[[], float], seconds: float, pulse: Callable[[], float] | None) -> tuple[float, float]:
    """(seconds of a run, peak) of the slice with the median share of the peak. Of a slice's runs the lower quartile
    counts, as of the peak's rounds: other processes are not the kernel's."""
    ask = pulse or (lambda: 0.0)
    found: list[tuple[float, float, float]] = []  # a run's time, the peak around it, and how far that moved
    end = time.perf_counter() + seconds
    while len(found) < 5 or time.perf_counter() < end:
        times: list[float] = []
        before, stop = ask(), time.perf_counter() + SLICE
        while not times or time.perf_counter() < stop:
            times.append(run())
        after = ask()
        found.append((sorted(times)[len(times) // 4], (before + after) / 2, abs(before - after)))
    steady = [f for f in found if f[2] <= STEADY * f[1]] or found
    taken, peak, _ = sorted(steady, key=lambda f: f[0] * (f[1] or 1.0))[len(steady) // 2]
    return taken, peak


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy at the start of a cache line, where values lie within a model."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _least_bytes(model: onnx.ModelProto) -> tuple[float, float]:
    """(read, written): every input, weight and output moved once, what no schedule can avoid."""
    graph = model.graph

    def bytes_of(values: Sequence[onnx.ValueInfoProto]) -> float:
        return 4.0 * sum(math.prod(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values)

    weights = 4.0 * sum(math.prod(t.dims) for t in graph.initializer)
    return bytes_of(graph.input) + weights, bytes_of(graph.output)


def line(case: Case, figure: Figure, peak: Peak) -> str:
    roof = peak.bandwidth(figure.moved)
    flops, rate = figure.flops / figure.seconds, figure.moved / figure.seconds
    text = f"{case.family:11s} {case.name:24s} {figure.seconds * 1e3:8.3f} ms"
    text += f" {flops / 1e9:7.1f} GFLOP/s {flops / peak.flops:5.0%} {rate / 1e9:7.1f} GB/s {rate / roof:5.0%}"
    bandwidth, arithmetic = both_shares(figure, peak)
    if case.family not in ANCHORED and arithmetic:
        text += f"  arithmetic {arithmetic:4.0%}, {'arithmetic' if arithmetic > bandwidth else 'bandwidth'} first"
    return text + (f"  WRONG {figure.wrong}" if figure.wrong else "")


def both_shares(figure: Figure, peak: Peak) -> tuple[float, float]:
    """Of bandwidth, and of the operations that the multiply-add ports could have done meanwhile: half of the FLOP/s."""
    rate = (figure.flops + 2.0 * figure.operations) / figure.seconds
    return figure.moved / figure.seconds / peak.bandwidth(figure.moved), rate / peak.flops


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    families = list(dict.fromkeys(c.family for c in CASES))
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(families))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--winograd", action="store_true", help="let convolutions use Winograd where it is chosen")
    parser.add_argument("--matrix", action="store_true", help="let kernels use the matrix unit where it is chosen")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each shape")
    parser.add_argument("--wide", action="store_true", help="all dense layers of the harness's networks")
    options = parser.parse_args(arguments)
    unknown = [f for f in options.families if f not in families]
    if unknown:
        parser.error(f"unknown family {', '.join(unknown)}; known: {', '.join(families)}")
    cases = network_layers() if options.wide else CASES
    chosen = [c for c in cases if not options.families or c.family in options.families]
    with Meter() as meter:
        shares = [(case, _report(case, meter, options)) for case in chosen]
    for text in summary([(case, found and found[0]) for case, found in shares]):
        print(text)
    for text in limits([(case, found[1]) for case, found in shares if found]):
        print(text)
    return 1 if any(found is None for _, found in shares) else 0


def summary(shares: Sequence[tuple[Case, float | None]]) -> list[str]:
    """A line for each family, ordinary and odd shapes apart: how many reach their mark, and which do not."""
    lines = []
    kinds = dict.fromkeys((case.family, case.odd, case.mark) for case, _ in shares)
    for family, odd, mark in kinds:
        mine = [(c, s) for c, s in shares if (c.family, c.odd) == (family, odd) and s is not None]
        below = sorted((s, c.name) for c, s in mine if s < mark)
        text = f"{family}{' (odd)' if odd else ''}: {len(mine) - len(below)} of {len(mine)} shapes reach {mark:.0%}"
        lines.append(text + "".join(f"; {name} {share:.0%}" for share, name in below))
    return lines


def limits(shares: Sequence[tuple[Case, tuple[float, float]]]) -> list[str]:
    """A line for each family whose mark is of bandwidth: its shapes by bandwidth alone, and by the limit met first."""
    lines = []
    for family in dict.fromkeys(case.family for case, _ in shares if case.family not in ANCHORED):
        mine = [both for case, both in shares if case.family == family]
        alone, first = (sum(s >= 0.8 for s in found) for found in ([b for b, _ in mine], [max(both) for both in mine]))
        lines.append(f"{family}: {alone} of {len(mine)} at 80% of bandwidth, {first} at 80% of the limit met first")
    return lines


def share_of_limit(case: Case, figure: Figure, peak: Peak) -> float:
    """Of the FMA peak for convolutions and products, of bandwidth for all others; a depthwise layer whose arithmetic
    takes longer than its traffic (twenty-five taps to an element) is set against that."""
    if case.family in ANCHORED:
        return figure.flops / figure.seconds / peak.flops
    if case.family == "depthwise":
        return peak.limit(figure.flops, figure.moved) / figure.seconds
    return figure.moved / figure.seconds / peak.bandwidth(figure.moved)


def _report(case: Case, meter: Meter, options: argparse.Namespace) -> tuple[float, tuple[float, float]] | None:
    """Prints the line of one shape and returns its share of the limit, and of both limits; None when it failed or is
    wrong, which must not hide the other shapes."""
    threads = options.threads
    try:
        figure = measure(
            case, threads, options.seconds, options.winograd, options.matrix, lambda: meter.pulse(threads)
        )
    except Exception as error:
        print(
            f"{case.family:11s} {case.name:24s} failed: {type(error).__name__}: {str(error)[:200]}",
            flush=True,
        )
        return None
    peak = meter.now(threads)
    unit = peak.matrix / figure.matrix * figure.peak / peak.flops if figure.matrix else 0.0  # one clock for both
    peak = replace(peak, flops=unit or figure.peak)
    if case.family not in ANCHORED:
        rate = meter.stream(threads, figure.moved - figure.written, figure.written)
        peak = replace(peak, triads=((math.ceil(figure.moved), rate),))
    print(line(case, figure, peak), flush=True)
    return None if figure.wrong else (share_of_limit(case, figure, peak), both_shares(figure, peak))


if __name__ == "__main__":
    sys.exit(main())

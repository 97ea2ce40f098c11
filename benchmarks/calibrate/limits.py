"""What a machine does at best, as loops of a few instructions show it, and what starting a kernel takes."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from ...compiler.page.peak import Meter
from ...compiler.pipeline import run_pipeline
from ...compiler.runtime.loader import load
from ...compiler.runtime.private import PrivateFolder
from ...compiler.sample import random_inputs
from ...compiler.state import Options
from ...schedules.instructions.amx import DEPTH, MULTIPLY_CYCLES, ROWS, has_matrix_unit
from ...targets.target import Target
from .layers import starts

FAR_LEVELS = 6  # second-level caches that a stream from beyond one takes
TURNS = 3
STARTED = 24  # kernels whose starts are measured together


@dataclass(frozen=True)
class MachineLimits:
    """``hertz`` is the clock at which vectors are multiplied; ``multiply_adds`` of one core a second, each of one
    number; ``latency`` seconds from one to the next that needs it; ``matrix`` those of bfloat16 on the matrix unit, 0
    without one. Bytes a second: one core from the second level (``near``), from beyond it (``far``), and from memory;
    ``memory_all`` all cores together from memory. Seconds: ``launch`` of a kernel on all cores, ``call`` of one on the
    caller's."""

    hertz: float
    multiply_adds: float
    latency: float
    matrix: float
    near: float
    far: float
    memory: float
    memory_all: float
    launch: float
    call: float


def measure_limits(target: Target, seconds: float, largest: int) -> MachineLimits:
    """The limits of this machine, which ``target`` describes, at its number of threads; about ``seconds`` for each of
    ten. Streams take at most ``largest`` bytes. Needs a C compiler (ToolchainError)."""
    threads = max(1, target.cores)
    l2 = target.l2_bytes or 1 << 19
    far = FAR_LEVELS * l2 if target.l3_bytes > 2 * FAR_LEVELS * l2 else 3 * l2
    outer = min(largest, max(64 << 20, 4 * max(target.l3_bytes, l2)))
    with Meter() as meter:
        third = seconds / TURNS  # in turns: what else the machine does, and a clock that rises, only take away
        flops, clock = (max(ask(third) for _ in range(TURNS)) for ask in (meter.multiply_adds, meter.clock))
        latency = min(meter.latency(third) for _ in range(TURNS))
        ports = max(1, round(flops / target.lanes() / clock))
        matrix = meter.matrix(seconds) if has_matrix_unit(target) else 0.0
        near, beyond, memory = (meter.stream(1, min(size, largest), 0, seconds) for size in (l2 // 2, far, outer))
        memory_all = meter.stream(threads, outer, 0, seconds) if threads > 1 else memory
    call = _start_seconds(target, 1, small=True, seconds=seconds)
    launch = call
    if threads > 1:
        alone, shared = (_start_seconds(target, n, small=False, seconds=seconds) for n in (1, threads))
        launch = max(call, shared - alone / threads)
    hertz = flops / target.lanes() / ports
    return MachineLimits(hertz, flops, latency, matrix, near, beyond, memory, memory_all, launch, call)


def _start_seconds(target: Target, threads: int, small: bool, seconds: float) -> float:
    """Seconds of one of a chain of like kernels: nothing but a start where they are ``small``, else just large enough
    for cores to share them."""
    options = Options(target=target, threads=threads, exact=True, tile="off")
    with PrivateFolder() as folder:
        build = run_pipeline(starts(STARTED, small), options, output=Path(folder, "starts"))
        with load(Path(folder, "starts"), threads=threads) as model:
            feeds = random_inputs(build.imported.inputs)
            run = model.bind(feeds, {name: array.copy() for name, array in model(feeds).items()})
            best, end = float("inf"), time.perf_counter() + seconds
            while best == float("inf") or time.perf_counter() < end:
                begun = time.perf_counter()
                run()
                best = min(best, time.perf_counter() - begun)
    return best / max(1, len(build.kernels))


def with_limits(target: Target, limits: MachineLimits) -> Target:
    """The target with the facts and constants that the limits are."""
    ports = max(1, min(16, round(limits.multiply_adds / target.lanes() / limits.hertz)))
    per_cycle = {n: getattr(limits, n) / limits.hertz for n in ("near", "far", "memory", "memory_all")}
    far = max(1, round(min(per_cycle["far"], per_cycle["near"])))
    threads = max(1, target.cores)
    values = {
        ("memory", "reached"): 1.0,
        ("memory", "shared"): per_cycle["memory_all"] / threads,
        ("memory", "stream"): min(per_cycle["memory"], float(far)),
        ("kernels", "launch"): limits.launch * limits.hertz,
        ("kernels", "call"): limits.call * limits.hertz,
        ("registers", "product_launch"): limits.launch * limits.hertz,
    }
    if limits.matrix:
        at_once = 2 * ROWS * ROWS * DEPTH / MULTIPLY_CYCLES  # FLOP a cycle of the unit
        values["unit", "slower"] = max(0.1, at_once * limits.hertz / limits.matrix)
    return replace(
        target,
        native=False,
        fma_ports=ports,
        fma_latency=max(1, min(100, round(limits.latency * limits.hertz))),
        far_bytes=far,
        bandwidth=round(limits.memory_all),
        hertz=round(limits.hertz),
        fitted=target.fitted.with_values({key: _digits(value) for key, value in values.items()}),
    )


def _digits(value: float) -> float:
    """Four of them: more were not measured."""
    return float(f"{value:.4g}")

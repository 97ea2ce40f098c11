"""What the runtime itself costs: an empty model, a parallel launch, a call from Python, load and first run.

    python -m halotile.benchmarks.runtime_overhead [--json]

The kernels are written in C with the contract of a compiled object, so that nothing but the runtime is measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from ..compiler.codegen.library import build_library
from ..compiler.codegen.processor import required_features
from ..compiler.codegen.spec import LibrarySpec
from ..compiler.codegen.toolchain import find_toolchain
from ..compiler.runtime.loader import load
from ..compiler.spec import TensorSpec
from ..targets.target import Target

LAUNCHES = 200

KERNEL = f"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
typedef struct {{ void *sync_handle; int32_t num_task; }} group;
typedef int (*task)(int, group *, void *);
__attribute__((weak)) int (*__TVMBackendParallelLaunch)(task, void *, int);
#define launch(f) __TVMBackendParallelLaunch(f, 0, 0)
static pthread_t who[64];
static double begun[64];
static double now(void) {{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}}
static int nothing(int id, group *g, void *p) {{ (void)id, (void)g, (void)p; return 0; }}
static int busy(int id, group *g, void *p) {{
    (void)g, (void)p;
    who[id] = pthread_self(), begun[id] = now();
    for (volatile int i = 0; i < 20000; ++i) {{}}
    return 0;
}}
int32_t halotile_kernel_main(void *x, void *y, const void *weights, void *arena) {{
    float mode = ((float *)x)[0];
    (void)weights, (void)arena;
    memcpy(y, x, 16);
    if (mode == 1) for (int i = 0; i < {LAUNCHES}; ++i) launch(nothing);
    if (mode == 2) launch(nothing);
    if (mode == 3) {{
        double total = 0;
        int both = 0;
        for (int i = 0; i < {LAUNCHES}; ++i) {{
            double start = now();
            launch(busy);
            if (who[0] != who[1]) ++both, total += begun[1] - start;
        }}
        ((float *)y)[0] = both ? (float)(total / both) : 0;
        ((float *)y)[1] = (float)both / {LAUNCHES};
    }}
    return 0;
}}
"""

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "overhead.h"
#define SAMPLES 200
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
static int order(const void *a, const void *b) {
    double difference = *(double *)a - *(double *)b;
    return difference < 0 ? -1 : difference > 0;
}
static float y[4];
static double median(overhead_instance *instance, float mode, int repeats, long pause_ns) {
    static double samples[SAMPLES];
    float x[4] = {0};
    const void *in[1];
    void *out[1];
    struct timespec pause = {0};
    pause.tv_nsec = pause_ns;
    x[0] = mode, in[0] = x, out[0] = y;
    for (int s = 0; s < SAMPLES; ++s) {
        if (pause_ns) nanosleep(&pause, 0);
        double start = now();
        for (int i = 0; i < repeats; ++i) overhead_run(instance, in, out);
        samples[s] = (now() - start) / repeats;
    }
    qsort(samples, SAMPLES, sizeof *samples, order);
    return samples[SAMPLES / 2];
}
int main(void) {
    for (int threads = 1; threads < 3; ++threads) {
        overhead_instance *instance;
        if (overhead_create(threads, &instance)) return 1;
        double run = median(instance, 0, 1000, 0), launches = median(instance, 1, 2, 0);
        printf("%.1f %.1f %.1f ", run, (launches - run) / LAUNCHES, median(instance, 2, 1, 2000000));
        median(instance, 3, 1, 0);
        printf("%.1f %.2f\n", y[0], y[1]);
        overhead_destroy(instance);
    }
    return 0;
}
"""


def measure() -> dict[str, float]:
    """All figures, in nanoseconds (``_ns``), microseconds (``_us``) and milliseconds (``_ms``); medians."""
    target = Target("native", f"{platform.machine()}-unknown-linux-gnu", "generic")
    toolchain = find_toolchain(target)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernel.c").write_text(KERNEL)
        toolchain.run([*toolchain.compile_flags, "-c", "kernel.c"], folder, "compiling the kernel")
        spec = LibrarySpec(
            "overhead", (TensorSpec("x", "float32", (4,)),), (TensorSpec("y", "float32", (4,)),),
            (folder / "kernel.o").read_bytes(), [], 0, 0, 64, 2, target,
        )  # fmt: skip
        required_features(target)  # imports TVM, which a compiler has done long before it links
        start = time.perf_counter()
        built = build_library(spec, folder / "out", toolchain=toolchain)
        figures = {"link_ms": (time.perf_counter() - start) * 1e3}
        (folder / "main.c").write_text(PROGRAM)
        flags = [
            "-std=gnu11",
            "-O2",
            f"-DLAUNCHES={LAUNCHES}",
            f"-I{built.directory}",
            "main.c",
            str(built.library),
        ]
        toolchain.run(
            [*flags, f"-Wl,-rpath,{built.directory}", "-o", "main"], folder, "compiling the program"
        )
        printed = subprocess.run(
            [folder / "main"], capture_output=True, text=True, check=True, timeout=120
        ).stdout
        for threads, line in enumerate(printed.splitlines(), start=1):
            run, launch, asleep, latency, both = map(float, line.split())
            figures[f"empty_run_{threads}_threads_ns"] = run
            figures[f"launch_{threads}_threads_ns"] = launch
            figures[f"run_with_sleeping_workers_{threads}_threads_ns"] = asleep
            if threads == 2:
                figures["worker_begins_after_ns"] = latency
                figures["launches_that_both_workers_served"] = both
        figures.update(_from_python(built.directory))
    return figures


def _from_python(directory: Path) -> dict[str, float]:
    inputs = {"x": np.zeros(4, np.float32)}
    start = time.perf_counter()
    with load(directory) as model:
        model(inputs)
        first = time.perf_counter() - start
        samples = []
        for _ in range(200):
            start = time.perf_counter()
            for _ in range(50):
                model(inputs)
            samples.append((time.perf_counter() - start) / 50)
    return {"load_and_first_run_ms": first * 1e3, "python_call_us": float(np.median(samples)) * 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description="What the runtime itself costs.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    figures = measure()
    if options.json:
        print(json.dumps(figures, indent=1))
        return
    for name, value in figures.items():
        print(f"{name:42} {value:10.1f}")


if __name__ == "__main__":
    main()

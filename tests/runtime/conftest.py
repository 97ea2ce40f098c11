"""Small models for the runtime: kernels written in C with the contract of a compiled object, and one made by TVM."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from halotile.compiler.codegen.spec import LibrarySpec
from halotile.compiler.spec import Symbol, TensorSpec
from halotile.targets.target import Target

NATIVE = Target("native", f"{platform.machine()}-unknown-linux-gnu", "generic")

# What TVM's code expects of a runtime, as its objects declare it.
CONTRACT = """
#include <stdint.h>
#include <string.h>
typedef struct { void *sync_handle; int32_t num_task; } group;
typedef int (*task)(int, group *, void *);
__attribute__((weak)) int (*__TVMBackendParallelLaunch)(task, void *, int);
__attribute__((weak)) void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
__attribute__((weak)) int (*__TVMBackendFreeWorkspace)(int, int, void *);
#define parallel(f, closure, tasks) __TVMBackendParallelLaunch(f, closure, tasks)
#define scratch(bytes) __TVMBackendAllocWorkspace(1, 0, bytes, 2, 32)
#define release(place) __TVMBackendFreeWorkspace(1, 0, place)
__attribute__((weak)) float __truncsfhf2(float x) { return x; }
"""

# y = x, and nothing else: what a run costs without the model.
EMPTY = """
int32_t halotile_kernel_main(void *x, void *y, const void *weights, void *arena) {
    (void)weights, (void)arena;
    memcpy(y, x, 16);
    return 0;
}
"""

# y[r][c] = sum of 8 rounds of (x + w), each round a launch that goes through the arena and through scratch:
# 64 rows of 32 floats; the planned part of the arena holds 64 * 32 floats, the scratch of a worker 32 floats.
ROUNDS = """
struct closure { const float *x, *w; float *stage, *y; int round; };
static int step(int id, group *g, void *p) {
    struct closure *c = p;
    int each = (64 + g->num_task - 1) / g->num_task;
    for (int row = id * each; row < (id + 1) * each && row < 64; ++row) {
        float *s = scratch(128);
        if (!s) return -1;
        for (int i = 0; i < 32; ++i) s[i] = c->x[row * 32 + i] + c->w[i];
        for (int i = 0; i < 32; ++i) c->stage[row * 32 + i] = (c->round ? c->stage[row * 32 + i] : 0) + s[31 - i];
        release(s);
    }
    return 0;
}
static int finish(int id, group *g, void *p) {
    struct closure *c = p;
    int each = (64 + g->num_task - 1) / g->num_task;
    for (int row = id * each; row < (id + 1) * each && row < 64; ++row)
        memcpy(c->y + row * 32, c->stage + row * 32, 128);
    return 0;
}
int32_t halotile_kernel_main(void *x, void *y, const void *weights, void *arena) {
    struct closure c = {x, weights, arena, y, 0};
    for (; c.round < 8; ++c.round)
        if (parallel(step, &c, 0)) return -1;
    return parallel(finish, &c, 0);
}
"""

# A model whose runs choose batch and width: stage[b][i] = m[i] * the sum of x[b][i] in the arena, by rows that go
# through scratch; y[b] = the stage's row, the same backwards, and b.
OPEN = """
struct closure { const float *x, *m; float *stage, *y; int64_t batch, width; };
static int rows(int id, group *g, void *p) {
    struct closure *c = p;
    int64_t w = c->width, each = (c->batch + g->num_task - 1) / g->num_task;
    for (int64_t b = id * each; b < (id + 1) * each && b < c->batch; ++b) {
        float *s = scratch((uint64_t)w * 4 + 4);
        if (!s) return -1;
        for (int64_t i = 0; i < w; ++i) {
            const float *x = c->x + (b * w + i) * 3;
            s[w - 1 - i] = c->m[i] * (x[0] + x[1] + x[2]);
        }
        s[w] = (float)b;
        memcpy(c->stage + b * (w + 1), s, (size_t)w * 4 + 4);
        release(s);
    }
    return 0;
}
int32_t halotile_kernel_shapes(const int64_t *symbols, int64_t *facts) {
    int64_t batch = symbols[0], width = symbols[1];
    if (width && batch * 3 > 2147483647 / width) return 1;
    facts[0] = (batch * (width + 1) * 4 + 63) / 64 * 64;
    facts[1] = ((width + 1) * 4 + 63) / 64 * 64;
    facts[2] = batch, facts[3] = width, facts[4] = 3;
    facts[5] = width;
    facts[6] = batch, facts[7] = 2 * width + 1;
    facts[8] = width + 1; /* of its own: a row of the stage */
    return 0;
}
int32_t halotile_kernel_main(void *x, void *m, void *y, const void *weights, void *arena, const int64_t *symbols,
                             const int64_t *facts) {
    struct closure c = {x, m, arena, y, symbols[0], symbols[1]};
    (void)weights;
    if (parallel(rows, &c, 0)) return -1;
    for (int64_t b = 0; b < c.batch; ++b) {
        const float *row = c.stage + b * facts[8];
        float *out = c.y + b * facts[7];
        for (int64_t i = 0; i < c.width; ++i) out[i] = row[c.width - 1 - i];
        memcpy(out + c.width, row, (size_t)(c.width + 1) * 4);
    }
    return 0;
}
"""

Build = Callable[..., LibrarySpec]


@pytest.fixture(scope="session")
def cc() -> str:
    """The system's C compiler; the tests of C code are meaningless without one."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert found, "these tests need a C compiler"
    return found


@functools.cache
def compiled(source: str) -> bytes:
    """The object of a kernel in C."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["cc", "-c", "-O1", "-fPIC", "-xc", "-", "-o", "kernel.o"]
        subprocess.run(command, input=CONTRACT + source, text=True, check=True, cwd=folder)
        return Path(folder, "kernel.o").read_bytes()


def tensor(name: str, *shape: int | str, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name, dtype, shape)


@pytest.fixture(scope="session")
def make_spec() -> Build:
    """make_spec(source, **fields): a LibrarySpec around a kernel in C; without a source, the one of EMPTY."""

    def make(source: str = EMPTY, **fields: Any) -> LibrarySpec:
        defaults: dict[str, Any] = {
            "name": "empty",
            "inputs": (tensor("x", 4),),
            "outputs": (tensor("y", 4),),
            "object_bytes": compiled(source),
            "weights": [],
            "planned_bytes": 0,
            "workspace_bytes": 0,
            "max_threads": 64,
            "default_threads": 2,
            "target": NATIVE,
        }
        return LibrarySpec(**{**defaults, **fields})

    return make


@pytest.fixture(scope="session")
def rounds_weights() -> np.ndarray[Any, Any]:
    return np.arange(32, dtype=np.float32) / 8


@pytest.fixture(scope="session")
def rounds(make_spec: Build, rounds_weights: np.ndarray[Any, Any]) -> LibrarySpec:
    """The model of ROUNDS: parallel, with weights, a planned arena and scratch."""
    return make_spec(
        ROUNDS,
        name="rounds",
        inputs=(tensor("x", 64, 32),),
        outputs=(tensor("y", 64, 32),),
        weights=[rounds_weights[:16].tobytes(), rounds_weights[16:].data],
        planned_bytes=64 * 32 * 4,
        workspace_bytes=128,
        report={"kernels": ["step", "finish"]},
    )


@pytest.fixture(scope="session")
def open_spec(make_spec: Build) -> LibrarySpec:
    """The model of OPEN: batches from 1 to 64, widths of any multiple of two, 0 included."""
    return make_spec(
        OPEN,
        name="open.net",
        inputs=(tensor("x", "batch", "width", 3), tensor("m", "width")),
        outputs=(tensor("y", "batch", "2*width + 1"),),
        symbols=(Symbol("batch", 1, 64, typical=4), Symbol("width", 0, None, 2, 10, ("Conv 'c' has stride 2",))),
        facts=9,
        planned_bytes=192,
        workspace_bytes=64,
    )


@pytest.fixture(scope="session")
def open_source() -> str:
    """The C text of the kernel, for builds that a sanitizer instruments."""
    return CONTRACT + OPEN


@pytest.fixture(scope="session")
def open_reference() -> Callable[[Any, Any], Any]:
    def reference(x: np.ndarray[Any, Any], m: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        stage = m * (x[:, :, 0] + x[:, :, 1] + x[:, :, 2])
        last = np.arange(len(x), dtype=np.float32)[:, None]
        return np.concatenate([stage, stage[:, ::-1], last], axis=1)

    return reference


@pytest.fixture(scope="session")
def rounds_reference(rounds_weights: np.ndarray[Any, Any]) -> Callable[[Any], Any]:
    def reference(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        one = (x + rounds_weights)[:, ::-1]
        total = np.zeros_like(x)
        for _ in range(8):
            total = total + one
        return total

    return reference


@pytest.fixture(scope="session")
def rounds_source() -> str:
    """The C text of the kernel, for builds that a sanitizer instruments."""
    return CONTRACT + ROUNDS


@pytest.fixture(scope="session")
def tvm_object() -> bytes:
    """A TVM object with the real contract: y = reverse(x + w) * 2 on 16 parallel rows of 4096, scratch of 16 KiB."""
    import tvm
    from tvm.script import ir as I  # noqa: N812
    from tvm.script import tirx as T  # noqa: N812

    @I.ir_module
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def work(a: T.handle("float32"), b: T.handle("float32"), w: T.handle("float32")) -> T.int32:
            T.func_attr({"tirx.noalias": True})
            T.attr(T.int32(0), "device_id", T.int32(0))
            T.attr(T.int32(0), "device_type", T.int32(1))
            A = T.decl_buffer((16, 4096), "float32", data=a)
            B = T.decl_buffer((16, 4096), "float32", data=b)
            W = T.decl_buffer((4096,), "float32", data=w)
            for i in T.parallel(16):
                S = T.alloc_buffer((4096,), "float32")
                for j in range(4096):
                    S[j] = A[i, j] + W[j]
                for j in range(4096):
                    B[i, j] = S[4095 - j] * T.float32(2)
            return 0

        @T.prim_func(s_tir=True)
        def main(
            x: T.handle("float32"),
            y: T.handle("float32"),
            weights: T.handle("float32"),
            arena: T.handle("uint8"),
        ) -> T.int32:
            T.func_attr({"global_symbol": "halotile_kernel_main", "calling_conv": 1})
            T.evaluate(Module.work(x, y, weights))
            return 0

    target = tvm.target.Target({"kind": "llvm", "mtriple": NATIVE.triple, "mcpu": NATIVE.cpu})
    module = tvm.tirx.build(Module, target=target, pipeline="s_tir")
    with tempfile.TemporaryDirectory() as folder:
        module.write_to_file(os.path.join(folder, "kernels.o"), "o")
        return Path(folder, "kernels.o").read_bytes()

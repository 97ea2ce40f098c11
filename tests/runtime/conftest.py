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
from halotile.compiler.spec import TensorSpec
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


def tensor(name: str, *shape: int, dtype: str = "float32") -> TensorSpec:
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

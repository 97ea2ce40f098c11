"""Many small kernels as one object: Relax expressions through the stages from fuse to assemble, linked and called bare.

    suite = Suite()
    suite.add("bias", [x, b], lambda x, b: relax.op.add(x, b), x + b)
    suite.check("bias")           # the first call compiles everything that was added

Arena and outputs are filled with ones (NaN in every float format) before each run, and a launch runs its tasks one
after the other, last first, so that nothing can lean on what was in memory before or on the order of tasks.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import halotile.schedules.operators  # noqa: F401  (registers our own)
import ml_dtypes  # noqa: F401  (gives numpy bfloat16)
import numpy as np
import tvm
from accesses import outside
from halotile.compiler import pipeline, rewrites
from halotile.compiler.frontend.importer import ImportedModel
from halotile.compiler.spec import TensorSpec
from halotile.compiler.state import Build, Options
from halotile.schedules.instructions.amx import has_matrix_unit
from halotile.schedules.tiled import TiledKernel
from halotile.schedules.words.group import Value
from halotile.schedules.words.layout import Layout
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from tvm import relax

STUB = """
#include <stdint.h>
#include <stdlib.h>
typedef struct { void *sync_handle; int32_t num_task; } group;
typedef int (*task)(int, group *, void *);
int halotile_test_tasks = 1, halotile_test_launches = 0;
static int launch(task f, void *closure, int wanted) {
    group g = {0, wanted > 0 ? wanted : halotile_test_tasks};
    ++halotile_test_launches;
    for (int i = g.num_task - 1; i >= 0; --i)
        if (f(i, &g, closure)) return -1;
    return 0;
}
static void *take(int a, int b, uint64_t bytes, int c, int d) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }
static int give(int a, int b, void *place) { free(place); return 0; }
int (*__TVMBackendParallelLaunch)(task, void *, int) = launch;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = take;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = give;
void TVMFFIErrorSetRaisedFromCStrParts(const char *k, const char **p, int n) { (void)k, (void)p, (void)n; }
"""


@functools.cache
def machine() -> Target:
    """This machine, all of it."""
    return resolve("native")


@functools.cache
def native() -> Target:
    """This machine without its matrix unit, whose kernels have tests of their own: what is meant to test the kernels of
    vectors tests these everywhere."""
    return unitless(machine())


def unitless(target: Target) -> Target:
    """``target`` without its matrix unit: what its vectors alone compute."""
    return replace(target, features=(*target.features, "-amx-tile")) if has_matrix_unit(target) else target


def narrow(bits: int) -> Target:
    """This machine with shorter vectors: the tails and tiles of other processors, run here."""
    return replace(native(), vector_bits=bits)


@functools.cache
def _stub() -> Path:
    folder = tempfile.mkdtemp(prefix="halotile-test-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = ["cc", "-c", "-O1", "-fPIC", "-xc", "-", "-o", "stub.o"]
    subprocess.run(command, input=STUB, text=True, check=True, cwd=folder)
    return Path(folder, "stub.o")


def weight(array: np.ndarray) -> Any:
    """A constant operand."""
    return relax.const(array, array.dtype.name)


def module_of(arrays: Sequence[np.ndarray], body: Callable[..., Any]) -> tvm.IRModule:
    """``main`` with a parameter for each array, returning a tuple of what ``body`` gives for them."""
    params = [relax.Var(f"p{i}", relax.TensorType(a.shape, a.dtype.name)) for i, a in enumerate(arrays)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = _emitted(builder, body(*params))
            out = builder.emit_output(relax.Tuple(result))
        builder.emit_func_output(out)
    return builder.get()


def _emitted(builder: relax.BlockBuilder, result: Any) -> list[Any]:
    items = list(result) if isinstance(result, (list, tuple)) else [result]
    flat = []
    for item in items:
        var = builder.emit(builder.normalize(item)) if not isinstance(item, (relax.Var, tvm.ir.GenericConst)) else item
        if isinstance(var.ty, relax.TupleType):
            flat += [builder.emit(relax.TupleGetItem(var, i)) for i in range(len(var.ty.fields))]
        else:
            flat.append(var)
    return flat


def staged(
    module: tvm.IRModule,
    target: Target | None = None,
    fuse: bool = True,
    layout: bool = True,
    layouts: Callable[[Build], dict[Value, Layout]] | None = None,
    tiled: bool = True,
    exact: bool = False,
    **more: Any,
) -> Build:
    """The stages from fuse to plan on a Relax module; ``layouts`` may say how values lie, even inputs and outputs;
    ``more`` are further options.

    Without ``tiled``, every group is computed whole, whatever the costs say.
    """
    build = Build(None, Options(target or native(), fuse=fuse, layout=layout and layouts is None, exact=exact, **more))
    if not tiled:
        build.options = replace(build.options, tile="off")
    build.module = module
    for rewrite in (rewrites.reassociate, rewrites.dots, rewrites.numbers, rewrites.merge):
        rewrite(build)
    pipeline.fuse(build)
    pipeline.layout(build)
    if layouts is not None:
        build.layouts = layouts(build)
    for stage in (pipeline.tile, pipeline.schedule, pipeline.plan):
        stage(build)
    if os.environ.get("HALOTILE_ACCESSES"):  # takes as long again, so CI does it for the kernels of a few models only
        wrong = [f"{k.schedule} {words}" for k in build.kernels for words in outside(k)]
        assert not wrong, "\n".join(wrong)
    return build


class Compiled:
    """A build linked into this process, without the C runtime: ``main`` is called on an arena the test can read."""

    def __init__(self, build: Build) -> None:
        self.build = build
        inputs, outputs = (tuple(map(_spec, values)) for values in (build.graph.inputs, build.graph.outputs))
        build.imported = ImportedModel(build.module, inputs, outputs, name="suite")
        pipeline.assemble(build)
        self.spec = build.library
        with tempfile.TemporaryDirectory(prefix="halotile-test-") as folder:
            parts = [str(_stub())]
            for i, code in enumerate((self.spec.object_bytes, *self.spec.kernel_objects)):
                Path(folder, f"{i}.o").write_bytes(code)
                parts.append(f"{i}.o")
            subprocess.run(["cc", "-shared", *parts, "-lm", "-o", "it.so"], check=True, cwd=folder)
            self.library = ctypes.CDLL(str(Path(folder, "it.so")))
        self.function = self.library.halotile_kernel_main
        self.blob = _aligned(self.spec.weight_bytes)
        position = 0
        for piece in self.spec.weights:
            data = np.frombuffer(piece, np.uint8)
            self.blob[position : position + data.size] = data
            position += data.size
        self.arena = _aligned(self.spec.planned_bytes + 64)

    def run(
        self, arrays: Sequence[np.ndarray], tasks: int = 3, poison: int = 0xFF, word: int | None = None
    ) -> list[np.ndarray]:
        """All outputs, in their physical shapes. ``arrays`` are logical. Guard bytes after the outputs must stay.
        ``word``: what the arena is full of, instead of ``poison``."""
        ctypes.c_int.in_dll(self.library, "halotile_test_tasks").value = tasks
        self.arena[:] = poison
        if word is not None:
            self.arena[: self.spec.planned_bytes // 4 * 4].view(np.int32)[:] = word
        graph, layouts = self.build.graph, self.build.layouts
        inputs = [_copied(layouts[v].pack(a) if v in layouts else a) for v, a in zip(graph.inputs, arrays)]
        shapes = [layouts[v].physical_shape if v in layouts else v.shape for v in graph.outputs]
        sizes = [int(np.prod(s, dtype=np.int64)) * np.dtype(v.dtype).itemsize for v, s in zip(graph.outputs, shapes)]
        outputs = [_guarded(size, np.dtype(v.dtype).itemsize, poison) for v, size in zip(graph.outputs, sizes)]
        pointers = [a.ctypes.data for a in (*inputs, *outputs, self.blob, self.arena)]
        code = self.function(*(ctypes.c_void_p(p) for p in pointers))
        assert code == 0
        results = []
        for value, shape, size, place in zip(graph.outputs, shapes, sizes, outputs):
            assert (place[size:] == poison).all(), f"{value} is written past its end"
            results.append(place[:size].view(value.dtype).reshape(shape).copy())
        assert (self.arena[self.spec.planned_bytes :] == poison).all(), "written past the arena"
        return results

    @property
    def launches(self) -> int:
        return int(ctypes.c_int.in_dll(self.library, "halotile_test_launches").value)

    def physical(self, value: Value) -> np.ndarray:
        """What lies in the arena for ``value`` after a run (if nothing took its place), in its physical shape."""
        layout = self.build.layouts.get(value, Layout.plain(value.shape))
        offset = self.build.memory.offsets[value]
        size = layout.elements * np.dtype(value.dtype).itemsize
        return self.arena[offset : offset + size].view(value.dtype).reshape(layout.physical_shape).copy()


def _spec(value: Value) -> TensorSpec:
    return TensorSpec(value.name, value.dtype, value.shape)


def _aligned(size: int) -> np.ndarray:
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def _copied(array: np.ndarray) -> np.ndarray:
    """The array's bytes at an address that is aligned to its elements only, with nothing readable promised behind."""
    size = array.dtype.itemsize
    place = _aligned(array.nbytes + size)[size:]
    place[:] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    return place


def _guarded(size: int, item: int, poison: int) -> np.ndarray:
    place = _aligned(size + item + 64)[item:]
    place[:] = poison
    return place


@dataclass
class _Case:
    arrays: list[np.ndarray]
    body: Callable[..., Any]
    expected: list[np.ndarray]
    rtol: float
    atol: float
    results: list[np.ndarray] = field(default_factory=list)
    schedules: list[str] = field(default_factory=list)
    error: Exception | None = None


class Suite:
    """Independent cases that are compiled together, as one module whose outputs are all cases' outputs."""

    def __init__(
        self, target: Target | None = None, fuse: bool = True, layout: bool = True, tiled: bool = True
    ) -> None:
        self.target, self.fuse, self.layout, self.tiled = target, fuse, layout, tiled
        self.cases: dict[str, _Case] = {}
        self.compiled: Compiled | None = None
        self.built = False

    def add(
        self,
        name: str,
        arrays: Sequence[np.ndarray],
        body: Callable[..., Any],
        expected: Any,
        rtol: float = 1e-6,
        atol: float = 1e-6,
    ) -> None:
        """``body`` maps one Relax expression for each array to outputs, which must equal ``expected``."""
        assert name not in self.cases, f"two cases {name}"
        many = expected if isinstance(expected, (list, tuple)) else [expected]
        self.cases[name] = _Case(list(arrays), body, [np.asarray(e) for e in many], rtol, atol)

    def compile(self) -> None:
        """All cases as one object; if that fails, each for itself, so that those that are to blame fail alone."""
        if self.built:
            return
        self.built = True
        try:
            self._compile(list(self.cases.values()))
        except Exception:
            for case in self.cases.values():
                try:
                    self._compile([case])
                except Exception as error:
                    case.error = error

    def _compile(self, cases: list[_Case]) -> None:
        arrays = [a for case in cases for a in case.arrays]

        def body(*params: Any) -> list[Any]:
            outputs, rest = [], list(params)
            for case in cases:
                own, rest = rest[: len(case.arrays)], rest[len(case.arrays) :]
                made = case.body(*own)
                outputs += list(made) if isinstance(made, (list, tuple)) else [made]
            return outputs

        self.compiled = Compiled(staged(module_of(arrays, body), self.target, self.fuse, self.layout, tiled=self.tiled))
        results = self.compiled.run(arrays)
        for case in cases:
            case.results, results = results[: len(case.expected)], results[len(case.expected) :]
        self._note_schedules(cases)

    def _note_schedules(self, cases: list[_Case]) -> None:
        """Which kernels each case's outputs came from, by walking back from the outputs."""
        assert self.compiled is not None
        build = self.compiled.build
        made = {v: (g, k) for g, k in zip(build.groups, build.kernels) for v in g.outputs}
        outputs = list(build.graph.outputs)
        for case in cases:
            mine, outputs = outputs[: len(case.expected)], outputs[len(case.expected) :]
            stack, seen = list(mine), set()
            while stack:
                value = stack.pop()
                if value in seen:
                    continue
                seen.add(value)
                if value in build.views:
                    stack.append(build.views[value])
                if value in made:
                    group, kernel = made[value]
                    parts = kernel.parts if isinstance(kernel, TiledKernel) else ()
                    case.schedules[0:0] = [kernel.schedule, *(p.schedule for p in parts)]
                    stack.extend(group.inputs)

    def check(self, name: str) -> None:
        """Asserts that the case's outputs are right."""
        self.compile()
        case = self.cases[name]
        if case.error is not None:
            raise case.error
        for got, wanted in zip(case.results, case.expected, strict=True):
            assert got.shape == wanted.shape and got.dtype == wanted.dtype, (
                f"{got.dtype}{got.shape} instead of {wanted.dtype}{wanted.shape}"
            )
            if got.dtype.kind in "biu":
                np.testing.assert_array_equal(got, wanted, err_msg=str(case.schedules))
            else:
                a, b = got.astype("float64"), wanted.astype("float64")
                np.testing.assert_allclose(a, b, rtol=case.rtol, atol=case.atol, err_msg=str(case.schedules))

    def schedules(self, name: str) -> list[str]:
        """The schedules of the kernels that compute a case."""
        self.compile()
        return self.cases[name].schedules

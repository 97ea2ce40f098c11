"""Assembly: equal kernels once, the same bits however tasks are cut and whatever was in memory, main for itself."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.compiler.codegen.library import build_library
from halotile.compiler.codegen.module import MAIN
from halotile.compiler.codegen.objects import build_object
from halotile.compiler.codegen.spec import LibrarySpec
from halotile.compiler.runtime.loader import load
from halotile.compiler.spec import TensorSpec
from halotile.schedules.emit.builder import KernelBuilder
from tvm import IRModule, relax, tirx

R = relax.op
F = "float32"
RANDOM = np.random.default_rng(9)
X = RANDOM.standard_normal((2, 8, 40, 41)).astype(F)
KERNELS = [RANDOM.standard_normal((8, 8, 3, 3)).astype(F) for _ in range(3)]


def network(x: Any) -> Any:
    """Two equal blocks, a third with other weights only, a softmax, a matrix product, a reduction over everything."""
    for k in KERNELS:
        x = R.nn.relu(R.nn.conv2d(x, weight(k * np.float32(0.1)), padding=(1, 1)))
    y = R.nn.softmax(R.mean(x, axis=(2,)), axis=1)
    z = R.matmul(R.reshape(x, (16, 1640)), weight(KERNELS[0].reshape(-1)[:328].reshape(328, 1).repeat(5, 0)))
    return [y, z, R.sum(x), R.max(x, axis=(0, 1))]


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return Compiled(staged(module_of([X], network)))


def test_equal_kernels_are_emitted_once(compiled: Compiled) -> None:
    """The three convolutions differ in pointers only."""
    build = compiled.build
    names = [s for s, g in zip(build.symbols, build.groups) if g.anchor is not None and "conv" in g.anchor.operator]
    assert len(names) == 3
    assert len(set(names[:2])) == 1, "two layers that differ in their weights only share code"
    assert len(set(build.symbols)) < len(build.symbols)


def test_main_is_an_object_of_its_own(compiled: Compiled, tmp_path: Path) -> None:
    """Inlined into main, two kernels' buffers would be taken never to overlap, though they share arena bytes."""
    spec = compiled.spec
    assert spec.kernel_objects
    (tmp_path / "main.o").write_bytes(spec.object_bytes)
    table = subprocess.run(["nm", tmp_path / "main.o"], capture_output=True, text=True, check=True).stdout
    symbols = {line.split()[-1]: line.split()[-2] for line in table.splitlines()}
    assert symbols["halotile_kernel_main"] == "T"
    for name in set(compiled.build.symbols):
        assert symbols[name] == "U", f"{name} is not called but part of main"


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 64])
def test_the_same_bits_for_any_number_of_tasks(compiled: Compiled, tasks: int) -> None:
    one = compiled.run([X], tasks=1)
    for a, b in zip(one, compiled.run([X], tasks=tasks), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("poison", [0x00, 0x7F, 0xFF])
def test_the_same_bits_whatever_was_in_the_arena(compiled: Compiled, poison: int) -> None:
    one = compiled.run([X], poison=0xAA)
    for a, b in zip(one, compiled.run([X], poison=poison), strict=True):
        assert np.isfinite(b).all() and a.tobytes() == b.tobytes()


def test_kernels_launch_in_parallel(compiled: Compiled) -> None:
    before = compiled.launches
    compiled.run([X])
    assert compiled.launches > before


def test_constants_are_kept_once_and_aligned() -> None:
    table = np.arange(40, dtype=F)
    module = module_of([table], lambda x: [R.add(x, weight(table)), R.multiply(x, weight(table.copy()))])
    build = Compiled(staged(module))
    offsets = set(build.build.weights.offsets.values())
    assert len(offsets) == 1 and not any(o % 64 for o in offsets)
    for got, wanted in zip(build.run([table]), [table + table, table * table]):
        np.testing.assert_array_equal(got, wanted)


def test_threads_of_a_library_give_the_same_bits() -> None:
    """Through the real runtime and thread pool, run after run."""
    import halotile
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "k"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("ReduceMean", ["c"], ["y"], axes=[2, 3]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8, 1, 1])
    graph = helper.make_graph(nodes, "bits", [x], [y], [numpy_helper.from_array(KERNELS[0], "k")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    compiled = halotile.compile(model, threads=3)
    wanted = compiled({"x": X}, threads=1)["y"].tobytes()
    for threads in (1, 2, 3) * 3:
        assert compiled({"x": X}, threads=threads)["y"].tobytes() == wanted


@pytest.mark.parametrize(("dtype", "flat"), [("float32", True), ("bool", False)])
def test_buffers_of_bool_are_flattened_by_tvm(dtype: str, flat: bool) -> None:
    from halotile.compiler.codegen.objects import is_flat
    from halotile.schedules.emit.builder import KernelBuilder

    k = KernelBuilder("copy")
    x, y = k.pointer("x", dtype, 64), k.pointer("y", dtype, 64)
    with k.loop(4) as i, k.when(i < 3), k.loop(16, "vectorized") as v:
        k.store(y, i * 16 + v, k.load(x, i * 16 + v))
    assert is_flat(k.finish().body) == flat


def test_flat_kernels_are_no_larger_without_the_passes_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from halotile.compiler.codegen import objects as assembly

    found = Compiled(staged(module_of([X], network)))
    assert all(assembly.is_flat(kernel.function.body) for kernel in found.build.kernels)
    monkeypatch.setattr(assembly, "NEEDLESS_OF_FLAT", assembly.NEEDLESS[:1])
    flattened = Compiled(staged(module_of([X], network)))
    for ours, theirs in zip(found.spec.kernel_objects, flattened.spec.kernel_objects, strict=True):
        assert len(ours) <= 1.01 * len(theirs)  # not the same: squares that are transposed keep an index as it is
    for a, b in zip(found.run([X]), flattened.run([X]), strict=True):
        assert a.tobytes() == b.tobytes()


def test_memory_that_a_serial_kernel_takes_is_given_back(tmp_path: Path) -> None:
    """What is too large for the stack, in no task of its own: the second call finds as much as the first."""
    count = 1 << 15
    k = KernelBuilder("turned")
    x, y = k.pointer("x", F, count), k.pointer("y", F, count)
    between = k.local("between", F, count, "global")
    for source, result in ((x, between), (between, y)):
        with k.loop(count) as i:
            k.store(result, count - 1 - i, k.load(source, i) + tirx.const(1, F))
    main = KernelBuilder("main")
    x, y = (main.pointer(name, F, count) for name in "xy")
    for name in ("weights", "arena"):
        main.pointer(name, "uint8", 1)
    for _ in range(3):
        main.add(tirx.Evaluate(tirx.call_extern("int32", "turned", x.data, y.data)))
    named = {"turned": k, MAIN: main}
    functions = {name: b.finish({"global_symbol": name, "calling_conv": 1}) for name, b in named.items()}
    spec = LibrarySpec(
        name="turned", inputs=(TensorSpec("x", F, (count,)),), outputs=(TensorSpec("y", F, (count,)),),
        object_bytes=build_object(IRModule(functions), native()), weights=[], planned_bytes=0,
        workspace_bytes=count * 4, max_threads=1, default_threads=1, target=native(),
    )  # fmt: skip
    with load(build_library(spec, tmp_path / "out").directory) as model:
        numbers = np.arange(count, dtype=F)
        assert np.array_equal(model({"x": numbers})["y"], numbers + 2)

"""Whole libraries from the cache: the same as were built, for the same question only, whoever else is at it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from commands import run_command
from compiled import native
from forked_children import forked
from halotile.compiler.cache import library as libraries
from halotile.compiler.cache.library import key_of_library
from halotile.compiler.cache.origin import origin
from halotile.compiler.cache.store import COUNTS, Cache
from halotile.compiler.codegen import objects
from halotile.compiler.codegen.toolchain import Toolchain
from halotile.compiler.frontend.tensors import external_tensors
from halotile.compiler.state import Options
from onnx import TensorProto, helper, numpy_helper
from small_models import WEIGHT, external, tiny

X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
Y = np.maximum(X @ WEIGHT, 0)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that the environment names."""
    monkeypatch.setenv("HALOTILE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HALOTILE_CACHE_LIBRARIES")
    return tmp_path / "cache"


def works(model: Any, x: np.ndarray = X, y: np.ndarray = Y) -> None:
    np.testing.assert_allclose(model({"x": x})["y"], y, rtol=1e-5, atol=1e-6)


def entries(cache: Path) -> list[Path]:
    return sorted((cache / "libraries").iterdir())


def test_the_second_compile_builds_nothing(cache: Path, builds: list[Any], tmp_path: Path) -> None:
    first, again = halotile.compile(tiny()), halotile.compile(tiny())
    assert len(builds) == 1 and list(again.report["seconds"]) == ["cache"]
    works(first)
    works(again)
    assert again.inputs == first.inputs and again.outputs == first.outputs and again.target == first.target
    kept = {k: v for k, v in first.report.items() if k != "seconds"}
    assert {k: v for k, v in again.report.items() if k != "seconds"} == json.loads(json.dumps(kept))
    first.save(tmp_path / "first")
    again.save(tmp_path / "again")
    for file in (tmp_path / "first").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()
    assert again.verify().ok


def test_python_and_the_command_line_share_it(cache: Path, builds: list[Any], tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(tiny().SerializeToString())
    build = ["build", "m.onnx", "--no-verify", "--format", "so"]
    for folder, more in (("a", []), ("b", []), ("c", ["--no-cache"])):
        done = run_command([*build, "-o", folder, "--json", *more], tmp_path, os.environ)
        assert done.returncode == 0, done.stderr
        seconds = json.loads(done.stdout)["seconds"]
        assert (list(seconds) == ["cache"]) == (folder == "b")
        works(halotile.load(tmp_path / folder))
    assert len(entries(cache)) == 1
    (tmp_path / "b" / "libm.so").write_bytes(b"")  # what a user does with his files is not done to the cache's
    done = run_command([*build, "-o", "d"], tmp_path, os.environ)
    works(halotile.load(tmp_path / "d"))


def test_where_it_is_off_nothing_is_kept(cache: Path, builds: list[Any], tmp_path: Path) -> None:
    for _ in range(2):
        works(halotile.compile(tiny(), cache=False))
    assert len(builds) == 2 and not cache.exists()
    for _ in range(2):
        works(halotile.compile(tiny(), cache=tmp_path / "mine"))
    assert len(builds) == 3 and entries(tmp_path / "mine") and not cache.exists()


def other_model() -> onnx.ModelProto:
    model = tiny()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(2 * WEIGHT, model.graph.initializer[0].name))
    return model


OTHER_OPTIONS: dict[str, Any] = {
    "exact": True, "threads": 3, "float_mode": "finite", "name": "other", "memory_budget": 1 << 20,
    "optimize": "memory", "flush_denormals": True, "tile": "off", "timers": True, "formats": ("so", "a"),
    "winograd": False, "shapes": {"x": (2, 4)}, "explain": True,
}  # fmt: skip


def test_everything_that_decides_is_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, options = Cache(tmp_path), Options(native())
    plain = key_of_library(tiny(), options, cache)
    assert plain == key_of_library(tiny(), options, cache) is not None
    keys = {key_of_library(tiny(), replace(options, **{k: v}), cache): k for k, v in OTHER_OPTIONS.items()}
    keys[key_of_library(other_model(), options, cache)] = "weights"
    larger = replace(native(), l2_bytes=2 * native().l2_bytes)
    keys[key_of_library(tiny(), replace(options, target=larger), cache)] = "a fact"
    monkeypatch.setattr(libraries, "origin", lambda: "other code")
    keys[key_of_library(tiny(), options, cache)] = "code"
    monkeypatch.undo()
    monkeypatch.setattr(Toolchain, "identity", lambda self: "another compiler")
    keys[key_of_library(tiny(), options, cache)] = "compiler"
    assert len(keys) == len(OTHER_OPTIONS) + 4 and plain not in keys


def test_our_code_and_the_packages_are_the_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from halotile.compiler.cache import origin as module

    found = {module.origin.__wrapped__()}
    assert found == {origin()}
    for room in (*module.ROOMS, "errors.py", "version.py"):
        source = module.ROOT / room
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / room)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    assert module.origin.__wrapped__() in found, "content counts, not where it lies"
    for name in ("passes/fuse/fuse.py", "compiler/runtime/pool.c", "targets/cores.toml", "errors.py"):
        (tmp_path / name).write_text((tmp_path / name).read_text() + "\n")
        found.add(module.origin.__wrapped__())
    assert {v.partition("-")[0] for v in module._versions()} >= set(module._PACKAGES) - {"ziglang"}
    monkeypatch.setattr(module, "_versions", lambda: ["numpy-0.1.dist-info"])
    found.add(module.origin.__wrapped__())
    assert module._libraries("tvm") and module._libraries("tvm_ffi")
    monkeypatch.setattr(module, "_libraries", lambda package: ["libtvm.so 1 2"])
    found.add(module.origin.__wrapped__())
    assert len(found) == 7


def external_model(folder: Path, factor: float) -> Path:
    """y = relu(x w), the weight in a file beside the model."""
    (folder / "w.bin").write_bytes((factor * WEIGHT).astype(np.float32).tobytes())
    external(folder / "m.onnx", "w.bin", offset=0, length=WEIGHT.nbytes)
    return folder / "m.onnx"


def test_external_data_is_in_the_key(cache: Path, builds: list[Any], tmp_path: Path) -> None:
    for factor, count in ((1, 1), (1, 1), (3, 2), (1, 2)):
        path = external_model(tmp_path, factor)
        works(halotile.compile(path), y=factor * Y)
        assert len(builds) == count
    (tmp_path / "w.bin").unlink()
    with pytest.raises(halotile.errors.ModelError, match="w.bin"):
        halotile.compile(path)


def test_external_tensors_are_found_wherever_they_are() -> None:
    def tensor(name: str) -> TensorProto:
        return TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)

    constant = helper.make_node("Constant", [], ["c"])
    constant.attribute.append(helper.make_attribute("value", tensor("attribute")))
    branch = helper.make_graph([constant], "b", [], [], [tensor("branch")])
    function = helper.make_function("own", "f", [], ["c"], [constant], [helper.make_opsetid("", 17)])
    nodes = [helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)]
    graph = helper.make_graph(nodes, "g", [], [], [tensor("graph"), numpy_helper.from_array(WEIGHT, "w")])
    model = helper.make_model(graph, functions=[function])
    assert Counter(t.name for t in external_tensors(model)) == {"graph": 1, "branch": 2, "attribute": 3}


@pytest.mark.parametrize("damage", ["bit", "cut", "missing", "manifest", "empty", "nonsense"])
def test_a_damaged_library_is_built_again(damage: str, cache: Path, builds: list[Any]) -> None:
    halotile.compile(tiny())
    (entry,) = entries(cache)
    (library,), manifest = entry.glob("*.so"), entry / "manifest.json"
    data = bytearray(library.read_bytes())
    if damage == "bit":
        data[len(data) // 2] ^= 1
        library.write_bytes(data)
    elif damage == "cut":
        library.write_bytes(data[:-100])
    elif damage == "missing":
        library.unlink()
    else:
        manifest.write_text({"manifest": manifest.read_text()[:-90], "empty": "", "nonsense": "[1]"}[damage])
    works(halotile.compile(tiny()))
    works(halotile.compile(tiny()))
    assert len(builds) == 2 and len(entries(cache)) == 1


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    works(halotile.compile(tiny(), cache=tmp_path / "file"))
    works(halotile.compile(tiny(), cache=tmp_path / "file" / "below"))


def test_a_library_that_would_fill_it_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALOTILE_CACHE_SIZE", "20KB")
    works(halotile.compile(tiny()))
    assert not list(cache.glob("libraries/*"))


def test_who_wants_stages_gets_them(cache: Path, builds: list[Any], tmp_path: Path) -> None:
    halotile.compile(tiny())
    halotile.compile(tiny(), dump_ir=tmp_path / "ir")
    assert len(builds) == 2 and list((tmp_path / "ir").iterdir())


def test_a_changed_last_layer_compiles_that_alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are found whatever model they come from; main, which calls them, is each model's own."""
    compiled: list[list[str]] = []
    real = objects._compiled

    def note(module: Any, target: Any) -> Any:
        compiled.append([var.name_hint for var in module.functions])
        return real(module, target)

    monkeypatch.setattr(objects, "_compiled", note)
    first = halotile.compile(layers(5))
    assert len(compiled) >= 4
    compiled.clear()
    changed = halotile.compile(layers(7))
    assert sorted(names[0].startswith("halotile_k_") for names in compiled) == [False, True], compiled
    ours = {k["function"] for k in first.report["kernels"]} & {k["function"] for k in changed.report["kernels"]}
    assert len(ours) == len(first.report["kernels"]) - 1
    assert changed.verify().ok


def layers(last: int) -> onnx.ModelProto:
    """Three convolutions and a product with ``last`` columns."""
    rng = np.random.default_rng(1)
    widths = [3, 8, 16, 24]
    weights = {f"w{i}": rng.standard_normal((b, a, 3, 3)) / 9 for i, (a, b) in enumerate(zip(widths, widths[1:]))}
    weights["w"] = rng.standard_normal((24, last))
    nodes, at = [], "x"
    for i in range(3):
        nodes += [
            helper.make_node("Conv", [at, f"w{i}"], [f"c{i}"], pads=[1] * 4, name=f"conv{i}"),
            helper.make_node("Relu", [f"c{i}"], [f"r{i}"]),
        ]
        at = f"r{i}"
    nodes += [
        helper.make_node("GlobalAveragePool", [at], ["pool"]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 13, 11])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, last])
    held = [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "layers", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_passes_that_a_caller_changed_are_not_the_caches(cache: Path, builds: list[Any]) -> None:
    import tvm

    with tvm.transform.PassContext(opt_level=3):
        halotile.compile(tiny())
    assert not list(cache.glob("libraries/*"))
    halotile.compile(tiny())
    with tvm.transform.PassContext(opt_level=3):
        halotile.compile(tiny())
    assert len(builds) == 3


def test_neither_tvm_nor_onnx_is_loaded_to_find_one(cache: Path, tmp_path: Path) -> None:
    path = external_model(tmp_path, 1)
    code = (
        "import sys, numpy as np, halotile\n"
        "print(halotile.compile(sys.argv[1])({'x': np.ones((2, 4), np.float32)})['y'].shape)\n"
        "print(*sorted({'tvm', 'tvm_ffi', 'onnx', 'onnxruntime', 'click', 'rich'} & sys.modules.keys()))"
    )
    for loaded in ("onnx tvm tvm_ffi", ""):
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60)
        assert done.stdout == f"(2, 5)\n{loaded}\n", done.stderr


def test_of_twenty_processes_one_builds(cache: Path, tmp_path: Path) -> None:
    def work(i: int) -> None:
        COUNTS.clear()
        model = halotile.compile(tiny())
        works(model)
        told = {"built": "cache" not in model.report["seconds"], "compiled": COUNTS["compiled"]}
        (tmp_path / f"{i}.json").write_text(json.dumps(told))

    assert forked(20, work) == [0] * 20
    told = [json.loads((tmp_path / f"{i}.json").read_text()) for i in range(20)]
    assert sum(t["built"] for t in told) == 1
    assert len(entries(cache)) == 1 and not list((cache / "tmp").iterdir()) and not list((cache / "locks").iterdir())


def test_twenty_models_compile_a_kernel_once(cache: Path, tmp_path: Path) -> None:
    """Whole libraries of other names have the same kernels."""

    def work(i: int) -> None:
        COUNTS.clear()
        works(halotile.compile(tiny(), name=f"m{i % 4}"))
        (tmp_path / f"{i}").write_text(str(COUNTS["compiled"]))

    assert forked(8, work) == [0] * 8
    once = len([p for p in (cache / "objects").rglob("*") if p.is_file()])
    assert sum(int((tmp_path / f"{i}").read_text()) for i in range(8)) == once


@pytest.mark.parametrize("where", ["kernel", "link", "library", "last"])
def test_who_is_killed_in_the_middle_is_in_nobodys_way(
    where: str, cache: Path, builds: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def half(source: Path, there: Path, link: bool) -> None:
        shutil.copy(next(source.glob("*.so")), there)
        die()

    def work(_: int) -> None:
        with monkeypatch.context() as patch:
            if where == "kernel":
                patch.setattr(objects, "_compiled", die)
            elif where == "link":
                patch.setattr(Toolchain, "run", die)
            elif where == "library":
                patch.setattr(libraries, "_copy", half)
            else:
                patch.setattr(libraries.os, "replace", die)
            halotile.compile(tiny())

    assert forked(1, work) == [-signal.SIGKILL]
    assert not list(cache.glob("libraries/*"))
    works(halotile.compile(tiny()))
    works(halotile.compile(tiny()))
    assert len(builds) == 1

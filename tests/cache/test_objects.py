"""Object code from the cache: the same bytes, for the same question only, whatever lies on the disk."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from compiled import native
from halotile.compiler.cache.keys import key_of
from halotile.compiler.cache.store import Cache
from halotile.compiler.codegen import link, objects
from halotile.compiler.codegen.objects import build_object, key_of_object
from halotile.compiler.codegen.toolchain import Toolchain
from halotile.compiler.pipeline import Options, run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.schedules.emit.builder import KernelBuilder
from halotile.targets.resolve import resolve
from small_models import tiny
from tvm import tirx

ROOT = Path(objects.__file__).parents[2]


def kernel(
    factor: float = 2.0, name: str = "scaled", variable: str = "x", dtype: str = "float32", count: int = 64,
    kind: str = "vectorized", called: str = "",
) -> Any:  # fmt: skip
    """y = factor * x, of ``count`` elements."""
    k = KernelBuilder(name)
    x, y = k.pointer(variable, dtype, count), k.pointer("y", dtype, count)
    if called:
        k.add(tirx.Evaluate(tirx.call_extern("int32", called)))
    with k.loop(count // 16) as i, k.loop(16, kind) as v:
        k.store(y, i * 16 + v, k.load(x, i * 16 + v) * tirx.const(factor, dtype))
    return k.finish({"global_symbol": name, "calling_conv": 1})


def module(**changed: Any) -> tvm.IRModule:
    return tvm.IRModule({changed.get("name", "scaled"): kernel(**changed)})


@pytest.fixture
def llvm(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The modules that were really compiled."""
    made: list[Any] = []
    real = objects._compiled

    def compiled(module: Any, target: Any) -> Any:
        made.append(module)
        return real(module, target)

    monkeypatch.setattr(objects, "_compiled", compiled)
    return made


def test_what_was_compiled_once_is_found(tmp_path: Path, llvm: list[Any]) -> None:
    """And is what a build without a cache makes."""
    cache = Cache(tmp_path / "objects")
    first = build_object(module(), native(), cache=cache)
    again = build_object(module(), native(), cache=Cache(tmp_path / "objects"))
    assert first == again == build_object(module(), native())
    assert len(llvm) == 2, "once with the cache, once without"


ALONE = {
    "factor": {"factor": 3.0},
    "sign of zero": {"factor": -0.0},
    "zero": {"factor": 0.0},
    "last bit": {"factor": float(np.nextafter(np.float32(2), np.float32(3)))},
    "name": {"name": "other"},
    "names that debuggers see": {"variable": "other"},
    "type": {"dtype": "float64"},
    "length": {"count": 128},
    "loop": {"kind": "unroll"},
    "call": {"called": "one"},
    "another call": {"called": "two"},
}


def test_every_part_of_a_kernel_is_in_the_key() -> None:
    keys = {what: key_of_object(module(**changed), native()) for what, changed in ({"none": {}} | ALONE).items()}
    assert len(set(keys.values())) == len(keys)


def test_another_kernel_beside_it_is_another_object() -> None:
    both = {"scaled": kernel(), "other": kernel(3.0, "other")}
    swapped = {"scaled": kernel(3.0), "other": kernel(2.0, "other")}
    keys = {key_of_object(m, native()) for m in (module(), tvm.IRModule(both), tvm.IRModule(swapped))}
    assert len(keys) == 3
    assert key_of_object(tvm.IRModule(both), native()) == key_of_object(
        tvm.IRModule(dict(reversed(both.items()))), native()
    )


def test_attributes_of_functions_are_in_the_key() -> None:
    marked = tvm.IRModule({"scaled": kernel().with_attr("streamed", [tirx.IntImm("int32", 1)])})
    assert key_of_object(marked, native()) != key_of_object(module(), native())


def test_every_fact_of_the_target_that_llvm_sees_is_in_the_key() -> None:
    target = resolve("x86-64-v3")
    others = [
        target,
        replace(target, cpu="haswell"),
        replace(target, features=(*target.features, "-fma")),
        replace(target, vector_bits=128),
        resolve("raspberry-pi-4"),
        resolve("raspberry-pi-3-32"),
    ]
    assert len({key_of_object(module(), t) for t in others}) == len(others)
    assert key_of_object(module(), replace(target, l2_bytes=1)) == key_of_object(module(), target)


def test_options_of_llvm_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    target = resolve("raspberry-pi-3-32")
    usual = key_of_object(module(), target)
    monkeypatch.setattr("halotile.targets.target.NO_BLOCK_LOADS", ("-arm-load-store-opt:bool=true",))
    assert key_of_object(module(), target) != usual


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    objects._versions.cache_clear()
    monkeypatch.setattr(objects, "_versions", objects._versions.__wrapped__)


CHANGES: dict[str, Callable[[pytest.MonkeyPatch, Path], None]] = {
    "version of TVM": lambda patch, _: patch.setattr(tvm, "__version__", "0.0"),
    "version of Halotile": lambda patch, _: patch.setattr(objects, "__version__", "0.0"),
    "our passes": lambda patch, _: patch.setattr(objects, "NEEDLESS_OF_FLAT", objects.NEEDLESS),
    "our code": lambda patch, folder: patch.setattr(objects.streaming, "__file__", str(folder / "streaming.py")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_versions_are_in_the_key(what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "streaming.py").write_text("# another one\n")
    _forget(monkeypatch)
    usual = key_of_object(module(), native())
    CHANGES[what](monkeypatch, tmp_path)
    assert key_of_object(module(), native()) != usual


def test_options_of_the_passes_are_in_the_key() -> None:
    usual = key_of_object(module(), native())
    with tvm.transform.PassContext(disabled_pass=["tirx.Simplify"]):
        assert key_of_object(module(), native()) != usual
    with tvm.transform.PassContext(opt_level=0):
        assert key_of_object(module(), native()) != usual


def test_all_our_code_behind_the_key_is_named() -> None:
    """What objects.py and streaming.py import of ours decides the object too."""
    named = {Path(str(m.__file__)) for m in objects.CODE} | {Path(objects.__file__)}
    plain = {ROOT / "targets" / "target.py", ROOT / "passes/memory/places.py", ROOT / "passes/memory/plan.py"}
    plain |= {ROOT / "schedules/words/group.py", ROOT / "schedules" / "tiled" / "__init__.py", ROOT / "version.py"}
    plain |= {ROOT / "compiler/cache/store.py", ROOT / "schedules/words/dims.py"}
    plain |= {ROOT / "schedules/words/tvm_types.py", ROOT / "schedules/words/size_like.py"}  # names for annotations
    plain |= {ROOT / "schedules/emit/open_sizes.py", ROOT / "schedules/words/sizes.py"}  # as attributes, in the key
    for source in (Path(objects.__file__), Path(objects.streaming.__file__)):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = source.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                for alias in node.names:
                    places = (folder / f"{alias.name}.py", folder.with_suffix(".py"), folder / "__init__.py")
                    found = next(p for p in places if p.is_file())
                    assert found in named | plain, f"{source.name} uses {found}, which is in no key"


def test_parts_of_a_key_do_not_run_together() -> None:
    assert key_of("ab", "c") != key_of("a", "bc") != key_of("abc")


@pytest.mark.parametrize("damage", ["cut", "empty", "bit", "other", "folder"])
def test_damaged_entries_are_compiled_again(damage: str, tmp_path: Path, llvm: list[Any]) -> None:
    cache = Cache(tmp_path)
    wanted = build_object(module(), native(), cache=cache)
    (entry,) = (p for p in (tmp_path / "objects").rglob("*") if p.is_file())
    data = entry.read_bytes()
    if damage == "folder":
        entry.unlink()
        entry.mkdir()
    else:
        flipped = data[:-1] + bytes([data[-1] ^ 1])
        entry.write_bytes({"cut": data[:-9], "empty": b"", "bit": flipped, "other": b"\x7fELF" * 99}[damage])
    assert build_object(module(), native(), cache=cache) == wanted and len(llvm) == 2
    if damage != "folder":
        assert entry.read_bytes() == data, "it is whole again"
        assert build_object(module(), native(), cache=cache) == wanted and len(llvm) == 2


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert build_object(module(), native(), cache=Cache(tmp_path / "file"))


def test_writers_at_the_same_time_leave_whole_entries(tmp_path: Path) -> None:
    """Readers see nothing, or all of what one of them wrote; nothing else stays."""
    data = {key_of(str(i)): bytes([i]) * (1 << 18) for i in range(2)}
    wrong: list[str] = []

    def work() -> None:
        cache = Cache(tmp_path)
        for _ in range(40):
            for key, value in data.items():
                cache.put(key, value)
                if cache.get(key) != value:
                    wrong.append(key)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == sorted(data)


def test_counts_of_stores_past_the_caches_are_kept(tmp_path: Path) -> None:
    target, cache = resolve("x86-64-v4"), Cache(tmp_path)
    marked = tvm.IRModule({"scaled": kernel().with_attr("streamed", [tirx.IntImm("int32", 1)])})
    first: dict[str, int] = {}
    again: dict[str, int] = {}
    build_object(marked, target, first, cache)
    build_object(marked, target, again, cache)
    assert first == again == {"scaled": 1}


def test_a_second_build_compiles_nothing_and_is_the_same(
    tmp_path: Path, llvm: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process that has not compiled the runtime's C sources; with another model, those only are there."""
    told: list[str] = []
    real = Toolchain.run

    def run(self: Toolchain, words: Any, folder: Path, what: str) -> None:
        told.append(what)
        real(self, words, folder, what)

    monkeypatch.setattr(Toolchain, "run", run)
    options = Options(native(), formats=("so", "a", "exe"), cache=Cache(tmp_path / "objects"))
    files = []
    for name in ("first", "again"):
        monkeypatch.setattr(link, "_objects", {})
        told.clear()
        built = run_pipeline(tiny(), options, output=tmp_path / name).built
        files.append([(p.name, p.read_bytes()) for p in sorted((tmp_path / name).iterdir()) if p.suffix != ".json"])
        with load(built.directory) as model:
            x = np.ones(model.inputs[0].shape, np.float32)
            assert np.isfinite(model({model.inputs[0].name: x})[model.outputs[0].name]).all()
        assert len(llvm) == 2, "main and the kernels, by the first"
    assert files[0] == files[1]
    assert sorted(told) == ["joining libtiny.a", "linking libtiny.so", "linking model_run"]
    monkeypatch.setattr(link, "_objects", {})
    told.clear()
    run_pipeline(tiny(), replace(options, name="other"), output=tmp_path / "other")
    compiled = {what for what in told if what.startswith("compiling")}
    assert "compiling runtime/generated.c" in compiled and "compiling runtime/pool.c" not in compiled


def test_another_compiler_makes_its_own_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@"\n')
    compiler.chmod(0o755)
    toolchain = Toolchain((str(compiler),), "gcc", "x86_64")
    identities = {toolchain.identity(), replace(toolchain, command=(str(compiler), "-O1")).identity()}
    compiler.write_text('#!/bin/sh\nexec cc -O1 "$@"\n')
    identities.add(toolchain.identity())
    monkeypatch.setenv("CPATH", str(tmp_path))
    identities.add(toolchain.identity())
    assert len(identities) == 4

"""Files that are not read again: as long as they are what they were, and no longer."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from forked_children import forked
from halotile.compiler.cache import digests
from halotile.compiler.cache.digests import digest_of
from halotile.compiler.cache.store import Cache
from halotile.compiler.runtime import digest as reading
from onnx import numpy_helper
from small_models import WEIGHT, tiny

X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
HOUR = 3600 * 10**9


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """An empty cache that the environment names; files of any size count as large."""
    monkeypatch.setenv("HALOTILE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HALOTILE_CACHE_LIBRARIES", raising=False)
    monkeypatch.setattr(digests, "LEAST_BYTES", 1)
    return Cache(tmp_path / "cache")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A mark for each file that was read for its digest."""
    seen: list[str] = []

    def sha256() -> Any:
        seen.append("read")
        return hashlib.new("sha256")

    monkeypatch.setattr(reading, "hashlib", SimpleNamespace(sha256=sha256))
    return seen


def another_process() -> None:
    """Forgets what this one knows of files."""
    reading._known.clear()


def old(path: Path) -> Path:
    """A file that was written an hour ago, as far as it says; when it was changed is for the system to tell."""
    os.utime(path, ns=(time.time_ns() - HOUR, time.time_ns() - HOUR))
    return path


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds on, by which every file here is settled."""
    now = time.time_ns
    monkeypatch.setattr(reading.time, "time_ns", lambda: now() + 10**10)


def written(path: Path, factor: float = 1) -> Path:
    """y = relu(x w) times a factor, in a file of the same size whatever it is."""
    model = tiny()
    model.graph.initializer[0].CopyFrom(
        numpy_helper.from_array((factor * WEIGHT).astype(np.float32), model.graph.initializer[0].name)
    )
    onnx.save(model, path)
    return path


def right(model: Any, factor: float = 1) -> None:
    np.testing.assert_allclose(model({"x": X})["y"], np.maximum(X @ (factor * WEIGHT), 0), rtol=1e-5, atol=1e-6)


def entry(cache: Cache) -> Path:
    (found,) = (cache.folder / "libraries").iterdir()
    return found


def compiled(path: Path, factor: float = 1) -> None:
    another_process()
    with halotile.compile(path) as model:
        right(model, factor)


def known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose digest, and that of its library, are kept."""
    path = written(folder / "m.onnx")
    later(monkeypatch)
    compiled(path)
    time.sleep(0.1)  # the parts of a library so small are younger than a clock's tick when it is kept
    compiled(path)
    return path


# ---------------------------------------------------------------------- what is not read


def test_another_process_reads_neither_model_nor_library(
    cache: Cache, reads: list[str], builds: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = known(tmp_path, monkeypatch)
    reads.clear()
    for _ in range(3):
        compiled(path)
    assert not reads and len(builds) == 1


def test_a_large_library_is_not_even_read_by_the_second(
    cache: Cache, reads: list[str], builds: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes longer to build than a clock's tick; its digest is the one of its manifest."""
    monkeypatch.setattr(digests, "_FINE_NS", 0)
    monkeypatch.setattr(digests, "_COARSE_NS", 0)
    path = written(tmp_path / "m.onnx")
    later(monkeypatch)
    compiled(path)
    reads.clear()
    compiled(path)
    large = [f for f in entry(cache).iterdir() if f.name != "manifest.json"]
    assert len(large) >= 1 and not reads and len(builds) == 1


def test_small_files_have_no_entry(tmp_path: Path) -> None:
    cache, path = Cache(tmp_path / "cache"), tmp_path / "file"
    for size, entries in ((digests.LEAST_BYTES - 1, 0), (digests.LEAST_BYTES, 1)):
        path.write_bytes(bytes(size))
        assert digest_of(old(path), cache, linked=True) == hashlib.sha256(bytes(size)).hexdigest()
        assert len(list(cache.folder.glob("objects/*/*"))) == entries


# ---------------------------------------------------------------------- what is noticed


def altered(path: Path) -> None:
    """The same size, written just now."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def altered_and_as_old(path: Path) -> None:
    """The same size, and the same time of writing."""
    times = path.stat()
    altered(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def replaced(path: Path) -> None:
    """Another file of the same size, with the same time of writing, under its name."""
    shutil.copy2(path, path.with_name("beside"))
    altered_and_as_old(path.with_name("beside"))
    os.replace(path.with_name("beside"), path)


@pytest.mark.parametrize("change", [altered, altered_and_as_old, replaced])
def test_an_altered_model_is_read(
    change: Callable[[Path], None], cache: Cache, reads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    path.write_bytes(bytes(range(256)) * 64)
    later(monkeypatch)
    before = digest_of(path, cache)
    another_process()
    reads.clear()
    assert digest_of(path, cache) == before and not reads
    change(path)
    another_process()
    assert digest_of(path, cache) == hashlib.sha256(path.read_bytes()).hexdigest() != before and reads


def test_a_model_of_the_same_size_is_another(
    cache: Cache, builds: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "m.onnx")
    later(monkeypatch)
    compiled(path)
    times, size = path.stat(), path.stat().st_size
    written(path, 2)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == size
    compiled(path, 2)
    assert len(builds) == 2


@pytest.mark.parametrize("change", [altered, replaced])
def test_an_altered_library_is_built_again(
    change: Callable[[Path], None],
    cache: Cache,
    builds: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = known(tmp_path, monkeypatch)
    (library,) = entry(cache).glob("*.so")
    change(library)
    compiled(path)
    assert len(builds) == 2
    compiled(path)
    assert len(builds) == 2


def test_a_touched_file_is_read_once_more(
    cache: Cache, reads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "m.onnx")
    later(monkeypatch)
    first = digest_of(path, cache)
    os.utime(path)
    for expected in (1, 0):
        another_process()
        reads.clear()
        assert digest_of(path, cache) == first and len(reads) == expected


def test_parts_of_a_file_are_not_the_whole(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.bin"
    path.write_bytes(bytes(range(200)))
    later(monkeypatch)
    for _ in range(2):
        another_process()
        for spans in (None, [(0, 100)], [(0, 100), (150, 200)], [(0, 10)]):
            data = b"".join(path.read_bytes()[a:b] for a, b in spans or [(0, 200)])
            assert digest_of(path, cache, spans) == hashlib.sha256(data).hexdigest()


# ---------------------------------------------------------------------- what is not trusted


def test_a_copied_cache_is_read_again(
    cache: Cache, reads: list[str], builds: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its times, as backups and images make it; a library that was altered on the way is noticed."""
    path = known(tmp_path, monkeypatch)
    shutil.copytree(cache.folder, tmp_path / "copied")
    monkeypatch.setenv("HALOTILE_CACHE", str(tmp_path / "copied"))
    (library,) = entry(Cache(tmp_path / "copied")).glob("*.so")
    altered_and_as_old(library)
    compiled(path)
    assert len(builds) == 2
    shutil.rmtree(cache.folder)
    shutil.move(tmp_path / "copied", cache.folder)
    monkeypatch.setenv("HALOTILE_CACHE", str(cache.folder))
    compiled(path)
    assert len(builds) == 2


@pytest.mark.parametrize("linked", [False, True])
def test_a_young_file_is_read_again(linked: bool, cache: Cache, reads: list[str], tmp_path: Path) -> None:
    """What is written to it next may leave its times as they are."""
    path = tmp_path / "file"
    for content in (b"one", b"two"):
        path.write_bytes(content)
        assert digest_of(path, cache, linked=linked) == hashlib.sha256(content).hexdigest()
    assert len(reads) == 2 and not list(cache.folder.glob("objects/*/*"))


@pytest.mark.parametrize("linked", [False, True])
def test_a_file_from_the_future_is_read_again(linked: bool, cache: Cache, reads: list[str], tmp_path: Path) -> None:
    """A clock that was put back, or another machine's."""
    path = tmp_path / "file"
    path.write_bytes(b"one")
    for _ in range(2):
        os.utime(path, ns=(time.time_ns() + HOUR, time.time_ns() + HOUR))
        another_process()
        digest_of(path, cache, linked=linked)
    assert len(reads) == 2 and not list(cache.folder.glob("objects/*/*"))


@pytest.mark.parametrize("grain, kept", [(0, False), (1, True)])
def test_times_of_whole_seconds_settle_later(
    grain: int, kept: bool, cache: Cache, tmp_path: Path
) -> None:
    """Those of a file system that keeps no parts of seconds."""
    path = tmp_path / "file"
    path.write_bytes(b"one")
    second = (time.time_ns() // 10**9 - 1) * 10**9 + grain
    os.utime(path, ns=(second, second))
    digest_of(path, cache, linked=True)
    assert bool(list(cache.folder.glob("objects/*/*"))) == kept


@pytest.mark.parametrize("boot", ["another", ""])
def test_another_run_of_the_system_reads_all(
    boot: str, cache: Cache, reads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure may have kept the digest and lost what was written; a name for none is none at all."""
    path = tmp_path / "file"
    path.write_bytes(b"one")
    old(path)
    digest_of(path, cache, linked=True)
    monkeypatch.setattr(digests, "_boot", lambda: boot)
    for expected in (1, 0 if boot else 1):
        another_process()
        reads.clear()
        digest_of(path, cache, linked=True)
        assert len(reads) == expected


@pytest.mark.parametrize("damage", ["bit", "cut", "empty", "nonsense", "another"])
def test_a_damaged_or_forged_entry_makes_no_wrong_library(
    damage: str, cache: Cache, builds: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``another``: a well-formed entry that has another file's digest; the library is taken for damaged."""
    path = known(tmp_path, monkeypatch)
    (library,) = entry(cache).glob("*.so")
    key = digests._key(library, None, reading.identity(library), True)
    assert key is not None and cache.get(key)
    if damage in ("nonsense", "another"):
        cache.put(key, b"\xff" * 64 if damage == "nonsense" else b"0" * 64)
    else:
        file = cache._path(key)
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes({"bit": bytes(data), "cut": data[:-5], "empty": b""}[damage])
    for _ in range(2):
        compiled(path)
    assert len(builds) == (2 if damage == "another" else 1)


# ---------------------------------------------------------------------- many at once


def test_twenty_processes_find_it_at_once(cache: Cache, builds: list[Any], tmp_path: Path) -> None:
    """Each with links of its own, which change when the library was changed last."""
    path = written(tmp_path / "m.onnx")
    compiled(path)
    time.sleep(0.1)

    def work(i: int) -> None:
        for _ in range(3):
            compiled(path)
        (tmp_path / f"{i}.json").write_text(json.dumps(len(builds)))

    assert forked(20, work) == [0] * 20
    assert [json.loads((tmp_path / f"{i}.json").read_text()) for i in range(20)] == [1] * 20
    assert not list((cache.folder / "tmp").iterdir())

"""The cache's folder: where it is, what is kept there, for how long, and by whom one at a time."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from compiled import native
from halotile.compiler.cache import prune as pruning
from halotile.compiler.cache.keys import key_of
from halotile.compiler.cache.lock import held
from halotile.compiler.cache.place import LIBRARIES, SIZE, VARIABLE, cache_of_environment, chosen_cache
from halotile.compiler.cache.prune import prune
from halotile.compiler.cache.store import MOST_BYTES, Cache
from halotile.compiler.state import Options
from halotile.errors import HalotileError


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, SIZE, LIBRARIES, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_by_default_it_is_in_the_users_folder_for_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_of_environment() == Cache(tmp_path / ".cache/halotile") == Options(native()).cache
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_of_environment() == Cache(tmp_path / "xdg/halotile")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the XDG's standard says to pass over
    assert cache_of_environment() == Cache(tmp_path / ".cache/halotile")


def test_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setenv(SIZE, "10MiB")
    monkeypatch.setenv(LIBRARIES, "off")
    assert cache_of_environment() == Cache(tmp_path, libraries=False, most_bytes=10 << 20)
    for word in ("off", "OFF", "0"):
        monkeypatch.setenv(VARIABLE, word)
        assert cache_of_environment() is None and Options(native()).cache is None
    monkeypatch.setenv(SIZE, "much")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(HalotileError, match="HALOTILE_CACHE_SIZE='much' is not a size such as 4GiB"):
        cache_of_environment()


def test_what_callers_may_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    own = Cache(tmp_path / ".cache/halotile", most_bytes=MOST_BYTES)
    assert chosen_cache(None) == chosen_cache(True) == own and chosen_cache(False) is None
    assert chosen_cache("off") is chosen_cache("OFF") is None
    assert chosen_cache(tmp_path / "here") == chosen_cache(str(tmp_path / "here")) == Cache(tmp_path / "here")
    monkeypatch.setenv(VARIABLE, "off")
    assert chosen_cache(None) is None and chosen_cache(True) == own
    for wrong in (5, "", "a\0b", b"x", [1]):
        with pytest.raises(HalotileError, match="cache=.*give a folder"):
            chosen_cache(wrong)


def test_one_of_many_makes_an_entry_and_the_others_wait(tmp_path: Path) -> None:
    made: list[int] = []
    cache, key = Cache(tmp_path), key_of("slow")

    def make() -> bytes:
        made.append(1)
        time.sleep(0.1)
        return b"data"

    seen: list[bytes] = []
    threads = [threading.Thread(target=lambda: seen.append(cache.entry(key, make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1] and seen == [b"data"] * 8
    assert list((tmp_path / "locks").iterdir()) == [], "locks go with their holders"


def test_a_maker_that_fails_leaves_the_way_free(tmp_path: Path) -> None:
    cache, key = Cache(tmp_path), key_of("x")
    with pytest.raises(ZeroDivisionError):
        cache.entry(key, lambda: bytes(1 // 0))
    assert cache.entry(key, lambda: b"data") == b"data"


def test_who_was_stopped_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with held(tmp_path / "lock", 1.0) as first, held(tmp_path / "lock", 0.05) as second:
        assert first and not second
    with held(tmp_path / "lock", 0.0) as again:
        assert again
    (tmp_path / "file").touch()
    with held(tmp_path / "file/lock", 0.0) as nowhere:
        assert not nowhere


def put(cache: Cache, name: str, size: int, used: int) -> str:
    key = key_of(name)
    cache.put(key, bytes(size))
    os.utime(cache.folder / "objects" / key[:2] / key, (used, used))
    return key


def test_objects_used_longest_ago_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, most_bytes=4 * 2100)
    keys = [put(cache, str(i), 1000, i + 1) for i in range(4)]
    assert cache.get(keys[0]) is not None  # used now
    prune(cache)
    assert [cache.get(key) is not None for key in keys] == [True, False, False, True]
    more = [put(cache, f"more {i}", 1000, i + 1) for i in range(4)]
    prune(cache)
    assert all(cache.get(key) is not None for key in more), "they are not counted again so soon"
    os.utime(tmp_path / "pruned", (1, 1))
    prune(cache)
    assert sum(cache.get(key) is not None for key in (*keys, *more)) == 2


def test_libraries_used_longest_ago_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, most_bytes=4000)
    for i in range(4):
        folder = cache.library(f"{i}")
        folder.mkdir(parents=True)
        (folder / "lib.so").write_bytes(bytes(1100))
        os.utime(folder, ((i + 2) % 4 + 1,) * 2)
    prune(cache)
    assert sorted(p.name for p in (tmp_path / "libraries").iterdir()) == ["0", "1"]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_the_dead_left_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    (cache.temporary() / "half").mkdir()
    (cache.temporary() / "half/lib.so").touch()
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/objects-x").touch()
    prune(cache)
    assert (tmp_path / "tmp/half").is_dir() and (tmp_path / "locks/objects-x").is_file()
    monkeypatch.setattr(pruning, "_DEAD_SECONDS", -1.0)
    os.utime(tmp_path / "pruned", (1, 1))
    prune(cache)
    assert not list((tmp_path / "tmp").iterdir()) and not list((tmp_path / "locks").iterdir())


def test_a_new_cache_is_its_owners_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "a" / "cache")
    cache.entry(key_of("x"), lambda: b"y")
    assert cache.folder.stat().st_mode & 0o077 == 0

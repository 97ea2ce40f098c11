"""Libraries that several builds put into one folder."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from halotile.compiler.runtime import place
from manifests import write_manifest


def build(folder: Path, name: str, ready: threading.Barrier) -> None:
    with place.staged(folder) as stage:
        (stage.result / f"lib{name}.so").write_text(name)
        write_manifest(stage.result, {"format": "halotile", "library": f"lib{name}.so"})
        ready.wait()  # all have begun before the folder is there


def test_builds_at_once_leave_one_whole_library(tmp_path: Path) -> None:
    ready = threading.Barrier(8)
    builds = [threading.Thread(target=build, args=(tmp_path / "lib", str(i), ready)) for i in range(8)]
    for thread in builds:
        thread.start()
    for thread in builds:
        thread.join()
    manifest = place.read_manifest(tmp_path / "lib")
    assert manifest is not None
    assert {p.name for p in (tmp_path / "lib").iterdir()} == {place.MANIFEST, manifest.library}
    assert [p.name for p in tmp_path.iterdir()] == ["lib"]


def test_what_a_killed_process_left_goes_with_the_next(tmp_path: Path) -> None:
    """And nothing of one that lives, nor of whoever calls his folders alike."""
    child = os.fork()
    if child == 0:
        with place.staged(tmp_path / "li*b") as stage:
            (stage.result / "half").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (tmp_path / ".li*b.mine").mkdir()
    (left,) = (p for p in tmp_path.iterdir() if not p.name.endswith("mine"))
    with place.staged(tmp_path / "other"):
        assert left.is_dir()
    with place.staged(tmp_path / "li*b") as first:
        assert not left.exists()
        with place.staged(tmp_path / "li*b"):
            assert first.work.is_dir()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".li*b.mine", "li*b", "other"]

"""Libraries that several builds put into one folder."""

from __future__ import annotations

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

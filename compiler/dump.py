"""``--dump-ir DIR``: what each stage left behind, one readable file a stage, named after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import OutputError

if TYPE_CHECKING:
    from .state import Build


def dump_stage(build: Build, stage: str, folder: Path) -> None:
    """Writes ``<number>-<stage>.txt``; raises OutputError if it can't."""
    from .state import STAGES

    text = _text(build, stage)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{STAGES.index(stage) + 1}-{stage}.txt").write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"can't write the IR of stage {stage} to {folder}: {error.strerror}") from error


def _text(build: Build, stage: str) -> str:
    from .state import REWRITES

    if stage == "import" or stage in REWRITES:
        return str(build.module.script())
    if stage == "select":
        return "\n".join(build.notes.get("select", []))
    if stage in ("fuse", "layout", "tile"):
        return json.dumps(build.report.get("groups", []), indent=1)
    if stage == "schedule":
        return "\n\n".join(
            f"# {g.name}: {k.schedule}\n{k.function.script()}" for g, k in zip(build.groups, build.kernels)
        )
    if stage == "plan":
        lines = [
            f"{b.offset:>12} {b.bytes:>12}  steps {b.first}-{b.last}  {b.name}"
            for b in sorted(build.memory.buffers, key=lambda b: (b.first, b.offset))
        ]
        return "\n".join([f"arena: {build.memory.planned_bytes} bytes", *lines])
    return json.dumps(build.report, indent=1, default=str)

"""Manifests that say something else than a build wrote, with the hash of what they say: as an adversary writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from halotile.compiler.runtime.recorded import content_digest


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Writes ``manifest`` into ``folder``, with its hash."""
    (folder / "manifest.json").write_text(json.dumps({**manifest, "sha256": content_digest(manifest)}))


def write_text(folder: Path, text: str) -> None:
    """Writes ``text``, with its hash if it is JSON of an object."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict):
        write_manifest(folder, data)
    else:
        (folder / "manifest.json").write_text(text, errors="surrogatepass")

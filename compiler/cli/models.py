"""Where the model of a manifest is: a manifest names its file and digest but no path, so that it is the same anywhere.

Looked at are the folder of the manifest, the one above it, the working folder, and the place where this user last built
that very model; the digest decides.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ModelError

if TYPE_CHECKING:
    from ..runtime.recorded import Recorded

_KEPT = 200


def find_model(manifest_path: Path, recorded: Recorded) -> Path:
    """The model's file; ModelError that says how to name it when it is in none of the places."""
    from ..runtime.digest import digest

    name, wanted = recorded.model.file, recorded.model.sha256
    folder = manifest_path.absolute().parent
    places = [place / name for place in (folder, folder.parent, Path.cwd())] if name else []
    remembered = _memory().get(wanted or "")
    for place in [*places, *([Path(remembered)] if remembered else [])]:
        if place.is_file() and digest(place) == wanted:
            return place
    raise ModelError(
        f"the model {name or ''} (SHA-256 {(wanted or 'not told')[:12]}...) was not found near {manifest_path}: "
        f"name it, halotile build MODEL --from {manifest_path}"
    )


def remember_model(path: Path, sha256: str) -> None:
    """Notes where a model was found; a file that can't be written is no reason to fail."""
    memory = {**_memory(), sha256: str(path.absolute())}
    with contextlib.suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        partial = _file().with_name(f".models.{os.getpid()}")
        partial.write_text(json.dumps(dict(list(memory.items())[-_KEPT:])))
        os.replace(partial, _file())


def _memory() -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        data = json.loads(_file().read_text())
        return {k: v for k, v in data.items() if isinstance(v, str)} if isinstance(data, dict) else {}
    return {}


def _file() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "halotile" / "models.json"

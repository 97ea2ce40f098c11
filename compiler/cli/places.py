"""Folders and files that a command line names: refused before anything long begins, where they can't be right."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import OutputError
from ..destinations import check_file_destination as check_file_destination


def check_library_path(path: str) -> Path:
    """The folder of a built library, if it looks like one."""
    folder = Path(path)
    if not path:
        raise OutputError("the library's path is empty")
    if not (folder / "manifest.json").is_file():
        what = (
            "does not exist"
            if not folder.exists()
            else "is not a folder"
            if not folder.is_dir()
            else "has no manifest.json"
        )
        build = f"; build it first: halotile build {path}" if folder.suffix == ".onnx" and folder.is_file() else ""
        raise OutputError(f"{path} is not a Halotile library: it {what}{build}")
    return folder


def check_destination(final: Path) -> None:
    """Refuses early what the last step would refuse: a file in the way, or a folder that can't be written."""
    if final.exists() and not final.is_dir():
        raise OutputError(f"output {final} is a file; name a folder")
    if final.is_symlink() and not final.exists():
        raise OutputError(f"output {final} is a link to nothing; name a folder")
    folder = final.absolute()
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise OutputError(f"output {final} can't be made: {folder} is a file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"output {final} can't be written: no permission for {folder}")

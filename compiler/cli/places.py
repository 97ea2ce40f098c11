"""Folders and files that a command line names: refused before anything long begins, where they can't be right."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import OutputError


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


def check_file_destination(path: Path) -> None:
    """Refuses, before anything long begins, a file that can't be written at the end."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise OutputError(f"output {path} can't be written: there is no folder {folder}")
    if path.is_dir():
        raise OutputError(f"output {path} can't be written: it is a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise OutputError(f"output {path} can't be written: no permission")


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


def write_whole(final: Path, text: str) -> None:
    """Writes a file, whole or not at all; OutputError where that can't be."""
    part = final.with_name(f".{final.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8", errors="replace")
        os.replace(part, final)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OutputError(f"can't write {final}: {error.strerror}; name a file that can be written") from None

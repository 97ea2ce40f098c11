"""What turns a model into a library, besides the model and the options: our code, TVM, the packages, the machine."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from .keys import key_of

ROOT = Path(__file__).parents[2]
ROOMS = ("compiler", "passes", "schedules", "targets")
_KINDS = (".py", ".c", ".h", ".toml")
_PACKAGES = ("apache_tvm", "apache_tvm_ffi", "onnx", "numpy", "ml_dtypes", "ziglang")


@functools.cache
def origin() -> str:
    """A digest of every source of ours that has a part in a build, and of the versions of what it stands on. TVM, which
    takes seconds to load, is not loaded for it."""
    root = str(ROOT)
    files = [f"{root}/errors.py", f"{root}/version.py", *(p for room in ROOMS for p in _sources(f"{root}/{room}"))]
    texts = [part for path in files for part in (path[len(root) :], _read(path))]
    return key_of(*texts, *_versions(), *_libraries("tvm"), *_libraries("tvm_ffi"))


def _sources(folder: str) -> Iterator[str]:
    """Hundreds of files at each start of a process: without Path, in a third of the time."""
    with os.scandir(folder) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _sources(entry.path)
        elif entry.name.endswith(_KINDS):
            yield entry.path


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _versions() -> list[str]:
    """``apache_tvm-0.27.0`` and so on: what the packages' folders of metadata are called."""
    found = []
    for place in sys.path:
        with contextlib.suppress(OSError):
            names = os.listdir(place or ".")
            found += sorted(n for n in names if n.endswith(".dist-info") and n.partition("-")[0].lower() in _PACKAGES)
    return found


def _libraries(package: str) -> list[str]:
    """Size and time of each shared library of a package; its LLVM is inside of one."""
    spec = importlib.util.find_spec(package)
    folders = [Path(place) for place in spec.submodule_search_locations or ()] if spec is not None else []
    found = sorted(p for folder in folders for place in (folder, folder / "lib") for p in place.glob("*.so*"))
    return [f"{p.name} {(status := p.stat()).st_size} {status.st_mtime_ns}" for p in found]


def plain_passes() -> bool:
    """Whether TVM's passes run as they do in a fresh process. Who has changed that gets what he asks for, not what was
    built before, and keeps it to himself."""
    tvm = sys.modules.get("tvm")
    if tvm is None or not hasattr(tvm, "transform"):
        return True
    context = tvm.transform.PassContext.current()
    return not (context.required_pass or context.disabled_pass or context.config) and context.opt_level == 2

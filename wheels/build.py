"""The two wheels that are handed out, from the one source tree: ``python wheels/build.py [FOLDER]`` (``make wheels``).

    halotile_runtime-VERSION-py3-none-any.whl   what loads and runs a built library; needs numpy alone
    halotile-VERSION-py3-none-any.whl           the rest, the compiler; depends on the former, of the same version

Both hold files of the package ``halotile``, and no file is in both, so that ``import halotile`` is the same with one or
with two (docs/decisions/0009-two-wheels.md). setuptools builds the whole as ``pip install .`` does; it is then parted.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from email import message_from_string
from email.message import Message
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ROOTS = (  # what the runtime is for; what these modules import when they are loaded goes with them
    "__init__.py", "__main__.py", "compiler/model.py", "compiler/notebook.py", "compiler/cli/alone.py",
    "compiler/runtime/*.py", "compiler/reach/blocks.py", "compiler/reach/dask_arrays.py", "compiler/reach/recorded.py",
    "compiler/stream/run.py",
)  # fmt: skip
ROOMS = (  # that it may reach into
    "", "compiler", "compiler/cli", "compiler/reach", "compiler/runtime", "compiler/stream", "targets",
)  # fmt: skip
_COMMAND = "[console_scripts]\nhalotile = halotile.compiler.cli.alone:entry\n"
_TREE = ("benchmarks", "compiler", "passes", "schedules", "targets")
_SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.o", "*.so")


def main(folder: Path) -> list[Path]:
    """Builds both wheels into ``folder`` and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, zipfile.ZipFile(whole_wheel(Path(work))) as whole:
        files = {name: whole.read(name) for name in sorted(whole.namelist()) if not name.endswith("/")}
    (about,) = (name.partition("/")[0] for name in files if name.endswith(".dist-info/METADATA"))
    text = files[f"{about}/METADATA"].decode()
    stated = message_from_string(text)
    package = {name: data for name, data in files.items() if name.startswith("halotile/")}
    wanted = {f"halotile/{name}" for name in (*runtime_modules(), "py.typed")}
    light = {name: data for name, data in package.items() if name in wanted}
    shared = {name: files[f"{about}/{name}"] for name in ("WHEEL", "licenses/LICENSE")}
    entries = files[f"{about}/entry_points.txt"].decode()
    runtime = {**shared, "METADATA": runtime_metadata(stated), "entry_points.txt": _COMMAND.encode()}
    version = stated["Version"]
    compiler = {**shared, "METADATA": compiler_metadata(text, version), "entry_points.txt": without_command(entries)}
    rest = {name: data for name, data in package.items() if name not in light}
    return [
        write_wheel(folder, "halotile_runtime", version, light, runtime),
        write_wheel(folder, "halotile", version, rest, compiler),
    ]


def runtime_modules() -> set[str]:
    """The modules of the runtime, as paths from the root: the roots and all that they import when they are loaded, by
    way of others or not. Ends the program where that reaches into a folder of the compiler's."""
    found: dict[str, str] = {}
    left = [(p.relative_to(ROOT).as_posix(), "the list") for root in ROOTS for p in ROOT.glob(root)]
    while left:
        path, why = left.pop()
        if path in found:
            continue
        found[path] = why
        if path.rpartition("/")[0] not in ROOMS:
            sys.exit(f"the runtime would need {path}, which {why} imports: import it within a function, or see ROOMS")
        left += [(parent, path) for parent in packages_of(path)]
        left += [(there, path) for there in imported(ROOT / path)]
    return set(found)


def packages_of(path: str) -> list[str]:
    """The __init__.py of every package around a module."""
    parts = path.split("/")[:-1]
    return ["/".join([*parts[:n], "__init__.py"]) for n in range(len(parts) + 1)]


def imported(path: Path) -> Iterator[str]:
    """The modules of ours that a module imports when it is loaded, as paths from the root."""
    package = path.relative_to(ROOT).parent.parts
    for node in loaded(ast.parse(path.read_text(encoding="utf-8")).body):
        base = (*package[: len(package) - node.level + 1], *filter(None, (node.module or "").split(".")))
        for parts in [base, *((*base, alias.name) for alias in node.names)]:
            place = ROOT.joinpath(*parts)
            if place.with_suffix(".py").is_file() and parts:
                yield place.with_suffix(".py").relative_to(ROOT).as_posix()


def loaded(body: Sequence[ast.stmt]) -> Iterator[ast.ImportFrom]:
    """The relative imports among statements that run when a module is loaded: not those in functions or for types."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.level:
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from loaded(node.orelse)
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.ClassDef)):
            yield from loaded([*node.body, *getattr(node, "orelse", [])])


def whole_wheel(work: Path) -> Path:
    """The wheel that setuptools makes of a copy of the tree, which stays clean."""
    copy = work / "tree"
    copy.mkdir()
    for room in _TREE:
        shutil.copytree(ROOT / room, copy / room, ignore=_SKIPPED)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, copy / file.name)
    code = "from setuptools.build_meta import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(work)]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"setuptools said: {done.stderr.strip()}")
    return work / done.stdout.strip().splitlines()[-1]


def compiler_metadata(stated: str, version: str) -> bytes:
    """The whole's metadata, and the runtime of the same version among what it needs."""
    head, blank, body = stated.partition("\n\n")
    return f"{head}\nRequires-Dist: halotile-runtime=={version}{blank}{body}".encode()


def runtime_metadata(stated: Message) -> bytes:
    """Of the whole's metadata what is true of the runtime."""
    kept = ("Metadata-Version", "Version", "Author", "License-Expression", "Classifier", "Requires-Python",
            "License-File")  # fmt: skip
    lines = [f"{key}: {value}" for key, value in stated.items() if key in kept]
    lines.insert(1, "Name: halotile-runtime")
    lines.append("Summary: Loads and runs the libraries that Halotile compiles from ONNX models")
    lines += [f"Requires-Dist: {need}" for need in stated.get_all("Requires-Dist", []) if need.startswith("numpy")]
    lines.append("Description-Content-Type: text/markdown")
    return ("\n".join(lines) + "\n\n" + (HERE / "README.md").read_text(encoding="utf-8")).encode()


def without_command(entries: str) -> bytes:
    """entry_points.txt without the command, which the runtime installs for both."""
    sections = [part for part in entries.split("[") if part and not part.startswith("console_scripts]")]
    return "".join(f"[{part}" for part in sections).encode()


def write_wheel(
    folder: Path, name: str, version: str, package: Mapping[str, bytes], about: Mapping[str, bytes]
) -> Path:
    """A wheel with the files of the package and of its .dist-info, the same bytes on every run."""
    info = f"{name}-{version}.dist-info"
    files = {**package, **{f"{info}/{file}": data for file, data in about.items()}}
    record = "".join(f"{path},sha256={_hash(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / f"{name}-{version}-py3-none-any.whl"
    partial = path.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for inner, data in files.items():
            entry = zipfile.ZipInfo(inner, (2020, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            archive.writestr(entry, data)
    os.replace(partial, path)
    return path


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    for made in main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")):
        print(made)

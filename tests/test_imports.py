"""Imports run one way: cli -> compiler -> passes -> schedules -> targets, and no modules import each other in a circle;
peers are benchmarks' alone. Imports within functions, and those for types alone, count like all others."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("cli", "compiler", "passes", "schedules", "targets")
BELOW = {"errors", "version"}  # everything
ALLOWED = {room: set(ROOMS[i:]) | BELOW for i, room in enumerate(ROOMS)}
ALLOWED["errors"] = ALLOWED["version"] = set()
ALLOWED["benchmarks"] = {*ROOMS, *BELOW, "benchmarks", "package"}
ALLOWED["package"] = {"compiler", *BELOW}  # __init__.py at the root: the public names
ALLOWED["cli"] |= {"benchmarks"}  # `halotile bench` is theirs
PEERS = {"onnxruntime", "openvino", "MNN", "iree", "torch", "ncnn", "tensorflow"}
MAY_COMPARE = {"compiler/verify.py", "compiler/cli/doctor.py"}
# a folder that is a part of what it imports: PyTorch's backend; the steps around a quantiser
HOSTS = {"compiler/torch": "torch", "compiler/quantise": "onnxruntime"}
LIGHT = ("tvm", "tvm_ffi", "onnx", "onnxruntime", "click", "rich", "msgspec")


def sources() -> list[Path]:
    folders = ("compiler", "passes", "schedules", "targets", "benchmarks")
    return sorted(p for f in folders for p in (ROOT / f).rglob("*.py")) + [
        ROOT / "errors.py",
        ROOT / "version.py",
        ROOT / "__init__.py",
    ]


def room_of(parts: tuple[str, ...]) -> str:
    """The room of a module given by its path from the package root, without ``.py``."""
    if parts[:2] == ("compiler", "cli"):
        return "cli"
    return parts[0] if parts and parts[0] != "__init__" else "package"


def imports(path: Path) -> Iterator[tuple[int, tuple[str, ...] | str]]:
    """(line, target) of every import: our own as a tuple of parts from the package root, others as a name."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = tuple(alias.name.split("."))
                yield node.lineno, parts[1:] if parts[0] == "halotile" else parts[0]
        elif isinstance(node, ast.ImportFrom):
            module = tuple((node.module or "").split(".")) if node.module else ()
            if node.level == 0 and module[0] != "halotile":
                yield node.lineno, module[0]
                continue
            base = module[1:] if node.level == 0 else package[: len(package) - node.level + 1] + module
            for alias in node.names:
                yield node.lineno, (*base, alias.name)


def violations(path: Path) -> list[str]:
    relative = path.relative_to(ROOT)
    here = room_of(relative.with_suffix("").parts)
    found = []
    for line, target in imports(path):
        if isinstance(target, str):
            known = here == "benchmarks" or relative.as_posix() in MAY_COMPARE
            if target in PEERS and not known and HOSTS.get(relative.parent.as_posix()) != target:
                found.append(f"{relative}:{line} knows the peer {target}")
            continue
        there = room_of(target) if target and target[0] in (*ROOMS, "benchmarks", *BELOW) else "package"
        if there not in ALLOWED[here] | {here}:
            found.append(f"{relative}:{line} {here} imports {there} ({'.'.join(target)})")
    return found


def module_of(path: Path) -> str:
    """``schedules.conv`` of schedules/conv/__init__.py, ``errors`` of errors.py; empty of the root's __init__.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def arrows(paths: list[Path]) -> dict[str, set[str]]:
    """The modules that each module imports. A name of a package comes from the package's __init__.py, which is imported
    as well, by whatever lies outside of the package, where a module in it is."""
    modules = {module_of(p): p for p in paths}
    found: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for _, target in imports(path):
            if isinstance(target, str):
                continue
            there = ".".join(target) if ".".join(target) in modules else ".".join(target[:-1])
            rooms = {".".join(there.split(".")[:i]) for i in range(1, there.count(".") + 1)}
            found[name] |= {there, *(r for r in rooms if not f"{name}.".startswith(f"{r}."))} & modules.keys()
        found[name].discard(name)
    return found


def circles(found: dict[str, set[str]]) -> list[list[str]]:
    """The modules that import each other, by way of others or not: strongly connected components (Tarjan 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    result: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for there in sorted(found[name]):
            if there not in number:
                visit(there)
            if there in stack:
                lowest[name] = min(lowest[name], lowest[there])
        if lowest[name] == number[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                result.append(sorted(stack[at:]))
            del stack[at:]

    for name in found:
        if name not in number:
            visit(name)
    return result


def test_imports_run_one_way() -> None:
    assert [v for path in sources() for v in violations(path)] == []


def test_no_modules_import_each_other() -> None:
    assert circles(arrows(sources())) == []


def test_the_checker_sees_circles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    texts = {
        "a.py": "from .b import c\n",
        "b/__init__.py": "from .c import d\n",
        "b/c.py": "from .e import f\n",
        "b/e.py": "def f():\n    from .c import d\n",
        "g.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .h.i import J\n",
        "h/__init__.py": "from ..g import k\n",
        "h/i.py": "from ..a import l\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert sorted(circles(arrows([tmp_path / name for name in texts]))) == [["b.c", "b.e"], ["g", "h"]]


def test_the_checker_sees_relative_and_absolute_violations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    bad = tmp_path / "schedules" / "conv" / "choose.py"
    bad.parent.mkdir(parents=True)
    bad.write_text(
        "from ...passes.tile import plan\nfrom ... import compiler\nimport halotile.compiler.api\n"
        "def f():\n    import onnxruntime\n    from ...targets.target import Target\n    from ..operator import call\n"
    )
    assert [v.split(" ", 1)[1] for v in violations(bad)] == [
        "schedules imports passes (passes.tile.plan)",
        "schedules imports compiler (compiler)",
        "schedules imports compiler (compiler.api)",
        "knows the peer onnxruntime",
    ]


@pytest.mark.parametrize(
    "statement", ["import halotile", "from halotile import load", "import halotile.targets.boards"]
)
def test_light_imports_stay_light(statement: str) -> None:
    code = f"import sys\nfor name in {LIGHT!r}: sys.modules[name] = None\n{statement}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_no_file_outgrows_its_idea() -> None:
    long = {
        p.relative_to(ROOT).as_posix(): n for p in sources() if (n := len(p.read_text().splitlines())) > 450
    }
    assert long == {}

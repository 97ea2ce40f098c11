"""Imports run one way: cli -> compiler -> passes -> schedules -> targets; peers are benchmarks' alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("cli", "compiler", "passes", "schedules", "targets")
ALLOWED = {room: set(ROOMS[i:]) | {"errors"} for i, room in enumerate(ROOMS)}
ALLOWED["errors"] = set()
ALLOWED["benchmarks"] = {*ROOMS, "errors", "benchmarks", "package"}
ALLOWED["package"] = {"compiler", "errors"}  # __init__.py at the root: the public names
# The one pair that looks sideways: the public names ask for their own version; the command line asks the public API.
ALLOWED["cli"] |= {"package", "benchmarks"}
ALLOWED["compiler"] |= {"package"}
PEERS = {"onnxruntime", "openvino", "MNN", "iree", "torch", "ncnn", "tensorflow"}
MAY_COMPARE = {"compiler/verify.py", "compiler/cli/doctor.py"}
LIGHT = ("tvm", "tvm_ffi", "onnx", "onnxruntime", "click", "rich", "msgspec")


def sources() -> list[Path]:
    folders = ("compiler", "passes", "schedules", "targets", "benchmarks")
    return sorted(p for f in folders for p in (ROOT / f).rglob("*.py")) + [
        ROOT / "errors.py",
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
            if target in PEERS and here != "benchmarks" and relative.as_posix() not in MAY_COMPARE:
                found.append(f"{relative}:{line} knows the peer {target}")
            continue
        there = room_of(target) if target and target[0] in (*ROOMS, "benchmarks", "errors") else "package"
        if there not in ALLOWED[here] | {here}:
            found.append(f"{relative}:{line} {here} imports {there} ({'.'.join(target)})")
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_imports_run_one_way(path: Path) -> None:
    assert violations(path) == []


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

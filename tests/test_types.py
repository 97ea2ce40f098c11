"""Types say what things are: how often a name of the product may still be anything, and one class a name."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("compiler", "passes", "schedules", "targets", "benchmarks")
# where a name is given, once, to what a checker can't know: TVM's objects, sizes that may be expressions of it, JSON
EDGE = ("schedules/words/tvm_types.py", "schedules/words/size_like.py", "targets/plain.py")
# lines with Any; they only become fewer
MOST = {"compiler": 178, "passes": 15, "schedules": 18, "targets": 20, "benchmarks": 28}
TWICE = 0  # classes whose name another class has as well


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def lines_with_any(text: str) -> int:
    return len({n.lineno for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name) and n.id == "Any"})


def classes(text: str) -> list[str]:
    return [n.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ClassDef)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_more_is_anything_than_was(folder: str) -> None:
    inside = [p for p in sources(folder) if p.relative_to(ROOT).as_posix() not in EDGE]
    found = {p.relative_to(ROOT).as_posix(): n for p in inside if (n := lines_with_any(p.read_text(encoding="utf-8")))}
    assert sum(found.values()) <= MOST[folder], f"say what it is, or take a name of {', '.join(EDGE)}: {found}"


def test_few_are_left() -> None:
    assert sum(MOST.values()) < 300


def test_a_line_counts_once_and_an_import_never() -> None:
    assert lines_with_any("from typing import Any\ndef f(a: Any, b: Any) -> None: ...\nx: 'Any thing'\n") == 1


def test_a_class_has_its_name_alone() -> None:
    names = Counter(n for f in FOLDERS for p in sources(f) for n in classes(p.read_text(encoding="utf-8")))
    twice = sorted(n for n, times in names.items() if times > 1)
    assert len(twice) <= TWICE, twice


def test_a_class_within_another_counts() -> None:
    assert classes("class A:\n    class B: ...\n\ndef f():\n    class A: ...\n") == ["A", "B", "A"]


@pytest.mark.parametrize("module, name", [
    ("compiler.runtime.recorded", "Recorded"), ("compiler.state", "Options"), ("targets.target", "Target"),
    ("targets.boards", "_BoardFile"), ("compiler.spec", "TensorSpec"), ("compiler.spec", "Symbol"),
])  # fmt: skip
def test_records_that_files_are_read_into_know_their_types(module: str, name: str) -> None:
    """What is imported for a checker alone is not there when a manifest is read."""
    kind = getattr(import_module(f"halotile.{module}"), name)
    assert get_type_hints(kind, include_extras=True).keys() >= {f.name for f in fields(kind)}

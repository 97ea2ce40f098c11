"""The pages of docs/ lead to what they name: every file and function is there, and the second hop follows the first."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from halotile.compiler.state import STAGES

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"])
NAMED = re.compile(r"`([\w./-]+\.py):([\w.]+)`")
PLACE = re.compile(r"`((?:[\w.-]+/)+(?:[\w.-]+\.(?:py|c|h|md|toml|json))?)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
GENERATED = re.compile(r"(\.\./)?reference/(python|commands|c|manifest|errors)\.md")  # by docs/reference.py
EXAMPLES = {"targets/boards/my-board.toml"}  # files that a recipe makes
OURS = ("compiler", "passes", "schedules", "targets", "benchmarks", "tests", "docs")


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names that a module defines: functions, classes and constants, and as ``Class.name`` what a class does."""
    found: set[str] = set()

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    collect(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign):
                names = (n for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name))
                found.update(prefix + name.id for name in names)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(prefix + node.target.id)

    collect(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return frozenset(found)


def missing(text: str) -> list[str]:
    """What ``text`` names and is not there."""
    found = []
    for file, name in NAMED.findall(text):
        if not (ROOT / file).is_file() or name not in names_in(ROOT / file):
            found.append(f"{file}:{name}")
    for place in PLACE.findall(text):
        if place.split("/")[0] in OURS and place not in EXAMPLES and not (ROOT / place).exists():
            found.append(place)
    return found


def imported_by(file: str) -> set[str]:
    """The files of ours that a module imports, and those that these take names from, where they are packages."""
    path = ROOT / file
    package = Path(file).parent.parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = Path(*package[: len(package) - node.level + 1], *(node.module or "").split("."))
            for alias in node.names:
                for place in (base / f"{alias.name}.py", base.with_suffix(".py")):
                    if (ROOT / place).is_file():
                        found.add(place.as_posix())
                        break
                else:
                    door = base / "__init__.py"
                    if (ROOT / door).is_file() and door.as_posix() != file:
                        found |= {door.as_posix(), *imported_by(door.as_posix())}
    return found


def hops() -> list[tuple[str, list[str]]]:
    """Questions of the table "Where is decided ..." with the files that answer them, in order."""
    _, _, table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Where is decided ...")
    rows = [line for line in table.splitlines() if line.startswith("| ") and NAMED.search(line)]
    return [(row.split("|")[1].strip(), [file for file, _ in NAMED.findall(row)]) for row in rows]


@pytest.mark.parametrize("page", PAGES, ids=[p.relative_to(ROOT).as_posix() for p in PAGES])
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in LINK.findall(text) if not ((page.parent / link).exists() or GENERATED.fullmatch(link))]
    assert missing(text) + links == []


def test_names_that_are_not_there_are_found() -> None:
    text = "`errors.py:HalotileError` `errors.py:Nothing` `nowhere.py:x` `passes/none/` `compiler/state.py:Build.no`"
    assert missing(text) == ["errors.py:Nothing", "nowhere.py:x", "compiler/state.py:Build.no", "passes/none/"]


def test_every_decision_is_at_most_two_hops_away() -> None:
    walked = hops()
    assert len(walked) >= 15
    for question, files in walked:
        assert 1 <= len(files) <= 2, question
        lost = len(files) == 2 and files[1] != files[0] and files[1] not in imported_by(files[0])
        assert not lost, f"{question}: {files[0]} does not lead to {files[1]}"


def test_every_folder_of_the_product_has_its_section() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = {
        p.parent.relative_to(ROOT).as_posix() for room in OURS[:4] for p in (ROOT / room).rglob("*.py")
    }
    assert [f for f in sorted(folders) if f"{f}/" not in text and f"`{Path(f).name}/`" not in text] == []


def test_the_road_has_every_stage() -> None:
    _, _, road = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## The road")
    rows = [line.split("|")[1].strip() for line in road.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    assert tuple(rows[1:]) == STAGES


def test_the_pictures_of_imports_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "imports.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

"""What pyproject.toml lists is what is there: a wheel must lack nothing that a checkout has."""

from __future__ import annotations

import fnmatch
import re
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("compiler", "passes", "schedules", "targets", "benchmarks")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def folders() -> dict[str, Path]:
    """Package name -> folder, of every folder below the rooms that holds Python."""
    found = {"halotile": ROOT}
    for room in ROOMS:
        for file in (ROOT / room).rglob("*.py"):
            found[".".join(("halotile", *file.parent.relative_to(ROOT).parts))] = file.parent
    return found


def test_every_folder_with_python_is_a_listed_package(project: dict[str, Any]) -> None:
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(folders())
    for name, folder in folders().items():
        assert (folder / "__init__.py").is_file(), f"{name} has no __init__.py"


def test_every_data_file_is_in_the_package_data(project: dict[str, Any]) -> None:
    patterns = project["tool"]["setuptools"]["package-data"]
    for room in ROOMS:
        for file in (ROOT / room).rglob("*"):
            if file.is_dir() or file.suffix in (".py", ".pyc", ".md") or "__pycache__" in file.parts:
                continue
            owner = next(p for p in file.parents if (p / "__init__.py").is_file())
            name = ".".join(("halotile", *owner.relative_to(ROOT).parts))
            relative = file.relative_to(owner).as_posix()
            assert any(fnmatch.fnmatch(relative, p) for p in patterns.get(name, [])), (
                f"{name}: {relative} is not listed"
            )


def test_tvm_is_pinned(project: dict[str, Any]) -> None:
    requirements = project["project"]["dependencies"]
    for package in ("apache-tvm", "apache-tvm-ffi"):
        assert [r for r in requirements if re.fullmatch(rf"{package}==[\w.]+", r)]


def test_the_version_is_one(project: dict[str, Any]) -> None:
    import halotile

    assert project["project"]["version"] == halotile.__version__
    assert re.search(
        rf"^## (\[?{re.escape(halotile.__version__)}|Unreleased)", (ROOT / "CHANGELOG.md").read_text(), re.M
    )

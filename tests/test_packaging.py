"""What pyproject.toml lists is what is there: a wheel must lack nothing that a checkout has."""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
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

    assert "version" not in project["project"] and "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "halotile.version.__version__"}
    stated = re.findall(r"""^__version__ = "(.*)"$""", (ROOT / "version.py").read_text(), re.M)
    assert stated == [halotile.__version__]
    assert re.search(
        rf"^## (\[?{re.escape(halotile.__version__)}|Unreleased)", (ROOT / "CHANGELOG.md").read_text(), re.M
    )


def test_wheel_and_source_hold_what_they_should(tmp_path: Path) -> None:
    """Built by the real builder from a copy, without a network; compared with what git keeps."""
    import setuptools

    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip("NOT RUN: needs setuptools 77 (pip install -e '.[dev]')")
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    if not kept:
        pytest.skip("NOT RUN: this is no clone")
    for name in kept:
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "copy" / name)
    code = "from setuptools.build_meta import *; print(build_sdist('..')); print(build_wheel('..'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "copy", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (source,), (wheel,) = tmp_path.glob("*.tar.gz"), tmp_path.glob("*.whl")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert [name for name in kept if name not in names and not name.startswith(".git")] == []
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        (about,) = (archive.read(n).decode() for n in inside if n.endswith(".dist-info/METADATA"))
    product = [n for n in kept if n.partition("/")[0] in ROOMS or n in ("__init__.py", "errors.py", "version.py")]
    assert [n for n in product if f"halotile/{n}" not in inside and Path(n).name != "README.md"] == []
    assert {"halotile/SUPPORT.md", "halotile/passes/simplify/RULES.md", "halotile/py.typed"} <= inside
    assert not any("tests" in n.split("/") for n in inside)
    import halotile

    assert f"\nVersion: {halotile.__version__}\n" in about and "\nLicense-Expression: Apache-2.0\n" in about


def test_the_image_installs_what_is_there() -> None:
    """Every extra and module that the Dockerfile names."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r"'/src\[(.*)\]'", text)
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert (ROOT / "benchmarks" / "demo.py").is_file() and "halotile.benchmarks.demo" in text
    assert "halotile" in project["scripts"] and 'ENTRYPOINT ["halotile"]' in text

"""Fresh virtual environments without a network: wheels by pip, what they depend on linked from this environment."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import venv
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def wheels(folder: Path) -> dict[str, Path]:
    """Distribution -> its wheel, built into ``folder`` as `make wheels` builds it."""
    place = importlib.util.spec_from_file_location("wheels_build", ROOT / "wheels" / "build.py")
    assert place is not None and place.loader is not None
    builder = importlib.util.module_from_spec(place)
    place.loader.exec_module(builder)
    return {path.name.partition("-")[0]: path for path in builder.main(folder)}


def fresh(folder: Path, installed: Sequence[Path], also: Iterable[str] = ()) -> Path:
    """The interpreter of a new environment with these wheels, and by way of links what their metadata asks for and
    ``also``; nothing else can be imported there."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    done = subprocess.run([*pip, "--disable-pip-version-check", *map(str, installed)],
                          capture_output=True, text=True, env=outside())  # fmt: skip
    assert done.returncode == 0, done.stderr
    (site,) = (folder / "lib").glob("python*/site-packages")
    ours = {d.metadata["Name"]: d for d in metadata.distributions(path=[str(site)])}
    needs = [need for d in ours.values() for need in d.requires or []]
    for name in closure([*needs, *also], set(ours)):
        link(name, site)
    return python


def outside(**more: str) -> dict[str, str]:
    """The environment variables of a process that sees nothing of this interpreter's modules."""
    return {**{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}, **more}


def closure(requirements: Iterable[str], there: set[str]) -> list[str]:
    """The names of the distributions that these requirements need, extras aside; each fits, or the test fails."""
    found: dict[str, None] = {}
    left = [Requirement(text) for text in requirements]
    while left:
        need = left.pop()
        if (need.marker is not None and not need.marker.evaluate({"extra": ""})) or need.name in there:
            continue
        version = metadata.version(need.name)
        assert need.specifier.contains(version, prereleases=True), f"{need} is asked for, {version} is here"
        if need.name not in found:
            found[need.name] = None
            left += [Requirement(text) for text in metadata.requires(need.name) or []]
    return list(found)


def link(name: str, site: Path) -> None:
    """Links every file or folder at the top of a distribution into ``site``."""
    distribution = metadata.distribution(name)
    assert distribution.files is not None
    for top in {file.parts[0] for file in distribution.files if ".." not in file.parts} - {"__pycache__"}:
        source = Path(str(distribution.locate_file(top)))
        if source.exists() and not (site / top).exists():
            (site / top).symlink_to(source)

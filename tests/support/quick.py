"""``make quick``: the tests that tell most about the changes at hand within a few minutes.

    python tests/support/quick.py [--against main] [--seconds 240] [--list] [pytest's arguments]

First all files whose tests compile nothing, then those that reach a changed module, the nearest first: a file that
imports it, then one that imports what imports it, and so on. What a file takes is known from an earlier run
(tests/costs.json); what does not fit into ``seconds`` of the processor is left to ``make test``. Tests that have not
begun after ``WALL`` seconds are skipped, for files that take longer than is known.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from costs import read_costs

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("compiler", "passes", "schedules", "targets", "benchmarks")
UNTIL = "HALOTILE_QUICK_UNTIL"  # in the environment: the time after which no test begins
WALL = 150.0
UNKNOWN = (20.0, 1)  # of a file that has never been measured
OUTSIDE = {"commands", "subprocess"}  # what happens in other processes is not counted
SMALL = 15.0  # seconds; a file that compiles nothing and takes longer waits for a change that reaches it


def changed_files(against: str) -> list[str]:
    """Paths of what differs from the common ancestor with ``against``, of what is not committed, and of new files."""
    base = _git("merge-base", "HEAD", against) or ["HEAD"]
    found = {*_git("diff", "--name-only", base[0]), *_git("ls-files", "--others", "--exclude-standard")}
    return sorted(name for name in found if name.endswith((".py", ".c", ".h", ".toml", ".json")))


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def graph() -> dict[str, set[str]]:
    """The files that each file of the package and of the tests imports, wherever in it."""
    files = [*ROOT.glob("*.py"), *(p for room in (*ROOMS, "tests") for p in (ROOT / room).rglob("*.py"))]
    return {str(p.relative_to(ROOT)): set(_imported(p)) for p in files}


def _imported(path: Path) -> Iterator[str]:
    for conftest in (folder / "conftest.py" for folder in path.parents if folder != ROOT and ROOT in folder.parents):
        if conftest.is_file() and conftest != path:
            yield str(conftest.relative_to(ROOT))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(_place(path, alias.name, 0), ())
        elif isinstance(node, ast.ImportFrom):
            yield from _files_of(_place(path, node.module or "", node.level), [a.name for a in node.names])


def _place(path: Path, module: str, level: int) -> Path:
    parts = module.split(".") if module else []
    if level:
        return path.parents[level - 1].joinpath(*parts)
    if parts[:1] == ["halotile"]:
        return ROOT.joinpath(*parts[1:])
    return ROOT.joinpath("tests", "support", *parts)


def _files_of(place: Path, names: Iterable[str]) -> Iterator[str]:
    """The file of a module, or those of ``names`` in a package."""
    for each in (place, *(place / name for name in names)):
        for file in (each.with_suffix(".py"), each / "__init__.py"):
            if file.is_file() and ROOT in file.parents:
                yield str(file.relative_to(ROOT))


def distances(imports: Mapping[str, set[str]], changed: Iterable[str]) -> dict[str, int]:
    """How many imports lie between a file and the nearest changed one, for those that reach one."""
    users: dict[str, set[str]] = {}
    for name, used in imports.items():
        for each in used:
            users.setdefault(each, set()).add(name)
    found = {name: 0 for name in changed if name in imports}
    front = list(found)
    while front:
        reached = {user for name in front for user in users.get(name, ())} - found.keys()
        found |= dict.fromkeys(reached, found[front[0]] + 1)
        front = list(reached)
    return found


def choose(
    imports: Mapping[str, set[str]], changed: Iterable[str], costs: Mapping[str, tuple[float, int]], seconds: float
) -> tuple[list[str], list[str]]:
    """The test files to run, and those that a change reaches and for which there is no time."""
    files = sorted(name for name in imports if name.startswith("tests/") and Path(name).name.startswith("test_"))
    far = distances(imports, changed)
    cost = {name: costs.get(name, UNKNOWN) for name in files}
    still = [n for n in files if not cost[n][1] and cost[n][0] < SMALL and not imports_outside(n)]
    reached = sorted((n for n in files if n in far and n not in still), key=lambda n: (far[n], cost[n][0], n))
    taken, left = list(still), []
    spent = sum(cost[n][0] for n in still)
    for name in reached:
        if spent + cost[name][0] <= seconds or far[name] == 0:
            taken.append(name)
            spent += cost[name][0]
        else:
            left.append(name)
    return taken, left


def imports_outside(name: str) -> bool:
    """Whether a test file starts other processes, which may compile."""
    tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
    used = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    used |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return bool(used & OUTSIDE)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", default="main", help="the branch that changes are counted from")
    parser.add_argument("--seconds", type=float, default=240, help="of the processor, all cores together")
    parser.add_argument("--list", action="store_true", help="print the files and run nothing")
    o, more = parser.parse_known_args()
    changed = changed_files(o.against)
    taken, left = choose(graph(), changed, read_costs(), o.seconds)
    print(f"{len(changed)} changed files; {len(taken)} test files, {len(left)} that they reach are left to `make test`")
    if o.list:
        print("\n".join([*taken, *(f"left: {name}" for name in left)]))
        return 0
    until = {UNTIL: str(time.time() + WALL)}
    return subprocess.run([sys.executable, "-m", "pytest", *more, *taken], cwd=ROOT, env=os.environ | until).returncode


if __name__ == "__main__":
    sys.exit(main())

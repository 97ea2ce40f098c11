"""The pictures of imports in architecture.md, made from the sources: ``python docs/imports.py`` writes them anew.

An arrow means that some module of the one folder imports a module of the other, within functions and for types alone
included. Arrows that follow from others (a -> c beside a -> b -> c) are left out of the pictures; the table has all.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
ROOMS = ("compiler", "passes", "schedules", "targets")
JOINED = (  # folders that are one with those in them
    "compiler/cli", "compiler/frontend", "compiler/runtime",
    "passes/simplify", "passes/tile", "schedules/conv", "schedules/operators",
)  # fmt: skip
PICTURES = ("passes", "schedules")
Arrows = dict[str, set[str]]


def folder_of(path: Path) -> str:
    """The folder that a module counts as part of: its own, or the joined one around it. The modules that lie directly
    in a room are ``<room>/*.py``."""
    parts = path.relative_to(ROOT).parent.parts
    if len(parts) == 1:
        return f"{parts[0]}/*.py"
    return next((f for f in JOINED if "/".join(parts[: f.count("/") + 1]) == f), "/".join(parts))


def imported(path: Path) -> Iterator[Path]:
    """The modules of ours that a module imports."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1] + tuple(filter(None, (node.module or "").split(".")))
            for alias in node.names:
                for parts in ((*base, alias.name), base):
                    place = ROOT.joinpath(*parts)
                    if place.with_suffix(".py").is_file() and parts:
                        yield place.with_suffix(".py")
                        break
                    if (place / "__init__.py").is_file() and parts:
                        yield place / "__init__.py"
                        break


def arrows() -> Arrows:
    """Folder -> the folders that it imports from. ``errors.py`` and ``version.py``, which anybody may, are left out."""
    found: Arrows = {}
    for path in sorted(p for room in ROOMS for p in (ROOT / room).rglob("*.py")):
        own = found.setdefault(folder_of(path), set())
        own |= {folder_of(p) for p in imported(path) if p.parent != ROOT} - {folder_of(path)}
    return found


def reach(found: Mapping[str, set[str]], start: str) -> set[str]:
    """All that ``start`` imports, by way of others or not."""
    seen: set[str] = set()
    left = list(found.get(start, ()))
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += found.get(name, ())
    return seen


def picture(found: Arrows, room: str) -> str:
    """The folders of one room and the arrows between them, as Mermaid."""
    own = f"{room}/"
    inner = {f: {t for t in there if t.startswith(own)} for f, there in found.items() if f.startswith(own)}
    names = {f: f.removeprefix(own).replace("/*.py", "").replace("/", "_") for f in inner}
    names = {f: "top" if n == "*.py" else n for f, n in names.items()}
    shown = [f'  {names[f]}["{f.removeprefix(own)}"]' for f in sorted(inner)]
    for folder in sorted(inner):
        for there in sorted(inner[folder]):
            others = inner[folder] - {there}
            behind = any(there in reach(inner, o) and o not in reach(inner, there) for o in others)
            if not behind:
                shown.append(f"  {names[folder]} --> {names[there]}")
    return "\n".join(["```mermaid", "flowchart TD", *shown, "```"])


def table(found: Arrows) -> str:
    """Every folder with all that it imports."""
    lines = ["| folder | imports |", "|---|---|"]
    for folder in sorted(found, key=lambda f: (ROOMS.index(f.split("/")[0]), f)):
        lines.append(f"| `{folder}` | {', '.join(f'`{t}`' for t in sorted(found[folder])) or 'nothing of ours'} |")
    return "\n".join(lines)


def with_pictures(text: str) -> str:
    """``text`` with what stands between ``<!-- imports: NAME -->`` and ``<!-- end -->`` made anew."""
    found = arrows()
    made = {**{room: picture(found, room) for room in PICTURES}, "table": table(found)}
    for name, body in made.items():
        before, mark, rest = text.partition(f"<!-- imports: {name} -->\n")
        if not mark:
            raise SystemExit(f"{PAGE.name} lacks the line <!-- imports: {name} -->")
        _, end, after = rest.partition("<!-- end -->")
        text = f"{before}{mark}\n{body}\n\n{end}{after}"
    return text


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    made = with_pictures(text)
    if "--check" in sys.argv[1:]:
        if made != text:
            print("the imports in docs/architecture.md are out of date: run python docs/imports.py", file=sys.stderr)
        return int(made != text)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

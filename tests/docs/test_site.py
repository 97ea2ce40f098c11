"""The site builds without a warning, every link of it leads somewhere, and the reference has all that it is about."""

from __future__ import annotations

import html.parser
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import halotile
import pytest

ROOT = Path(__file__).resolve().parents[2]


def module(name: str) -> ModuleType:
    place = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert place is not None and place.loader is not None
    found = importlib.util.module_from_spec(place)
    place.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    pages: dict[str, str] = module("reference").pages()
    return pages


def test_the_reference_is_whole(reference: dict[str, str]) -> None:
    from halotile.compiler.cli.main import _COMMANDS
    from halotile.compiler.runtime.recorded import Recorded

    headings = re.findall(r"^## (\w+)$", reference["reference/python.md"], re.M)
    assert [n for n in halotile.__all__ if n not in headings] == ["errors", "__version__"]
    assert "### `Model.bind`" in reference["reference/python.md"] and ":func:" not in reference["reference/python.md"]
    assert [n for n in _COMMANDS if f"\n## halotile {n}\n" not in reference["reference/commands.md"]] == []
    assert "--memory-budget" in reference["reference/commands.md"]
    assert "int example_run(" in reference["reference/c.md"]
    assert [n for n in Recorded.__annotations__ if f"`{n}`" not in reference["reference/manifest.md"]] == []
    assert "| E300 | `ShapeError` | 1 |" in reference["reference/errors.md"]
    assert "- 3 outputs differ from the reference" in reference["reference/errors.md"]


@pytest.mark.parametrize(
    ("text", "here", "place", "expected"),
    [
        ("[a](docs/start/c.md#x)", "README.md", "index.md", "[a](start/c.md#x)"),
        ("[a](../README.md)", "docs/images.md", "images.md", "[a](index.md)"),
        ("[a](../../SUPPORT.md)", "docs/start/c.md", "start/c.md", "[a](../support.md)"),
        ("![a](docs/pictures/tiles.svg)", "README.md", "index.md", "![a](pictures/tiles.svg)"),
        ("[a](LICENSE)", "README.md", "index.md", "a"),
        ("[a](nothing.md)", "README.md", "index.md", "[a](nothing.md)"),
        ("[a](https://x.org) [b](#c)", "README.md", "index.md", "[a](https://x.org) [b](#c)"),
    ],
)
def test_links_of_the_repository_become_the_sites(text: str, here: str, place: str, expected: str) -> None:
    assert module("hook").linked(text, here, place) == expected


class Page(html.parser.HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places.add(found.get("id") or "")
        if (link := found.get("href" if tag in ("a", "link") else "src")) is not None:
            self.links.append(link)


def dead(site: Path) -> Iterator[str]:
    """Links of the built site that lead nowhere."""
    pages = {file: Page(file) for file in site.rglob("*.html")}
    for file, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:|//", link) or file.name == "404.html":
                continue
            path, _, anchor = unquote(link).partition("#")
            there = (file.parent / path).resolve() if path else file
            there = there / "index.html" if there.is_dir() else there
            if not there.is_file() or (there in pages and anchor and anchor not in pages[there].places):
                yield f"{file.relative_to(site)}: {link}"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("material") is None:
        pytest.skip("NOT RUN: needs mkdocs-material (pip install -e '.[dev]')")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    assert "Documentation built" in done.stderr, "with --quiet, mkdocs neither tells nor counts warnings"
    assert list(dead(tmp_path / "site")) == []
    assert len(list((tmp_path / "site").rglob("*.html"))) >= 40

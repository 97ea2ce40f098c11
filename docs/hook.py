"""mkdocs' hook: pages that stand elsewhere in the repository, and the reference; links among all of them."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {  # path in the repository -> path in the site
    "README.md": "index.md",
    "SUPPORT.md": "support.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "passes/simplify/RULES.md": "rules.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are not in docs/."""
    from mkdocs.structure.files import File

    sys.path.insert(0, str(Path(__file__).parent))
    from reference import pages

    found = {place: (ROOT / path).read_text(encoding="utf-8") for path, place in ELSEWHERE.items()}
    for place, text in {**found, **pages()}.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they stand in the repository become the site's."""
    here = {place: path for path, place in ELSEWHERE.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return linked(markdown, here, page.file.src_uri)


def linked(markdown: str, here: str, place: str) -> str:
    """The text of the page at ``here`` in the repository with its links as they have to be at ``place`` in the site;
    files that are on no page lose their link, and keep their name."""

    def link(found: re.Match[str]) -> str:
        mark, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        there = ELSEWHERE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if there is None:
            return text if (ROOT / path).exists() else found[0]  # a link to nothing stays, and is told of
        return f"{mark}[{text}]({posixpath.relpath(there, posixpath.dirname(place) or '.')}{anchor})"

    return _LINK.sub(link, markdown)

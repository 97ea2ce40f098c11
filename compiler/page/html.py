"""Small pieces of the page: tables and lines of text, whose looks the page's style sheet gives by class."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: int = 0) -> str:
    """A table whose first ``numbers`` columns stand to the right."""

    def cells(tag: str, row: Sequence[object]) -> str:
        return "".join(
            f"<{tag}{' class=n' if i < numbers else ''}>{_breakable(str(c))}</{tag}>" for i, c in enumerate(row)
        )

    top = f"<thead><tr>{cells('th', head)}</tr></thead>" if head else ""
    body = "".join(f"<tr>{cells('td', r)}</tr>" for r in rows)
    return f"<table>{top}<tbody>{body}</tbody></table>"


def line(words: str, kind: str = "dim") -> str:
    """A paragraph of its own."""
    return f'<p class="{kind}">{escape(words)}</p>'


def _breakable(words: str) -> str:
    """The words with places in long names where a line may break: behind slashes, dots and underscores."""
    return re.sub(r"(?<=\w)([/._])(?=\w{3})", r"\1<wbr>", escape(words))

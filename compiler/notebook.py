"""A model as a small table of HTML, which notebooks show for its name."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


def table(model: Any) -> str:
    """What goes into a Model and comes out, for which machine, in how many bytes."""
    report, manifest = model.report, model.manifest
    target = model.target
    words = [] if target is None else [target.id, target.cpu, f"{target.vector_bits}-bit vectors"]
    facts = [("target", ", ".join(dict.fromkeys(words)))]
    facts += [(what, _bytes(manifest[key])) for what, key in (("weights", "weight_bytes"), ("arena", "arena_bytes"))
              if key in manifest]  # fmt: skip
    if report.get("kernels"):
        facts.append(("kernels", f"{len(report['kernels'])}, {report.get('macs', 0):,} multiply-adds"))
    rows = [("input", escape(str(t))) for t in model.inputs] + [("output", escape(str(t))) for t in model.outputs]
    rows += [(what, escape(text)) for what, text in facts if text]
    lines = [f"<tr><th style='text-align:left'>{what}</th><td><code>{text}</code></td></tr>" for what, text in rows]
    return f"<table><caption>halotile.Model {escape(model.name)}</caption>{''.join(lines)}</table>"


def _bytes(size: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024 or unit == "MiB":
            return f"{size} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024  # type: ignore[assignment]
    raise AssertionError

"""The catalogue: every rewrite of the list on a minimal model, with a known batch and with an open one.

``python tests/simplify/test_catalogue.py`` writes passes/simplify/RULES.md from what holds now.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "support"))

import halotile
import halotile.passes.simplify
import pytest
from catalogue import CATALOGUE, FAMILIES, TRAPS, Emit, Entry
from catalogue.listed import ITEMS
from catalogue.onnx_models import ENTRIES as ONNX_ENTRIES
from halotile.passes.simplify import Simplify
from halotile.passes.simplify.rule import FLOAT_MODES, Rule
from halotile.passes.simplify.rules import all_rules

TABLE = Path(halotile.passes.simplify.__file__).with_name("RULES.md")


def simplified(module: Callable[..., Any], entry: Entry, batch: Any, check: bool = False) -> tuple[Any, Any]:
    inputs = [(tuple(batch if d == "batch" else d for d in shape), dtype) for shape, dtype in entry.inputs]
    before = module(inputs, lambda emit, *xs: entry.body(Emit(emit), *xs))
    return before, Simplify(entry.mode, check=check).apply(before)


def remaining(operators: Callable[[Any], list[str]], result: Any) -> str:
    return " ".join(sorted(operators(result)))


def fired(operators: Callable[[Any], list[str]], entry: Entry, batch: Any, result: Any) -> bool:
    return remaining(operators, result) == entry.remaining(batch)


CASES = [
    pytest.param(e, b, id=f"{e.title} ({'static' if b == 2 else 'dynamic'})")
    for e in CATALOGUE
    for b in (2, "n")
    if b == 2 or not e.dynamic
]


@pytest.mark.parametrize(("entry", "batch"), CASES)
def test_it_fires_and_is_right(tools, entry, batch):
    before, result = simplified(tools.module, entry, batch, check=True)
    assert fired(tools.operators, entry, batch, result), (remaining(tools.operators, result), result.notes)
    for n in (1, 2, 5) if batch == "n" else (2,):
        tools.same(before, result.module, exact=entry.mode == "exact", n=n)
    assert not Simplify(entry.mode).apply(result.module).changed


def test_there_are_enough_of_them():
    assert len({e.title for e in CATALOGUE}) == len(CATALOGUE) >= 100
    assert len({e.title for e in TRAPS}) == len(TRAPS) >= 40


def documented(rule: Rule) -> str:
    return (rule.__doc__ or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|").strip()


def table(module: Callable[..., Any], operators: Callable[[Any], list[str]]) -> str:
    """The rules, and the catalogue with what holds now, computed, not remembered."""
    lines = [
        "# What the simplification does",
        "",
        "Written by `python tests/simplify/test_catalogue.py`; a test holds it to the code.",
        "",
        "## Rules",
        "",
        "| rule | family | float modes | what it does |",
        "|---|---|---|---|",
    ]
    for rule in all_rules():
        modes = (
            "all"
            if rule.modes == frozenset(FLOAT_MODES)
            else ", ".join(m for m in FLOAT_MODES if m in rule.modes)
        )
        what = " ".join(documented(rule).split())
        lines.append(f"| {rule.name} | {rule.family.replace('_', ' ')} | {modes} | {what} |")
    applied: set[str] = set()
    held: dict[str, list[str]] = {}
    for family, entries in FAMILIES.items():
        lines += ["", f"## Models: {family}", "", "| model | float mode | static | dynamic | rules |"]
        lines.append("|---|---|---|---|---|")
        for entry in entries:
            cells, names = [], set()
            for batch in (2, "n"):
                if batch == "n" and entry.dynamic:
                    cells.append(f"no: {entry.dynamic}")
                    continue
                _, result = simplified(module, entry, batch)
                names |= set(result.details["applied"])
                cells.append("yes" if fired(operators, entry, batch, result) else "NO")
            applied |= names
            held[entry.title] = cells
            shown = ", ".join(sorted(names)) or "none needed"
            title = entry.title.replace("|", r"\|")
            lines.append(f"| {title} | {entry.mode} | {' | '.join(cells)} | {shown} |")
    lines += _normalisation(held)
    lines += ["", "## The list, item by item", "", "| item | static | dynamic | models | remark |"]
    lines.append("|---|---|---|---|---|")
    for item, titles, remark in ITEMS:
        columns = [_all(held[t][k] for t in titles) if titles else "no" for k in (0, 1)]
        models = "; ".join(titles).replace("|", r"\|")
        lines.append(f"| {item.replace('|', chr(92) + '|')} | {' | '.join(columns)} | {models} | {remark} |")
    missing = sorted({r.name for r in all_rules()} - applied)
    lines += ["", f"Rules without a model: {', '.join(missing) or 'none'}.", ""]
    return "\n".join(lines)


def _all(cells: Iterable[str]) -> str:
    """What holds for all of some models."""
    return next((c for c in cells if c != "yes"), "yes")


def _normalisation(held: dict[str, list[str]]) -> list[str]:
    """The ONNX models, whose left operators :mod:`.test_normalisation` checks as well."""
    lines = ["", "## Models: normalisation before the import (ONNX)", "", "| model | static | dynamic | left |"]
    lines.append("|---|---|---|---|")
    for entry in ONNX_ENTRIES:
        cells, shown = [], ""
        for batch in (2, "n"):
            listed = halotile.inspect(entry.model(batch), stage="simplify")["operators"]
            shown = " ".join(sorted(o["operator"].removeprefix("relax.") for o in listed))
            left = entry.left if entry.open_left is None or batch == 2 else entry.open_left
            cells.append("yes" if shown == " ".join(sorted(left.split())) else "NO")
        held[entry.title] = cells
        lines.append(f"| {entry.title} | {' | '.join(cells)} | {shown} |")
    return lines


def test_the_table_is_what_holds_and_every_rule_has_a_model(tools):
    text = table(tools.module, tools.operators)
    assert "| NO |" not in text
    assert text.endswith("Rules without a model: none.\n")
    assert TABLE.read_text() == text, "python tests/simplify/test_catalogue.py writes it anew"


if __name__ == "__main__":
    import conftest  # the helpers beside this file

    TABLE.write_text(table(conftest.module, conftest.operators))
    print(f"{TABLE}: {len(CATALOGUE)} models")

"""What a run of a model with open shapes must satisfy besides the bounds of its sizes, as C: a table of words and a
function of both sides of each condition.

    h + w at most 512   ->   {"h + w", "at most 512", "why", "", AT_MOST, 0}   and   case 0: return s[0] + s[1];
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...schedules.words.dims import Dim, is_whole, terms_of
from ..spec import Condition, Symbol
from .names import literal

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

_RELATIONS = {"is": "EQUAL", "at least": "AT_LEAST", "at most": "AT_MOST", "is 1 or": "ONE_OR"}
_WORDS = {"is": "", "at least": "at least ", "at most": "at most ", "is 1 or": "1 or "}


def must_be(condition: Condition) -> str:
    """What the left side must be, in words: ``at most 512``, ``1 or batch``."""
    return f"{_WORDS[condition.relation]}{condition.right}"


def _then(condition: Condition) -> str:
    return f"; {condition.fits}" if condition.fits else ""


def condition_text(conditions: Sequence[Condition], symbols: Sequence[Symbol]) -> str:
    """The table ``open_conditions`` and the function ``side_of``; nothing where there are no conditions."""
    if not conditions:
        return ""
    places = {symbol.name: f"s[{i}]" for i, symbol in enumerate(symbols)}
    rows = "".join(
        f"    {{{literal(str(c.left))}, {literal(must_be(c))}, {literal(c.why)}, {literal(_then(c))}, "
        f"HALOTILE_{_RELATIONS[c.relation]}, {int(isinstance(c.right, Dim))}}},\n"
        for c in conditions
    )
    sides = [expression(side, places) for c in conditions for side in (c.left, c.right)]
    cases = "".join(f"    case {i}: return {side};\n" for i, side in enumerate(sides))
    return _TEXT.format(rows=rows, cases=cases)


def expression(dim: SizeLike, places: Mapping[str, str]) -> str:
    """A number or a Dim as an expression of C in int64_t, over ``places`` of the symbols."""
    if not is_whole(dim):
        raise ValueError(f"{dim} is no whole number")
    products = [
        "*".join([f"(int64_t){factor}", *(_atom(atom, places) for atom in monomial)])
        for monomial, factor in terms_of(dim).items()
    ]
    return " + ".join(products) or "0"


def _atom(atom: SizeLike, places: Mapping[str, str]) -> str:
    if atom.kind == "symbol":
        return places[atom.text]
    a, b = (expression(operand, places) for operand in atom.operands)
    return f"{'floor_of' if atom.kind == 'floor' else f'{atom.kind}_of'}({a}, {b})"


_TEXT = """
static inline int64_t floor_of(int64_t a, int64_t b) {{ return b ? a / b - (a % b && (a < 0) != (b < 0)) : 0; }}
static inline int64_t max_of(int64_t a, int64_t b) {{ return a > b ? a : b; }}
static inline int64_t min_of(int64_t a, int64_t b) {{ return a < b ? a : b; }}

static const struct halotile_condition open_conditions[] = {{
{rows}}};

/* The left side of condition i is number 2 i, its right side the next. */
static int64_t side_of(const int64_t *s, size_t number) {{
    (void)s;
    switch (number) {{
{cases}    default: return 0;
    }}
}}
"""

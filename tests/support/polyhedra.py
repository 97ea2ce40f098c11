"""Images of integer spans under quasi-affine relations, by islpy: the oracle of integer algebra."""

from __future__ import annotations

import islpy as isl

Span = tuple[int, int]


def image(relation: str, span: Span) -> Span | None:
    """The smallest span with everything that ``relation`` ("{ [o] -> [i] : ... }") gives to ``span``; None if nothing.

    The relation is a Presburger formula; bounds are exact, found by isl's integer minimum and maximum.
    """
    domain = isl.Set(f"{{ [o] : {span[0]} <= o < {span[1]} }}")
    found = domain.apply(isl.Map(relation))
    if found.is_empty():
        return None
    return _number(found.dim_min_val(0)), _number(found.dim_max_val(0)) + 1


def _number(value: isl.Val) -> int:
    assert value.is_int(), value
    return int(value.to_python())

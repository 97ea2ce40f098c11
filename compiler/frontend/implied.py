"""What a model that runs implies about its open dimensions, and how shapes with them broadcast.

    matmul([batch, m, k], [n, 8])        k is n
    add([batch, 5], [7, 5])              batch is 1 or 7, the result is [7, 5]
    add([a, 5], [b, 5])                  a and b may differ (one may be 1): refused

    add([h], [2 * (h // 2)])             h is even
    add([past + seq], [total])           total is past + seq

What follows is carried out by :class:`~.learned.Learned`, and the import starts again with it. What no symbol can
express is remembered as a condition.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...schedules.words.dims import (
    Atom,
    Dim,
    Monomial,
    Open,
    bounds,
    is_whole,
    plain_terms,
    quotient,
    terms_of,
)
from ...schedules.words.factors import factors_of
from ...schedules.words.refusal import Refusal
from ...schedules.words.size_like import SizeLike
from ...schedules.words.sizes import replaced
from .learned import AT, Learned

if TYPE_CHECKING:
    pass

Condition = tuple[SizeLike, str, SizeLike]  # (left, relation, right): "is", "at least", "at most", or "is 1 or"


@dataclass(frozen=True)
class Assumed:
    """What is told of a condition, and the node that asks for it."""

    what: str
    node: str


#: What every run that succeeds satisfies, as far as no symbol expresses it yet.
ASSUMED: ContextVar[dict[Condition, Assumed] | None] = ContextVar("assumed", default=None)


def assume(left: SizeLike, relation: str, right: SizeLike, what: str) -> None:
    """Remembers a condition, to be told and to be checked at run time; Open where no import keeps dims open."""
    assumed = ASSUMED.get()
    if assumed is None:
        raise Open(f"{what}: {left} may or may not be {right}")
    assumed.setdefault((left, relation, right), Assumed(what, AT.get()))


def equal(a: SizeLike, b: SizeLike) -> bool:
    """Whether two dims are equal in every run that succeeds, as far as that is known."""
    assumed = ASSUMED.get()
    return a == b or bool(assumed and _equation(_without_common(a - b)) in assumed)


def require_equal(a: SizeLike, b: SizeLike, what: str) -> None:
    """Two dims that must agree in every run: nothing if they do, Learned if a symbol is another or a number, a Refusal
    if they can't, else an equation that is assumed, from which more may follow (:func:`facts`)."""
    if equal(a, b):
        return
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        raise Refusal(f"{what}: {a} is not {b}")
    rest = _without_common(a - b)
    low, high = bounds(rest)
    if low > 0 or high < 0:
        raise Refusal(f"{what}: {a} is not {b}")
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Dim) and isinstance(y, Dim) and symbol_name(x):
            _capped(x, y, 0)
    for name, value in _solutions(rest):
        if not isinstance(value, Dim) or symbol_name(value) is not None:
            raise Learned(name, same_as=value)
    for zero in (rest, -rest):
        learn_at_least(zero, 0, "")
        learn_at_most(zero, 0, "")
    assume(*_equation(rest), f"{what}: {a} is taken to be {b}, since the model can't run otherwise")


def require_same(a: Sequence[SizeLike], b: Sequence[SizeLike], what: str) -> None:
    """Two shapes that must agree in every run."""
    if len(a) != len(b):
        raise Refusal(f"{what}: [{', '.join(map(str, a))}] and [{', '.join(map(str, b))}] differ in rank")
    for one, other in zip(a, b):
        require_equal(one, other, what)


def facts(assumed: Mapping[Condition, Assumed], known: Mapping[str, SizeLike]) -> Iterator[Learned]:
    """What follows for symbols, of which ``known`` is so, from equations that were assumed: one fact of each."""
    for (left, relation, right), told in assumed.items():
        rest = replaced(left, known) - replaced(right, known)
        if relation != "is" or not isinstance(rest, Dim):
            continue
        rest = _without_common(rest)
        found = [Learned(name, multiple=multiple) for name, multiple in _multiples(rest)]
        found += [Learned(name, same_as=value) for name, value in _solutions(rest)]
        for fact in found[:1]:
            fact.node = told.node
            yield fact


def _equation(rest: Dim) -> Condition:
    """That ``rest`` is zero, with no negative terms and no common factor; one form for it and its opposite."""
    terms = terms_of(rest)
    common = math.gcd(*terms.values()) if is_whole(rest) else 1
    sides: list[SizeLike] = [0, 0]
    for monomial, factor in terms.items():
        part = abs(factor) // common if is_whole(rest) else abs(factor)
        sides[factor < 0] = sides[factor < 0] + (Dim({monomial: part}) if monomial else part)
    left, right = sorted(sides, key=str, reverse=True)
    return left, "is", right


def _solutions(rest: Dim) -> Iterator[tuple[str, Dim]]:
    """Symbols and what each must be for ``rest`` to be zero: whole, never negative, and without the symbol itself."""
    for monomial in sorted((m for m in rest.terms if len(m) == 1), reverse=True):
        symbol = monomial[0].symbol
        if symbol is None or symbol.operands:
            continue
        factor = rest.terms[monomial]
        value = quotient(Dim({monomial: factor}) - rest, factor)
        if not is_whole(value) or bounds(value)[0] < 0 or symbol in symbols_of(value):
            continue
        yield symbol.text, value * symbol.multiple


def _multiples(rest: Dim) -> Iterator[tuple[str, int]]:
    """Symbols that must be multiples of more than is known for ``rest`` to be zero.

    In h - 2 (h // 2) all but the first term is a multiple of 2, and so must be h; so it is where (h + 1) // 2 is
    h // 2, and where 4 (h // 2) (w // 2) is h w."""
    if not is_whole(rest):
        return
    yield from _divided(rest)
    for monomial, factor in rest.terms.items():
        symbol = monomial[0].symbol if len(monomial) == 1 else None
        others = [f for m, f in rest.terms.items() if m and m != monomial]
        common = math.gcd(*others) if others else 1
        if symbol is None or symbol.operands or rest.terms.get((), 0) % common:
            continue
        more = common // math.gcd(factor, common)
        if more > 1:
            yield symbol.text, symbol.multiple * more


def _divided(rest: Dim) -> Iterator[tuple[str, int]]:
    """Symbols of which a floor and a ceiling are one, or a product of floors and the product of the symbols."""
    terms = list(rest.terms.items())
    for (one, p), (other, q) in (terms, terms[::-1]) if len(terms) == 2 else ():
        floors = [a.operands for a in other if a.kind == "floor" and isinstance(a.operands[1], int)]
        names = [symbol_name(inner) for inner, _ in floors]
        if not floors or len(floors) != len(other) or None in names:
            continue
        factors = [k for _, k in floors]
        ceiling = one[0].operands if len(one) == 1 and one[0].kind == "floor" else None
        rounded = ceiling is not None and p + q == 0 and ceiling[1:] == (factors[0],) and len(floors) == 1
        if rounded and ceiling is not None and ceiling[0] - floors[0][0] == factors[0] - 1:
            yield str(names[0]), factors[0]
        elif q == -p * math.prod(factors) and sorted(map(str, names)) == sorted(a.text for a in one):
            yield from zip(map(str, names), factors)


def symbol_name(value: SizeLike) -> str | None:
    """The name of the open dimension that a dim is; None for any other dim."""
    ((monomial, factor), *more) = plain_terms(value) if isinstance(value, Dim) else [((), 0)]
    alone = monomial[0] if factor == 1 and not more and len(monomial) == 1 else None
    return alone.text if alone is not None and alone.kind == "symbol" and not alone.operands else None


def _without_common(value: SizeLike) -> SizeLike:
    """Without the symbols that every term has: they make a number of elements, so not zero in a run that matters."""
    monomials = list(terms_of(value))
    common = [a for a in monomials[0] if a.symbol is not None] if monomials else []
    shared: list[Atom] = []
    rest = [list(m) for m in monomials]
    for atom in common:
        if all(atom in m for m in rest):
            shared.append(atom)
            for m in rest:
                m.remove(atom)
    return quotient(value, Dim({tuple(sorted(shared)): 1})) if shared else value


def require_at_least(
    value: SizeLike, least: int, what: str, why: str = ""
) -> None:
    """A dim that must be at least ``least`` in every run."""
    low, high = bounds(value)
    if high < least:
        raise Refusal(f"{what}: {value} is less than {least}")
    if low < least and isinstance(value, Dim):
        learn_at_least(value, least, why)
        if ASSUMED.get() is not None:
            assume(value, "at least", least, f"{what}: {value} is taken to be at least {least}")


def require_longer(shape: Sequence[SizeLike], guarded: bool, what: str) -> None:
    """Dims that a Squeeze without axes would drop at 1, and so are longer; Open in a branch, of which no fact comes."""
    for dim in [d for d in shape if isinstance(d, Dim) and bounds(d)[0] < 2]:
        if guarded or bounds(dim)[1] < 2:
            raise Open(f"its axes are not given, and an open dimension of {what} may be one")
        why = "as it would be dropped at 1, where a number fixes it"
        require_at_least(dim, 2, f"a Squeeze without axes of {what}", why)


def learn_at_least(value: SizeLike, least: int, why: str) -> None:
    """The least that the symbol of f n + c, floor(n / k), max(n, k) or min(n, k) must be, the most of c - f n, the
    symbols of a product that is not zero, and both sides of min(n, k) + rest; nothing for a dim of another form."""
    terms = dict(terms_of(value))
    for lesser in [m for m, factor in terms.items() if factor == 1 and len(m) == 1 and m[0].kind == "min"]:
        for operand in lesser[0].operands if len(terms) > 1 else ():
            learn_at_least(value - Dim({lesser: 1}) + operand, least, why)
    for factor in _counts(terms, least):
        learn_at_least(factor, 1, why)
    below = -least
    least -= terms.pop((), 0)
    if len(terms) != 1:
        return
    ((monomial, factor),) = terms.items()
    if factor < 0:
        learn_at_most(-value, below, why)
    if factor > 0 and least > 0 and len(monomial) > 1:
        for atom in monomial if all(a.low >= 0 for a in monomial) else ():
            learn_at_least(Dim({(atom,): 1}), 1, why)
    if factor <= 0 or len(monomial) != 1 or monomial[0].low * factor >= least:
        return
    atom, most = monomial[0], -(-least // factor)
    if atom.kind == "symbol" and not atom.operands:
        raise Learned(atom.text, low=int(most), why=why)
    if atom.kind == "floor" and isinstance(atom.operands[1], int):
        learn_at_least(atom.operands[0], int(most) * atom.operands[1], why)
    elif atom.kind in ("max", "min"):
        ends = [bounds(o)[1] for o in atom.operands]
        for operand, other in zip(atom.operands, reversed(ends)):
            if atom.kind == "min" or other < most:  # the other one does not reach it
                learn_at_least(operand, int(most), why)


def _counts(terms: Mapping[Monomial, SizeLike], least: int) -> list[Dim]:
    """The factors of a product of counts that is at least ``least`` and so not zero."""
    factored = factors_of(terms)
    if factored is None or least <= factored[1]:
        return []
    found = [Dim(f) for f in factored[0]]
    return found if all(is_whole(f) and bounds(f, 0)[0] >= 0 for f in found) else []


def broadcast(*shapes: Sequence[SizeLike]) -> tuple[SizeLike, ...]:
    """numpy's broadcast of shapes with open dims; raises Refusal when they can't go together."""
    rank = max(map(len, shapes), default=0)
    result: list[SizeLike] = []
    for k in range(rank):
        dims = [s[len(s) - rank + k] for s in shapes if len(s) - rank + k >= 0]
        result.append(_broadcast_dim([d for d in dims if d != 1]))
    return tuple(result)


def _broadcast_dim(dims: list[SizeLike]) -> SizeLike:
    for d in dims:  # the first element of an axis, beside all of it
        if len(dims) > 1 and bounds(d) == (0, 1):
            learn_at_least(d, 1, "of which one element is repeated")
    result: SizeLike = 1
    for d in dims:
        if result == 1 or equal(result, d):
            result = d if result == 1 else result
        elif not isinstance(result, Dim) and not isinstance(d, Dim):
            raise Refusal(f"{result} and {d} do not broadcast")
        elif isinstance(result, Dim) != isinstance(d, Dim):
            fixed, other = (d, result) if isinstance(result, Dim) else (result, d)
            low, high = bounds(other)
            if high < fixed and low > 1:
                raise Refusal(f"{result} and {d} do not broadcast")
            if low > 1:  # not one, so just this
                require_equal(other, fixed, "operands that broadcast")
            elif ASSUMED.get() is not None:
                assume(other, "is 1 or", fixed, f"{other} is taken to be 1 or {fixed}, to which it is broadcast")
            result = fixed  # whatever the symbol is in a run that succeeds: 1 or just this
        else:
            first = _capped(result, d)
            capped = _capped(d, result) if first is None else first
            names = symbol_name(result), symbol_name(d)
            if capped is None and all(names):  # neither is 1 at every size, and so a run that repeats one is rare
                raise Learned(str(names[1]), same_as=result, why="beside which it stands; fix the one that is to be 1")
            if capped is None:
                require_equal(result, d, "operands that broadcast")
            result = result if capped is None else capped
    return result


def symbols_of(value: SizeLike) -> set[Atom]:
    """Every symbol that a dim depends on."""
    found: set[Atom] = set()
    for monomial in terms_of(value):
        for atom in monomial:
            found |= {atom} if atom.kind == "symbol" else set().union(*map(symbols_of, atom.operands))
    return found


def at(value: SizeLike, known: Mapping[str, int]) -> SizeLike:
    """The number that a dim is where its symbols are ``known``."""
    functions: dict[str, SizeLike] = {"floor": lambda a, b: a // b, "max": max, "min": min}
    total: SizeLike = 0
    for monomial, factor in terms_of(value).items():
        for atom in monomial:
            operands = (at(o, known) for o in atom.operands)
            factor = factor * (known[atom.text] if atom.kind == "symbol" else functions[atom.kind](*operands))
        total = total + factor
    return total


def require_all(count: SizeLike, length: SizeLike) -> None:
    """That a length of min(count, n) is all of the count in every run: nothing where it is no such length."""
    if isinstance(count, Dim) and isinstance(length, Dim):
        _capped(count, length, 0)


def _capped(a: Dim, b: Dim, beyond: int = 1) -> Dim | None:
    """``a`` when b is min(a, n), or min(a + k, n + k) - k, for an n ``beyond`` what broadcasts: a run succeeds only up
    to n, which is learned or a condition."""
    for atoms, factor in b.terms.items():
        if factor != 1 or len(atoms) != 1 or atoms[0].kind != "min":
            continue
        rest = b - Dim({atoms: 1})
        for operand, limit in (atoms[0].operands, atoms[0].operands[::-1]):
            largest = rest + limit
            if rest + operand == a and not isinstance(largest, Dim) and largest > beyond:
                require_at_most(a, largest)
                return a
    return None


def learn_at_most(value: Dim, most: int, why: str) -> None:
    """The most that the symbol of f n + c, floor(n / k), max(n, k) or min(n, k) may be; nothing for a dim of another
    form."""
    terms = dict(terms_of(value))
    most -= terms.pop((), 0)
    if len(terms) != 1:
        return
    ((monomial, factor),) = terms.items()
    if factor <= 0 or len(monomial) != 1 or monomial[0].high * factor <= most:
        return
    atom, limit = monomial[0], int(most // factor)
    if atom.kind == "symbol" and not atom.operands:
        raise Learned(atom.text, high=limit, why=why)
    if atom.kind == "floor" and isinstance(atom.operands[1], int):
        learn_at_most(atom.operands[0], limit * atom.operands[1] + atom.operands[1] - 1, why)
    elif atom.kind in ("max", "min"):
        ends = [bounds(o)[0] for o in atom.operands]
        for operand, other in zip(atom.operands, reversed(ends)):
            if atom.kind == "max" or other > limit:
                learn_at_most(operand, limit, why)


def require_at_most(value: SizeLike, most: int, why: str = "") -> None:
    """A dim that must be at most ``most`` in every run."""
    if not isinstance(value, Dim) or bounds(value)[1] <= most:
        return
    learn_at_most(value, most, why)
    if ASSUMED.get() is not None:
        told = f"{value} is taken to be at most {most}, {why or 'since the model can not run otherwise'}"
        assume(value, "at most", most, told.replace("can not", "can't"))

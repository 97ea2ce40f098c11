"""What a model that runs implies about its open dimensions, and how shapes with them broadcast.

    matmul([batch, m, k], [n, 8])        k is n
    add([batch, 5], [7, 5])              batch is 1 or 7, the result is [7, 5]
    add([a, 5], [b, 5])                  a and b may differ (one may be 1): refused

What follows is carried out by :class:`~.dims.Learned`, and the import starts again with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from ...schedules.words.dims import Atom, Dim, Learned, Open, bounds, is_whole, quotient, terms_of
from ...schedules.words.refusal import Refusal

LENGTHS_TRIED = 512
#: Pairs of dims that a run implies to be equal, though no symbol follows from it, with a note for each.
ASSUMED: ContextVar[dict[tuple[Any, Any], str] | None] = ContextVar("assumed", default=None)


def equal(a: Any, b: Any) -> bool:
    """Whether two dims are equal in every run that succeeds, as far as that is known."""
    return a == b or bool({(a, b), (b, a)} & (ASSUMED.get() or {}).keys())


def require_equal(a: Any, b: Any, what: str) -> None:
    """Two dims that must agree in every run: nothing if they do, Learned if a symbol follows, a Refusal if they can't,
    else remembered and noted (a height that must be even, say, which no symbol can express)."""
    if equal(a, b):
        return
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        raise Refusal(f"{what}: {a} is not {b}")
    rest = a - b
    common = _common(rest)
    rest = rest if common is None else quotient(rest, common)
    symbols = {m[0] for m in terms_of(rest) if len(m) == 1 and m[0].kind == "symbol"}
    for atom in sorted(symbols, reverse=True):
        factor = rest.terms[(atom,)]
        value = quotient(Dim({(atom,): factor}) - rest, factor)
        plain = not isinstance(value, Dim) or len(value.terms) == 1 and _is_symbol(value)
        if plain and is_whole(value) and (isinstance(value, Dim) or value >= 0):
            raise Learned(atom.text, same_as=value)
    low, high = bounds(a - b)
    if low > 0 or high < 0:
        raise Refusal(f"{what}: {a} is not {b}")
    assumed = ASSUMED.get()
    if assumed is None:
        raise Open(f"{what}: {a} may or may not be {b}")
    assumed[a, b] = f"{what}: {a} is taken to be {b}, since the model can't run otherwise"


def _is_symbol(value: Dim) -> bool:
    (monomial, factor), *_ = value.terms.items()
    return factor == 1 and len(monomial) == 1 and monomial[0].kind == "symbol"


def _common(value: Any) -> Dim | None:
    """The product of the symbols that every term has: it is a number of elements, so not zero in a run that matters."""
    monomials = list(terms_of(value))
    common = [a for a in monomials[0] if a.kind == "symbol"] if monomials else []
    shared: list[Atom] = []
    rest = [list(m) for m in monomials]
    for atom in common:
        if all(atom in m for m in rest):
            shared.append(atom)
            for m in rest:
                m.remove(atom)
    return Dim({tuple(sorted(shared)): 1}) if shared else None


def require_at_least(
    value: Any, least: int, what: str, why: str = "since the model can't run otherwise"
) -> None:
    """A dim that must be at least ``least`` in every run."""
    low, high = bounds(value)
    if high < least:
        raise Refusal(f"{what}: {value} is less than {least}")
    if low < least and isinstance(value, Dim):
        learn_at_least(value, least, why)


def learn_at_least(value: Any, least: int, why: str) -> None:
    """The least that the symbol of f n + c or floor(n / k) must be; nothing for a dim of another form."""
    terms = dict(terms_of(value))
    least -= terms.pop((), 0)
    if len(terms) != 1:
        return
    ((monomial, factor),) = terms.items()
    if factor <= 0 or len(monomial) != 1 or monomial[0].low * factor >= least:
        return
    atom, most = monomial[0], -(-least // factor)
    if atom.kind == "symbol":
        raise Learned(atom.text, low=int(most), why=why)
    if atom.kind == "floor" and isinstance(atom.operands[1], int):
        learn_at_least(atom.operands[0], int(most) * atom.operands[1], why)


def broadcast(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """numpy's broadcast of shapes with open dims; raises Refusal when they can't go together."""
    rank = max(map(len, shapes), default=0)
    result: list[Any] = []
    for k in range(rank):
        dims = [s[len(s) - rank + k] for s in shapes if len(s) - rank + k >= 0]
        result.append(_broadcast_dim([d for d in dims if d != 1]))
    return tuple(result)


def _broadcast_dim(dims: list[Any]) -> Any:
    result: Any = 1
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
            result = fixed  # whatever the symbol is in a run that succeeds: 1 or just this
        else:
            first = _capped(result, d)
            capped = _capped(d, result) if first is None else first
            if capped is None and not _only_equal(result, d):
                raise Open(
                    f"the dimensions {dims[0]} and {d} may or may not be equal; give them one name or fix them"
                )
            if capped is None:
                require_equal(result, d, "operands that broadcast")
            result = result if capped is None else capped
    return result


def _only_equal(a: Dim, b: Dim) -> bool:
    """Whether two dims of one symbol broadcast only where they are equal: no length tried makes one of them 1 and the
    other more (lengths that are 1 are short ones)."""
    names = {atom.text: atom for d in (a, b) for atom in symbols_of(d)}
    if len(names) != 1:
        return False
    ((name, symbol),) = names.items()
    first = int(symbol.low)
    for n in range(first, int(min(first + LENGTHS_TRIED, symbol.high + 1))):
        x, y = at(a, {name: n}), at(b, {name: n})
        if x != y and 1 in (x, y) and min(x, y) > 0:
            return False
    return True


def symbols_of(value: Any) -> set[Atom]:
    """Every symbol that a dim depends on."""
    found: set[Atom] = set()
    for monomial in terms_of(value):
        for atom in monomial:
            found |= {atom} if atom.kind == "symbol" else set().union(*map(symbols_of, atom.operands))
    return found


def at(value: Any, known: Mapping[str, int]) -> Any:
    """The number that a dim is where its symbols are ``known``."""
    functions: dict[str, Any] = {"floor": lambda a, b: a // b, "max": max, "min": min}
    total: Any = 0
    for monomial, factor in terms_of(value).items():
        for atom in monomial:
            operands = (at(o, known) for o in atom.operands)
            factor = factor * (known[atom.text] if atom.kind == "symbol" else functions[atom.kind](*operands))
        total = total + factor
    return total


def _capped(a: Dim, b: Dim) -> Dim | None:
    """``a`` when b is min(a, n): then a run succeeds only up to n, which is learned."""
    if len(b.terms) == 1 and (atoms := next(iter(b.terms))) and len(atoms) == 1 and atoms[0].kind == "min":
        others = [o for o in atoms[0].operands if o != a]
        if len(others) == 1 and isinstance(others[0], int) and others[0] > 1:
            if _is_symbol(a) and len(a.terms) == 1:
                raise Learned(str(a), high=others[0])
            return a
    return None

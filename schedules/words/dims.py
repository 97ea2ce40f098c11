"""Dim: an open dimension as exact arithmetic on symbols, and what follows from it for shapes.

    batch * 3 * (seq // 2) + 1

A Dim is a polynomial with rational coefficients over atoms: symbols (natural numbers within bounds), and floors,
maxima and minima of other Dims. Equal polynomials are equal objects, so that shape arithmetic written in different
ways meets again. A question whose answer depends on the symbols raises :class:`Open`; it is never guessed.

A symbol is made with what is learned of it: the values that the model can run with (compiler/frontend/learned.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

from .atoms import INFINITY, KNOWN, Atom, Monomial, variable
from .extremes import without_two
from .factors import factors_of, grow_together, product, times, without
from .refusal import Refusal
from .size_like import SizeLike


class Open(Refusal):
    """A question about a shape that only the values of the open dimensions can answer."""


class Dim:
    """An integer (or, on the way through float arithmetic, a rational number) that depends on symbols."""

    __slots__ = ("index", "terms")

    def __init__(self, terms: dict[Monomial, SizeLike]) -> None:
        self.terms = {m: terms[m] for m in sorted(terms)}
        self.index: SizeLike = None  # what ``to_index`` made of it

    @staticmethod
    def symbol(name: str, low: float = 0, high: float = INFINITY, multiple: int = 1) -> Dim:
        """The symbol of this name, which is from ``low`` to ``high`` and a multiple of ``multiple``."""
        itself = Dim({(Atom("symbol", name, (), low, high, multiple),): 1})
        if multiple == 1:
            return itself
        return Dim({next(iter(_atom("floor", (itself, multiple), *_floor_bounds(itself, multiple)).terms)): multiple})

    def __add__(self, other: SizeLike) -> SizeLike:
        if is_expression(other):
            return to_index(self) + other
        total = dict(self.terms)
        for monomial, factor in terms_of(other).items():
            total[monomial] = total.get(monomial, 0) + factor
        return _made(total)

    def __mul__(self, other: SizeLike) -> SizeLike:
        if is_expression(other):
            return to_index(self) * other
        total: dict[Monomial, SizeLike] = {}
        for a, x in self.terms.items():
            for b, y in terms_of(other).items():
                monomial = tuple(sorted((*a, *b)))
                total[monomial] = total.get(monomial, 0) + x * y
        return _made(total)

    def __radd__(self, other: SizeLike) -> SizeLike:
        return other + to_index(self) if is_expression(other) else self + other

    def __rmul__(self, other: SizeLike) -> SizeLike:
        return other * to_index(self) if is_expression(other) else self * other

    def __neg__(self) -> SizeLike:
        return self * -1

    def __sub__(self, other: SizeLike) -> SizeLike:
        if is_expression(other):
            return to_index(self) - other
        return self + (other * -1 if isinstance(other, Dim) else -other)

    def __rsub__(self, other: SizeLike) -> SizeLike:
        return other - to_index(self) if is_expression(other) else -self + other

    def __floordiv__(self, other: SizeLike) -> SizeLike:
        return floor_div(self, other)

    def __rfloordiv__(self, other: SizeLike) -> SizeLike:
        return floor_div(other, self)

    def __mod__(self, other: SizeLike) -> SizeLike:
        return self - floor_div(self, other) * other

    def __rmod__(self, other: SizeLike) -> SizeLike:
        return other - floor_div(other, self) * self

    def __divmod__(self, other: SizeLike) -> tuple[SizeLike, SizeLike]:
        return floor_div(self, other), self % other

    def __rdivmod__(self, other: SizeLike) -> tuple[SizeLike, SizeLike]:
        return floor_div(other, self), other % self

    def __tvm_ffi_object__(self) -> SizeLike:
        """The index expression that TVM takes in the place of the dim."""
        return to_index(self)

    def __eq__(self, other: object) -> bool:
        """Whether both are equal for every value of the symbols; False may also mean: for some."""
        return isinstance(other, Dim) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(tuple(self.terms.items()))

    def __lt__(self, other: SizeLike) -> bool:
        return not self >= other

    def __le__(self, other: SizeLike) -> bool:
        return not self > other

    def __ge__(self, other: SizeLike) -> bool:
        low, high = bounds(self - other)
        if low >= 0 or high < 0:
            return bool(low >= 0)
        raise Open(f"{self} may or may not be at least {other}")

    def __gt__(self, other: SizeLike) -> bool:
        low, high = bounds(self - other)
        if low > 0 or high <= 0:
            return bool(low > 0)
        raise Open(f"{self} may or may not be more than {other}")

    def __bool__(self) -> bool:
        return different(self, 0)

    def __int__(self) -> int:
        raise Open(f"it needs a number where the model has the open dimension {self}")

    __index__ = __int__
    __float__ = __int__  # type: ignore[assignment]

    def __str__(self) -> str:
        parts = []
        for monomial, factor in sorted(plain_terms(self), key=lambda t: (-len(t[0]), t[0])):
            names = "*".join(a.text for a in monomial)
            parts.append(str(factor) if not names else (names if factor == 1 else f"{factor}*{names}"))
        return " + ".join(parts).replace("+ -", "- ")

    __repr__ = __str__


LARGEST_DIVISOR = 1 << 10  # of floors whose remainders are looked at
ROUNDED = 1e-12  # of a sum of fractions: what floats may have lost of it
Size = int | Dim  # of an axis, or what follows from such: a number, or an expression of symbols


def terms_of(value: SizeLike) -> dict[Monomial, SizeLike]:
    return value.terms if isinstance(value, Dim) else ({(): value} if value else {})


def _made(terms: dict[Monomial, SizeLike]) -> SizeLike:
    """A Dim, or a plain number when no symbol is left."""
    kept = {m: (int(f) if f == int(f) else f) for m, f in terms.items() if f}
    if not kept:
        return 0
    if (found := without_two(kept)) is not None:
        return _made(found[0]) + found[1]
    return kept[()] if set(kept) == {()} else Dim(kept)


def plain_terms(dim: Dim) -> list[tuple[Monomial, SizeLike]]:
    """The terms of a dim with m floor(symbol / m) as the symbol itself, where it is a multiple of m."""
    plain = []
    for monomial, factor in dim.terms.items():
        atoms = []
        for atom in monomial:
            symbol = atom.symbol
            whole = symbol is not None and factor % symbol.multiple == 0
            atoms.append(symbol if symbol is not None and whole else atom)
            factor = factor // symbol.multiple if symbol is not None and whole else factor
        plain.append((tuple(sorted(atoms)), factor))
    return plain


def as_dim(value: SizeLike) -> SizeLike:
    return value if isinstance(value, Dim) else int(value)


def is_open(values: Iterable[SizeLike]) -> bool:
    return any(isinstance(v, Dim) for v in values)


def different(a: SizeLike, b: SizeLike) -> bool:
    """Whether two dims differ; raises Open when that depends on the symbols."""
    if a == b:
        return False
    low, high = bounds(a - b)
    if low > 0 or high < 0 or low == high:
        return bool(low or high)
    raise Open(f"{a} may or may not be {b}")


def bounds(value: SizeLike, depth: int = 2) -> tuple[float, float]:
    """The least and the greatest value, as far as intervals and ``depth`` steps of floors and extremes tell."""
    if not isinstance(value, Dim):
        return value, value
    low: float = 0
    high: float = 0
    for monomial, factor in value.terms.items():
        a, b = product([(float(factor), float(factor)), *((atom.low, atom.high) for atom in monomial)])
        low, high = low + a, high + b
    loose = math.isinf(low) or math.isinf(high) or grow_together(value.terms)
    factored = factors_of(value.terms) if loose else None
    if factored is not None:
        a, b = product(bounds(_made(f), 0) for f in factored[0])
        low, high = max(low, a + factored[1]), min(high, b + factored[1])
    if depth and loose:
        for rest, most in _remainders(value):
            a, b = bounds(rest, depth - 1)
            low, high = max(low, a + min(most, 0)), min(high, b + max(most, 0))
        for other, below in _chosen(value):
            a, b = bounds(other, depth - 1)
            low, high = (max(low, a), high) if below else (low, min(high, b))
    if depth and loose and is_whole(value):
        rest, less, more = _without_floors(value)
        a, b = bounds(rest, 0)
        low = low if math.isinf(a) else max(low, math.ceil(a + less - ROUNDED * (1 + abs(a))))
        high = high if math.isinf(b) else min(high, math.floor(b + more + ROUNDED * (1 + abs(b))))
    for known, *limits in KNOWN.get() if depth else ():
        for factor in {Fraction(value.terms[m]) / Fraction(f) for m, f in known.terms.items() if m in value.terms}:
            rest, ends = bounds(value - known * factor, depth - 1), [times(float(factor), e) for e in limits]
            low, high = max(low, rest[0] + min(ends)), min(high, rest[1] + max(ends))
    return low, high


def _without_floors(value: SizeLike) -> tuple[SizeLike, Fraction, Fraction]:
    """The value with p / b for every floor(p / b), and the least and the most to be added to that: to one half, for
    (n + 1) // 2 - n // 2, from minus one half to one half."""
    rest, below, above = value, Fraction(0), Fraction(0)
    for monomial, factor in terms_of(value).items():
        if len(monomial) == 1 and monomial[0].kind == "floor" and isinstance(monomial[0].operands[1], int):
            inner, b = monomial[0].operands
            whole, low, high = _without_floors(inner)
            if monomial[0].symbol is None:  # else it is a symbol that is a multiple of b, and no remainder is left
                low = low - (b - 1)
            ends = (low * factor / b, high * factor / b)
            rest = rest - Dim({monomial: factor}) + whole * Fraction(factor, b)
            below, above = below + min(ends), above + max(ends)
    return rest, below, above


def _chosen(value: Dim) -> Iterable[tuple[SizeLike, bool]]:
    """The value with one operand for a minimum or maximum, and whether that is never more than the value."""
    for monomial, factor in value.terms.items():
        if len(monomial) == 1 and monomial[0].kind in ("min", "max"):
            for operand in monomial[0].operands:
                yield value + (operand - Dim({monomial: 1})) * factor, (monomial[0].kind == "max") == (factor > 0)


def _remainders(value: Dim) -> Iterable[tuple[SizeLike, int]]:
    """The value as a multiple of p - b floor(p / b), which lies in [0, b), plus a rest: (rest, the multiple's extreme).

    floor(p / (b m)) is floor(floor(p / m) / b) too, since exporters halve a length twice and double it once.
    """
    for monomial, factor in value.terms.items():
        if len(monomial) != 1 or monomial[0].kind != "floor" or not isinstance(monomial[0].operands[1], int):
            continue
        inner, divisor = monomial[0].operands
        whole = Dim({monomial: 1})
        for m in (d for d in range(1, min(divisor, LARGEST_DIVISOR)) if divisor % d == 0):
            b = divisor // m
            if factor % b:
                continue
            rest = value + (floor_div(inner, m) - whole * b) * (factor // b)
            if len(terms_of(rest)) < len(value.terms):
                yield rest, -(factor // b) * (b - 1)


def floor_div(a: SizeLike, b: SizeLike) -> SizeLike:
    """floor(a / b): whole multiples of ``b`` come out, the rest stays as an atom."""
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return a // b
    if b == 0:
        raise Refusal(f"{a} is divided by zero")
    exact = quotient(a, b)
    if exact is not None and is_whole(exact):
        return exact
    if isinstance(b, Dim) or not is_whole(a):
        if not isinstance(b, Dim):  # a has fractions: floor(p / q / b)
            scale = math.lcm(*(Fraction(f).denominator for f in terms_of(a).values()))
            return floor_div(a * scale, b * scale)
        low, high = _floor_bounds(a, b)
        return int(low) if low == high else _atom("floor", (a, b), low, high)
    if b < 0:
        a, b = -a, -b
    inside = [(m, f) for m, f in a.terms.items() if m and f % b]
    if inside and max(inside, key=_leading)[1] < 0:
        return -floor_div(-a + (b - 1), b)  # the ceiling of its opposite: one form for both
    outside = _made({m: f // b for m, f in a.terms.items()})
    rest = a - outside * b
    if not isinstance(rest, Dim):
        return outside + rest // b
    common = math.gcd(*(int(f) for m, f in rest.terms.items() if m), b)
    constant = int(rest.terms.get((), 0)) // common
    rest, b = _made({**{m: f // common for m, f in rest.terms.items()}, (): constant}), b // common
    nested = _nested(rest, b)
    if nested is not None:
        return outside + nested
    low, high = _floor_bounds(rest, b)
    if low == high:
        return outside + int(low)
    return outside + (rest if b == 1 else _atom("floor", (rest, b), low, high))


def _nested(a: SizeLike, b: int) -> SizeLike:
    """floor((floor(p / m) + c) / b) as floor((p + c m) / (b m)); None for anything else."""
    terms = dict(a.terms)
    constant = terms.pop((), 0)
    if len(terms) != 1:
        return None
    ((monomial, factor),) = terms.items()
    if factor != 1 or len(monomial) != 1 or monomial[0].kind != "floor":
        return None
    inner, m = monomial[0].operands
    return floor_div(inner + constant * m, b * m) if isinstance(m, int) and m > 0 else None


def _floor_bounds(a: SizeLike, b: SizeLike) -> tuple[float, float]:
    low, high = bounds(a)
    least, most = bounds(b)
    if least < 1:
        return (0, INFINITY) if low >= 0 else (-INFINITY, INFINITY)
    ends = [_floored(x, y) for x in (low, high) for y in (least, most)]
    return min(ends), max(ends)


def _floored(x: float, y: float) -> float:
    """floor(x / y), with what it comes to where y grows without end."""
    if math.isinf(x):
        return x
    return (-1 if x < 0 else 0) if math.isinf(y) else math.floor(x / y)


def quotient(a: SizeLike, b: SizeLike) -> SizeLike:
    """a / b when that is a polynomial again, else None (long division by the leading term)."""
    if b == 0:
        return None
    divisor = sorted(terms_of(b).items(), key=_leading, reverse=True)
    result: SizeLike = 0
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return _made({(): Fraction(a) / Fraction(b)}) if a else 0
    while a != 0:
        monomial, factor = max(terms_of(a).items(), key=_leading)
        left = without(monomial, divisor[0][0])
        if left is None:
            return None
        step = _made({left: Fraction(factor) / Fraction(divisor[0][1])})
        result = result + step
        a = a - step * b
    return result


def _leading(term: tuple[Monomial, SizeLike]) -> tuple[int, tuple[str, ...]]:
    return len(term[0]), tuple(a.text for a in term[0])


def is_whole(value: SizeLike) -> bool:
    return all(isinstance(f, int) for f in terms_of(value).values())


def maximum(a: SizeLike, b: SizeLike) -> SizeLike:
    return _extreme("max", a, b)


def minimum(a: SizeLike, b: SizeLike) -> SizeLike:
    return _extreme("min", a, b)


def _extreme(kind: str, a: SizeLike, b: SizeLike) -> SizeLike:
    if not isinstance(a, Dim) and not isinstance(b, Dim):
        return max(a, b) if kind == "max" else min(a, b)
    low, high = bounds(a - b)
    if low >= 0:
        return a if kind == "max" else b
    if high <= 0:
        return b if kind == "max" else a
    pair = sorted((a, b), key=str)
    ends = [bounds(v) for v in pair]
    choose = max if kind == "max" else min
    return _atom(kind, tuple(pair), choose(e[0] for e in ends), choose(e[1] for e in ends))


def _atom(kind: str, operands: tuple[SizeLike, ...], low: float, high: float) -> Dim:
    a, b = operands
    text = f"({_inside(a)} // {_inside(b)})" if kind == "floor" else f"{kind}({a}, {b})"
    return Dim({(Atom(kind, text, operands, low, high),): 1})


def _inside(value: SizeLike) -> str:
    text = str(value)
    return text if " " not in text else f"({text})"


# ---------------------------------------------------------------------- to and from Relax


def to_relax(dim: SizeLike, own: Mapping[str, SizeLike] | None = None) -> SizeLike:
    """A dim as Relax takes it, in int64; a symbol is the same variable everywhere, but for those that a module has of
    its ``own``, by name."""
    return _expression(dim, "int64", own or {}) if isinstance(dim, Dim) else int(dim)


def to_index(dim: SizeLike) -> SizeLike:
    """A dim as kernels take it, in int32; a symbol is the same variable everywhere."""
    if not isinstance(dim, Dim):
        return int(dim)
    if dim.index is None:
        dim.index = _expression(dim, "int32", {})
    return dim.index


def is_dim(value: object) -> bool:
    """True for open dims."""
    return isinstance(value, Dim)


def is_expression(value: object) -> bool:
    """True for expressions of TVM."""
    return hasattr(value, "ty")


def _expression(dim: Dim, dtype: str, own: Mapping[str, SizeLike]) -> SizeLike:
    from tvm.tirx import IntImm, floordiv, max, min

    if not is_whole(dim):
        raise Refusal(f"{dim} is not a whole number")
    make = {"floor": floordiv, "max": max, "min": min}
    total: SizeLike = None
    for monomial, factor in plain_terms(dim):
        term: SizeLike = None
        for atom in monomial:
            if atom.kind == "symbol":
                part = own[atom.text] if atom.text in own else variable(atom.text, dtype)
            else:
                wide = dtype == "int64" or atom.kind == "floor"  # else no length reaches a number that does not fit
                held = [o for o in atom.operands if wide or isinstance(o, Dim) or abs(o) < 1 << 31]
                parts = [_expression(o, dtype, own) if isinstance(o, Dim) else IntImm(dtype, o) for o in held]
                part = make[atom.kind](*parts) if len(parts) == 2 else parts[0]
            term = part if term is None else term * part
        if term is None or factor != 1:
            term = IntImm(dtype, factor) if term is None else term * IntImm(dtype, factor)
        total = term if total is None else total + term
    return total

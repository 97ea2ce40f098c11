"""Sizes: what is known of the open dimensions of a build, and dims read back from expressions of TVM.

    SYMBOLS    the symbols, each with the bounds that the user and the model give it
    TYPICAL    the sizes that the build plans for: estimates look at these, and nothing else may
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .atoms import _VARIABLES, KNOWN, variable
from .dims import (
    INFINITY,
    Atom,
    Dim,
    Monomial,
    Open,
    Size,
    different,
    floor_div,
    is_whole,
    maximum,
    minimum,
    terms_of,
)

if TYPE_CHECKING:
    from .size_like import SizeLike
    from .tvm_types import Expr

#: The symbols of the import under way, which carry what was learned of them.
SYMBOLS: ContextVar[dict[str, Size]] = ContextVar("symbols", default={})  # noqa: B039


#: Differences of dims that are none wherever the model runs.
NOTHING: ContextVar[frozenset[SizeLike]] = ContextVar("nothing", default=frozenset())

#: What a build plans for: sizes of the symbols, by name.
TYPICAL: ContextVar[Mapping[str, int]] = ContextVar("typical", default={})  # noqa: B039


@contextmanager
def no_symbols() -> Iterator[None]:
    """A scope whose symbols are its own: none at first, and forgotten behind it."""
    tokens = SYMBOLS.set({}), TYPICAL.set({}), KNOWN.set(()), NOTHING.set(frozenset())
    try:
        yield
    finally:
        SYMBOLS.reset(tokens[0])
        TYPICAL.reset(tokens[1])
        KNOWN.reset(tokens[2])
        NOTHING.reset(tokens[3])


@contextmanager
def at_sizes(sizes: Mapping[str, int]) -> Iterator[None]:
    """A scope in which the build plans for ``sizes``."""
    token = TYPICAL.set(sizes)
    try:
        yield
    finally:
        TYPICAL.reset(token)


def known_limits(conditions: Iterable[SizeLike]) -> tuple[tuple[SizeLike, float, float], ...]:
    """The bounds of dims of several symbols among what runs must satisfy, for :data:`KNOWN`: one of each dim, whatever
    number stands beside it."""
    found: dict[SizeLike, tuple[float, float]] = {}
    for c in conditions:
        if c.relation in ("at least", "at most") and isinstance(c.left, Dim) and len(symbols_of(c.left)) > 1:
            beside = c.left.terms.get((), 0)
            low, high = found.get(c.left - beside, (-math.inf, math.inf))
            limit = c.right - beside
            found[c.left - beside] = (max(low, limit), high) if c.relation == "at least" else (low, min(high, limit))
    return tuple((dim, *ends) for dim, ends in found.items())


def plan_for(symbols: Iterable[Any], conditions: Iterable[Any]) -> None:
    """Makes the open dimensions of a model, and the sizes to plan for, known to all that follows in the scope."""
    limits = {s.name: (s.low, INFINITY if s.high is None else s.high, s.multiple) for s in symbols}
    SYMBOLS.set({name: Dim.symbol(name, *limit) for name, limit in limits.items()})
    TYPICAL.set({s.name: s.typical for s in symbols})
    conditions = list(conditions)
    KNOWN.set(known_limits(conditions))
    equal = [(c.left, c.right) for c in conditions if c.relation == "is"]
    NOTHING.set(frozenset(_primitive(d) for a, b in equal for d in (a - b, b - a)))


def same_where_it_runs(a: SizeLike, b: SizeLike) -> bool:
    """True if two dims are one number at every size at which the model runs: they are written alike, or it can't run
    otherwise."""
    return surely(lambda: a == b) or _primitive(a - b) in NOTHING.get()


def _primitive(dim: SizeLike) -> SizeLike:
    """A dim without the number that all of its terms are multiples of."""
    terms = terms_of(dim)
    if not terms or not is_whole(dim):
        return dim
    shared = math.gcd(*terms.values())
    return dim if shared <= 1 else sum(_product(m) * (f // shared) for m, f in terms.items())


def _product(monomial: Monomial) -> SizeLike:
    return product(Dim({(atom,): 1}) for atom in monomial)


def usual(dim: SizeLike) -> int:
    """The number that a dim is at the sizes that the build plans for, and 1 where that is 0, by which no estimate could
    divide. Only estimates may depend on it."""
    return max(1, value_of(dim, TYPICAL.get())) if isinstance(dim, Dim) else int(dim)


def surely(question: Callable[[], object]) -> bool:
    """True if the answer to ``question`` about dims is yes for every size; where sizes decide, it is not."""
    try:
        return bool(question())
    except Open:
        return False


def may_lie(dim: SizeLike, low: int, high: int) -> bool:
    """False if no size brings a dim to ``low`` or more, and below ``high``: as it grows by steps that leave these out.
    TVM's analyzer stops where a condition can never hold."""
    if not is_whole(dim):
        return True
    steps = dict(terms_of(dim))
    rest = steps.pop((), 0)
    return low + (rest - low) % math.gcd(*steps.values()) < high if steps else bool(low <= rest < high)


def product(dims: Iterable[SizeLike]) -> SizeLike:
    """The product of dims, of which some may be open."""
    total: SizeLike = 1
    for dim in dims:
        total = total * dim
    return total


def has_symbols() -> bool:
    """True once a symbol has a variable in kernels."""
    return any(dtype == "int32" for _, dtype in _VARIABLES)


def is_symbol(variable_: Expr) -> bool:
    """True for the int32 variable of a symbol."""
    return bool(variable_.same_as(_VARIABLES.get((variable_.name, "int32"))))


def narrowed(variable_: SizeLike) -> SizeLike:
    """The int32 twin of a symbol's int64 variable; None for any other variable."""
    found = _VARIABLES.get((variable_.name, "int64"))
    return variable(variable_.name, "int32") if found is not None and found.same_as(variable_) else None


def symbols_of(dim: SizeLike) -> set[str]:
    """The names of the symbols that a dim depends on."""
    return {atom.text for atom in symbol_atoms(dim)}


def symbol_atoms(dim: SizeLike) -> list[Atom]:
    """The symbols that a dim depends on, with their bounds."""
    found: list[Atom] = []
    for atom in (a for monomial in terms_of(dim) for a in monomial):
        found += [atom] if atom.kind == "symbol" else [a for o in atom.operands for a in symbol_atoms(o)]
    return found


def multiple_of(name: str) -> int:
    """What the symbol of this name is a multiple of, as the user or the model says."""
    return next((a.multiple for a in symbol_atoms(SYMBOLS.get().get(name, 0)) if a.text == name), 1)


def value_of(dim: SizeLike, values: Mapping[str, int]) -> int:
    """The number that a dim is where its symbols have ``values``."""
    total: SizeLike = 0
    for monomial, factor in terms_of(dim).items():
        for atom in monomial:
            if atom.kind == "symbol":
                factor = factor * values[atom.text]
                continue
            a, b = (value_of(o, values) for o in atom.operands)
            whole = a // b if atom.kind == "floor" and b else 0  # by zero nothing, as the library counts
            factor = factor * (whole if atom.kind == "floor" else max(a, b) if atom.kind == "max" else min(a, b))
        total += factor
    return int(total)


def replaced(value: SizeLike, known: Mapping[str, SizeLike]) -> SizeLike:
    """A dim with other dims or numbers in the place of the symbols that are ``known``."""
    functions: dict[str, SizeLike] = {"floor": floor_div, "max": maximum, "min": minimum}
    total: SizeLike = 0
    for monomial, factor in terms_of(value).items():
        term: SizeLike = factor
        for atom in monomial:
            if atom.kind != "symbol":
                part = functions[atom.kind](*(replaced(o, known) for o in atom.operands))
            else:
                part = known.get(atom.text, Dim({(atom,): 1}))
            term = part * term
        total = total + term
    return total


def dim_of(expr: SizeLike) -> SizeLike:
    """The dim that an expression of Relax or TE over the symbols of this build is."""
    if isinstance(expr, (int, Dim)):
        return expr
    kind = type(expr).__name__
    if kind == "IntImm":
        return int(expr.value)
    if kind == "Cast":
        return dim_of(expr.value)
    if kind == "Select":
        return dim_of(expr.true_value if _holds(expr.condition) else expr.false_value)
    if kind == "Call" and getattr(expr.op, "name", "").endswith("if_then_else"):
        return dim_of(expr.args[1] if _holds(expr.args[0]) else expr.args[2])
    if kind == "Var":
        if str(expr.ty.dtype) == "int32" and not expr.same_as(_VARIABLES.get((expr.name, "int32"))):
            raise Open(f"{expr} is no open dimension")
        return SYMBOLS.get().get(expr.name, Dim.symbol(expr.name))
    if kind in ("Add", "Sub", "Mul", "FloorDiv", "FloorMod", "Max", "Min"):
        a, b = dim_of(expr.a), dim_of(expr.b)
        return {
            "Add": lambda: a + b,
            "Sub": lambda: a - b,
            "Mul": lambda: a * b,
            "FloorDiv": lambda: floor_div(a, b),
            "FloorMod": lambda: a - floor_div(a, b) * b,
            "Max": lambda: maximum(a, b),
            "Min": lambda: minimum(a, b),
        }[kind]()
    raise Open(f"the shape {expr} is not known")


def _holds(condition: SizeLike) -> bool:
    """Whether a comparison of dims is true; raises Open where that depends on the symbols."""
    kind = type(condition).__name__
    if kind == "IntImm":
        return bool(condition.value)
    if kind == "Not":
        return not _holds(condition.a)
    if kind == "And":
        return _holds(condition.a) and _holds(condition.b)
    if kind == "Or":
        return _holds(condition.a) or _holds(condition.b)
    if kind not in ("LT", "LE", "GT", "GE", "EQ", "NE"):
        raise Open(f"whether {condition} holds is not known")
    a, b = dim_of(condition.a), dim_of(condition.b)
    if kind in ("EQ", "NE"):
        return different(a, b) == (kind == "NE")
    return bool({"LT": lambda: a < b, "LE": lambda: a <= b, "GT": lambda: a > b, "GE": lambda: a >= b}[kind]())

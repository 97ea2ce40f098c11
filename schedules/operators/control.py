"""Control flow as operators: rounds of a body, and a choice between two. Their bodies are functions, as attributes.

    halotile.rounds(limit, go, state ..., scanned ..., seen ...)        while round < limit and go:
        body(round, state ..., rows ..., seen ...)                          state, rows = body(...)
            -> go (if it asks), state ..., rows ...
        -> state ..., kept ... (a row for each round), how many rounds (if counted)

    halotile.branch(condition, seen ...)                                then(seen ...) or otherwise(seen ...)

A body sees nothing but its parameters. Rows of ``kept`` behind the last round are zero. ``limit`` is int64 and ``go``
and ``condition`` are bool, of one element each. The first ``scans`` of ``backwards`` say which scanned tensors are read
from their end, the others which kept ones are written so.

What runs them is made where their bodies are compiled (compiler/flow/); the evaluators of graphs use :func:`evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax, te

from ..words.sizes import dim_of
from ..words.tvm_types import Attribute, Expr
from .loops import written
from .registry import attributes, define

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

ROUNDS, BRANCH = "halotile.rounds", "halotile.branch"
ENDLESS = 2**63 - 1  # the limit of rounds that only a condition ends

#: Runs a body on arrays.
Run = Callable[[Expr, Sequence[np.ndarray]], Sequence[np.ndarray]]


@dataclass(frozen=True)
class Rounds:
    """The attributes of a call of ``halotile.rounds``: the body, how many tensors of each kind there are, and types."""

    body: Expr
    state: int
    scans: int
    kept: int
    asks: bool
    counted: bool
    backwards: tuple[bool, ...]
    results: tuple[tuple[tuple[SizeLike, ...], str], ...]

    @staticmethod
    def of(given: Mapping[str, Attribute]) -> Rounds:
        """The rounds that the plain attributes of a loop describe."""
        back = tuple(map(bool, given["backwards"]))
        flags = (bool(given["asks"]), bool(given["counted"]))
        counts = (given["state"], given["scans"], given["kept"])
        return Rounds(given["body"], *counts, *flags, back, _types(given["results"]))

    @property
    def rows_in(self) -> tuple[bool, ...]:
        """For each scanned tensor whether it is read from its end."""
        return self.backwards[: self.scans]

    @property
    def rows_out(self) -> tuple[bool, ...]:
        """For each kept tensor whether it is written from its end."""
        return self.backwards[self.scans :]


def bodies_of(call: Expr) -> tuple[Expr, ...]:
    """The functions that a call of control flow holds."""
    given = attributes(call)
    return (given["body"],) if call.op.name == ROUNDS else (given["then"], given["otherwise"])


def _types(results: SizeLike) -> tuple[tuple[tuple[SizeLike, ...], str], ...]:
    return tuple((tuple(map(dim_of, t.shape.values)), str(t.dtype.dtype)) for t in results.fields)


def _nothing(*_: object) -> None:
    """Its kernel calls those of its bodies, and has no statements of its own."""


@define(ROUNDS)
def rounds(*inputs: te.Tensor, results: relax.TupleType, **_: object) -> list[te.Tensor]:
    """Rounds of a body, as many as a limit and a condition of run time say."""
    return written("rounds", inputs, _types(results), _nothing)


@define(BRANCH)
def branch(*inputs: te.Tensor, results: relax.TupleType, **_: object) -> list[te.Tensor]:
    """One of two bodies, as a condition of run time says."""
    return written("branch", inputs, _types(results), _nothing)


def evaluate(name: str, given: Mapping[str, Attribute], inputs: Sequence[np.ndarray], run: Run) -> list[np.ndarray]:
    """The results of control flow on arrays; ``run`` evaluates a body, ``given`` are the call's plain attributes."""
    if name == BRANCH:
        return list(run(given["then"] if inputs[0].reshape(-1)[0] else given["otherwise"], inputs[1:]))
    it = Rounds.of(given)
    limit, go = int(inputs[0].reshape(-1)[0]), bool(inputs[1].reshape(-1)[0])
    state, rest = list(inputs[2 : 2 + it.state]), inputs[2 + it.state :]
    scanned, seen = rest[: it.scans], rest[it.scans :]
    rows: list[list[np.ndarray]] = [[] for _ in range(it.kept)]
    number = 0
    while number < limit and go:
        parts = [s[len(s) - 1 - number if back else number] for s, back in zip(scanned, it.rows_in)]
        left = list(run(it.body, [np.array(number), *state, *parts, *seen]))
        go = bool(left.pop(0).reshape(-1)[0]) if it.asks else True
        state = left[: it.state]
        for store, row in zip(rows, left[it.state :]):
            store.append(row)
        number += 1
    kept = []
    for store, back, (shape, dtype) in zip(rows, it.rows_out, it.results[it.state :]):
        room = [max(limit, 0) if not isinstance(d, int) and i == 0 else d for i, d in enumerate(shape)]
        inner = store[0].shape if store else tuple(d if isinstance(d, int) else 0 for d in room[1:])
        whole = np.zeros([room[0], *inner], store[0].dtype if store else np.dtype(dtype))
        for at, one in enumerate(store):
            whole[len(whole) - 1 - at if back else at] = one
        kept.append(whole)
    return [*state, *kept, *([np.array([number], np.int64)] if it.counted else [])]

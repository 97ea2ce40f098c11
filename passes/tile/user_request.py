"""A tile group as a user asks for it.

    {"last": "Relu_10", "shape": (16, 64)}                     the longest chain that ends there, in tiles of its output
    {"first": "Conv_2", "last": "g10_conv2d_relu", "shape": (8, None), "bands": 2, "modes": {"lv5": "recompute"}}

Names are those of the model's nodes (of their first outputs, where nodes have none), or those of groups, of what is in
them or of their results, as ``halotile inspect --plan`` prints them; a node that several groups compute a part of
begins with the first and ends with the last. ``shape`` is
rows and columns of the last output (None: all columns). Inner values are rings unless ``modes`` says otherwise (one
mode, or one a value).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ...errors import HalotileError
from ...schedules.words.tile_plan import TilePlan
from .plan.form import MODES, Form, Untileable
from .plan.lower import lower
from .search.program import Program

if TYPE_CHECKING:
    from ...schedules.words.group import Value
    from ...targets.plain import JsonView

_SHOWN = 12  # names in a message
KEYS = ("first", "last", "shape", "bands", "modes", "quantum")


def forced(program: Program, wish: JsonView, cores: int) -> list[tuple[int, int, TilePlan]]:
    """The plan that a user's ``wish`` asks for, as a list of one (index of the first group, of the last, plan). Raises
    HalotileError if it can't be met, with the reason."""
    form = wished(program, wish, cores)
    return [forced_run(program, wish, lambda first, last: _plan(program, first, last, form))]


def wished(program: Program, wish: JsonView, cores: int) -> Form:
    """The form that a user's ``wish`` asks for. Raises HalotileError where it is no wish."""
    unknown = [key for key in wish if key not in KEYS]
    if unknown:
        raise HalotileError(f"tile: unknown key {unknown[0]!r}; known are {', '.join(KEYS)}")
    rows, columns = checked_shape(wish.get("shape", (16, None)))
    last = _last(program, wish)
    refused = program.refusal(last)
    if refused is not None:
        raise HalotileError(f"tile: {program.groups[last].name} can't be tiled: {refused}")
    return Form(
        rows,
        columns or program.groups[last].outputs[-1].shape[3],
        _positive(wish.get("bands", cores), "bands"),
        _modes(program, wish.get("modes", {})),
        _positive(wish.get("quantum", 1), "quantum"),
    )


def _last(program: Program, wish: JsonView) -> int:
    """The last group of what ``wish`` asks for."""
    return len(program.groups) - 1 if wish.get("last") is None else _find(program, wish["last"])[-1]


def forced_run(
    program: Program, wish: JsonView, plan: Callable[[int, int], Any]
) -> tuple[int, int, Any]:
    """The groups that ``wish`` asks for and their plan, as (first, last, plan). ``plan`` makes that of a run of groups,
    and raises HalotileError where there is none."""
    last = _last(program, wish)
    if wish.get("first") is not None:
        first = _find(program, wish["first"])[0]
        if first > last:
            raise HalotileError(f"tile: {wish['first']} comes after {wish.get('last')}")
        for i in range(first, last + 1):
            refused = program.refusal(i)
            if refused is not None:
                raise HalotileError(f"tile: {program.groups[i].name} can't be tiled: {refused}")
        return first, last, plan(first, last)
    best: tuple[int, int, TilePlan] | None = None
    why = ""
    for first in range(last, -1, -1):
        if program.refusal(first) is not None or not program.reads(first, last):
            break
        try:
            best = first, last, plan(first, last)
        except HalotileError as error:
            why = why or str(error)
    if best is None:
        raise HalotileError(why)
    return best


def _plan(program: Program, first: int, last: int, form: Form) -> TilePlan:
    why = program.joined(first, last)
    if why is None:
        try:
            members = program.groups[first : last + 1]
            form = replace(form, dying=program.dying(first, last))
            return lower(members, program.layouts, form, program.leaving(first, last))
        except Untileable as error:
            why = str(error)
    raise HalotileError(f"tile: {program.groups[first].name} to {program.groups[last].name}: {why}")


def _find(program: Program, name: object) -> list[int]:
    """The groups that ``name`` may mean, in order: one of ours, else all that compute a part of a node of the model."""
    if not isinstance(name, str):
        raise HalotileError(f"tile: first and last are names, not {name!r}; halotile inspect --plan lists them")
    for i, group in enumerate(program.groups):
        if name in {group.name, *(n.name for n in group.nodes), *(v.name for v in group.outputs)}:
            return [i]
    found = [i for i, group in enumerate(program.groups) if name in group.sources]
    if found:
        return found
    sources = dict.fromkeys(source for group in program.groups for source in group.sources)
    near = get_close_matches(name, sources, 3)
    known = ", ".join(group.name for group in program.groups[:_SHOWN])
    more = ", ..." if len(program.groups) > _SHOWN else ""
    hint = f"did you mean {', '.join(near)}?" if near else f"the groups are {known}{more}"
    raise HalotileError(f"tile: no group, node or value is called {name!r}; {hint}")


def checked_shape(shape: Any) -> tuple[int, int | None]:
    """(rows, columns) of a tile from what a user gave. Raises HalotileError if it is no such pair."""
    good = isinstance(shape, (tuple, list)) and len(shape) == 2
    if not good or not all(_is_positive(s) for s in shape if s is not None) or shape[0] is None:
        raise HalotileError(
            f"tile: shape is (rows, columns), whole numbers from 1 (columns None for all), not {shape!r}"
        )
    return int(shape[0]), None if shape[1] is None else int(shape[1])


def _is_positive(number: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _positive(number: int, what: str) -> int:
    if not _is_positive(number):
        raise HalotileError(f"tile: {what} is a whole number from 1, not {number!r}")
    return int(number)


def _modes(program: Program, wish: JsonView) -> dict[Value, str]:
    values = {v.name: v for g in program.groups for v in g.outputs}
    if isinstance(wish, str):
        wish = dict.fromkeys(values, wish)
    values = {name: g.outputs[-1] for g in program.groups for name in g.sources} | values
    if not isinstance(wish, Mapping):
        raise HalotileError(f"tile: modes is one of {', '.join(MODES)}, or has one for each value, not {wish!r}")
    for name, mode in wish.items():
        if name not in values:
            raise HalotileError(f"tile: no value is called {name!r}; halotile inspect --plan lists them")
        if mode not in MODES:
            raise HalotileError(f"tile: mode {mode!r} of {name}; choose one of {', '.join(MODES)}")
    return {values[name]: mode for name, mode in wish.items()}

"""Steps as loops: unfolded again they are the steps, whatever repeats, and what repeats is short."""

from __future__ import annotations

import numpy as np
from halotile.schedules.tiled.program import Call, DriverProgram, Loop, fold_stripes, fold_tasks
from hypothesis import given
from hypothesis import strategies as st


def unfolded(loops: tuple[Loop, ...], row: list[int] | None = None) -> list[Call]:
    calls = []
    for loop in loops:
        for i in range(loop.count):
            for c in loop.calls:
                starts = list(c.numbers)
                if row is not None:
                    starts = [n if at is None else row[at] for n, at in zip(c.numbers, c.columns)]
                calls.append(Call(c.part, tuple(n + i * g for n, g in zip(starts, c.growth))))
    return calls


def flat(stripes: list[list[Call]]) -> list[Call]:
    return [c for stripe in stripes for c in stripe]


def periodic(stripes: int, period: int, phase: int) -> list[list[Call]]:
    """A member in every stripe, one in every ``period``-th."""
    result = []
    for s in range(stripes):
        result.append([Call(0, (4 * s, 7))])
        if (s + phase) % period == 0:
            result[-1].insert(0, Call(1, (4 * period * s, 3)))
    return result


def test_a_ring_that_takes_in_rows_in_every_second_stripe_is_one_loop_over_pairs() -> None:
    stripes = periodic(40, 2, 0)
    (loop,) = fold_stripes(stripes)
    assert loop.count == 20 and [c.part for c in loop.calls] == [1, 0, 0]
    assert unfolded((loop,)) == flat(stripes)


def test_a_first_and_a_last_stripe_of_their_own_stay_apart() -> None:
    stripes = [[Call(2, (0,))], *periodic(33, 4, 1), [Call(3, (1,))]]
    loops = fold_stripes(stripes)
    assert unfolded(loops) == flat(stripes)
    assert sum(len(loop.calls) for loop in loops) <= 16


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=3), max_size=24))
def test_any_steps_come_back(given_steps: list[list[tuple[int, int]]]) -> None:
    stripes = [[Call(part, (number, s)) for part, number in steps] for s, steps in enumerate(given_steps)]
    assert unfolded(fold_stripes(stripes)) == flat(stripes)


@given(st.integers(1, 30), st.integers(1, 8), st.integers(0, 7), st.integers(1, 4))
def test_tasks_of_one_form_share_it(stripes: int, period: int, phase: int, tasks: int) -> None:
    first = periodic(stripes, period, phase)
    given_tasks = [
        [[Call(c.part, tuple(n + 100 * t for n in c.numbers)) for c in calls] for calls in first] for t in range(tasks)
    ]
    program: DriverProgram = fold_tasks(given_tasks)
    assert len(program.forms) == 1
    for t, wanted in enumerate(given_tasks):
        row = [int(n) for n in np.asarray(program.table)[t]]
        assert unfolded(program.forms[row[0]], row) == flat(wanted)

"""Open models in tables: sizes that are what they are to be, comparisons that see what is wrong, figures of all."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import halotile
import onnx
import pytest
from halotile.benchmarks.bench import Settings
from halotile.benchmarks.open_models import OPEN_MODELS
from halotile.benchmarks.open_shapes import PRIMES, Agreement, agree, between, drawn, most_of
from halotile.benchmarks.open_table import (
    agree_table,
    agreement,
    build_table,
    builds,
    peer_table,
    times,
    told,
)
from halotile.benchmarks.sizes import FIXED, SizeFigures

STEP = dataclasses.replace(OPEN_MODELS["step"], large={"batch": 2, "past": 12})


@pytest.fixture(scope="module")
def step():
    proto = STEP.model()
    return proto, halotile.compile(proto, threads=2)


def test_sizes_are_the_ends_primes_and_around_tiles(step) -> None:
    _, model = step
    found = drawn(model, {"batch": 4, "past": 97}, 40)
    assert found[:2] == [{"batch": 1, "past": 1}, {"batch": 4, "past": 97}] and len(found) == 40
    assert len({tuple(at.items()) for at in found}) == 40
    past = {at["past"] for at in found}
    assert past <= set(range(1, 98)) and len(past & set(PRIMES)) > 5 and past & {31, 33, 47, 49, 63, 65}
    timed = between(OPEN_MODELS["step"], model, 8)
    assert timed[:3] == list(OPEN_MODELS["step"].sizes) and len(timed) == 8
    assert all(at["past"] >= OPEN_MODELS["step"].small["past"] for at in timed)


def test_sizes_go_together() -> None:
    """A finder of text asks for halves of halves that are whole."""
    entry = OPEN_MODELS["text_finder"]
    model = halotile.compile(entry.model(), "x86-64-v3", typical=entry.typical)
    found = drawn(model, most_of(entry), 12)
    assert len(found) == 12
    for at in found:
        assert all(-(-at[name] // 16) == 2 * -(-at[name] // 32) for name in ("h", "w")), at


def test_a_wrong_number_is_seen(step) -> None:
    proto, model = step
    right = agree(STEP, model, proto, 6)
    assert right.ran == 6 and not right.wrong and not right.refused and 0 < right.error < 1e-4
    other = onnx.ModelProto()
    other.CopyFrom(proto)
    weight = next(t for t in other.graph.initializer if t.name == "head.weight")
    array = onnx.numpy_helper.to_array(weight).copy()
    array[:, 3] *= 1.1
    weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    wrong = agree(STEP, model, other, 6)
    assert len(wrong.wrong) == 6 and "logits: differs by" in wrong.wrong[0] and wrong.error > 1e-3


def test_steps_leave_what_the_tables_tell(tmp_path: Path) -> None:
    folder = tmp_path / "step"
    agreement(STEP, folder, 4)
    builds(STEP, folder, 2, 1)
    times(STEP, folder, 1, Settings((), (1,), ("onnxruntime",), seconds=0.0, burst=0.005, pause=0.0, rounds=1))
    text = told(tmp_path, ("onnxruntime",))
    assert "| step | 4 | batch=1 past=1 | batch=2 past=12 | " in text
    assert "| step | 2 | " in text and "- open / fixed, arena: " in text
    assert "of 2 points below 1" in text


def test_tables_have_means_and_the_worst() -> None:
    made = {"arena": {"halotile": 110, FIXED: 100}, "library": {"halotile": 300, FIXED: 200},
            "compile": {"halotile": 4.0, FIXED: 2.0}}  # fmt: skip
    seconds = {"halotile": 0.002, FIXED: 0.002, "peer": 0.008}
    quick = SizeFigures({"n": 1}, 1, seconds, {"halotile": 0.1, "peer": 0.2}, **made)
    seconds = {"halotile": 0.004, FIXED: 0.002, "peer": 0.002}
    slow = SizeFigures({"n": 9}, 2, seconds, **made, errors={"other": "it differs"})
    text = build_table({"m": [quick, slow]})
    assert "| m | 2 | 1.41 | 2.00 | 1.10 | 1.10 | 1.50 | 2.00 |" in text
    assert "- open / fixed, time: 1.41 in geometric mean, at most 2.00" in text
    text = peer_table({"m": [quick, slow]}, ["peer"])
    assert "| m | 1.41 | 0.50 | 100.00 | 200.00 |" in text
    assert "- peer / ours: 1.41 in geometric mean, 0.50 to 4.00, 1 of 2 points below 1" in text
    assert "- m: n=9, 2 threads: other: it differs" in text and "- below 1: m: n=9, 2 threads: peer 0.50" in text


def test_what_differs_is_told() -> None:
    text = agree_table([Agreement("m", 3, 0.5, {"n": 1}, {"n": 7}, ["n=7: y: differs"], ["n=5: no"])])
    assert "| m | 3 | n=1 | n=7 | 5.0e-01 | 1 | 1 |" in text and text.endswith("- m: n=7: y: differs\n- m: n=5: no\n")

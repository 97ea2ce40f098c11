"""The predicted schedule of stripes: the worked example, limits, and the pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from halotile.passes.tile.scratchpad.timeline import StripeCosts, predict
from halotile.passes.tile.scratchpad.timeline_text import as_svg, as_text
from halotile.schedules.scratchpad.double_buffer import double_buffered
from hypothesis import given
from hypothesis import strategies as st

ISSUED = StripeCosts(2.0, 3.0, 1.5, issue_load=0.05, issue_store=0.05)
WAITED = StripeCosts(2.0, 3.0, 1.5, wait_load=0.05, issue_store=0.05)


def words(stripes: int) -> str:
    return "; ".join(map(str, double_buffered(stripes)))


def test_the_sequence() -> None:
    assert words(1) == "load 0; wait load 0; compute 0; store 0; wait store 0"
    assert words(2) == (
        "load 0; wait load 0; load 1; compute 0; store 0; wait load 1; compute 1; wait store 0; store 1; wait store 1"
    )
    assert words(5).startswith(
        "load 0; wait load 0; load 1; compute 0; store 0; wait load 1; load 2; compute 1; wait store 0; store 1; "
        "wait load 2; load 3; compute 2; wait store 1; store 2; "
    )
    assert words(5).endswith("wait load 4; compute 4; wait store 3; store 4; wait store 4")
    with pytest.raises(ValueError):
        double_buffered(0)


@pytest.mark.parametrize("costs", [ISSUED, WAITED], ids=["at issue", "at wait"])
def test_five_stripes_end_at_19_seconds_and_one_by_one_at_33(costs: StripeCosts) -> None:
    timeline = predict([costs] * 5)
    assert timeline.seconds == pytest.approx(19.0)
    assert predict([costs] * 5, overlap=False).seconds == pytest.approx(33.0)
    path = [str(b.event) for b in timeline.critical_path if b.is_work]
    assert path == ["load 0", *(f"compute {k}" for k in range(5)), "store 4"]


def test_neighbouring_computations_are_two_short_times_apart() -> None:
    timeline = predict([WAITED] * 5)
    bars = timeline.work("compute")
    assert [b.start - a.end for a, b in zip(bars, bars[1:])] == pytest.approx([0.05 + 0.05] * 4)
    assert bars[0].start == pytest.approx(2.05) and bars[-1].end == pytest.approx(17.45)
    assert timeline.work("store")[-1].start == pytest.approx(17.5)


def test_slow_loads_are_the_critical_path() -> None:
    timeline = predict([StripeCosts(4.0, 1.0, 1.0)] * 4)
    path = [str(b.event) for b in timeline.critical_path]
    assert path == ["load 0", "load 1", "load 2", "load 3", "compute 3", "store 3"]
    assert timeline.seconds == pytest.approx(18.0)


def test_one_engine_carries_loads_and_stores_in_turn() -> None:
    costs = StripeCosts(2.0, 1.0, 2.0)
    one, two = predict([costs] * 3, engines=1), predict([costs] * 3)
    assert one.seconds == pytest.approx(2 + 2 + 2 + 2 + 2 + 2)  # never idle
    assert two.seconds < one.seconds


costs_of = st.builds(StripeCosts, *[st.floats(0.01, 5.0)] * 3, *[st.floats(0.0, 0.2)] * 4)


@given(st.lists(costs_of, min_size=1, max_size=7), st.sampled_from([1, 2]))
def test_what_holds_for_every_timeline(stripes: list[StripeCosts], engines: int) -> None:
    timeline = predict(stripes, engines=engines)
    assert timeline.seconds <= predict(stripes, overlap=False, engines=engines).seconds + 1e-9
    loads, computes, stores = (timeline.work(a) for a in ("load", "compute", "store"))
    for k in range(len(stripes)):
        assert loads[k].end <= computes[k].start + 1e-9 and computes[k].end <= stores[k].start + 1e-9
        if k >= 2:  # two buffers
            assert computes[k - 2].end <= loads[k].start + 1e-9 and stores[k - 2].end <= computes[k].start + 1e-9
    path = timeline.critical_path
    assert path[0].start == 0.0 and path[-1].end == timeline.seconds
    assert all(a.end == b.start for a, b in zip(path, path[1:]))
    # nothing on the path could be shorter without the whole ending sooner; nothing longer than the sum of its bars
    assert sum(b.end - b.start for b in path) == pytest.approx(timeline.seconds)


def test_a_shorter_last_stripe_ends_sooner() -> None:
    usual = StripeCosts(2.0, 3.0, 1.5)
    short = replace(usual, load=1.0, compute=1.5, store=0.75)
    assert predict([usual] * 4 + [short]).seconds < predict([usual] * 5).seconds


def test_text_and_picture() -> None:
    timeline = predict([WAITED] * 5)
    text = as_text(timeline, width=76)
    lanes = text.splitlines()[:3]
    assert [line.split("|")[0].strip() for line in lanes] == ["load", "processor", "store"]
    assert all(len(line) == len(lanes[0]) for line in lanes)
    assert lanes[0].split("|")[1].startswith("00000000")
    assert "".join(dict.fromkeys(lanes[2].split("|")[1].replace(" ", ""))) == "01234"
    assert "19.000 s" in text.splitlines()[-1]
    assert sum("critical" in line for line in text.splitlines()) == len(timeline.critical_path)
    root = ElementTree.fromstring(as_svg([("a <conv> & more", timeline), ("again", timeline)]))
    ground, *rectangles = (e for e in root.iter() if e.tag.endswith("rect"))
    assert ground.attrib["fill"] == "white" and ground.attrib["width"] == root.attrib["width"]
    assert len(rectangles) == 2 * len(timeline.bars)
    assert sum("stroke" in r.attrib for r in rectangles) == 2 * len(timeline.critical_path)

"""Ratios, tables and the picture, from figures written by hand."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from halotile.benchmarks.markdown import render as as_markdown
from halotile.benchmarks.picture import render as as_picture
from halotile.benchmarks.results import BuildResult, EngineResult, ModelResult, as_data, mean_ratio
from halotile.benchmarks.summary import summarise
from halotile.compiler.page.peak import Peak
from pictures import paper, words_outside

PEAK = Peak(1, 1e11, ((1 << 20, 1e11), (1 << 23, 1e10)))


def engine(name: str, seconds: float, wrong: str | None = None, error: str | None = None) -> EngineResult:
    times = None if error else summarise([(seconds, seconds * 1.01), (seconds, seconds * 0.99)])
    return EngineResult(name, "1.0", 0.1, 50_000_000, 0.0, times, error, wrong)


def result(model: str, *engines: EngineResult, kernels: list[dict[str, object]] | None = None) -> ModelResult:
    build = BuildResult(2.5, {"import": 0.1}, 2e8, 1e7, 123_456_789, 1_000_000, kernels or [])
    return ModelResult(model, 1, list(engines), build, peak=PEAK)


def test_ratio_is_best_peer_over_ours() -> None:
    r = result("m", engine("halotile", 0.01), engine("slow", 0.04), engine("fast", 0.02))
    assert r.best_peer is not None and r.best_peer.engine == "fast"
    assert r.ratio() == pytest.approx(2.0)
    assert r.ratio_range() == pytest.approx((2.0, 2.0))


def test_a_wrong_or_failed_peer_never_counts() -> None:
    r = result(
        "m", engine("halotile", 0.01), engine("slow", 0.04), engine("cheat", 0.001, wrong="y: differs")
    )
    assert r.ratio() == pytest.approx(4.0)
    assert result("m", engine("halotile", 0.01), engine("gone", 1.0, error="died")).ratio() is None


def test_ours_when_wrong_has_no_ratio() -> None:
    r = result("m", engine("halotile", 0.01, wrong="y: differs"), engine("fast", 0.02))
    assert r.ratio() is None
    assert mean_ratio([r], 1) is None
    text = as_markdown([r])
    assert "(wrong)" in text and "halotile disagrees: y: differs" in text


def test_an_ablation_is_ours_and_never_the_best_peer() -> None:
    r = result("m", engine("halotile", 0.01), engine("halotile (exact)", 0.005), engine("fast", 0.02))
    assert r.best_peer is not None and r.best_peer.engine == "fast"
    assert r.ratio("halotile (exact)") == pytest.approx(4.0)
    assert "ratio (exact)" in as_markdown([r])


def test_what_an_ablation_costs_needs_no_peer() -> None:
    times = {"a": 0.02, "b": 0.08}
    results = [result(m, engine("halotile", 0.01), engine("halotile (no fuse)", s)) for m, s in times.items()]
    assert results[0].ratio() is None and results[0].cost_of("halotile (no fuse)") == pytest.approx(2.0)
    assert results[0].cost_of("halotile (exact)") is None
    text = as_markdown(results)
    assert "| (no fuse) / ours |" in text and "Geometric mean of (no fuse) / ours: **4.00**" in text
    data = as_data(results, {})
    assert data["models"][1]["costs"] == {"halotile (no fuse)": pytest.approx(8.0)}
    assert data["geometric_mean_costs"]["1"]["halotile (no fuse)"] == pytest.approx(4.0)


def test_geometric_mean_and_table() -> None:
    results = [result(m, engine("halotile", 0.01), engine("fast", s)) for m, s in (("a", 0.02), ("b", 0.08))]
    assert mean_ratio(results, 1) == pytest.approx(4.0)
    text = as_markdown(results)
    assert "Geometric mean of the ratios: **4.00**" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({row.count("|") for row in rows}) == 1
    assert "123.5 MB" in rows[1] and "**2.00**" in rows[1]


def test_data_is_plain_json_with_derived_figures() -> None:
    data = json.loads(
        json.dumps(as_data([result("m", engine("halotile", 0.01), engine("p", 0.03))], {"cores": 2}))
    )
    assert data["models"][0]["ratio"] == pytest.approx(3.0)
    assert data["models"][0]["best_peer"] == "p"
    assert data["geometric_mean"]["1"] == pytest.approx(3.0)
    assert data["models"][0]["peak"]["flops"] == 1e11


def test_picture_is_well_formed_with_a_bar_an_engine_and_a_dot_a_kernel() -> None:
    kernels: list[dict[str, object]] = [
        {"name": f"k<{i}>", "flops": 1e8, "bytes": 1e6, "seconds": 1e-3 * (i + 1)} for i in range(3)
    ]
    results = [
        result("timed", engine("halotile", 0.01), engine("p", 0.03), kernels=kernels),
        result("whole", engine("halotile", 0.01), engine("p", 0.03)),
        result("unmeasured", engine("halotile", 0.01, error="no"), engine("p", 0.03)),
    ]
    root = ElementTree.fromstring(as_picture(results))
    tag = "{http://www.w3.org/2000/svg}"
    bars = [e for e in root.iter(f"{tag}rect") if float(e.get("height", 0)) == 12.0]
    assert len(bars) == 5
    circles = list(root.iter(f"{tag}circle"))
    assert len(circles) == 4
    for circle in circles:
        assert 0 < float(circle.get("cx", -1)) < 920
    box = [float(v) for v in root.get("viewBox", "").split()]
    assert all(float(e.get("y", 0)) <= box[3] for e in root.iter(f"{tag}text"))


def test_nothing_of_a_picture_is_cut_and_points_have_names() -> None:
    """Many engines, long names, points at the right edge; and a white ground, that black is not on black."""
    kernels: list[dict[str, object]] = [
        {"name": f"g{i}_convolution_add_relu_and_more", "flops": 1e9, "bytes": 1e6, "seconds": 1e-3 * 1.5**i}
        for i in range(20)
    ]
    engines = [engine("halotile", 0.01), *(engine(f"peer number {i} by its own converter", 0.03) for i in range(8))]
    results = [result("a_model_with_a_name_that_is_longer_than_others", *engines, kernels=kernels)]
    results += [result(f"whole{i}", engine("halotile", 0.01 * 10**i), *engines[1:]) for i in range(3)]
    svg = as_picture(results)
    assert words_outside(svg) == [] and paper(svg)
    shown = re.sub("<title>.*?</title>", "", svg)
    assert ">g19_convolution" in shown and ">g0_convolution" not in shown  # the slowest and the fastest kernel
    assert shown.count("whole2</text>") == 2  # at its bars and at its point


def test_roofline_limit() -> None:
    peak = PEAK
    assert peak.limit(1e9, 1.0) == pytest.approx(0.01)
    assert peak.limit(1.0, 1e9) == pytest.approx(0.1)
    assert peak.limit(1.0, 1e6) == pytest.approx(1e-5)
    assert (peak.bandwidth(1 << 21), peak.bandwidth(1 << 30)) == (1e10, 1e10)


def test_a_kernel_on_the_matrix_unit_is_set_against_its_peak() -> None:
    """Several products of bfloat16 make one of its own; without a unit's figure the limit is that of multiply-adds."""
    peak = replace(PEAK, matrix=1.2e12)
    kernel = {"flops": 1e9, "bytes": 1.0, "matrix": 3.0}
    assert peak.limit_of(kernel) == pytest.approx(1e9 / 4e11)
    assert peak.limit_of({**kernel, "matrix": 6.0}) == pytest.approx(1e9 / 2e11)
    assert peak.limit_of({**kernel, "matrix": 0.5, "at_once": 4}) == pytest.approx(1e9 / 2.4e12)
    assert peak.limit_of({"flops": 1e9, "bytes": 1.0, "at_once": 4}) == pytest.approx(1e9 / 4e11)
    assert PEAK.limit_of(kernel) == pytest.approx(0.01)
    assert peak.limit_of({**kernel, "bytes": 1e9}) == pytest.approx(0.1)


def test_tables_and_the_picture_tell_the_matrix_units_peak() -> None:
    """As products of float32 in three parts' products."""
    plain = [result("m", engine("halotile", 0.01), engine("p", 0.03))]
    unit = [replace(plain[0], peak=replace(PEAK, matrix=1.2e12))]
    assert "Peak 100 GFLOP/s, by the matrix unit 400; triad" in as_markdown(unit)
    assert "Peak 100 GFLOP/s; triad" in as_markdown(plain)
    assert [as_picture(r).count("<polyline") for r in (plain, unit)] == [1, 2]
    assert "100 GFLOP/s, 400 by the matrix unit, 10 GB/s" in as_picture(unit)
    assert as_data(unit, {})["models"][0]["peak"]["matrix"] == 1.2e12


def test_a_figure_says_its_precision_where_that_is_not_float32() -> None:
    text = as_markdown([result("m", replace(engine("halotile", 0.01), precision="bf16"), engine("fast", 0.02))])
    assert "± 0.05 bf16" in text and text.count("bf16") == 1

"""``halotile report``: the page is well formed and asks for nothing, shows every kernel, and escapes every name."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path

import halotile
import numpy as np
import onnx
import pytest
from halotile.compiler.cli.main import run
from halotile.compiler.page.pictures import curve
from halotile.compiler.page.svg import spread
from halotile.compiler.plans import undominated
from halotile.errors import HalotileError
from onnx import TensorProto, helper, numpy_helper
from pictures import words_outside

VOID = {"meta", "br", "wbr"}
NODE = "first<b>&\"'"


class Page(HTMLParser):
    """Checks that elements close in order, and collects tags, words and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page_of(path: Path) -> Page:
    text = path.read_text(encoding="utf-8")
    assert "http" not in text and "url(" not in text and "@import" not in text
    page = Page(text)
    assert [words_outside(svg) for svg in re.findall("<svg.*?</svg>", text, re.S)] == [[]] * page.tags.count("svg")
    assert not {"script", "link", "img", "b"} & set(page.tags)
    assert not {"src", "href"} & {name for name, _ in page.attributes}
    return page


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three convolutions of odd sizes and a product."""
    rng = np.random.default_rng(0)
    shapes = {"u": (8, 3, 3, 3), "v": (8, 8, 3, 3), "w": (5, 8, 3, 3)}
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype("float32"), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "u"], ["a"], name=NODE, pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "v"], ["c"], name="second", pads=[1] * 4),
        helper.make_node("Conv", ["c", "w"], ["y"], name="third", pads=[1] * 4),
    ]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 3, 53, 47]), ("y", None))]
    graph = helper.make_graph(nodes, "net<i>", infos[:1], infos[1:], weights)
    out = tmp_path_factory.mktemp("report") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), out)
    return out


def test_every_kernel_with_its_time(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert run(["report", str(path), "-o", str(out), "--seconds", "0.2", "--tile", "off"]) == 0
    said = capsys.readouterr().out
    page = page_of(out)
    words = "\n".join(page.words)
    count = int(said.split(": ")[-1].split()[0])
    assert count >= 3 and all(str(i + 1) in page.words for i in range(count))
    for name in (NODE, "second", "third", "Roofline", "Arena", "Agreement with ONNX Runtime", "Times", "Timeline"):
        assert name in words
    assert page.tags.count("svg") == 4
    assert re.search(r"C\d+, tile \d", words) and page.words.count("Words of schedules:") == 1
    for meaning in ("C16: channels lie in blocks of 16", "tile 2x3x2: registers hold 2 rows by 3 columns"):
        assert len([w for w in page.words if w.startswith(meaning)]) == 1
    assert list(tmp_path.iterdir()) == [out]


def test_tile_groups_of_a_budget(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    command = ["report", str(path), "-o", str(out), "--seconds", "0.1", "--optimize", "memory", "-t", "raspberry-pi-4"]
    assert run(command) == 0
    words = "\n".join(page_of(out).words)
    assert "Tile groups" in words and "computed in a stripe" in words and "Memory against time" in words
    assert "chosen" in words


def test_another_machine_has_no_times(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert run(["report", str(path), "-o", str(out), "-t", "raspberry-pi-5"]) == 0
    page = page_of(out)
    words = "\n".join(page.words)
    assert "Words of schedules:" in page.words
    assert "so nothing was timed" in words and "Roofline" not in page.words and "Times" not in page.words
    assert "so nothing was timed" in capsys.readouterr().out


def test_open_dimensions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(s).astype("float32"), n)
        for n, s in (("w", (37, 53)), ("v", (53, 11)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", d]) for n, d in (("x", 37), ("y", 11))]
    graph = helper.make_graph(nodes, "open", infos[:1], infos[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    out = tmp_path / "page.html"
    assert run(["report", str(tmp_path / "m.onnx"), "-o", str(out), "--seconds", "0.1"]) == 0
    words = "\n".join(page_of(out).words)
    assert "Open dimensions" in words and "*n" in words


def test_errors_are_one_line(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        [str(path), "-o", str(tmp_path)],
        [str(path), "-o", str(tmp_path / "none" / "page.html")],
        [str(tmp_path / "none.onnx"), "-o", str(tmp_path / "page.html")],
        [str(path), "-o", str(tmp_path / "page.html"), "--memory-budget", "64"],
    ):
        assert run(["report", *arguments]) == 1
        (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
        assert "internal" not in said
    assert not list(tmp_path.iterdir())


def test_a_curve_has_no_dominated_point() -> None:
    points = [{"bytes": b, "cycles": c, "tiled": 1} for b, c in ((10, 9), (12, 9), (20, 4), (20, 5), (30, 7))]
    assert [(p["bytes"], p["cycles"]) for p in undominated(points)] == [(10, 9), (20, 4)]
    Page(curve(points, points[0], points[-1]))


def test_the_printed_curve_has_none_either() -> None:
    from halotile.compiler.cli.plan import _curve

    points = [{"bytes": b, "cycles": c, "tiled": 1} for b, c in ((10, 9), (20, 4), (20, 5), (30, 7))]
    untiled = {"bytes": 40, "cycles": 3, "tiled": 0}
    rows = _curve({"curve": points, "chosen": points[1], "untiled": untiled}).splitlines()
    assert len(rows) == 4 and "chosen" in rows[2] and "untiled" in rows[3]
    beaten = _curve({"curve": points, "chosen": points[3], "untiled": untiled}).splitlines()
    assert len(beaten) == 6 and "chosen" in beaten[3] and "less than 6% of its time" in beaten[5]


def test_from_python_as_on_the_command_line(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 17])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 17])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = halotile.report(model, tmp_path / "page.html", seconds=0.01, cache=False)
    assert found == {"output": str(tmp_path / "page.html"), "kernels": 1, "timed": True}
    assert "section" in Page((tmp_path / "page.html").read_text(encoding="utf-8")).tags
    far = halotile.report(model, tmp_path / "far.html", "raspberry-pi-4", cache=False)
    assert not far["timed"]
    for wrong in ({"output": tmp_path / "no" / "page.html"}, {"seconds": 0}, {"output": tmp_path}):
        with pytest.raises(HalotileError) as error:
            halotile.report(model, **{"output": tmp_path / "n.html", **wrong})
        assert "\n" not in str(error.value)


def test_each_stage_is_told_once(path: Path, tmp_path: Path) -> None:
    """Both libraries, with timers and without, go on from one plan."""
    told: list[str] = []
    out = tmp_path / "page.html"
    halotile.report(path, out, seconds=0.01, cache=False, progress=lambda stage, done, total: told.append(stage))
    begun = [stage for stage, _ in groupby(told)]
    assert begun == list(dict.fromkeys(begun)) and begun[0] == "import"
    assert begun[-4:] == ["assemble", "link", "assemble, with timers", "link, with timers"]


def test_both_libraries_of_one_plan_are_those_of_two(path: Path, tmp_path: Path) -> None:
    from halotile.compiler.cache.library import library
    from halotile.compiler.pipeline import run_pipeline
    from halotile.compiler.state import Options
    from halotile.targets.resolve import resolve

    options = Options(resolve("native"), cache=None)
    plan = run_pipeline(path, replace(options, stop_after="plan"))
    for timers in (False, True, False):
        own = replace(options, timers=timers)
        one = library(path, own, tmp_path / "one", begun=plan)
        two = library(path, own, tmp_path / "two")
        for name in two.recorded.files:
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        assert one.report["kernels"] == two.report["kernels"] and one.report["notes"] == two.report["notes"]


@pytest.fixture(scope="module")
def samples(path: Path) -> Path:
    rng = np.random.default_rng(3)
    np.savez(file := path.parent / "samples.npz", x=rng.standard_normal((8, 2, 3, 53, 47)).astype("float32"))
    return file


def test_samples_give_the_curve_of_errors(path: Path, samples: Path, tmp_path: Path) -> None:
    """Rounding in bytes is faster on a Cortex-A76, and the page says by how much and how far it is off."""
    out = tmp_path / "page.html"
    assert run(["report", str(path), "-o", str(out), "-t", "raspberry-pi-5", "--calibrate", str(samples)]) == 0
    page = page_of(out)
    words = "\n".join(page.words)
    assert "Predicted time against expected error" in words and "expected error" in page.words
    assert "error, int8" in page.words and "3 layers by precision" in words and "chosen" not in page.words
    assert "float32" in page.words and page.tags.count("circle") >= 2

    command = ["report", str(path), "-o", str(out), "-t", "raspberry-pi-5", "--calibrate", str(samples)]
    assert run([*command, "--precision", "auto", "--error", "0.05"]) == 0
    page = page_of(out)
    words = "\n".join(page.words)
    assert "Chosen for an error of 0.05" in words and page.words.count("chosen") == 2  # in the picture and the table
    assert "precision=auto, error=0.05" in page.words and "ranges" not in words


def test_no_samples_and_nothing_faster_are_said(path: Path, samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert run(["report", str(path), "-o", str(out), "-t", "raspberry-pi-4"]) == 0
    assert "Needs sample inputs" in "\n".join(page_of(out).words)
    assert run(["report", str(path), "-o", str(out), "-t", "raspberry-pi-4", "--calibrate", str(samples)]) == 0
    assert "computes nothing faster than float32" in "\n".join(page_of(out).words)


def test_precisions_are_those_of_a_build(path: Path, samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    found = halotile.report(
        path, out, precision="int8", calibrate=samples, seconds=0.01, cache=False, tile="off"
    )
    words = "\n".join(page_of(out).words)
    assert found["timed"] and "precision=int8 (3 of 3 layers), tile=off" in words
    for wrong, message in (
        ({"precision": "int8"}, "needs sample inputs"),
        ({"precision": "auto", "calibrate": samples}, "needs an error"),
        ({"exact": True, "calibrate": samples}, "which exact forbids"),
        ({"error": 0.1}, "error is for precision int8 and auto"),
        ({"precision": "int7"}, "precision"),
        ({"calibrate": tmp_path / "none.npz"}, "none.npz"),
    ):
        with pytest.raises(HalotileError, match=message) as error:
            halotile.report(path, tmp_path / "no.html", **wrong)
        assert "\n" not in str(error.value) and not (tmp_path / "no.html").exists()


def test_roofs_of_what_kernels_compute_in() -> None:
    from halotile.compiler.page.peak import Peak
    from halotile.compiler.page.pictures import roofline

    peak = Peak(1, 1e11, ((1 << 20, 1e11), (1 << 26, 1e10)), matrix=2e12)
    kernel = {"name": "k", "flops": 1e9, "bytes": 1e6}
    kernels = [kernel, {**kernel, "at_once": 4}, {**kernel, "matrix": 0.5}, {**kernel, "matrix": 6}]
    drawn = roofline(kernels, [0.02, 0.005, 0.001, 0.004], peak)
    Page(drawn)
    for words in ("multiply-adds 100", "products of bytes 400", "unit, bytes 4 T", "6 products 333", "3 products"):
        assert words in drawn
    assert "products" not in roofline(kernels[:1], [0.02], replace(peak, matrix=0.0))


def test_labels_keep_apart() -> None:
    places = spread([5, 6, 7, 99, 100], 10, 0, 100)
    assert all(b - a >= 10 for a, b in zip(places, places[1:])) and places[0] >= 0 and places[-1] <= 100


def test_neither_have_data_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from halotile.compiler import plans
    from halotile.compiler.state import Options
    from halotile.targets.resolve import resolve

    points = [{"bytes": b, "cycles": c, "tiled": 1} for b, c in ((10, 9), (20, 4), (20, 5), (30, 7))]
    tile = {"curve": points, "chosen": points[1], "untiled": {"bytes": 40, "cycles": 3, "tiled": 0}}
    build = SimpleNamespace(
        imported=SimpleNamespace(name="m", symbols=()), report={"arena_bytes": 20}, seconds={"tile": 0.1}, groups=(),
        tiled={}, details={"tile": tile}, notes={},
    )  # fmt: skip
    monkeypatch.setattr(plans, "run_pipeline", lambda *_: build)
    data = plans.plans("m.onnx", Options(resolve("x86-64-v3")))
    assert [p["bytes"] for p in data["curve"]] == [10, 20, 40] and data["chosen"] == points[1]

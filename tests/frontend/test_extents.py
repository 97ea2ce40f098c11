"""What a user says of dimensions: numbers, names, ranges, the sizes to plan for; and what is refused in one line."""

from __future__ import annotations

import json
import os
import random

import onnx
import pytest
from commands import run_command
from exports import Raw
from halotile import inspect
from halotile.compiler.cli.main import run
from halotile.compiler.extents import Extent, checked_dimension
from halotile.compiler.frontend import import_model
from halotile.compiler.options import checked_shapes, checked_typical
from halotile.compiler.spec import Symbol
from halotile.errors import HalotileError, ShapeError
from onnx import TensorProto, helper


def picture(*shape: int | str) -> onnx.ModelProto:
    g = Raw(17)
    x = g.input("x", shape or ("batch", 3, "height", "width"))
    info = helper.make_tensor_value_info(g("Relu", x), TensorProto.FLOAT, None)
    graph = helper.make_graph(g.nodes, "g", g.inputs, [info], g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def symbols(model: onnx.ModelProto, shapes: dict | None = None, typical: dict | None = None) -> dict[str, Symbol]:
    imported = import_model(model, checked_shapes(shapes), True, None, checked_typical(typical))
    return {s.name: s for s in imported.symbols}


@pytest.mark.parametrize(
    ("text", "extent"),
    [
        ("n", Extent("n")),
        ("2*seq", Extent("2*seq")),
        ("64..2160", Extent(None, 64, 2160)),
        ("64..", Extent(None, 64)),
        ("..64:4", Extent(None, 0, 64, 4)),
        ("h:64..2160:32", Extent("h", 64, 2160, 32)),
        ("a:b:1..2", Extent("a:b", 1, 2)),
        ("h:..:32", Extent("h", 0, None, 32)),
        ("w:64..3840:32@1280", Extent("w", 64, 3840, 32, 1280)),
        ("n@3", Extent("n", typical=3)),
        ("?", Extent()),
        (" h : 64..65 ", Extent("h", 64, 65)),
    ],
)
def test_what_an_extent_says(text: str, extent: Extent) -> None:
    assert Extent.parse(text) == extent == Extent.parse(str(extent))


def test_every_extent_is_read_from_its_text() -> None:
    rng = random.Random(3)
    for _ in range(500):
        low = rng.choice([0, 1, rng.randrange(500)])
        multiple = rng.choice([1, 1, 2, 32])
        high = rng.choice([None, low + multiple + rng.randrange(500)])
        typical = rng.choice([None, low + rng.randrange(multiple)])
        extent = Extent(rng.choice([None, "n", "image height", "a:b"]), low, high, multiple, typical)
        if extent.name == "a:b" and not extent.bounded:
            continue  # a colon needs a range behind it
        assert Extent.parse(str(extent)) == extent, str(extent)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("9..4", "its least size 9 is more than its largest 4"),
        ("h:33..63:32", "no multiple of 32 is from 33 to 63"),
        ("1..4:0", "nothing is a multiple of 0"),
        ("1..4@5", "the size to plan for, 5, is not from 1 to 4"),
        ("h:32", "is no dimension; write a number, a name"),
        ("1...4", "is no dimension"),
        ("a..b", "is no dimension"),
        ("-1..4", "is no dimension"),
        ("1.5", "is no dimension"),
        ("", "is no dimension"),
    ],
)
def test_what_no_extent_says(text: str, why: str) -> None:
    with pytest.raises(ShapeError) as told:
        checked_dimension(text)
    assert why in str(told.value) and "\n" not in str(told.value)


def test_a_range_of_one_size_is_that_number() -> None:
    assert checked_dimension("5..5") == 5 and checked_dimension("33..95:64") == 64 and checked_dimension("+7") == 7
    assert symbols(picture(), {"height": "h:8..8"}).keys() == {"batch", "width"}


def test_dimensions_are_bounded_named_and_planned_for() -> None:
    found = symbols(picture(), {"x": ("n", 3, "h:64..2160:32", "64..")}, {"h": 720, "width": 1280})
    assert [*found] == ["n", "h", "width"]
    assert found["n"] == Symbol("n", 0, None, 1, 1)
    assert found["h"] == Symbol("h", 64, 2144, 32, 736, ("a multiple of 32 from 64 to 2144, as asked for",))
    assert (found["width"].low, found["width"].high, found["width"].typical) == (64, None, 1280)
    notes = import_model(picture(), {"x": ("n", 3, "h:64..2160:32", "w")}, True, None, {"h": 720}).notes
    assert any("'h' is open" in n and "planned for 736, the next multiple from 720" in n for n in notes)
    assert any("'w' is open, any size, and planned for 224 by default (--typical w=SIZE" in n for n in notes)


def test_a_symbol_is_fixed_and_bounded_by_its_name() -> None:
    assert [*symbols(picture(), {"batch": 4})] == ["height", "width"]
    found = symbols(picture(), {"batch": "1..16", "height": "h:..:8"})
    assert (found["batch"].low, found["batch"].high, found["h"].multiple) == (1, 16, 8)
    assert import_model(picture(), {"batch": (4,)}, True).inputs[0].shape[0] == 4


def test_an_input_called_like_a_dimension_keeps_its_name() -> None:
    """A shape of one dimension is meant for the input where that has one, else for the dimension."""
    assert [*symbols(picture("x", 4), {"x": 7})] == []
    assert import_model(picture("x", 4), {"x": (7,)}, True).inputs[0].shape == (7, 4)
    assert import_model(picture("n"), {"x": (7,)}, True).inputs[0].shape == (7,)


def test_multiples_make_divisions_exact() -> None:
    g = Raw(17)
    x = g.input("x", ("b", 8, "h"))
    y = g.view(x, g.size(x, 0), 8, g("Div", g.size(x, 2), g.const(4)), 4)
    info = helper.make_tensor_value_info(g("Relu", y), TensorProto.FLOAT, None)
    graph = helper.make_graph(g.nodes, "g", g.inputs, [info], g.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    imported = import_model(model, {"h": ("..:12",)}, True)
    assert ", ".join(map(str, imported.outputs[0].shape)) == "b, 8, 3*(h // 12), 4" and not imported.conditions
    assert str(imported.inputs[0].shape[2]) == "h"


def test_one_word_for_two_names_makes_them_one() -> None:
    g = Raw(17)
    y = g("Add", g.input("x", ("a", 3)), g.input("z", ("b", 3)))
    info = helper.make_tensor_value_info(y, TensorProto.FLOAT, None)
    graph = helper.make_graph(g.nodes, "g", g.inputs, [info], g.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    imported = import_model(model, {"x": ("n", 3), "b": ("n:1..8",)}, True)
    assert [(s.name, s.low, s.high) for s in imported.symbols] == [("n", 1, 8)]
    with pytest.raises(ShapeError, match="'n' would have to be at least 9, as asked for, and from 1 to 8"):
        import_model(model, {"x": ("n:9..", 3), "b": ("n:1..8",)}, True)


@pytest.mark.parametrize(
    ("shapes", "typical", "why"),
    [
        ({"hight": 4}, None, "'hight', but the model's inputs are 'x' and its open dimensions 'batch', 'height', 'wid"),
        ({"y": (1, 2)}, None, "a shape was given for 'y', but the model's inputs are 'x'"),
        ({"x": ("n", 3, "h")}, None, "has 3 dimensions; the model has 4"),
        ({"x": ("n", "c", "h", "w")}, None, "in dimension 1: 3 can't be open"),
        ({"x": ("n", "1..4", "h", "w")}, None, "in dimension 1: 3 can't be open"),
        ({"x": (1, 3, -2, 4)}, None, "dimensions can't be negative, but one is -2"),
        ({"x": (1, 3, "8..4", 4)}, None, "its least size 8 is more than its largest 4"),
        ({"x": (1, 3, "h", "h:4..8"), "h": "9.."}, None, "'h' would have to be from 4 to 8, as asked for, and at"),
        ({"batch": 2.5}, None, "give whole numbers"),
        (None, {"depth": 4}, "'depth', but the open dimensions are 'batch', 'height', 'width'"),
        (None, {"height": 0}, "give a whole number from 1"),
        (None, {"height": "big"}, "give a whole number from 1"),
        (None, [("height", 4)], "give a dict"),
        ({"batch": "2..4"}, {"batch": 8}, "the typical size of 'batch', 8, is not from 2 to 4 (from 2 to 4, as asked"),
        ({"x": (1, 3, 4, 4)}, {"batch": 1}, "'batch', but the open dimensions are none"),
    ],
)
def test_contradictions_are_one_line(shapes: dict | None, typical: dict | None, why: str) -> None:
    with pytest.raises(ShapeError) as told:
        symbols(picture(), shapes, typical)
    assert why in str(told.value) and "\n" not in str(told.value)


def test_what_is_left_open_is_said_where_all_must_be_fixed() -> None:
    with pytest.raises(ShapeError, match=r"dimensions are open: 'x' has \[n, 3, 8, w\]"):
        import_model(picture(), {"x": ("n", 3, 8, "w:1..9")})


@pytest.mark.parametrize(
    ("shape", "axis", "size"),
    [
        (("a", 3, "b", "c"), 0, 1),
        (("a", 3, "b", "c"), 2, 224),
        (("a", "b", "c", 3), 1, 224),
        (("a", 3, 32, "b"), 3, 320),
        (("a", 8, "q", 64), 2, 128),
        (("a", "q", 768), 1, 128),
        ((3, "a", "b"), 2, 224),
        (("a",), 0, 128),
        (("a", 16, "batch"), 2, 1),
        ((1, "samples"), 1, 16_000),
        (("s0", 64), 0, 1),  # as PyTorch names what it knows nothing of
        (("s0", "s1", 64), 1, 128),
        (("n", 64), 0, 1),
        ((1, "n", 64), 1, 128),
        ((7, 96, "b"), 2, 128),
        (("batch", "n", 64), 1, 128),
        (("time", "n", 64), 1, 1),
        (("batch_size", 64, "batch_2"), 2, 1),
    ],
)
def test_what_is_planned_for_by_default(shape: tuple, axis: int, size: int) -> None:
    assert symbols(picture(*shape))[shape[axis]].typical == size


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("waveforms", (1, "N"), 16_000),
        ("audio", ("N",), 16_000),
        ("audio", ("a", 1, "N"), 16_000),
        ("wave_features", ("a", 80, "N"), 128),
        ("x", (1, "N"), 128),
    ],
)
def test_an_input_that_is_called_a_sound_has_samples(name: str, shape: tuple, size: int) -> None:
    model = picture(*shape)
    model.graph.input[0].name = name
    model.graph.node[0].input[0] = name
    assert symbols(model)["N"].typical == size


def test_the_default_keeps_to_the_range() -> None:
    assert symbols(picture(), {"height": "..100", "width": "300..:7"})["height"].typical == 100
    assert symbols(picture(), {"width": "300..:7"})["width"].typical == 301


def test_on_the_command_line(tmp_path, capsys) -> None:
    onnx.save(picture(), tmp_path / "m.onnx")
    path = str(tmp_path / "m.onnx")
    words = ["--shape", "x=n,3,h:64..2160:32,w:64..3840:32", "--typical", "h=704,w=1280", "--typical", "n=2"]
    assert run(["inspect", path, *words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["inputs"][0]["shape"] == ["n", 3, "h", "w"] == data["outputs"][0]["shape"]
    assert [(s["name"], s["low"], s["high"], s["multiple"], s["typical"]) for s in data["symbols"]] == [
        ("n", 0, None, 1, 2), ("h", 64, 2144, 32, 704), ("w", 64, 3840, 32, 1280)
    ]  # fmt: skip
    shapes = {"x": ("n", 3, "h:64..2160:32", "w:64..3840:32")}
    again = inspect(path, shapes=shapes, typical={"h": 704, "w": 1280, "n": 2})
    assert json.loads(json.dumps(again)) == data
    assert run(["inspect", path, *words]) == 0
    assert "h: a multiple of 32 from 64 to 2144, planned for 704; a multiple of 32" in capsys.readouterr().out
    assert run(["inspect", path, "--stop-after", "simplify", *words]) == 0
    assert "x: float32[n, 3, h, w]" in capsys.readouterr().out


def test_words_of_tensorrt(tmp_path, capsys) -> None:
    onnx.save(picture(), tmp_path / "m.onnx")
    shapes = ["--min-shapes", "x:1x3x64x64", "--opt-shapes", "x:1x3x224x320", "--max-shapes", "'x':1x3x512X640"]
    assert run(["inspect", str(tmp_path / "m.onnx"), *shapes, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["symbols"]
    assert [(s["name"], s["low"], s["high"], s["typical"]) for s in found] == [
        ("height", 64, 512, 224), ("width", 64, 640, 320)
    ]  # fmt: skip
    for wrong in (["--min-shapes", "x:1xax2"], ["--opt-shapes", "1x2"], [*shapes[:2], "--max-shapes", "x:1x3x8x8"]):
        assert run(["inspect", str(tmp_path / "m.onnx"), *wrong]) == 2


def test_a_build_records_what_was_asked(tmp_path) -> None:
    """The manifest has the words as they are understood, and builds again."""
    onnx.save(picture(), tmp_path / "m.onnx")
    words = ["--shape", "x=?,3,8..8,w:9..9", "--shape", "batch=2"]
    done = run_command(["build", "m.onnx", "-o", "lib", "--format", "so", *words], tmp_path, os.environ)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "lib" / "manifest.json").read_text())
    assert manifest["options"]["shapes"] == {"x": ["?", 3, 8, 9], "batch": [2]}
    assert manifest["options"]["typical"] is None and manifest["inputs"][0]["shape"] == [2, 3, 8, 9]
    done = run_command(["build", "--from", "lib", "-o", "again"], tmp_path, os.environ)
    assert done.returncode == 0 and "not the recorded bytes" not in done.stderr, done.stderr
    given = run_command(["build", "--from", "lib", "-o", "again", "--max-shapes", "x:1x3x8x9"], tmp_path, os.environ)
    assert given.returncode == 2 and "--max-shapes is in the manifest already" in given.stderr


def test_recorded_ranges_are_read_again() -> None:
    from halotile.compiler.recipe import describe_options, options_of
    from halotile.compiler.runtime.recorded import Recorded
    from halotile.compiler.state import Options
    from halotile.targets.resolve import resolve

    options = Options(resolve("x86-64-v3"), {"x": ("n", 3, "h:64..2160:32", 9)}, {"h": 704})
    data = json.loads(json.dumps(describe_options(options)))
    from halotile.targets.typed import target_facts

    everything = {"target": json.loads(json.dumps(target_facts(options.target)))}
    again = options_of(Recorded(options=data, everything=everything))
    assert (again.shapes, again.typical) == (options.shapes, options.typical)
    with pytest.raises(HalotileError, match="the manifest's options: shape of 'x': dimension '9..4'"):
        data["shapes"]["x"][2] = "9..4"
        options_of(Recorded(options=data, everything=everything))

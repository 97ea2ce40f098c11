"""NonMaxSuppression and what detectors do around it: as many boxes as there are, zeros behind them."""

from __future__ import annotations

from pathlib import Path

import halotile
import numpy as np
import pytest
from evaluate import peer
from halotile.compiler.frontend import import_model
from halotile.schedules.emit.builder import KernelBuilder
from halotile.schedules.operators import select
from onnx import TensorProto
from partial_models import RNG, boxes_of, close, model_of, node, same
from tvm import tirx

KEEP = {"most": np.array([7]), "overlap": np.array([0.4], "float32"), "above": np.array([0.2], "float32")}


@pytest.mark.parametrize("centre", [0, 1])
@pytest.mark.parametrize(
    "given", ["boxes scores most overlap above", "boxes scores most overlap", "boxes scores most"]
)
def test_suppression(given: str, centre: int) -> None:
    feeds = {"boxes": boxes_of(2, 40), "scores": np.round(RNG.random((2, 3, 40)), 1).astype("float32")}  # with ties
    used = {n: a for n, a in KEEP.items() if n in given}
    same([node("NonMaxSuppression", given, "kept", center_point_box=centre)], feeds, "kept", **used)


@pytest.mark.parametrize("most", [0, 1, 1000])
def test_suppression_keeps_at_most_so_many(most: int) -> None:
    feeds = {"boxes": boxes_of(1, 20), "scores": RNG.random((1, 2, 20)).astype("float32")}
    known = {**KEEP, "most": np.array([most])}
    same([node("NonMaxSuppression", "boxes scores most overlap above", "kept")], feeds, "kept", **known)


def test_suppression_of_nothing() -> None:
    feeds = {"boxes": boxes_of(1, 20), "scores": np.zeros((1, 2, 20), "float32")}
    same([node("NonMaxSuppression", "boxes scores most overlap above", "kept")], feeds, "kept", **KEEP)


def test_areas_and_quotients_are_for_boxes_that_meet() -> None:
    k = KernelBuilder("near")
    boxes, near = k.pointer("boxes", "float32", 8), k.pointer("near", "int32", 1)
    with select._overlapping(k, boxes, 0, 4, 0.5, False, "float32"):
        k.store(near, 0, tirx.IntImm("int32", 1))
    *sides, meet, _ = k.finish().body.seq
    assert isinstance(meet, tirx.IfThenElse) and "/" in str(meet)
    assert not any("/" in str(s) or "*" in str(s) for s in sides if isinstance(s, tirx.BufferStore))


def test_a_detector_ends_in_suppression(tmp_path: Path) -> None:
    """Boxes, scores and classes that are kept in rows, as detectors are exported; compiled, on one thread and two."""
    feeds = {"boxes": boxes_of(2, 200), "scores": RNG.random((2, 3, 200)).astype("float32")}
    nodes = [
        node("NonMaxSuppression", "boxes scores most overlap above", "kept"),
        node("Gather", "kept first", "image", axis=1),
        node("Gather", "kept ends", "places", axis=1),
        node("GatherND", "boxes places", "best"),
        node("GatherND", "scores kept", "score"),
        node("Unsqueeze", "score one", "column"),
        node("Cast", "image", "number", to=TensorProto.FLOAT),
        node("Unsqueeze", "number one", "numbers"),
        node("Concat", "numbers best column", "found", axis=1),
        node("Softmax", "best", "soft", axis=1),
        node("ReduceMax", "best", "top", axes=[0], keepdims=0),
    ]
    known = {**KEEP, "first": np.array(0), "ends": np.array([0, 2]), "one": np.array([1])}
    model = model_of(nodes, feeds, ("found", "soft", "top"), **known)
    results = []
    for threads in (1, 2):
        compiled = halotile.compile(model, threads=threads)
        assert "loops" in [k["schedule"] for k in compiled.report["kernels"]]
        assert [o.name for o in compiled.outputs] == ["found", "soft", "top", "found.length", "soft.length"]
        assert any("found.length" in note for note in compiled.report["notes"]["import"])
        check = compiled.verify(feeds)
        assert check.ok, check.message()
        results.append(compiled(feeds))
        for name, wanted in zip(("found", "soft", "top"), peer(model, feeds), strict=True):
            assert results[-1][name].shape == wanted.shape
        room = {o.name: np.full(o.shape, 7, o.dtype) for o in compiled.outputs}
        loaded = halotile.load(compiled.save(tmp_path / str(threads)))
        loaded.bind(feeds, room)()
        for name in ("found", "soft"):
            close(room[name], room[f"{name}.length"], results[-1][name])
    for name, array in results[0].items():
        np.testing.assert_array_equal(array, results[1][name])
    wrong = compiled.verify({**feeds, "scores": feeds["scores"] * 0})
    assert wrong.ok, wrong.message()


def test_boxes_are_filtered_before_they_are_suppressed() -> None:
    """scores > t picks boxes; what is picked is suppressed by classes, and the first few are taken."""
    scores, kinds = RNG.random(60).astype("float32"), RNG.integers(0, 3, 60)
    feeds = {"boxes": boxes_of(1, 60)[0], "scores": scores, "kinds": kinds}
    nodes = [
        node("Greater", "scores above", "good"),
        node("NonZero", "good", "at"),
        node("Transpose", "at", "rows", perm=[1, 0]),
        *(node("GatherND", f"{n} rows", f"some_{n}") for n in feeds),
        node("ReduceMax", "some_boxes", "largest", keepdims=0),
        node("Cast", "some_kinds", "kind", to=TensorProto.FLOAT),
        node("Mul", "kind largest", "moved"),
        node("Unsqueeze", "moved one", "moves"),
        node("Add", "some_boxes moves", "apart"),
        node("Unsqueeze", "apart zero", "b"),
        node("Unsqueeze", "some_scores both", "s"),
        node("NonMaxSuppression", "b s many overlap", "kept"),
        node("Gather", "kept two", "which", axis=1),
        node("Slice", "which zero five zero", "few"),
        node("Gather", "some_boxes few", "best"),
        node("Gather", "some_kinds few", "kinds_kept"),
        node("NonZero", "good", "again"),
    ]
    known = {
        "above": np.array(0.4, "float32"), "overlap": KEEP["overlap"], "many": np.array([2**62]),
        "zero": np.array([0]), "one": np.array([1]), "both": np.array([0, 1]), "two": np.array(2),
        "five": np.array([5]),
    }  # fmt: skip
    same(nodes, feeds, "best", "kinds_kept", "again", opset=13, **known)
    model = model_of(nodes, feeds, ("best", "kinds_kept"), 13, **known)
    text = import_model(model).module.script()
    assert text.count("halotile.nonzero") == 1  # the same positions are found once


@pytest.mark.parametrize("running", ["most", "overlap", "above", "most overlap above"])
def test_suppression_by_numbers_of_run_time(running: str) -> None:
    """What detectors with settings as inputs ask for; a number of boxes that is negative, or of more than 32 bits."""
    feeds = {"boxes": boxes_of(2, 40), "scores": np.round(RNG.random((2, 3, 40)), 1).astype("float32")}
    given = {n: KEEP[n] for n in running.split()}
    known = {n: a for n, a in KEEP.items() if n not in given}
    more = [{"most": np.array([n])} for n in (0, 1, -3, 2**40)] if "most" in given else []
    more += [{"overlap": np.array([v], "float32")} for v in (0, 1)] if "overlap" in given else []
    more += [{"above": np.array([v], "float32")} for v in (0.9, 2)] if "above" in given else []
    suppression = node("NonMaxSuppression", "boxes scores most overlap above", "kept")
    same([suppression], {**feeds, **given}, "kept", more=more, **known)


def test_columns_of_what_is_kept_of_any_number_of_boxes() -> None:
    """Where the room itself is open, columns are cut and put into one axis, as detectors end; the rows stay."""
    nodes = [
        node("NonMaxSuppression", "boxes scores most overlap above", "kept"),
        node("Slice", "kept two three one", "column"),
        node("Reshape", "column flat", "which"),
        node("Squeeze", "boxes zero", "all"),
        node("Gather", "all which", "best"),
        node("Slice", "kept one two one", "kinds"),
    ]
    given = {"boxes": boxes_of(1, 12), "scores": RNG.random((1, 3, 12)).astype("float32")}
    known = {name: np.array([n]) for n, name in enumerate(("zero", "one", "two", "three"))}
    model = model_of(nodes, given, ("best", "kinds"), **KEEP, **known, flat=np.array([-1]))
    for info, axis in zip(model.graph.input, (1, 2)):
        info.type.tensor_type.shape.dim[axis].dim_param = "places"
    compiled = halotile.compile(model)
    for places in (1, 2, 9, 40):
        feeds = {"boxes": boxes_of(1, places), "scores": RNG.random((1, 3, places)).astype("float32")}
        results = compiled(feeds)
        for name, wanted in zip(("best", "kinds"), peer(model, feeds), strict=True):
            close(results[name], results[f"{name}.length"], wanted)

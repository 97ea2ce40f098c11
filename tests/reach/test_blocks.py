"""Images computed tile by tile are those computed whole: random networks, sizes, tiles, chunkings, borders, sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from halotile.compiler.reach.blocks import Blocks
from halotile.errors import RunError
from local_models import local_model
from onnx import TensorProto
from open_models import Drawing

LEAST = {"h": "40..", "w": "40.."}
SEEDS = (102, 103, 104, 109, 105)


def built(model: onnx.ModelProto, **options: Any) -> halotile.Model:
    return halotile.compile(model, exact=True, **{"typical": {"h": 64, "w": 64}, **options})


def image(model: halotile.Model, height: int, width: int, batch: int = 2, seed: int = 0) -> np.ndarray:
    """Whole numbers, in a size that the model takes, the next one to what is asked for."""
    multiple = {s.name: s.multiple for s in model.symbols}
    rows, columns = (-(-n // multiple[s]) * multiple[s] for n, s in ((height, "h"), (width, "w")))
    return np.random.default_rng(seed).integers(-2, 3, (batch, 2, rows, columns)).astype(np.float32)


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("seed", SEEDS)
def test_tiles_make_the_whole(seed: int) -> None:
    """Sums are exact, so that nothing but a wrong row makes a difference."""
    with built(local_model(seed, whole_numbers=True), shapes=LEAST) as model:
        x = image(model, 149, 131, seed=seed)
        whole = model({"x": x})
        for tile in (7, (40, 23), 64):
            assert len(Blocks(model, {"x": x.shape}, None, tile).grid) > 2
            assert same(model.map_blocks({"x": x}, tile=tile), whole), tile
        assert same(model.map_blocks({"x": x}), whole)


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_every_chunking_gives_the_same_bits(seed: int) -> None:
    da = pytest.importorskip("dask.array", reason="dask is not installed: pip install 'dask[array]'")
    model = halotile.compile(local_model(seed), shapes=LEAST, typical={"h": 64, "w": 64})
    x = np.random.default_rng(seed).normal(0, 1, image(model, 120, 90).shape).astype(np.float32)
    tiles = model.map_blocks({"x": x}, tile=24)
    for chunks in ((1, 2, 40, 40), (2, 1, 7, 90), ((1, 1), (2,), (1, 50, x.shape[2] - 51), x.shape[3]), x.shape):
        lazy = model.map_blocks({"x": da.from_array(x, chunks=chunks)}, tile=24)
        assert all(isinstance(y, da.Array) and y.shape == tiles[name].shape for name, y in lazy.items())
        assert same({name: y.compute(scheduler="threads") for name, y in lazy.items()}, tiles)
        part = {name: y[:, :, 5:20, 3:4].compute(scheduler="sync") for name, y in lazy.items()}
        assert same(part, {name: y[:, :, 5:20, 3:4] for name, y in tiles.items()})
    model.close()


def test_blocks_are_computed_when_they_are_asked_for_and_models_travel() -> None:
    da = pytest.importorskip("dask.array", reason="dask is not installed: pip install 'dask[array]'")
    from halotile.compiler.reach import dask_arrays

    with built(espcn()) as model:
        asked: list[tuple[Any, ...]] = []

        def rows(block_info: Any) -> np.ndarray:
            where = block_info[None]["array-location"]
            asked.append(tuple(where))
            return np.ones([b - a for a, b in where], np.float32)

        x = da.map_blocks(rows, chunks=((1,), (3,), (50,) * 8, (50,) * 8), dtype=np.float32, meta=np.empty((0,) * 4))
        y = model.map_blocks(x, tile=100)
        asked.clear()
        assert y[:, :, 210:290, 210:290].compute(scheduler="sync").shape == (1, 3, 80, 80)
        assert len(set(asked)) == 9  # the block, and one around it for the halo
        import pickle

        shipped = pickle.dumps(dask_arrays.Shipped(model))
        first, second = pickle.loads(shipped), pickle.loads(shipped)
        assert first.model is second.model  # one for a process, however often it comes


def espcn(least: str = "") -> onnx.ModelProto:
    """Twice the size, by a shuffle of channels."""
    g = Drawing(3)
    x = g("Relu", g.conv(g.input("x", "n", 3, "h", "w"), 3, 8, 5))
    x = g.conv(g("Relu", g.conv(x, 8, 8, 3)), 8, 12, 3)
    g.output(g("DepthToSpace", x, blocksize=2, mode="CRD"), 4)
    return g.model()


def test_a_memmap_goes_into_a_memmap(tmp_path: Path) -> None:
    with built(espcn()) as model:
        x = np.random.default_rng(0).normal(0, 1, (1, 3, 203, 317)).astype(np.float32)
        np.save(tmp_path / "x.npy", x)
        source = np.load(tmp_path / "x.npy", mmap_mode="r")
        target = np.lib.format.open_memmap(tmp_path / "y.npy", "w+", np.float32, (1, 3, 406, 634))
        done: list[tuple[int, int]] = []
        assert model.map_blocks(source, target, tile=128, progress=lambda *at: done.append(at)) is target
        assert done == [(i + 1, 20) for i in range(20)]
        assert np.abs(np.load(tmp_path / "y.npy") - model(x)).max() < 1e-5


def test_only_the_rows_of_a_crop_are_read() -> None:
    """Tiles ask a source for no more than the crops, and never for the whole."""

    class Source:
        shape, dtype = (1, 3, 4000, 3000), np.dtype(np.float32)
        largest = 0

        def __getitem__(self, at: tuple[slice, ...]) -> np.ndarray:
            shape = [s.stop - s.start for s in at]
            Source.largest = max(Source.largest, int(np.prod(shape)))
            return np.zeros(shape, np.float32)

    with built(espcn()) as model:
        y = model.map_blocks(Source(), tile=1024)
        assert y.shape == (1, 3, 8000, 6000) and 0 < Source.largest <= 3 * (512 + 2 * 8) ** 2


def valley(*sides: int | str) -> onnx.ModelProto:
    """Down by two, and up again; of whole numbers."""
    g = Drawing(7)

    def conv(x: str, inputs: int, outputs: int) -> str:
        return g("Conv", x, g.constant(g.random.integers(-1, 2, (outputs, inputs, 3, 3))), pads=[1] * 4)

    x = conv(g.input("x", 1, 2, *sides), 2, 4)
    y = conv(g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 4, 4)
    y = g("Resize", y, "", g.constant([1, 1, 2, 2]), mode="nearest")
    g.output(conv(g("Concat", y, x, axis=1), 8, 3), 4)
    return g.model()


def test_a_model_of_one_size_computes_larger_images() -> None:
    """With crops of its own size, moved within the image."""
    open_ = built(valley("h", "w"))
    with built(valley(64, 72), typical={}) as model:
        assert not model.symbols and str(model.reach()["x"][2]) == str(open_.reach()["x"][2])
        for rows, columns in ((64, 72), (64 + 2 * 37, 72 + 2 * 30), (66, 74)):
            x = image(open_, rows, columns, 1)
            assert same(model.map_blocks({"x": x}), open_({"x": x}))
        with pytest.raises(RunError, match="along axis 2 64 and a multiple of 2 more"):
            model.map_blocks({"x": np.zeros((1, 2, 137, 72), np.float32)})
    open_.close()


def test_inputs_of_several_sizes_and_outputs_of_several_scales() -> None:
    """An image, another of half its rows, and a vector; an output of the size, and one of a quarter."""
    g = Drawing(5)
    x, z, t = g.input("x", "n", 2, "2*k", "w"), g.input("z", "n", 3, "k", "w"), g.input("t", "n", 4)
    wide = g("Resize", g.conv(z, 3, 4, 3), "", g.constant([1, 1, 2, 1]), mode="nearest")
    gate = g("Unsqueeze", g("Sigmoid", t), g.whole(2, 3))
    y = g("Mul", g("Add", g.conv(x, 2, 4, 5), wide), gate)
    g.output(g.conv(y, 4, 2, 3), 4)
    g.output(g("MaxPool", y, kernel_shape=[4, 3], strides=[4, 2], pads=[0, 1, 0, 1]), 4)
    with built(g.model(), shapes={"x": ("n", 2, "h", "w"), "z": ("n", 3, "k", "w")}, typical={}) as model:
        random = np.random.default_rng(0)
        shapes = {"x": (2, 2, 104, 61), "z": (2, 3, 52, 61), "t": (2, 4)}
        feeds = {name: random.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
        reach = model.reach("y0")
        assert [axis.kind for axis in reach["t"]] == ["pointwise", "whole", "whole", "whole"]
        assert (str(reach["z"][2].stride), str(reach["x"][2].stride)) == ("1/2", "1")
        whole = model(feeds)
        for tile in (16, (24, 20)):
            found = model.map_blocks(feeds, tile=tile)
            for name, values in whole.items():
                assert found[name].shape == values.shape and np.abs(found[name] - values).max() < 1e-5
        only = model.map_blocks(feeds, tile=16, outputs="y1")
        assert np.abs(only - whole["y1"]).max() < 1e-5


def test_channels_that_stay_apart_are_not_cut() -> None:
    g = Drawing(2)
    x = g("Conv", g.input("x", "n", 2, "h", "w"), g.drawn(2, 1, 3, 3), group=2, pads=[1, 1, 1, 1])
    g.output(g("MaxPool", x, kernel_shape=[3, 2], strides=[3, 2]), 4)
    with built(g.model()) as model:
        assert [axis.kind for axis in model.reach()["x"]] == ["pointwise", "pointwise", "rows", "rows"]
        x = np.random.default_rng(0).normal(0, 1, (1, 2, 100, 90)).astype(np.float32)
        assert len(Blocks(model, {"x": x.shape}, None, (11, 20)).grid) == 3 * 3
        assert np.abs(model.map_blocks(x, tile=(11, 20)) - model(x)).max() < 1e-5


def test_sizes_have_bounds() -> None:
    """Crops are no smaller, and no larger, than what the model takes, whatever the image."""
    model = built(local_model(102, whole_numbers=True), shapes={"h": "60..90", "w": "60..90"})
    free = built(local_model(102, whole_numbers=True), shapes=LEAST)
    x = image(free, 300, 200, 1)
    for tile in (None, 12, 500):
        assert same(model.map_blocks({"x": x}, tile=tile), free({"x": x}))
    model.close()
    free.close()


GLOBAL = {
    "GlobalAveragePool": lambda g, x: g("Mul", x, g("Sigmoid", g("GlobalAveragePool", x))),
    "InstanceNormalization": lambda g, x: g("InstanceNormalization", x, g.drawn(2), g.drawn(2)),
    "MatMul": lambda g, x: attention(g, g.reshaped(x, 0, 2, -1), x),
}


def attention(g: Drawing, tokens: str, x: str) -> str:
    scores = g("Softmax", g("MatMul", g("Transpose", tokens, perm=[0, 2, 1]), tokens), axis=-1)
    y = g("MatMul", tokens, g("Transpose", scores, perm=[0, 2, 1]))
    return g("Reshape", y, g("Shape", x))


@pytest.mark.parametrize("operator", GLOBAL)
def test_what_needs_the_whole_image_is_named(operator: str) -> None:
    g = Drawing(0)
    x = g.conv(g.input("x", 1, 2, "h", "w"), 2, 2, 3)
    g.output(g.conv(GLOBAL[operator](g, x), 2, 2, 3), 4)
    with built(g.model()) as model:
        axis = model.reach()["x"][2]
        assert axis.kind == "whole" and f"node '{operator}_" in axis.why
        with pytest.raises(RunError, match=f"can't be computed in tiles: node '{operator}_v"):
            model.map_blocks(np.zeros((1, 2, 64, 64), np.float32))


def resized(scale: float, others: bool = False, **attributes: Any) -> onnx.ModelProto:
    """With ``others`` behind it an output that tiles could compute."""
    g = Drawing(0)
    x = g.input("x", 1, 2, "h", "w")
    g.output(g("Resize", g.conv(x, 2, 2, 3), "", g.constant([1, 1, scale, scale]), mode="linear", **attributes), 4)
    if others:
        g.output(g.conv(x, 2, 3, 3), 4)
    return g.model()


def coordinates() -> onnx.ModelProto:
    """Channels that count the rows."""
    g = Drawing(0)
    x = g.input("x", 1, 2, "h", "w")
    count = g("Range", g.whole(0), g("Squeeze", g.dims(x, 2)[0]), g.whole(1))
    rows = g("Cast", g("Reshape", count, g.whole(-1, 1)), to=TensorProto.FLOAT)
    g.output(g("Add", g.conv(x, 2, 2, 3), rows), 4)
    return g.model()


def test_what_depends_on_the_place_is_refused() -> None:
    with built(coordinates()) as library:
        assert [cut.problem[:12] for cut in library.reach().cuts[2:]] == ["node 'Add_v7", ""]
        y = library(x := np.ones((1, 2, 64, 200), np.float32))
        assert np.abs(library.map_blocks(x, tile=50) - y).max() < 1e-5  # columns alone are cut
    for model, why in (
        (resized(3), "resizes by 3, at positions that are rounded differently"),
        (resized(3, True), "resizes by 3, at positions that are rounded differently"),
        (resized(2, coordinate_transformation_mode="align_corners"), "aligned corners, whose step depends on the size"),
    ):
        with built(model) as library:
            with pytest.raises(RunError, match=f"can't be computed in tiles: node 'Resize_v1.*{why}"):
                library.map_blocks({"x": np.zeros((1, 2, 64, 64), np.float32)})


def test_wrong_calls_say_what_is_wrong() -> None:
    x = np.zeros((1, 3, 64, 64), np.float32)
    with built(espcn()) as model:
        for wrong, text in (
            (lambda: model.map_blocks(x.astype(np.uint8)), "input 'x' has dtype uint8, expected float32"),
            (lambda: model.map_blocks(x[0]), r"input 'x' has shape \(3, 64, 64\), expected \(n, 3, h, w\)"),
            (lambda: model.map_blocks(x[:, :2]), r"input 'x' has shape \(1, 2, 64, 64\), expected \(n, 3, h, w\)"),
            (lambda: model.map_blocks([1.0]), "input 'x' is a list, which has no shape and dtype to cut"),
            (lambda: model.map_blocks(x, tile=0), "tile=0: give one whole number, or 2"),
            (lambda: model.map_blocks(x, tile="8"), "tile='8': give a whole number of rows"),
            (lambda: model.map_blocks(x, x.copy()), r"out for 'y0' is .*, expected .*128, 128"),
            (lambda: model.map_blocks({"z": x}), "input 'x' is missing"),
            (lambda: model.map_blocks(x, outputs="z"), "has no output 'z'; it has 'y0'"),
            (lambda: model.reach("z"), "has no output 'z'; it has 'y0'"),
        ):  # fmt: skip
            with pytest.raises(RunError, match=text):
                wrong()


def test_a_library_knows_its_reach(tmp_path: Path) -> None:
    """Without the compiler; and a library of before, which does not, says so."""
    import json

    from halotile.compiler.runtime.recorded import content_digest

    with built(espcn()) as model:
        model.save(tmp_path / "m")
        with halotile.load(tmp_path / "m") as again:
            assert again.reach() == model.reach()
            axis = again.reach("y0")["x"][2]
            assert (str(axis.stride), axis.before, axis.after, axis.multiple) == ("1/2", 4, 4, 1)
            assert again.reach().depth == {0: (0, 0), 2: (4, 4), 3: (4, 4)}
        file = tmp_path / "m" / "manifest.json"
        data = {k: v for k, v in json.loads(file.read_text()).items() if k not in ("reach", "sha256")}
        file.write_text(json.dumps({**data, "sha256": content_digest(data)}))
        with halotile.load(tmp_path / "m") as old, pytest.raises(RunError, match="build it again from its model"):
            old.reach()


def test_tiles_cover_every_output_once() -> None:
    with built(espcn()) as model:
        grid = Blocks(model, {"x": (2, 3, 100, 131)}, None, (48, 50)).grid
        covered = np.zeros(grid.made["y0"], int)
        for tile in grid:
            covered[tile.placed["y0"]] += 1
        assert (covered == 1).all() and len(grid) == 2 * 5 * 6
        assert [grid.rows(1, i)["y0", 2] for i in range(5)] == [(48 * i, min(48 * i + 48, 200)) for i in range(5)]

"""What a model that streams offers in Python: arrays of any layout, files, iterators, journals, and clear refusals."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from halotile.errors import HalotileError, RunError, ShapeError, UnsupportedError
from stream_models import Maker, unet, upscaler

WIDTH, HEIGHT = 24, 101


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stream") / "library"
    halotile.compile(upscaler(), stream=8).save(folder)
    with halotile.load(folder) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).standard_normal((1, 3, HEIGHT, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def y(model, x):
    return model(x)


def test_it_tells_its_open_shapes_and_agrees_with_onnx_runtime(model):
    (given,), (taken,) = model.inputs, model.outputs
    assert (str(given), str(taken)) == ("x: float32[1, 3, h, 24]", "v5: float32[1, 3, 2*h, 48]")
    for height in (1, 2, 9, 40):
        check = model.verify(model=upscaler(), shape={"h": height})
        assert check.ok and check.sizes == {"h": height}


def test_a_call_gives_what_a_call_gives(model, x, y):
    assert y.shape == (1, 3, 2 * HEIGHT, 2 * WIDTH)
    assert np.array_equal(model({"x": x})["v5"], y)
    out = np.empty_like(y)
    assert model(x, out=out) is out and np.array_equal(out, y)


def test_layouts_and_integers(model, x):
    pixels = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)
    wanted = model(np.ascontiguousarray(pixels.transpose(2, 0, 1)[None]).astype(np.float32) * np.float32(1 / 255))
    for source in (pixels, pixels.transpose(2, 0, 1), pixels[None], pixels.astype(np.uint16)):
        assert np.array_equal(model.stream(source, scale=1 / 255), wanted)
    target = np.zeros((2 * HEIGHT, 2 * WIDTH, 3), np.uint8)
    assert model.stream(pixels, target, scale=1 / 255, target_scale=255) is target
    rounded = np.clip(np.rint(wanted[0].transpose(1, 2, 0) * np.float32(255)), 0, 255)
    assert np.array_equal(target, rounded)


def test_files_and_iterators(model, x, y, tmp_path):
    np.save(tmp_path / "x.npy", x)
    model.stream(tmp_path / "x.npy", tmp_path / "y.npy")
    assert np.array_equal(np.load(tmp_path / "y.npy"), y)
    assert np.array_equal(model.stream(x[:, :, i : i + 10] for i in range(0, HEIGHT, 10)), y)
    mapped = np.lib.format.open_memmap(tmp_path / "m.npy", "w+", np.float32, y.shape)
    model.stream(np.load(tmp_path / "x.npy", mmap_mode="r"), mapped)
    assert np.array_equal(mapped, y)


class Chunked:
    """As zarr's arrays: a shape, a dtype, slices, and nothing else of NumPy's."""

    def __init__(self, array):
        self._array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, slices):
        return self._array[slices]

    def __setitem__(self, slices, values):
        self._array[slices] = values


def test_anything_with_a_shape_and_slices(model, x, y):
    out = np.empty_like(y)
    model.stream(Chunked(x), Chunked(out))
    assert np.array_equal(out, y)


class Dataset:
    """As rasterio's: bands, windows of pairs, no dtype of its own."""

    name = "image.tif"

    def __init__(self, array, kinds=None):
        self._array, (self.count, self.height, self.width) = array, array.shape
        self.dtypes, self.shape = kinds or (str(array.dtype),) * self.count, array.shape[1:]
        self.most = 0

    def read(self, window):
        (top, bottom), (left, right) = window
        self.most = max(self.most, bottom - top)
        return self._array[:, top:bottom, left:right].copy()

    def write(self, values, window):
        (top, bottom), (left, right) = window
        self._array[:, top:bottom, left:right] = values


def test_rasters_are_read_and_written_by_rows(model):
    bands = np.random.default_rng(6).integers(0, 65536, (3, HEIGHT, WIDTH)).astype(np.uint16)
    source, target = Dataset(bands), Dataset(np.zeros((3, 2 * HEIGHT, 2 * WIDTH), np.uint16))
    model.stream(source, target, scale=1 / 65535, target_scale=65535)
    wanted = np.zeros((3, 2 * HEIGHT, 2 * WIDTH), np.uint16)
    model.stream(bands, wanted, scale=1 / 65535, target_scale=65535)
    assert np.array_equal(target._array, wanted) and np.ptp(wanted) > 100 and source.most == 8
    mixed = Dataset(bands, ("uint8", "uint16", "uint16"))
    _line(lambda: model.stream(mixed), RunError, "'image.tif'", "uint16 and uint8", "one type")


@pytest.mark.parametrize("stopped", [16, 56, 96])
def test_a_stream_that_was_stopped_goes_on(model, x, y, tmp_path, stopped):
    class Stopped(Exception):
        pass

    def stop(done, rows):
        if done >= stopped:
            raise Stopped

    np.save(tmp_path / "x.npy", x)
    files = tmp_path / "x.npy", tmp_path / "y.npy"
    with pytest.raises(Stopped):
        model.stream(*files, journal=True, journal_seconds=0, progress=stop)
    seen = []
    model.stream(*files, journal=True, journal_seconds=0, progress=lambda done, rows: seen.append((done, rows)))
    assert seen[0] == (stopped + 8 if stopped < 96 else HEIGHT, HEIGHT)
    assert np.array_equal(np.load(tmp_path / "y.npy"), y)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["x.npy", "y.npy"]


def test_a_journal_of_another_stream_is_refused(model, x, y, tmp_path):
    def stop(done, rows):
        if done >= 16:
            raise KeyError

    out = np.empty_like(y)
    with pytest.raises(KeyError):
        model.stream(x, out, journal=tmp_path / "j", journal_seconds=0, progress=stop)
    with pytest.raises(RunError, match="another stream"):
        model.stream(x, out, journal=tmp_path / "j", scale=2.0)
    (tmp_path / "j").write_bytes(b"?")
    with pytest.raises(RunError, match="no journal"):
        model.stream(x, out, journal=tmp_path / "j")
    with pytest.raises(RunError, match="no file that a journal could lie beside"):
        model.stream(x, out, journal=True)


def _line(call, kind, *words):
    with pytest.raises(kind) as found:
        call()
    assert "\n" not in str(found.value)
    assert all(word in str(found.value) for word in words), str(found.value)


def test_bad_input_is_one_line(model, x):
    stream = model.open()
    _line(lambda: stream.push(x[..., :-1]), RunError, "(1, 3, rows, 24)", "(1, 3, 101, 23)")
    _line(lambda: stream.push(x.astype(np.float64)), RunError, "float64")
    _line(lambda: stream.push({"z": x}), RunError, "'z'", "x")
    _line(lambda: stream.pull(count=1), RunError, "0 are ready")
    _line(lambda: stream.ready("z"), RunError, "'z'", "v5")
    _line(lambda: stream.finish(), RunError, "0 rows", "at least 1")
    stream.push(x)
    stream.finish()
    stream.finish()
    _line(lambda: stream.push(x), RunError, "finished")
    _line(lambda: model.stream(x[..., :-1]), RunError, "does not fit")
    _line(lambda: model.stream(x, np.empty((1, 3, 7, 48), np.float32)), RunError, "202 rows")
    _line(lambda: model.stream(x, {"z": x}), RunError, "'z'")
    _line(lambda: model.bind({}, {}), RunError, "streams")
    _line(lambda: model.map_blocks(x), RunError, "stream()")


def test_its_reach_is_the_whole_networks(model):
    rows = model.reach("v5")["x"][2]
    assert (rows.before, rows.after) == (4, 4)


def test_what_cannot_stream_is_refused_by_name():
    def built(maker, *outputs, **options):
        return lambda: halotile.compile(maker.model(list(outputs), WIDTH), stream=True, **options)

    m = Maker()
    flat = m.op("Reshape", "x", m.const(np.array([0, 3, -1])))
    attention = m.op("MatMul", flat, m.op("Transpose", flat, perm=[0, 2, 1]))
    _line(built(m, attention), UnsupportedError, "n2", "matmul", "rows")
    m = Maker()
    scales = m.const(np.array([1, 1, 2, 2], np.float32))
    corners = m.op("Resize", "x", "", scales, mode="linear", coordinate_transformation_mode="align_corners")
    _line(built(m, corners), UnsupportedError, "n0", "height of the whole image")
    shapes = {"x": (1, 3, 16, WIDTH)}
    _line(lambda: halotile.compile(upscaler(), stream=True, shapes=shapes), ShapeError, "open height")
    _line(lambda: halotile.compile(upscaler("w"), stream=True), ShapeError, "'h', 'w'")
    _line(lambda: halotile.compile(upscaler(), stream=-3), HalotileError, "-3")


def test_rows_that_are_no_multiple_are_refused():
    model = halotile.compile(unet(), stream=8, shapes={"x": (1, 3, "h:8..:4", 24)})
    stream = model.open()
    stream.push(np.zeros((1, 3, 11, 24), np.float32))
    _line(stream.finish, RunError, "11 rows", "multiple of 4")
    stream.push(np.zeros((1, 3, 1, 24), np.float32))
    stream.finish()
    assert stream.ready() == 12


def test_others_do_not_stream():
    model = halotile.compile(upscaler(height=8))
    _line(lambda: model.stream(np.zeros((1, 3, 8, 24), np.float32)), RunError, "stream=True")
    _line(lambda: model.open(), RunError, "stream=True")

"""Files of every kind through a stream: what comes out does not depend on how the image lies on disk, nor on a stop."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import halotile
import numpy as np
import pytest
from halotile.compiler.stream.bands import ReadBands, WriteBands
from halotile.compiler.stream.tiff import _head
from halotile.errors import HalotileError
from stream_models import Maker, upscaler

WIDTH, HEIGHT = 24, 101
SCALES = {"scale": 1 / 255, "target_scale": 255}
NEEDS = {".tif": "tifffile", ".zarr": "zarr"}


def needs(module):
    return pytest.importorskip(module, reason=f"NOT RUN: {module} is not installed: pip install {module}")


@pytest.fixture(scope="module")
def model():
    with halotile.compile(upscaler(WIDTH), stream=8) as made:
        yield made


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def wanted(model, pixels):
    """Bytes of the result, (rows, columns, channels)."""
    target = np.zeros((2 * HEIGHT, 2 * WIDTH, 3), np.uint8)
    return model.stream(pixels, target, **SCALES)


def plain(path: Path) -> np.ndarray:
    """The result in a file, read by other means than ours, as (rows, columns, channels)."""
    if path.suffix == ".raw":
        return np.fromfile(path, np.uint8).reshape(2 * HEIGHT, 2 * WIDTH, 3)
    if path.suffix == ".npy":
        return np.load(path)[0].transpose(1, 2, 0)
    if path.suffix == ".zarr":
        return needs("zarr").open_array(str(path), mode="r")[:][0].transpose(1, 2, 0)
    return tiff(path.read_bytes())


def tiff(data: bytes) -> np.ndarray:
    """The strips of a plain TIFF."""
    assert data[:4] == b"II*\0"
    (at,) = struct.unpack_from("<I", data, 4)
    tags = {}
    for i in range(struct.unpack_from("<H", data, at)[0]):
        tag, kind, count = struct.unpack_from("<HHI", data, at + 2 + 12 * i)
        code = {3: "H", 4: "I"}[kind]
        place = at + 10 + 12 * i
        if count * struct.calcsize(code) > 4:
            (place,) = struct.unpack_from("<I", data, place)
        tags[tag] = struct.unpack_from(f"<{count}{code}", data, place)
    assert (tags[259], tags[262], tags[284], tags[339]) == ((1,), (2,), (1,), (1, 1, 1)) and tags[258] == (8, 8, 8)
    rows = b"".join(data[a : a + n] for a, n in zip(tags[273], tags[279]))
    return np.frombuffer(rows, np.uint8).reshape(*tags[257], *tags[256], *tags[277])


@pytest.mark.parametrize("ending", [".npy", ".raw", ".tif", ".zarr"])
def test_a_file_of_every_kind_is_written(model, pixels, wanted, tmp_path, ending):
    if ending == ".zarr":
        needs("zarr")
    target = tmp_path / f"y{ending}"
    for _ in range(2):  # into nothing, and in place of what is there
        assert model.stream(pixels, target, target_type="uint8", **SCALES) == target
        assert np.array_equal(plain(target), wanted)
    if ending == ".tif" and "tifffile" in sys.modules:
        assert np.array_equal(sys.modules["tifffile"].imread(target), wanted)


@pytest.mark.parametrize("ending", [".npy", ".raw", ".tif", ".zarr"])
@pytest.mark.parametrize("stopped", [24, 96])
def test_a_file_of_every_kind_goes_on(model, pixels, wanted, tmp_path, ending, stopped):
    class Stopped(Exception):
        pass

    def stop(done, rows):
        if done >= stopped:
            raise Stopped

    if ending == ".zarr":
        needs("zarr")
    np.save(tmp_path / "x.npy", pixels)
    files = tmp_path / "x.npy", tmp_path / f"y{ending}"
    asked = {**SCALES, "target_type": "uint8", "journal": True, "journal_seconds": 0}
    with pytest.raises(Stopped):
        model.stream(*files, progress=stop, **asked)
    seen = []
    model.stream(*files, progress=lambda done, rows: seen.append(done), **asked)
    assert seen[0] == min(stopped + 8, HEIGHT) and np.array_equal(plain(files[1]), wanted)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["x.npy", f"y{ending}"]


def test_plain_rows_are_read(model, pixels, wanted, tmp_path):
    for kind in (np.uint8, np.uint16):
        (tmp_path / "x.raw").write_bytes(pixels.astype(kind).tobytes())
        target = np.zeros_like(wanted)
        model.stream(tmp_path / "x.raw", target, source_type=np.dtype(kind).name, **SCALES)
        assert np.array_equal(target, wanted)
    (tmp_path / "x.raw").write_bytes(pixels.tobytes()[:-1])
    with pytest.raises(HalotileError, match="ends within a row: rows have 72 bytes"):
        model.stream(tmp_path / "x.raw", source_type="uint8")


TIFFS = {
    "strips": {},
    "strips of 7 rows": {"rowsperstrip": 7},
    "strips, deflated": {"rowsperstrip": 7, "compression": "zlib"},
    "one strip, deflated": {"rowsperstrip": HEIGHT, "compression": "zlib"},
    "tiles": {"tile": (32, 16)},
    "tiles, deflated": {"tile": (16, 32), "compression": "zlib"},
    "planes": {"planarconfig": "separate", "photometric": "rgb"},
    "planes in tiles": {"planarconfig": "separate", "photometric": "rgb", "tile": (16, 16), "compression": "zlib"},
    "pages": {"photometric": "minisblack", "rowsperstrip": 5, "compression": "zlib"},
    "pages that lie together": {"photometric": "minisblack"},
    "big, the other end first": {"bigtiff": True, "byteorder": ">", "tile": (32, 32)},
    "plain, the other end first": {"byteorder": ">"},
}


@pytest.mark.parametrize("how", TIFFS)
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_tiffs_of_every_kind_are_read(model, pixels, wanted, tmp_path, how, kind):
    tifffile, options = needs("tifffile"), {"photometric": "rgb", **TIFFS[how]}
    image = pixels.astype(kind)
    image = image.transpose(2, 0, 1) if how.startswith(("planes", "pages")) else image
    tifffile.imwrite(tmp_path / "x.tif", np.ascontiguousarray(image), **options)
    target = np.zeros_like(wanted)
    model.stream(tmp_path / "x.tif", target, **SCALES)
    assert np.array_equal(target, wanted)


def test_zarr_arrays_of_any_chunks_are_read(model, pixels, wanted, tmp_path):
    zarr = needs("zarr")
    for number, chunks in enumerate(((1, 5, 3), (40, 7, 2), (HEIGHT, WIDTH, 3))):
        path = tmp_path / "group.zarr" / str(number)
        made = zarr.open_array(str(path), mode="w", shape=pixels.shape, chunks=chunks, dtype=pixels.dtype)
        made[:] = pixels
        target = np.zeros_like(wanted)
        model.stream(path, target, **SCALES)
        assert np.array_equal(target, wanted)


def test_gray_images_have_no_channels(tmp_path):
    tifffile, m = needs("tifffile"), Maker(2)
    y = m.op("Add", m.conv("x", 1, 1), m.op("Resize", "x", "", m.const(np.ones(4, np.float32)), mode="nearest"))
    source = m.model([y], 20, channels=1)
    x = np.random.default_rng(0).integers(0, 1 << 16, (50, 20)).astype(np.uint16)
    tifffile.imwrite(tmp_path / "x.tif", x, tile=(16, 16))
    with halotile.compile(source, stream=8) as model:
        model.stream(tmp_path / "x.tif", tmp_path / "y.tiff", scale=1 / 65535)
        assert np.array_equal(tifffile.imread(tmp_path / "y.tiff"), model.stream(x, scale=1 / 65535)[0, 0])


def test_a_large_tiff_is_a_big_one():
    """Of 100,000 x 100,000 pixels, by its head alone."""
    head = _head(100_000, 100_000, 3, np.dtype(np.uint8))
    assert head[:8] == struct.pack("<2sHHH", b"II", 43, 8, 0) and len(head) % 4096 == 0
    (count,) = struct.unpack_from("<Q", head, 16)
    tags = [struct.unpack_from("<HHQQ", head, 24 + 20 * i) for i in range(count)]
    found = {tag: (kind, n, value) for tag, kind, n, value in tags}
    assert sorted(found) == [t[0] for t in tags]
    kind, strips, place = found[273]
    offsets = struct.unpack_from(f"<{strips}Q", head, place)
    sizes = struct.unpack_from(f"<{strips}Q", head, found[279][2])
    assert kind == 16 and offsets[0] == len(head) and sum(sizes) == 3 * 10**10
    assert all(b - a == n for a, b, n in zip(offsets, offsets[1:], sizes))


class Chunked:
    """An array in chunks that counts what is read and written."""

    def __init__(self, array, chunks):
        self._array, self.shape, self.dtype, self.chunks = array, array.shape, array.dtype, chunks
        self.seen = []

    def __getitem__(self, slices):
        self.seen.append((slices[0].start, slices[0].stop))
        return self._array[slices]

    def __setitem__(self, slices, values):
        self.seen.append((slices[0].start, slices[0].stop))
        self._array[slices] = values


def test_chunks_are_read_and_written_once(model, pixels, wanted):
    source, target = Chunked(pixels, (40, 24, 3)), Chunked(np.zeros_like(wanted), (50, 48, 3))
    model.stream(source, target, **SCALES)
    assert source.seen == [(0, 40), (40, 80), (80, 101)]
    assert target.seen == [(0, 50), (50, 100), (100, 150), (150, 200), (200, 202)]
    assert np.array_equal(target._array, wanted)


def test_bands_take_rows_of_any_number():
    random = np.random.default_rng(0)
    x = random.integers(0, 99, (3, 57, 4))
    for rows in (2, 5, 57, 80):
        chunked, out = Chunked(x, (3, rows, 4)), np.full_like(x, -1)
        read, write, first = ReadBands(chunked, 1), WriteBands(Chunked(out, (3, rows, 4)), 1), int(random.integers(20))
        while first < 57:
            end = min(57, first + int(random.integers(1, 15)))
            write[:, first:end, :] = read[:, first:end, :]
            assert np.array_equal(read[:, first:end, :], x[:, first:end])
            if random.integers(3) == 0:
                write.flush()
            begun, first = first, end
        write.flush()
        assert np.array_equal(out[:, begun:], x[:, begun:])


def test_what_is_wrong_is_one_line(model, pixels, tmp_path, monkeypatch):
    def line(words, call):
        with pytest.raises(HalotileError) as found:
            call()
        assert "\n" not in str(found.value) and words in str(found.value), str(found.value)

    (tmp_path / "x.raw").write_bytes(pixels.tobytes())
    (tmp_path / "bad.tif").write_bytes(b"no picture")
    (tmp_path / "full.zarr").mkdir()
    np.save(tmp_path / "x.npy", pixels)
    before = (tmp_path / "x.npy").read_bytes()
    line("another name", lambda: model.stream(tmp_path / "x.npy", tmp_path / ".." / tmp_path.name / "x.npy"))
    assert (tmp_path / "x.npy").read_bytes() == before
    line("none of the files that streams read", lambda: model.stream(tmp_path / "x.png"))
    line("can't be read: No such file", lambda: model.stream(tmp_path / "no.npy"))
    line("can't be read: No such file", lambda: model.stream(tmp_path / "no.raw"))
    line("can't be written: No such file", lambda: model.stream(pixels, tmp_path / "no" / "y.tif"))
    for module in ("zarr", "tifffile", "rasterio"):
        monkeypatch.setitem(sys.modules, module, None)
    line("needs zarr: pip install zarr", lambda: model.stream(tmp_path / "x.zarr"))
    line("needs zarr: pip install zarr", lambda: model.stream(pixels, tmp_path / "y.zarr"))
    line("needs tifffile: pip install tifffile", lambda: model.stream(tmp_path / "bad.tif"))
    monkeypatch.undo()
    needs("zarr"), needs("tifffile")
    line("can't be read as TIFF", lambda: model.stream(tmp_path / "bad.tif"))
    line("can't be read as TIFF", lambda: model.stream(tmp_path / "no.tif"))
    line("there is no such folder", lambda: model.stream(tmp_path / "no.zarr"))
    line("is no zarr array", lambda: model.stream(pixels, tmp_path / "full.zarr"))


def test_an_output_that_is_no_image_is_no_picture(tmp_path):
    m = Maker(0)
    source = m.model([m.conv("x", 3, 2)], 12, batch=2)
    x = np.zeros((2, 3, 20, 12), np.float32)
    with halotile.compile(source, stream=8) as model:
        with pytest.raises(HalotileError, match=r"y.tif is one image .* output 'v0' has the shape \(2, 2, rows, 12\)"):
            model.stream(x, tmp_path / "y.tif")

"""The comparison with sliding windows: the reference is one, and seams are where it has them and nowhere else."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from click.testing import CliRunner
from halotile.benchmarks.seams import default_model, errors, main, measure, own_bytes, panels, png, result_of
from halotile.benchmarks.sliding import Windows, slide


@pytest.mark.parametrize("length", [16, 17, 24, 40, 61])
@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.6])
def test_windows_cover_the_image_and_end_with_it(length, overlap):
    windows = Windows(16, overlap)
    starts = windows.starts(length)
    covered = np.zeros(length, int)
    for start in starts:
        covered[start : start + 16] += 1
    assert starts[0] == 0 and starts[-1] + 16 == length and covered.min() >= 1 and starts == sorted(set(starts))
    assert np.array_equal(np.repeat(covered > 1, 3), windows.overlaps(length, 3))
    assert all(b - a <= max(1, int(16 * (1 - overlap))) for a, b in zip(starts, starts[1:]))


@pytest.mark.parametrize("blend", ["gaussian", "constant"])
def test_what_does_not_look_beside_itself_has_no_seam(blend):
    """Weights sum to one everywhere, also of outputs of twice the size."""
    x = np.random.default_rng(0).random((1, 2, 40, 53), np.float32)
    found = slide(lambda part: np.repeat(np.repeat(part * 2, 2, 2), 2, 3), x, Windows(16, 0.25, blend))
    np.testing.assert_allclose(found, np.repeat(np.repeat(x * 2, 2, 2), 2, 3), rtol=1e-5)


def test_weights_are_a_bell():
    weights = Windows(16).weights(32)
    assert np.array_equal(weights, weights.T) and np.array_equal(weights, weights[::-1])
    row = weights[16, 16:]
    assert (np.diff(row) <= 0).all() and row[-1] == np.float32(1e-3)
    # one standard deviation, an eighth of the window, from the middle of it
    assert np.isclose(row[4] / row[0], np.exp(-0.5 * ((4.5 / 4) ** 2 - (0.5 / 4) ** 2)), rtol=1e-5)


def test_seams_are_where_windows_overlap_and_ours_has_none(tmp_path):
    windows = Windows(32)
    found = measure(default_model(), 96, windows, 0, 1, tmp_path)
    theirs = found["sliding windows"]
    assert theirs["at_seams"] > 1e-3 and theirs["largest"] > 1e-2 and theirs["work"] == windows.work(96, 96) > 1.7
    for way in ("map_blocks", "stream"):
        assert found[way]["largest"] < 1e-4, way
    assert found["stream"]["work"] == 1 and found["map_blocks"]["work"] > 1
    told = own_bytes() > 0  # by this system
    assert all(row["seconds"] > 0 and (row["memory"] > 0) == told for row in found.values())
    drawn = panels(tmp_path, theirs["largest"], 32)
    assert drawn.shape == (32, 3 * 32 + 2 * 6) and drawn[:, 38:70].max() == 248 and drawn[:, 76:].max() < 20
    assert np.load(result_of(tmp_path, "stream")).shape == np.load(tmp_path / "whole.npy").shape
    data = png(drawn)
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == (108, 32)
    at = data.index(b"IDAT")
    lines = np.frombuffer(zlib.decompress(data[at + 4 : at + 4 + struct.unpack(">I", data[at - 4 : at])[0]]), np.uint8)
    assert np.array_equal(lines.reshape(32, 109)[:, 1:], drawn)


def test_errors_are_shares_of_the_largest_value():
    whole, found = np.full((1, 1, 4, 6), -2.0), np.full((1, 1, 4, 6), -2.0)
    found[0, 0, 0, 0], found[0, 0, 3, 5] = -1, -2.5
    shared = np.array([True, False, False, False, False, False])
    got = errors(found, whole, (shared[:4], shared))
    assert got["largest"] == 0.5
    assert np.isclose(got["at_seams"], np.sqrt(0.25 / 9)) and np.isclose(got["elsewhere"], np.sqrt(0.0625 / 15))


@pytest.mark.parametrize(
    "arguments, words", [(["--overlap", "1"], "less than 1"), (["--window", "250"], "multiples of 4")]
)
def test_what_is_wrong_is_one_line(arguments, words):
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2 and words in done.output

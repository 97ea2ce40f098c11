"""Sample inputs for calibration: files, folders, dicts; what is refused, in one line that names the file and input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from halotile.compiler.quantise.samples import read_samples
from halotile.compiler.spec import TensorSpec
from halotile.errors import HalotileError

X = TensorSpec("x", "float32", (1, 3, 5))
IDS = TensorSpec("ids", "int64", ("n", 4))


def test_one_sample_and_many_in_one_array(tmp_path: Path) -> None:
    one, many = np.zeros((1, 3, 5), "f4"), np.arange(7 * 15, dtype="f4").reshape(7, 1, 3, 5)
    np.save(tmp_path / "one.npy", one)
    np.savez(tmp_path / "many.npz", x=many)
    assert len(read_samples(tmp_path / "one.npy", [X])) == 1
    found = read_samples(str(tmp_path / "many.npz"), [X])
    assert [s["x"].tolist() for s in found] == many.tolist()
    assert len(read_samples(tmp_path, [X])) == 8
    assert len(read_samples([{"x": one}, {"x": many}], [X])) == 8


def test_several_inputs_count_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=np.ones((5, 1, 3, 5)), ids=np.ones((5, 2, 4), "i4"))
    found = read_samples(tmp_path / "s.npz", [X, IDS])
    assert len(found) == 5 and found[0]["ids"].dtype == np.int64 and found[0]["x"].dtype == np.float32


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"y": np.ones((1, 3, 5))}, "no input 'y'"),
        ({}, "no array for input 'x'"),
        ({"x": np.ones((1, 3, 6))}, "the array [1, 3, 6]"),
        ({"x": np.ones((3, 5))}, "own axes (x: 3)"),
        ({"x": np.full((1, 3, 5), np.nan)}, "NaN or infinity"),
        ({"x": np.ones((1, 3, 5), complex)}, "is float32, the array complex128"),
        ([3], "calibrate[0] is no dict"),
        ([], "holds no sample"),
        (3, "give an .npz or .npy file"),
    ],
)
def test_what_is_no_sample_is_refused(given: Any, words: str) -> None:
    with pytest.raises(HalotileError) as caught:
        read_samples(given, [X])
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"no zip")
    np.save(tmp_path / "one.npy", np.ones(3))
    (tmp_path / "empty").mkdir()
    for path, inputs, words in (
        (tmp_path / "bad.npz", [X], "bad.npz can't be read"),
        (tmp_path / "absent.npz", [X], "absent.npz can't be read"),
        (tmp_path / "one.npy", [X, IDS], "give an .npz"),
        (tmp_path / "empty", [X], "no .npz and no .npy"),
    ):
        with pytest.raises(HalotileError, match=words):
            read_samples(path, inputs)

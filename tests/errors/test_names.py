"""Names that are awkward to print, to tell apart or to store: of tensors, of files, of folders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper
from small_models import WEIGHT


def subtract(a: str, b: str, y: str) -> ModelProto:
    """y = a - b, three numbers each."""
    vectors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in (a, b, y)]
    graph = helper.make_graph([helper.make_node("Sub", [a, b], [y])], "minus", vectors[:2], vectors[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_line_feed_in_a_name_stays_in_the_line(halotile, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(subtract("a\nb", "c", "y").SerializeToString())
    halotile("build", "m.onnx", "--shape", "q=3").refused("E300", "'q'", r"a\nb")


def test_a_name_that_begins_another_and_an_equals_sign(halotile, tmp_path: Path) -> None:
    """``-i x=y=FILE`` is the input x=y, for the command and for the program."""
    (tmp_path / "m.onnx").write_bytes(subtract("x", "x=y", "z").SerializeToString())
    outcome = halotile("build", "m.onnx", "-o", "lib", "--format", "so,exe")
    assert outcome.code == 0, outcome.err
    a, b = np.array([5, 6, 7], np.float32), np.array([1, 2, 4], np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    words = ["-i", "x=y=b.npy", "-i", "x=a.npy", "-o", "z=z.npy"]
    assert halotile("run", "lib", *words).code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), a - b)
    (tmp_path / "z.npy").unlink()
    subprocess.run([tmp_path / "lib" / "model_run", *words], cwd=tmp_path, check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), a - b)


def test_files_and_folders_whose_names_are_not_utf8(halotile, tmp_path: Path, tiny_model) -> None:
    odd = os.fsdecode(b"m\xff\xe9")
    (tmp_path / f"{odd}.onnx").write_bytes(tiny_model.SerializeToString())
    outcome = halotile("build", f"{odd}.onnx", "--format", "so", "--table")
    assert outcome.code == 0, outcome.err
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    outcome = halotile("run", f"out/{odd}", "-i", "x=x.npy", "-o", "y.npy")
    assert outcome.code == 0, outcome.err
    expected = np.maximum(np.ones((2, 4), np.float32) @ WEIGHT, 0)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5, atol=1e-6)
    halotile("build", f"{odd}2.onnx").refused("E100", r"m\udcff\udce92.onnx", "does not exist")

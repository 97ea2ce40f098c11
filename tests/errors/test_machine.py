"""Bad targets, tools and outputs: exit code 1, one line, nothing left."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def model(tmp_path, tiny_model) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(tiny_model.SerializeToString())
    return path


def test_unknown_target(halotile, model) -> None:
    halotile("build", model, "-t", "toaster").refused("E400", "toaster", "halotile targets list")


def test_misspelt_board(halotile, model) -> None:
    halotile("build", model, "-t", "raspbery-pi-4").refused("E400", "did you mean raspberry-pi-4")


def test_misspelt_cpu(halotile, model) -> None:
    halotile("build", model, "-t", "x86_64-linux-gnu+hasswell").refused(
        "E400", "hasswell", "did you mean haswell"
    )


def test_misspelt_feature(halotile, model) -> None:
    target = "x86_64-linux-gnu+haswell+avx513f"
    halotile("build", model, "-t", target).refused("E400", "avx513f", "did you mean avx512f")


def test_unknown_architecture(halotile, model) -> None:
    halotile("build", model, "-t", "z80-linux+generic").refused("E400", "z80")


def test_output_is_a_file(halotile, model, tmp_path) -> None:
    (tmp_path / "taken").write_text("mine")
    halotile("build", model, "-o", "taken").refused("E600", "taken", "is a file")
    assert (tmp_path / "taken").read_text() == "mine"


def test_output_is_a_link_to_nothing(halotile, model, tmp_path) -> None:
    (tmp_path / "out").symlink_to("nowhere")
    halotile("build", model, "-o", "out").refused("E600", "out", "a link to nothing")


def test_output_below_a_file(halotile, model, tmp_path) -> None:
    (tmp_path / "taken").write_text("mine")
    halotile("build", model, "-o", "taken/deeper").refused("E600", "taken")


def test_output_where_nobody_can_write(halotile, model) -> None:
    halotile("build", model, "-o", "/proc/halotile/out").refused("E600", "/proc")


def test_no_c_compiler(halotile, model, tmp_path) -> None:
    outcome = halotile("build", model, "-o", "lib", hide=("ziglang",), path=str(tmp_path / "nothing"))
    outcome.refused("E500", "no C compiler")


def test_a_compiler_that_is_no_command(halotile, model) -> None:
    halotile("build", model, "--cc", "gcc 'x").refused("E500", "can't be read", "no closing quotation")


def test_verify_without_onnxruntime(halotile, model) -> None:
    outcome = halotile("verify", model, hide=("onnxruntime",))
    outcome.refused("E500", "onnxruntime", "pip install")


def test_verify_of_another_machines_code(halotile, model) -> None:
    halotile("build", model, "-t", "armv7", "--verify").refused("E400", "--verify", "armv7")

"""A board's report: one file with what the machine is, what it can do at best, and times of models."""

from __future__ import annotations

import json
from pathlib import Path

import halotile.benchmarks.board_report as board
import halotile.benchmarks.cli as cli
import pytest
from click.testing import CliRunner
from halotile.benchmarks.peers.environment import PEERS


def test_what_the_system_says_is_taken_as_it_stands_and_what_it_does_not_is_left_out(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        place = tmp_path / board.FILES[name].lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    write("board", "Raspberry Pi 5 Model B Rev 1.0\0")
    write("governor", "ondemand\n")
    write("memory", "MemTotal:        8130032 kB\nMemFree:  1 kB\n")
    write("millidegrees", "\n")
    assert board.said(tmp_path) == {
        "board": "Raspberry Pi 5 Model B Rev 1.0", "governor": "ondemand", "memory": "MemTotal:        8130032 kB",
    }  # fmt: skip


def test_only_peers_that_are_there_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board.importlib.util, "find_spec", lambda name: object() if name == "openvino" else None)
    assert board.installed_peers() == ("openvino",)
    assert set(board.installed_peers()) <= set(PEERS)


def test_one_run_writes_one_file(tmp_path: Path) -> None:
    out = tmp_path / "board.json"
    arguments = ["-m", "espcn", "--small", "-j", "1", "-s", "0", "--peers", "", "--board-report", str(out)]
    done = CliRunner().invoke(cli.bench, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = json.loads(out.read_text())
    assert found["form"] == board.FORM and found["versions"]["halotile"]
    assert found["machine"]["taken_for"]["cpu"] and found["machine"]["hertz"] > 1e8
    assert found["limits"]["1"]["flops"] > 1e8 and found["limits"]["1"]["triads"][0]["bytes_a_second"] > 1e6
    (model,) = found["models"]
    assert model["model"] == "espcn" and model["engines"][0]["times"]["median"] > 0
    assert "kernels" not in model["build"] and found["afterwards"]["hertz"] > 1e8


@pytest.mark.parametrize("option", [["--markdown", "x.md"], ["--profile"], ["-o", "x.json"], ["--pareto"], ["--list"]])
def test_it_is_the_only_thing_that_is_written(option: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.bench, ["--board-report", str(tmp_path / "b.json"), *option])
    assert done.exit_code == 2 and "--board-report" in done.output


def test_a_folder_that_is_not_there_is_told_before_anything_runs(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.bench, ["--board-report", str(tmp_path / "none" / "b.json")])
    assert done.exit_code != 0 and "there is no folder" in str(done.exception)

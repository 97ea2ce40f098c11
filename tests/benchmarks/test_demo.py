from __future__ import annotations

import re
from pathlib import Path

import pytest
from halotile.benchmarks import demo


def test_demo_builds_checks_and_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert demo.main(tmp_path) == 0
    assert (tmp_path / "squeezenet" / "manifest.json").is_file()
    told = capfd.readouterr()
    assert "halotile build" in told.out and "halotile run" in told.out
    assert re.search(r"largest error +\S+ against onnx ?runtime", told.out + told.err, re.IGNORECASE), (
        told.err
    )


def test_demo_stops_at_the_command_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def fail(command: list[str]) -> int:
        ran.append(command[0])
        return 3

    monkeypatch.setattr(demo, "run", fail)
    assert demo.main(tmp_path) == 3
    assert ran == ["build"]

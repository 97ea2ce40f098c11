"""The commands of the page about boards, as they stand; an emulator behind ssh stands in for the board."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import onnx
from board_tools import COMMAND, PI5, cache_of_ones_own, needs, needs_zig

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "start" / "board.md").read_text(encoding="utf-8")


def test_from_onnx_to_a_c_program_on_a_raspberry_pi(tmp_path: Path, sshd, monkeypatch) -> None:
    needs("qemu-aarch64-static", "/usr/aarch64-linux-gnu/lib")
    needs_zig()
    monkeypatch.setenv("PATH", sshd.path)
    for name, value in cache_of_ones_own(tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    block = next(b for b in re.findall(r"^```sh\n(.*?)^```", PAGE, re.S | re.M) if "raspberrypi.local" in b)
    (tmp_path / "main.c").write_text(re.findall(r"^```c\n(.*?)^```", README, re.S | re.M)[0])
    squeezenet = next(Path(onnx.__file__).parent.rglob("light_squeezenet.onnx"))
    (tmp_path / "squeezenet.onnx").write_bytes(squeezenet.read_bytes())
    told = []
    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] in ("pip", "scp"):
            continue
        words = [f"{sshd.url} {PI5}" if word.startswith("ssh://") else word for word in words]
        if "bench" in words:
            words += ["--runs", "2", "--warmup", "0"]  # the emulator is slow
        command = [*COMMAND, *words[1:]] if words[0] == "halotile" else [sys.executable, *words[1:]]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, (line, done.stderr)
        told.append(done.stdout)
    assert len(told) == 4 and "1 output agrees" in told[1] and "milliseconds" in told[2]
    command = [*PI5.split(), "-L", "/usr/aarch64-linux-gnu", "./main"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout == "class 0 with 0.001000\n"


def test_the_page_names_what_a_build_makes(here: Path) -> None:
    table = PAGE.split("| file |")[1].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert named == {path.name.replace("net", "squeezenet") for path in here.iterdir()}

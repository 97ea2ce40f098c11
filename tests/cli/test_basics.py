"""The command line without compiling anything: help, exit codes, streams, speed."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from halotile.compiler.cli import console, main
from halotile.compiler.cli.console import columns, count, seconds, size
from small_models import tiny

COMMAND = [sys.executable, "-m", "halotile"]


def halotile(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, **options)


def test_help_lists_every_command_and_is_quick() -> None:
    best = min(_timed(*COMMAND, "--help") for _ in range(3))
    alone = min(_timed(sys.executable, "-c", "import click") for _ in range(3))
    assert best < 4 * alone  # nothing heavy is imported: it takes less than twice as long
    out = halotile("--help").stdout
    for name in ("build", "run", "verify", "inspect", "targets", "doctor", "bench"):
        assert f"\n  {name} " in out


def _timed(*command: str) -> float:
    """Seconds on a processor: what else the machine does counts less than with a clock, but not for nothing."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_version() -> None:
    import halotile as package

    assert halotile("--version").stdout == f"halotile {package.__version__}\n"


@pytest.mark.parametrize("command", ["build", "run", "verify", "inspect", "targets", "doctor"])
def test_each_command_has_help_without_tvm(command: str) -> None:
    code = (
        "import sys\nfor name in ('tvm', 'onnx', 'onnxruntime', 'numpy'): sys.modules[name] = None\n"
        f"from halotile.compiler.cli.main import run; sys.exit(run(['{command}', '--help']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: halotile {command}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["build"],
        ["build", "m.onnx", "--colour"],
        ["build", "m.onnx", "--threads", "0"],
        ["build", "m.onnx", "--threads", "many"],
        ["build", "m.onnx", "--stop-after", "breakfast"],
        ["build", "m.onnx", "--shape", "1,2,3"],
        ["build", "m.onnx", "--shape", "x=1,b:2"],
        ["build", "m.onnx", "--shape", "x=9..4"],
        ["build", "m.onnx", "--typical", "h"],
        ["build", "m.onnx", "--min-shapes", "x:1x2", "--max-shapes", "x:4"],
        ["build", "m.onnx", "--min-shapes", "x:1x2", "--shape", "x=1,2"],
        ["build", "m.onnx", "--shape", "x=1", "--shape", "x=2"],
        ["build", "m.onnx", "--float-mode", "loose"],
        ["verify", "m.onnx", "--rtol", "-1"],
        ["run", "lib", "--repeat", "0"],
        ["inspect", "m.onnx", "--memory-budget", "2MiB"],
        ["inspect", "m.onnx", "-j", "2"],
        ["inspect", "m.onnx", "--stop-after", "tile", "--svg", "t.svg"],
        ["inspect", "m.onnx", "--plan", "--explain"],
        ["inspect", "m.onnx", "--timeline", "--optimize", "memory"],
        ["bench", "m.onnx", "--runs", "7"],
        ["bench", "lib", "--profile"],
        ["bench", "m.onnx", "--seconds", "nan"],
        ["bench", "--pareto", "--peers", ""],
        ["targets", "paint"],
    ],
)
def test_usage_errors_exit_2_before_anything_heavy(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\nfor name in ('tvm', 'onnx', 'numpy', 'rich'): sys.modules[name] = None\n"
        f"from halotile.compiler.cli.main import run; sys.exit(run({arguments!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 2, done.stderr
    assert "Usage: halotile" in done.stderr and done.stdout == ""


def test_user_errors_come_before_anything_heavy(tmp_path: Path) -> None:
    """A missing model and a misspelt board are told without TVM, which takes most of a second to load."""
    (tmp_path / "m.onnx").write_bytes(b"x")
    for arguments, word in (
        (["build", "no.onnx"], "no.onnx"),
        (["build", "m.onnx", "-t", "rpi-44"], "rpi-44"),
    ):
        code = (
            "import sys\nfor name in ('tvm', 'onnx', 'rich'): sys.modules[name] = None\n"
            f"from halotile.compiler.cli.main import run; sys.exit(run({arguments!r}))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path
        )
        assert done.returncode == 1 and word in done.stderr


def test_errors_as_json(tmp_path: Path) -> None:
    done = halotile("build", "nowhere.onnx", "--json", cwd=tmp_path)
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 1 and error["code"] == "E100" and "nowhere.onnx" in error["message"]
    assert done.stderr == f"error[E100]: {error['message']}\n"


def test_targets_list_and_show() -> None:
    names = [t["id"] for t in json.loads(halotile("targets", "list", "--json").stdout)["targets"]]
    assert "raspberry-pi-4" in names and len(names) >= 18
    plain = halotile("targets", "list").stdout
    assert all(name in plain for name in names)
    shown = json.loads(halotile("targets", "show", "rpi4", "--json").stdout)
    assert shown["cpu"] == "cortex-a72" and shown["l2_bytes"] == 1024 * 1024
    assert "1.00 MiB" in halotile("targets", "show", "rpi4").stdout
    told = dict(line.split(None, 1) for line in halotile("targets", "show", "raspberry-pi-5+-crc").stdout.splitlines())
    assert "dotprod, fullfp16" in told["instructions"] and "crc" not in told["instructions"]
    assert told["features"].strip() == "-crc"


def test_facts_in_words() -> None:
    told = dict(line.split(None, 1) for line in halotile("targets", "show", "raspberry-pi-3").stdout.splitlines())
    assert (told["in_order"], told["bandwidth"], told["l2_bytes"]) == ("yes", "3.6 GB/s", "512.00 KiB")
    assert "hertz" not in told and "hertz" in halotile("targets", "show", "scratchpad").stdout
    assert not {"in_halves", "half_growth"} & told.keys()  # of a build, and not of the machine


def test_a_matrix_unit_is_a_fact() -> None:
    named = "x86_64-linux-gnu+sapphirerapids"
    for target, there in ((named, True), (f"{named}+-amx-tile", False)):
        assert json.loads(halotile("targets", "show", target, "--json").stdout)["matrix_unit"] is there
    told = dict(line.split(None, 1) for line in halotile("targets", "show", named).stdout.splitlines())
    assert told["matrix_unit"] == "yes"


def test_targets_detect() -> None:
    seen = json.loads(halotile("targets", "detect", "--json").stdout)
    assert seen["native"] and seen["cores"] >= 1 and seen["vector_bits"] >= 64


def test_inspect(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(tiny(("batch", 4)).SerializeToString())
    plain = halotile("inspect", "m.onnx", cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert "x: float32[batch, 4]" in plain.stdout and "MatMul" in plain.stdout and plain.stderr == ""
    data = json.loads(halotile("inspect", "m.onnx", "--shape", "x=3,4", "--json", cwd=tmp_path).stdout)
    assert data["macs"] == 60


def test_a_closed_pipe_is_quiet() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(COMMAND)} targets list | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() in ("0", "141")  # 0 when the reader was slower than us to leave
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", ["targets list", "targets list --json", "--version", "doctor -h"])
def test_output_that_is_full_or_closed(arguments: str) -> None:
    command = f"{' '.join(COMMAND)} {arguments}"
    full = subprocess.run(["bash", "-c", f"{command} > /dev/full"], capture_output=True, text=True, timeout=60)
    assert full.returncode == 1
    assert full.stderr == "error[E600]: can't write: No space left on device\n"
    closed = subprocess.run(["bash", "-c", f"{command} >&-"], capture_output=True, text=True, timeout=60)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_an_interrupt_is_clean(tmp_path: Path) -> None:
    """Ctrl-C while a command works: exit code 130, one word, no traceback."""
    code = (
        "import sys, time\nfrom halotile.compiler import api\n"
        "def slow(*a, **k):\n    print('started', flush=True)\n    time.sleep(60)\n"
        "api.inspect = slow\nfrom halotile.compiler.cli.main import entry\nentry()"
    )
    (tmp_path / "m.onnx").write_bytes(b"x")
    process = subprocess.Popen(
        [sys.executable, "-c", code, "inspect", "m.onnx"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip() == "interrupted"


def test_a_defect_of_ours_leaves_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    from halotile.compiler import api

    def broken(*_, **__):
        raise ValueError("seven is not prime\nsecond line")

    monkeypatch.setattr(api, "inspect", broken)
    monkeypatch.setattr("halotile.compiler.cli.failure.Progress.stage", None)  # of tests before this one
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "m.onnx").write_bytes(b"x")
    assert main.run(["inspect", str(tmp_path / "m.onnx")]) == 70
    err = capsys.readouterr().err
    assert err.startswith("error[E900]: internal error: ValueError: seven is not prime; the report is in ")
    assert "Traceback" not in err
    report = next(tmp_path.glob("halotile-error-*.txt"))
    assert str(report) in err
    text = report.read_text()
    assert "Traceback" in text and "second line" in text and "apache-tvm" in text and "inspect" in text


def test_debug_shows_the_traceback(tmp_path: Path, capsys) -> None:
    assert main.run(["--debug", "inspect", str(tmp_path / "none.onnx")]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_every_error_class_has_its_own_stable_code() -> None:
    from halotile import errors

    family = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.HalotileError)]
    codes = {c.__name__: (c.code, c.exit_code) for c in family}
    assert codes == {
        "HalotileError": ("E000", 1),
        "BudgetError": ("E000", 1),  # as such errors had before they told the least
        "ModelError": ("E100", 1),
        "UnsupportedError": ("E200", 1),
        "ShapeError": ("E300", 1),
        "TargetError": ("E400", 1),
        "ToolchainError": ("E500", 1),
        "OutputError": ("E600", 1),
        "RunError": ("E700", 1),
        "RemoteError": ("E750", 1),
        "VerificationError": ("E800", 3),
        "InternalError": ("E900", 70),
    }


def test_numbers_in_words() -> None:
    assert [size(n) for n in (0, 1023, 1024, 5 * 1024**2)] == ["0 B", "1023 B", "1.00 KiB", "5.00 MiB"]
    assert [count(n) for n in (12, 1500, 349_151_936)] == ["12", "1.5 k", "349 M"]
    assert [seconds(s) for s in (0.0121, 2.5)] == ["12 ms", "2.50 s"]
    assert columns([("a", "bbb", "c"), ("dd", "e", "f")]) == "a   bbb  c\ndd  e    f"
    assert os.linesep == "\n"


def test_json_has_no_words_of_its_own(capsys) -> None:
    console.emit_json({"a": float("inf"), "b": [float("nan"), 1.5], "c": {"d": (1, 2)}, "e": Path("x")})
    out = capsys.readouterr().out
    assert json.loads(out, parse_constant=pytest.fail) == {
        "a": "inf",
        "b": ["nan", 1.5],
        "c": {"d": [1, 2]},
        "e": "x",
    }

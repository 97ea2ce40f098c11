"""``build``, ``run``, ``verify`` and ``inspect --stop-after`` on real builds of small models."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import run_command
from halotile.compiler import pipeline
from halotile.compiler.cli import build as build_command
from halotile.compiler.cli import inspect as inspect_command
from onnx import TensorProto, helper, numpy_helper
from small_models import WEIGHT, tiny

COMMAND = [sys.executable, "-m", "halotile.compiler.cli"]


def halotile(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_command(arguments, cwd, {**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.onnx").write_bytes(tiny().SerializeToString())
    return tmp_path


def two_by_two() -> onnx.ModelProto:
    """(a, b) -> (sum, difference): several inputs and outputs, names that are no identifiers."""
    a, b = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("in.put/0", "b=c"))
    s, d = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("sum", "dif:0"))
    nodes = [
        helper.make_node("Add", ["in.put/0", "b=c"], ["sum"]),
        helper.make_node("Sub", ["in.put/0", "b=c"], ["dif:0"]),
    ]
    graph = helper.make_graph(nodes, "two", [a, b], [s, d])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_stages_are_the_pipelines() -> None:
    assert build_command.STAGES == pipeline.STAGES
    assert inspect_command.STAGES == pipeline.STAGES[: len(inspect_command.STAGES)]


def test_build_writes_a_whole_library_and_nothing_else(folder: Path) -> None:
    done = halotile("build", "tiny.onnx", "-o", "lib", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "lib\n"
    assert sorted(p.name for p in folder.iterdir()) == ["lib", "tiny.onnx"]
    assert sorted(p.name for p in (folder / "lib").iterdir()) == [
        "libtiny.a", "libtiny.so", "main.c", "manifest.json", "model_run", "tiny.cmake", "tiny.h", "tiny.pc",
    ]  # fmt: skip


def test_default_output_and_name(folder: Path) -> None:
    assert halotile("build", "tiny.onnx", "--name", "Small One", cwd=folder).returncode == 0
    assert (folder / "out" / "tiny" / "libSmall_One.so").is_file()


def test_build_json_has_the_promised_report(folder: Path) -> None:
    done = halotile("build", "tiny.onnx", "-o", "lib", "--json", "--threads", "2", cwd=folder)
    assert done.returncode == 0 and done.stderr == ""
    report = json.loads(done.stdout)
    assert report["output"] == "lib" and report["threads"] == 2
    assert report["operators_before"] == {"MatMul": 1, "Relu": 1}
    assert report["macs"] == 40 and report["weight_bytes"] >= 80
    assert isinstance(report["arena_bytes"], int)
    assert set(pipeline.STAGES) <= set(report["seconds"])
    for kernel in report["kernels"]:
        assert {"name", "operators", "schedule", "flops", "bytes"} <= kernel.keys()
    check = report["verification"]
    assert check["ok"] and check["reference"].startswith("ONNX Runtime") and check["inputs"] == "random"


def test_a_cross_build_says_that_nothing_was_compared(folder: Path) -> None:
    other = "aarch64" if platform.machine() == "x86_64" else "x86-64-v2"
    words = ["build", "tiny.onnx", "-t", other, "-o", "lib", "--format", "a"]
    if not importlib.util.find_spec("ziglang"):
        pytest.skip("NOT RUN: needs ziglang (pip install ziglang)")
    done = halotile(*words, cwd=folder)
    told = [line for line in done.stderr.splitlines() if "not compared" in line]
    assert done.returncode == 0 and len(told) == 1 and "--on PLACE" in told[0] and other in told[0]
    assert "not compared" not in halotile(*words, "--no-verify", cwd=folder).stderr


def test_the_table_is_for_terminals(folder: Path) -> None:
    piped = halotile("build", "tiny.onnx", "-o", "lib", "-v", cwd=folder)
    stages = [line.split("] ")[1].split()[0] for line in piped.stderr.splitlines() if line.startswith("[")]
    assert stages[0] == "import" and stages[-1] == "verify"  # progress, and no table
    assert "multiply-adds" not in piped.stderr
    assert halotile("build", "tiny.onnx", "-o", "lib", "-q", cwd=folder).stderr == ""
    text = on_a_terminal(["build", "tiny.onnx", "-o", "lib"], folder)
    for word in (
        "nodes of the model",
        "kernels made of them",
        "multiply-adds",
        "weights",
        "arena",
        "largest error",
        "time, link",
    ):
        assert word in text
    assert "\x1b[1m" in text
    plain = on_a_terminal(["build", "tiny.onnx", "-o", "lib"], folder, NO_COLOR="1")
    assert "kernels made of them" in plain and "\x1b[3" not in plain


def on_a_terminal(arguments: list[str], folder: Path, **environment: str) -> str:
    """What a command writes to a terminal on stderr; stdout goes elsewhere."""
    ours, theirs = pty.openpty()
    full = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "OMP_NUM_THREADS": "1", **environment}
    for name in ("NO_COLOR", "CI", "FORCE_COLOR"):
        if name not in environment:
            full.pop(name, None)
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        env=full,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        seen += chunk
    os.close(ours)
    assert process.wait(timeout=240) == 0, seen
    return seen.decode()


def test_table_on_request_without_a_terminal(folder: Path) -> None:
    done = halotile("build", "tiny.onnx", "-o", "lib", "--table", "--no-verify", cwd=folder)
    assert "kernels made of them" in done.stderr and "not compared" in done.stderr and "\x1b" not in done.stderr
    assert done.stdout == "lib\n"


def test_explain_names_every_kernel(folder: Path) -> None:
    done = halotile("build", "tiny.onnx", "-o", "lib", "--explain", cwd=folder)
    kernels = json.loads((folder / "lib" / "manifest.json").read_text())["report"]["kernels"]
    assert kernels and all(k["name"] in done.stdout for k in kernels)
    assert "schedule" in done.stdout and "words of schedules:" in done.stdout


def test_inspect_explains_without_compiling(folder: Path) -> None:
    built = halotile("build", "tiny.onnx", "-o", "explained", "--explain", "--no-verify", cwd=folder)
    done = halotile("inspect", "tiny.onnx", "--explain", cwd=folder)
    assert done.returncode == 0 and done.stdout.count("  schedule  ") >= 1
    assert done.stdout.strip() in built.stdout


def test_stop_after_builds_nothing(folder: Path) -> None:
    done = halotile("build", "tiny.onnx", "--stop-after", "simplify", "--json", cwd=folder)
    report = json.loads(done.stdout)
    assert report["output"] is None and list(report["seconds"]) == ["import", "simplify"]
    assert [p.name for p in folder.iterdir()] == ["tiny.onnx"]


def test_verify_of_a_build_that_stops_early_is_a_usage_error(folder: Path) -> None:
    done = halotile("build", "tiny.onnx", "--stop-after", "fuse", "--verify", cwd=folder)
    assert done.returncode == 2 and "--verify" in done.stderr


def test_dump_ir_has_every_stage(folder: Path) -> None:
    assert halotile("build", "tiny.onnx", "-o", "lib", "--dump-ir", "ir", cwd=folder).returncode == 0
    names = " ".join(sorted(p.name for p in (folder / "ir").iterdir()))
    for stage in ("import", "simplify", "fuse", "schedule"):
        assert stage in names


def test_open_dimensions_fixed_on_the_command_line(folder: Path) -> None:
    (folder / "open.onnx").write_bytes(tiny(("batch", 4)).SerializeToString())
    assert halotile("build", "open.onnx", "-o", "lib", "--shape", "x=5,4", cwd=folder).returncode == 0
    done = halotile("run", "lib", "--json", cwd=folder)
    assert json.loads(done.stdout)["outputs"][0]["shape"] == [5, 5]


def test_a_second_build_replaces_the_first(folder: Path) -> None:
    assert halotile("build", "tiny.onnx", "-o", "lib", "--name", "first", cwd=folder).returncode == 0
    (folder / "lib" / "notes.txt").write_text("mine")
    assert halotile("build", "tiny.onnx", "-o", "lib", "--name", "second", cwd=folder).returncode == 0
    assert sorted(p.name for p in (folder / "lib").iterdir()) == [
        "libsecond.a", "libsecond.so", "main.c", "manifest.json", "model_run", "notes.txt", "second.cmake",
            "second.h", "second.pc",
    ]  # fmt: skip


def test_a_failed_build_leaves_the_earlier_library(folder: Path) -> None:
    assert halotile("build", "tiny.onnx", "-o", "lib", cwd=folder).returncode == 0
    before = {p.name: p.read_bytes() for p in (folder / "lib").iterdir()}
    (folder / "broken.onnx").write_bytes(tiny(weight=np.zeros((3, 5), np.float32)).SerializeToString())
    assert halotile("build", "broken.onnx", "-o", "lib", cwd=folder).returncode == 1
    assert {p.name: p.read_bytes() for p in (folder / "lib").iterdir()} == before
    assert sorted(p.name for p in folder.iterdir()) == ["broken.onnx", "lib", "tiny.onnx"]


def test_a_wrong_library_is_not_written(folder: Path) -> None:
    """The check fails: exit code 3, the output is told, and neither the folder nor a remnant is there."""
    code = (
        "import sys, numpy as np\n"
        "from halotile.compiler import verify\n"
        "real = verify.Reference.__call__\n"
        "def off(self, arrays, seed):\n    return {k: v + np.float32(1) for k, v in real(self, arrays, seed).items()}\n"
        "verify.Reference.__call__ = off\n"
        "from halotile.compiler.cli.main import entry\nentry()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "build", "tiny.onnx", "-o", "deep/er/lib", "-q"],
        cwd=folder, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith("error[E800]: output 'y' differs") and "nothing was written" in done.stderr
    assert [p.name for p in folder.iterdir()] == ["tiny.onnx"]


def started(folder: Path, pipeline: str, output: str, **environment: str) -> subprocess.Popen[str]:
    """A build of tiny.onnx whose ``run_pipeline`` is the ``work`` that ``pipeline`` defines; it has said 'started'. It
    heeds SIGHUP, also where the tests run under nohup."""
    code = (
        f"from halotile.compiler import pipeline\n{pipeline}"
        "pipeline.run_pipeline = work\nfrom halotile.compiler.cli.main import entry\nentry()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "build", "tiny.onnx", "-o", output],
        cwd=folder, env={**os.environ, **environment}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    return process


def interrupted(process: subprocess.Popen[str], number: int) -> tuple[int, str]:
    """Exit code and stderr after the signal ``number``."""
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_between_instructions_is_one_line(folder: Path, number: int, code: int) -> None:
    """Where Python sees the signal at once, the exception passes through click, which must add nothing of its own."""
    waiting = (
        "import time\n"
        "def work(model, options, progress, output):\n"
        "    print('started', flush=True)\n"
        "    while True: time.sleep(0.01)\n"
    )
    assert interrupted(started(folder, waiting, "lib"), number) == (code, "interrupted\n")
    assert not (folder / "lib").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_never_unloads_a_module_that_is_half_imported(folder: Path, number: int, code: int) -> None:
    """TVM's modules crash the interpreter when that happens."""
    (folder / "half.py").write_text(
        "import os, time\n"
        "print('started', flush=True)\n"
        "try:\n    time.sleep(60)\nexcept BaseException:\n    os._exit(7)\n"
    )
    importing = "def work(model, options, progress, output):\n    import half\n"
    assert interrupted(started(folder, importing, "deep/er/lib"), number) == (code, "interrupted\n")
    assert not (folder / "deep").exists()


def test_a_signal_in_the_middle_of_a_write_ends_the_command(folder: Path) -> None:
    """The stream can't be flushed from there; that must not bring the command back into a module half imported."""
    (folder / "half.py").write_text(
        "import io, os, signal, sys\n"
        "class Raw(io.RawIOBase):\n"
        "    def writable(self):\n        return True\n"
        "    def write(self, data):\n        os.kill(os.getpid(), signal.SIGTERM)\n        return len(data)\n"
        "print('started', flush=True)\n"
        "sys.stdout = io.TextIOWrapper(io.BufferedWriter(Raw()))\n"
        "try:\n    print('more', flush=True)\nexcept BaseException:\n    os._exit(7)\n"
    )
    process = started(folder, "def work(model, options, progress, output):\n    import half\n", "lib")
    assert process.communicate(timeout=60)[1] == "interrupted\n" and process.returncode == 143


def test_an_end_that_takes_long_is_told_once(folder: Path) -> None:
    """The thread that watches loses patience with the one that cleans up, and cleans up as well."""
    (folder / "half.py").write_text("import time\nprint('started', flush=True)\ntime.sleep(60)\n")
    slow = (
        "import time\nfrom halotile.compiler.cli import interrupt\n"
        "interrupt.GRACE_SECONDS = 0.1\n"
        "interrupt._sweeps.append(lambda: time.sleep(0.5))\n"
        "real, interrupt.os._exit = interrupt.os._exit, lambda code: (time.sleep(1), real(code))\n"
        "def work(model, options, progress, output):\n    import half\n"
    )
    assert interrupted(started(folder, slow, "lib"), signal.SIGTERM) == (143, "interrupted\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupt_ends_even_a_call_that_never_returns(folder: Path, number: int, code: int) -> None:
    """LLVM can't be interrupted from Python; the key derivation stands in for it. All folders are gone afterwards."""
    blocking = (
        "import sys, hashlib, tempfile\n"
        "def work(model, options, progress, output):\n"
        "    output.mkdir()\n    (output / 'half').write_text('half')\n    tempfile.mkdtemp()\n"
        "    print('started', flush=True)\n    hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)\n"
    )
    (folder / "tmp").mkdir()
    process = started(folder, blocking, "deep/er/lib", TMPDIR=str(folder / "tmp"))
    assert (folder / "deep" / "er").is_dir()
    assert interrupted(process, number) == (code, "interrupted\n")
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*")) == ["tiny.onnx", "tmp"]


def test_an_interrupted_build_leaves_an_existing_folder_as_it_was(folder: Path) -> None:
    """There the stage stands in the folder itself."""
    (folder / "lib").mkdir()
    (folder / "lib" / "mine").write_text("mine")
    blocking = (
        "import hashlib\n"
        "def work(model, options, progress, output):\n"
        "    output.mkdir()\n    print('started', flush=True)\n    hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)\n"
    )
    process = started(folder, blocking, "lib")
    assert len(list((folder / "lib").iterdir())) == 2
    assert interrupted(process, signal.SIGTERM) == (143, "interrupted\n")
    assert [p.name for p in (folder / "lib").iterdir()] == ["mine"]


def test_verify_command(folder: Path) -> None:
    fresh = halotile("verify", "tiny.onnx", cwd=folder)
    assert fresh.returncode == 0 and "agree" in fresh.stdout, fresh.stderr
    assert halotile("build", "tiny.onnx", "-o", "lib", "--no-verify", cwd=folder).returncode == 0
    built = halotile("verify", "tiny.onnx", "lib", "--json", "--seed", "3", cwd=folder)
    data = json.loads(built.stdout)
    assert data["ok"] and data["seed"] == 3 and data["outputs"][0]["name"] == "y"


def test_verify_against_another_model_fails_with_3(folder: Path) -> None:
    assert halotile("build", "tiny.onnx", "-o", "lib", cwd=folder).returncode == 0
    (folder / "other.onnx").write_bytes(tiny(weight=WEIGHT * 2).SerializeToString())
    done = halotile("verify", "other.onnx", "lib", cwd=folder)
    assert done.returncode == 3 and "DIFFERS" in done.stdout and "output 'y' differs" in done.stdout
    np.save(folder / "x.npy", np.zeros((2, 4), np.float32))
    given = halotile("verify", "other.onnx", "lib", "-i", "x=x.npy", "--json", cwd=folder)
    assert given.returncode == 0 and json.loads(given.stdout)["inputs"] == "given"


def test_run_with_several_inputs_and_outputs(folder: Path) -> None:
    (folder / "two.onnx").write_bytes(two_by_two().SerializeToString())
    assert halotile("build", "two.onnx", "-o", "lib", cwd=folder).returncode == 0
    a, b = np.float32([1, 2, 3]), np.float32([10, 20, 30])
    np.save(folder / "a.npy", a)
    np.save(folder / "b.npy", b)
    done = halotile(
        "run",
        "lib",
        "-i",
        "in.put/0=a.npy",
        "-i",
        "b=c=b.npy",
        "-o",
        "sum=s.npy",
        "-o",
        "dif:0=d.npy",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "s.npy\nd.npy\n" and "random" not in done.stderr
    assert np.load(folder / "s.npy").tolist() == [11, 22, 33]
    assert np.load(folder / "d.npy").tolist() == [-9, -18, -27]
    np.savez(folder / "in.npz", **{"in.put/0": a, "b=c": b})
    assert halotile("run", "lib", "-i", "in.npz", "-o", "out.npz", cwd=folder).returncode == 0
    assert np.load(folder / "out.npz")["sum"].tolist() == [11, 22, 33]


def test_run_says_when_inputs_are_random(folder: Path) -> None:
    assert halotile("build", "tiny.onnx", "-o", "lib", cwd=folder).returncode == 0
    done = halotile("run", "lib", "-o", "y.npy", "--seed", "5", cwd=folder)
    assert "random values for x: float32[2, 4] (seed 5)" in done.stderr
    first = np.load(folder / "y.npy")
    halotile("run", "lib", "-o", "y.npy", "--seed", "5", cwd=folder)
    assert (np.load(folder / "y.npy") == first).all()
    described = json.loads(halotile("run", "lib", "--repeat", "3", "--json", cwd=folder).stdout)
    assert described["random_inputs"] == ["x"] and described["runs"] == 3 and described["seconds"] > 0
    assert described["outputs"][0] | {"min": 0, "mean": 0, "max": 0} == {
        "name": "y", "dtype": "float32", "shape": [2, 5], "min": 0, "mean": 0, "max": 0,
    }  # fmt: skip


def test_inspect_after_simplify_lists_operators(folder: Path) -> None:
    (folder / "m.onnx").write_bytes(with_identity().SerializeToString())
    data = json.loads(halotile("inspect", "m.onnx", "--stop-after", "simplify", "--json", cwd=folder).stdout)
    assert data["nodes_before"] == 3 and data["nodes_after"] == len(data["operators"]) < 3
    for operator in data["operators"]:
        assert {"name", "operator", "inputs", "outputs", "attributes"} <= operator.keys()
    text = halotile("inspect", "m.onnx", "--stop-after", "simplify", cwd=folder).stdout
    assert "nodes of the model" in text and "operators after simplify" in text and "matmul" in text


def test_inspect_takes_open_dimensions_and_checks_rewrites(folder: Path) -> None:
    model = with_identity()
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    (folder / "open.onnx").write_bytes(model.SerializeToString())
    data = json.loads(halotile("inspect", "open.onnx", "--check", "--json", cwd=folder).stdout)
    details = data["details"]["simplify"]
    assert details["checked"] >= 1 and details["unchecked"] == 0 and details["applied"] == {"neutral-element": 1}
    assert data["operators"][0]["inputs"][0] == "float32[batch, 4]"
    text = halotile("inspect", "open.onnx", "--check", "--float-mode", "exact", cwd=folder).stdout
    assert "simplify (exact): 1 rewrites by 1 rules; 1 checked on numbers" in text
    wrong = halotile("inspect", "open.onnx", "--check", "--stop-after", "import", cwd=folder)
    assert wrong.returncode == 2 and "--check" in wrong.stderr
    fused = halotile("inspect", "open.onnx", "--stop-after", "fuse", cwd=folder)
    assert fused.returncode == 0 and "relu" in fused.stdout
    needs = halotile("build", "open.onnx", "-o", "fixed", "--memory-budget", "1KB", cwd=folder)
    assert needs.returncode == 1 and "--shape" in needs.stderr and "Traceback" not in needs.stderr
    assert not (folder / "fixed").exists()


def with_identity() -> onnx.ModelProto:
    """y = relu(x @ w) * 1"""
    model = tiny()
    model.graph.node[1].output[0] = "h2"
    model.graph.node.append(helper.make_node("Mul", ["h2", "one"], ["y"]))
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1]), "one"))
    return model


def test_doctor_finds_everything_here(folder: Path) -> None:
    done = halotile("doctor", "--json", cwd=folder)
    data = json.loads(done.stdout)
    assert done.returncode == 0 and data["ok"], data
    assert {"Python", "TVM", "ONNX", "C compiler", "native target", "round trip"} <= {
        c["name"] for c in data["checks"]
    }
    assert "ok" in halotile("doctor", cwd=folder).stdout

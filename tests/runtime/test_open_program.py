"""Programs of models whose runs choose sizes: the example beside a library, model_run here and on boards, and the
commands that run one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from board_tools import halotile, needs
from c_programs import STRICT, run
from halotile.compiler.codegen.library import build_library
from halotile.compiler.model import load as halotile_load
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.runtime.loader import load
from halotile.compiler.sized import compared_sizes, verify_at, verify_built
from halotile.errors import RemoteError, RunError
from onnx import TensorProto, helper, numpy_helper, save

F = np.float32


@pytest.fixture(scope="module")
def folder(open_spec, tmp_path_factory):
    place = tmp_path_factory.mktemp("open") / "out"
    return build_library(open_spec, place, formats=("so", "a", "exe", "extras")).directory


@pytest.fixture
def files(tmp_path, open_reference):
    """x.npy and m.npy of 3 by 6, what comes of them, and an m of another width."""
    rng = np.random.default_rng(1)
    x, m = rng.standard_normal((3, 6, 3)).astype(F), rng.standard_normal(6).astype(F)
    for name, array in {"x": x, "m": m, "y": open_reference(x, m), "wide": np.ones(8, F)}.items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def program(folder: Path, *words: object, cwd: Path, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*prefix, str(folder / "model_run"), *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("flags", [("-L.", "-lopen_net", "-Wl,-rpath,$ORIGIN"), ("libopen_net.a", "-pthread", "-lm")])
def test_the_example_runs_at_any_size(folder, flags, cc, tmp_path):
    shutil.copytree(folder, tmp_path / "out")
    run(cc, "-std=c89", *STRICT, "main.c", *flags, "-o", "main", cwd=tmp_path / "out")
    main = tmp_path / "out" / "main"
    assert run(main) == "y: float32[4, 21], 84 elements: 3 3 3 3 3 3 3 3\n"
    assert run(main, 2, 0) == "y: float32[2, 1], 2 elements: 0 1\n"
    done = subprocess.run([main, "2", "3"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "open_net: width is 3, and must be a multiple of 2 (Conv 'c' has stride 2)\n"


def test_describe_tells_sizes_and_formulas(folder, tmp_path):
    lines = program(folder, "--describe", "--size", "batch=7", cwd=tmp_path).stdout.splitlines()
    assert lines[1:] == [
        "weights 0 bytes, arena 448 bytes",
        "size batch: from 1 to 64, typically 4, here 7",
        "size width: a multiple of 2 (Conv 'c' has stride 2), typically 10",
        "input x: float32[batch, width, 3] = [7, 10, 3], 840 bytes",
        "input m: float32[width] = [10], 40 bytes",
        "output y: float32[batch, 2*width + 1] = [7, 21], 588 bytes",
    ]
    told = json.loads(program(folder, "--describe", "--json", cwd=tmp_path).stdout)
    assert told["symbols"][0] == {
        "name": "batch", "low": 1, "high": 64, "multiple": 1, "typical": 4, "size": 4, "why": "",
    }  # fmt: skip
    assert told["outputs"] == [
        {"name": "y", "dtype": "float32", "shape": [4, 21], "dims": ["batch", "2*width + 1"], "bytes": 336}
    ]


def test_files_say_the_sizes(folder, files):
    words = ("-i", "x=x.npy", "-i", "m=m.npy", "-o", "out.npy", "--expect", "y.npy", "--threads", "3")
    done = program(folder, *words, cwd=files)
    assert done.returncode == 0, done.stderr
    assert "y agrees: largest error 0," in done.stdout
    assert np.array_equal(np.load(files / "out.npy"), np.load(files / "y.npy"))
    np.load(files / "m.npy").tofile(files / "m.bin")
    done = program(folder, "-i", "x=x.npy", "-i", "m=m.bin", "--expect", "y.npy", cwd=files)
    assert done.returncode == 0, done.stdout
    done = program(folder, "--size", "width=14", "--size", "batch=5", "--json", "--bench", "--runs", "2", cwd=files)
    told = json.loads(done.stdout)
    assert told["outputs"][0]["shape"] == [5, 29] and [s["size"] for s in told["symbols"]] == [5, 14]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-i", "x=x.npy", "-i", "m=wide.npy"], 1, "wide.npy: by its shape, width is 8, and by that of x.npy it is 6"),
        (["-i", "x=x.npy", "--size", "width=8"], 1, "x.npy: by its shape, width is 6, and --size says 8"),
        (["-i", "m=x.npy"], 1, "x.npy: its shape is (3, 6, 3), 'm' has (10,)"),
        (["--size", "batch=65"], 1, "batch is 65, and must be from 1 to 64"),
        (["--size", "width=5000000000"], 1, "width is 5000000000, and kernels count to 2147483646"),
        (["--size", "width=1000000000"], 1, "a tensor would have more than 2147483647 elements at this shape"),
        (
            ["--size", "widht=8"],
            2,
            "--size widht=8: give NAME=N with the name of an open dimension; --describe lists them",
        ),
        (["--size", "width=8x"], 2, "--size width=8x: give a whole number"),
    ],
)
def test_what_can_not_be_is_one_line(folder, files, words, code, said):
    done = program(folder, *words, cwd=files)
    assert (done.returncode, done.stderr) == (code, f"model_run: {said}\n")


def test_an_elsewhere_takes_arrays_of_any_size(folder, open_reference):
    with RemoteModel(folder, "env") as model:
        assert [s.name for s in model.symbols] == ["batch", "width"]
        assert model.input_shapes(batch=2) == {"x": (2, 10, 3), "m": (10,)}
        for batch, width in [(1, 0), (7, 26), (64, 102)]:
            x, m = np.ones((batch, width, 3), F), np.arange(width, dtype=F)
            assert np.array_equal(model({"x": x, "m": m})["y"], open_reference(x, m))
        with pytest.raises(RunError, match=r"input 'm' has shape \(8\), expected \(width\): width is 6 in input 'x'"):
            model({"x": np.ones((2, 6, 3), F), "m": np.ones(8, F)})
        with pytest.raises(RunError, match="batch is 0, and must be from 1 to 64"):
            model({"x": np.ones((0, 6, 3), F), "m": np.ones(6, F)})
        with pytest.raises(RunError, match=r"input 'x' is float32\[2, 6, 2\], expected x: float32\[batch, width, 3\]"):
            model({"x": np.ones((2, 6, 2), F), "m": np.ones(6, F)})
        with pytest.raises(RemoteError, match="on env: width is 3, and must be a multiple of 2"):
            model.bench(1, 0, 1, sizes={"width": 3})


@pytest.mark.parametrize(
    ("triple", "emulator"),
    [("aarch64-linux-gnu", "qemu-aarch64-static"), ("armv7l-linux-gnueabihf", "qemu-arm-static")],
)
def test_boards_of_64_and_32_bits(triple, emulator, open_spec, open_source, files):
    needs(emulator)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", triple.replace("v7l", "")]
    (files / "kernel.c").write_text(open_source)
    run(*zig, "-c", "-O1", "-fPIC", "kernel.c", "-o", "kernel.o", cwd=files)
    target = replace(open_spec.target, id="board", triple=triple)
    spec = replace(open_spec, object_bytes=(files / "kernel.o").read_bytes(), target=target)
    built = build_library(spec, files / "out", formats=("exe",))
    words = ("-i", "x=x.npy", "-i", "m=m.npy", "--expect", "y.npy", "--threads", "2")
    done = program(built.directory, *words, cwd=files, prefix=(emulator,))
    assert done.returncode == 0 and "agrees" in done.stdout, done.stderr
    done = program(built.directory, "--size", "width=2147483646", "--size", "batch=1", cwd=files, prefix=(emulator,))
    assert done.stderr == "model_run: a tensor would have more than 2147483647 elements at this shape\n"


def twin() -> object:
    """The ONNX model that the kernel in C computes."""
    node, end = helper.make_node, np.iinfo(np.int64).min
    constants = {"last": [2], "one": [1], "minus": [-1], "from": [-1], "to": [end], "zero": 0, "step": 1}
    nodes = [
        node("ReduceSum", ["x", "last"], ["sums"], keepdims=0),
        node("Mul", ["sums", "m"], ["stage"]),
        node("Slice", ["stage", "from", "to", "one", "minus"], ["turned"]),
        node("Shape", ["x"], ["batches"], start=0, end=1),
        node("Squeeze", ["batches"], ["batch_count"]),
        node("Range", ["zero", "batch_count", "step"], ["rows"]),
        node("Cast", ["rows"], ["numbers"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["numbers", "one"], ["column"]),
        node("Concat", ["stage", "turned", "column"], ["y"], axis=1),
    ]
    sides = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "width", 3]),
        helper.make_tensor_value_info("m", TensorProto.FLOAT, ["width"]),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(np.asarray(value, np.int64), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "open", sides, [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("on", [(), ("--on", "env")])
def test_commands_take_sizes(folder, files, on):
    """run, verify and bench: by files, by --size, and at the typical ones."""
    done = halotile("run", folder, "-i", "x=x.npy", "-i", "m=m.npy", "-o", "out.npy", *on, cwd=files)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(files / "out.npy"), np.load(files / "y.npy"))
    done = halotile("run", folder, "-i", "x=x.npy", "--size", "batch=3", "--json", *on, cwd=files)
    told = json.loads(done.stdout)
    assert told["sizes"] == {"batch": 3, "width": 6} and told["outputs"][0]["shape"] == [3, 13]
    assert told["random_inputs"] == ["m"]
    np.load(files / "x.npy").tofile(files / "x.bin")
    words = ("-i", "x=x.bin", "-i", "m=m.npy", "-o", "plain.npy")
    done = halotile("run", folder, *words, "--size", "batch=3,width=6", *on, cwd=files)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(files / "plain.npy"), np.load(files / "y.npy"))
    done = halotile("run", folder, *words, *on, cwd=files)
    assert done.returncode == 1 and "shape is not known; give a .npy file, which says it, or --size" in done.stderr
    save(twin(), files / "twin.onnx")
    for words in ((), ("--size", "batch=61,width=34"), ("-i", "x=x.npy")):
        done = halotile("verify", "twin.onnx", folder, *words, *on, "--json", cwd=files)
        assert done.returncode == 0, done.stderr + done.stdout
    assert "batch is 3 in the inputs that were given, and 2 was asked for" in halotile(
        "run", folder, "-i", "x=x.npy", "--size", "batch=2", *on, cwd=files
    ).stderr  # fmt: skip
    done = halotile("run", folder, "--size", "depth=2", *on, cwd=files)
    assert done.returncode == 1 and "no open dimension 'depth'; it has 'batch', 'width'" in done.stderr
    done = halotile("run", folder, "--size", "batch", *on, cwd=files)
    assert done.returncode == 2 and "'batch' is not of the form name=720" in done.stderr


def test_a_build_is_compared_at_typical_and_at_odd_sizes(folder, open_spec, open_source, tmp_path):
    """A kernel that is wrong at three rows passes at the typical four, and is found."""
    typical, odd = {"batch": 4, "width": 10}, {"batch": 3, "width": 6}
    with load(folder) as model:
        assert compared_sizes(model) == [odd, typical]
        result = verify_built(model, twin(), dropped=None)
        assert result.ok and result.sizes == {"batch": 4, "width": 10}
        assert "with ONNX Runtime" in result.message() and " at batch 4, width 10, largest" in result.message()
        assert result.data()["sizes"] == result.sizes
    with halotile_load(folder) as model:
        assert model.verify(model=twin()).sizes == {"batch": 4, "width": 10}
        assert model.verify(model=twin(), shape={"width": 34}).sizes == {"batch": 4, "width": 34}
        x = np.ones((7, 2, 3), F)
        assert model.verify({"x": x}, model=twin()).sizes == {"batch": 7, "width": 2}
        with pytest.raises(RunError, match="batch is 7 in the inputs that were given, and 2 was asked for"):
            model.verify({"x": x}, model=twin(), shape={"batch": 2})
        assert model.symbols[0].name == "batch" and model.input_shapes(batch=2)["x"] == (2, 10, 3)
    wrong = open_source.replace("s[w] = (float)b;", "s[w] = (float)b + (float)(c->batch == 3);")
    (tmp_path / "kernel.c").write_text(wrong)
    run("cc", "-c", "-O1", "-fPIC", "kernel.c", cwd=tmp_path)
    spec = replace(open_spec, object_bytes=(tmp_path / "kernel.o").read_bytes())
    with load(build_library(spec, tmp_path / "wrong").directory) as model:
        assert verify_at(model, twin(), {}, {"batch": 5}, dropped=None).ok
        result = verify_built(model, twin(), dropped=None)
        assert not result.ok and result.message().startswith("output 'y' differs from ONNX Runtime")
        assert " at batch 3, width 6: " in result.message()


def test_sizes_that_do_not_go_together_are_not_compared(open_spec):
    class Model:
        symbols, inputs = open_spec.symbols, open_spec.inputs

        def __init__(self, widths):
            self.widths = widths

        def input_shapes(self, shape=None):
            if shape["width"] not in self.widths:
                raise RunError("not together")
            return {}

    typical, odd = {"batch": 4, "width": 10}, {"batch": 3, "width": 6}
    assert compared_sizes(Model({10})) == [typical] and compared_sizes(Model({6})) == [odd]
    assert compared_sizes(Model({})) == [typical]  # whose refusal is then told


def test_bench_takes_sizes(folder, files):
    words = ("--size", "batch=2,width=8", "--runs", "3", "--threads", "1", "-o", "t.json")
    done = halotile("bench", folder, *words, cwd=files)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("open.net, batch 2, width 8 for native on this machine: 3 runs")
    assert json.loads((files / "t.json").read_text())["runs"][0]["symbols"][1]["size"] == 8

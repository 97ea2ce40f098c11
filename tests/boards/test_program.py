"""``model_run``: what it reads, writes, compares and measures, and its words when something is wrong."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from board_tools import PI5, halotile, needs, network
from halotile.compiler.codegen.elf import read_elf
from onnx import TensorProto, helper


def program(folder: Path, *words: object, cwd: Path, prefix: str = "") -> subprocess.CompletedProcess[str]:
    command = [*prefix.split(), str(folder / "model_run"), *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


def reference(x: np.ndarray) -> dict[str, np.ndarray]:
    import onnxruntime as ort

    session = ort.InferenceSession(network().SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip(("y", "total"), session.run(None, {"x": x})))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """x.npy, and what ONNX Runtime makes of it: y.npy, total.npy."""
    x = np.random.default_rng(5).standard_normal((1, 3, 13, 17), np.float32)
    np.save(tmp_path / "x.npy", x)
    for name, array in reference(x).items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def test_it_needs_nothing_and_is_small(here: Path, pi5: Path) -> None:
    for folder in (here, pi5):
        facts = read_elf(folder / "model_run")
        assert facts.needed == () and facts.interpreter == ""
        weights = json.loads((folder / "manifest.json").read_text())["weight_bytes"]
        assert (folder / "model_run").stat().st_size - weights < 2 << 20


def test_describe(here: Path, tmp_path: Path) -> None:
    done = program(here, "--describe", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    manifest = json.loads((here / "manifest.json").read_text())
    assert told["model"] == "net" and told["fingerprint"] == manifest["fingerprint"]
    assert told["target"] == manifest["target"]["id"] != "native"
    assert told["inputs"] == [{"name": "x", "dtype": "float32", "shape": [1, 3, 13, 17], "bytes": 2652}]
    assert [o["name"] for o in told["outputs"]] == ["y", "total"]
    assert told["arena_bytes"] == manifest["arena_bytes"] and told["weight_bytes"] == manifest["weight_bytes"]
    assert "input x: float32[1, 3, 13, 17]" in program(here, "--describe", cwd=tmp_path).stdout


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("board", ["here", "pi5"])
def test_outputs_agree_with_onnxruntime(board: str, threads: int, files: Path, request) -> None:
    folder, prefix = request.getfixturevalue(board), ""
    if board == "pi5":
        needs("qemu-aarch64-static")
        prefix = PI5
    words = ("-i", "x.npy", "-o", "y=out.npy", "-o", "total=out.bin", "--threads", threads)
    done = program(folder, *words, cwd=files, prefix=prefix)
    assert done.returncode == 0, done.stderr
    y, total = np.load(files / "out.npy"), np.fromfile(files / "out.bin", np.float32)
    assert y.dtype == np.float32 and y.shape == (1, 5, 13, 17)
    assert np.abs(y - np.load(files / "y.npy")).max() < 1e-5
    assert np.abs(total - np.load(files / "total.npy").ravel()).max() < 1e-5


def test_expect_says_whether_it_agrees(here: Path, files: Path) -> None:
    good = program(here, "-i", "x.npy", "--expect", "y=y.npy", "--expect", "total=total.npy", cwd=files)
    assert good.returncode == 0 and good.stdout.count("agrees") == 2
    y = np.load(files / "y.npy")
    y[0, 2, 4, 6] += 0.5
    np.save(files / "y.npy", y)
    bad = program(here, "-i", "x.npy", "--expect", "y=y.npy", cwd=files)
    place = np.ravel_multi_index((0, 2, 4, 6), y.shape)
    assert bad.returncode == 3 and f"1 of {y.size} elements" in bad.stdout and f"element {place} " in bad.stdout
    wide = program(here, "-i", "x.npy", "--expect", "y=y.npy", "--atol", "0.6", "--json", cwd=files)
    told = json.loads(wide.stdout)["expected"]
    assert wide.returncode == 0 and told[0]["ok"] and 0.4 < told[0]["max_error"] < 0.6 < told[0]["limit"]


def test_a_nan_never_agrees(here: Path, files: Path) -> None:
    y = np.load(files / "y.npy")
    y[0, 0, 0, 0] = np.nan
    np.save(files / "y.npy", y)
    assert program(here, "-i", "x.npy", "--expect", "y=y.npy", "--atol", "9", cwd=files).returncode == 3


def test_raw_inputs_and_every_version_of_npy(here: Path, files: Path) -> None:
    x = np.load(files / "x.npy")
    x.tofile(files / "x.bin")
    for version in ((1, 0), (2, 0), (3, 0)):
        with (files / f"v{version[0]}.npy").open("wb") as file:
            np.lib.format.write_array(file, x, version=version)
    for name in ("x.bin", "v1.npy", "v2.npy", "v3.npy"):
        done = program(here, "-i", f"x={name}", "--expect", "y=y.npy", cwd=files)
        assert done.returncode == 0, (name, done.stderr)


def test_random_inputs_follow_the_seed(here: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        program(here, "--seed", seed, "-i", "x=random", "-o", f"y={name}.npy", cwd=tmp_path)
    a, b, c = (np.load(tmp_path / f"{name}.npy") for name in "abc")
    assert (a == b).all() and not (a == c).all() and np.ptp(a) > 0.5


def test_bench(here: Path, tmp_path: Path) -> None:
    words = ("--bench", "--runs", 9, "--warmup", 2, "--threads", 2, "--affinity", "0", "--json")
    told = json.loads(program(here, *words, cwd=tmp_path).stdout)
    times = told["milliseconds"]
    assert told["runs"] == 9 and told["warmup"] == 2 and told["threads"] == 2 and told["peak_bytes"] > 100_000
    assert 0 < times["min"] <= times["p50"] <= times["p90"] <= times["p99"] == times["max"]
    assert times["min"] <= times["mean"] <= times["max"]
    assert re.search(r"9 runs after 2: median [\d.]+ ms", program(here, *words[:5], cwd=tmp_path).stdout)


def save(path: Path, array: np.ndarray) -> str:
    np.save(path, array)
    return path.name


X = (1, 3, 13, 17)
BAD_FILES = {
    "dtype": (lambda p: save(p, np.zeros(X)), ["its dtype is <f8", "float32"]),
    "shape": (lambda p: save(p, np.zeros((1, 3, 17, 13), "f")), ["its shape is (1, 3, 17, 13)", "(1, 3, 13, 17)"]),
    "rank": (lambda p: save(p, np.zeros((3, 13, 17), "f")), ["its shape is (3, 13, 17)"]),
    "big-endian": (lambda p: save(p, np.zeros(X, ">f4")), ["big-endian"]),
    "columns": (lambda p: save(p, np.asfortranarray(np.zeros(X, "f"))), ["columns first"]),
    "records": (lambda p: save(p, np.zeros(X, [("a", "f4")])), ["plain numbers"]),
    "text": (lambda p: p.write_text("hello, not an array"), ["not a .npy file"]),
    "nothing": (lambda p: p.write_bytes(b""), ["not a .npy file"]),
    "short": (lambda p: p.write_bytes((save(p, np.zeros(X, "f")) and p.read_bytes())[:-1]), ["2651 bytes", "2652"]),
    "long": (lambda p: p.write_bytes((save(p, np.zeros(X, "f")) and p.read_bytes()) + b"x"), ["more than"]),
    "header": (lambda p: p.write_bytes((save(p, np.zeros(X, "f")) and p.read_bytes())[:40]), ["cut short"]),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_bad_file_is_told(what: str, here: Path, tmp_path: Path) -> None:
    make, words = BAD_FILES[what]
    make(tmp_path / "x.npy")
    refused(program(here, "-i", "x.npy", cwd=tmp_path), 1, "x.npy: ", *words)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-i", "x=none.npy"], 1, ["can't read none.npy", "No such file"]),
        (["-i", "z=none.npy"], 1, ["no input 'z'"]),
        (["-o", "out.npy"], 1, ["2 outputs", "NAME=out.npy"]),
        (["-o", "y=no/where.npy"], 1, ["can't write no/where.npy"]),
        (["--expect", "z=y.npy"], 1, ["no output 'z'"]),
        (["--threads", "0"], 2, ["--threads 0", "from 1"]),
        (["--threads", "9999"], 2, ["--threads 9999"]),
        (["--runs", "many"], 2, ["--runs many"]),
        (["--rtol", "-1"], 2, ["--rtol -1"]),
        (["--affinity", "3-1"], 2, ["--affinity 3-1"]),
        (["--affinity", "1000"], 1, ["--affinity 1000"]),
        (["--affinity", "x"], 2, ["--affinity x"]),
        (["--fast"], 2, ["unknown option --fast"]),
        (["--seed"], 2, ["--seed needs a value"]),
    ],
)
def test_a_wrong_option_is_told(arguments, code: int, words, here: Path, tmp_path: Path) -> None:
    refused(program(here, *arguments, cwd=tmp_path), code, *words)
    assert list(tmp_path.iterdir()) == []


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stderr.startswith("model_run: ") and done.stderr.count("\n") == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


DTYPES = ["float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "bool"]  # fmt: skip


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that hands through one tensor of every dtype."""
    folder = tmp_path_factory.mktemp("copies")
    nodes, inputs, outputs = [], [], []
    for dtype in DTYPES:
        kind = getattr(TensorProto, {"float64": "DOUBLE"}.get(dtype, dtype.upper()))
        nodes.append(helper.make_node("Transpose", [f"i_{dtype}"], [f"o_{dtype}"], perm=[1, 0]))
        inputs.append(helper.make_tensor_value_info(f"i_{dtype}", kind, [3, 5]))
        outputs.append(helper.make_tensor_value_info(f"o_{dtype}", kind, [5, 3]))
    made = helper.make_model(
        helper.make_graph(nodes, "copies", inputs, outputs),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    (folder / "copies.onnx").write_bytes(made.SerializeToString())
    done = halotile("build", "copies.onnx", "-o", "out", "--no-verify", "--format", "exe", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def test_every_dtype_goes_in_and_out(copies: Path, tmp_path: Path) -> None:
    import ml_dtypes  # noqa: F401  (numpy's bfloat16)

    words: list[str] = []
    rng = np.random.default_rng(9)
    for dtype in DTYPES:
        array = (rng.standard_normal((3, 5)) * 50).astype(np.dtype(dtype if dtype != "bfloat16" else "bfloat16"))
        np.save(tmp_path / f"{dtype}.npy", array)
        np.save(tmp_path / f"want_{dtype}.npy", np.ascontiguousarray(array.T))
        words += ["-i", f"i_{dtype}={dtype}.npy", "-o", f"o_{dtype}=out_{dtype}.npy"]
        words += ["--expect", f"o_{dtype}=want_{dtype}.npy"]
    done = program(copies, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for dtype in DTYPES:
        out, want = np.load(tmp_path / f"out_{dtype}.npy"), np.load(tmp_path / f"want_{dtype}.npy")
        assert out.dtype == want.dtype and out.shape == (5, 3) and out.tobytes() == want.tobytes(), dtype
    random = json.loads(program(copies, "--json", cwd=tmp_path).stdout)["outputs"]
    spread = {o["name"]: o["max"] - o["min"] for o in random}
    assert all(value > 0 for value in spread.values()), spread

"""halotile-runtime in an environment that has numpy and nothing else: it loads and runs what was built, and says of
everything else what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import venvs
from halotile.compiler.api import compile as compile_model
from halotile.compiler.cli import alone
from halotile.compiler.images import Image
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return venvs.wheels(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def python(made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return venvs.fresh(tmp_path_factory.mktemp("venv") / "venv", [made["halotile_runtime"]])


def network(batch: int | str) -> onnx.ModelProto:
    """A convolution and its mean over each channel, of images of 3 x 7 x 11."""
    weight = RNG.standard_normal((5, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 7, 11])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5, 1, 1])
    graph = helper.make_graph(nodes, "net", [x], [y], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def answer(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries of a fixed, an open and a camera's model, with inputs and ONNX Runtime's answers."""
    folder = tmp_path_factory.mktemp("libraries")
    for name, batch, frames in (("fixed", 2, None), ("open", "n", None), ("camera", 1, {"x": Image(scale=255)})):
        model = network(batch)
        with compile_model(model, inputs=frames, name=name) as built:
            built.save(folder / name)
        for n in {"fixed": (2,), "open": (1, 3), "camera": (1,)}[name]:
            frame = RNG.integers(0, 256, (n, 7, 11, 3), np.uint8)
            floats = (frame.transpose(0, 3, 1, 2) / np.float32(255)).astype(np.float32)
            np.save(folder / f"{name}.{n}.x.npy", frame if frames else floats)
            np.save(folder / f"{name}.{n}.y.npy", answer(model, floats))
    stream(folder)
    return folder


def stream(folder: Path) -> None:
    """A library that streams, for images of any height: rows of five channels from rows of three."""
    weight = RNG.standard_normal((5, 3, 3, 3)).astype(np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", 11])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5, "h", 11])
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "net", [x], [y], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with compile_model(model, stream=8, name="stream") as built:
        built.save(folder / "stream")
    rows = RNG.standard_normal((1, 3, 37, 11)).astype(np.float32)
    np.save(folder / "stream.1.x.npy", rows)
    np.save(folder / "stream.1.y.npy", answer(model, rows))


def test_the_wheels_part_the_package(made: dict[str, Path]) -> None:
    """No file is in both, and together they are the package as it is installed from the tree."""
    names = {kind: set(zipfile.ZipFile(path).namelist()) for kind, path in made.items()}
    runtime, compiler = ({n for n in names[k] if n.startswith("halotile/")} for k in ("halotile_runtime", "halotile"))
    assert not runtime & compiler
    rooms = ("compiler", "passes", "schedules", "targets", "benchmarks")
    tree = {f"halotile/{p.relative_to(ROOT)}" for room in rooms for p in (ROOT / room).rglob("*.py")}
    tree |= {f"halotile/{name}" for name in ("__init__.py", "errors.py", "version.py", "py.typed")}
    assert tree <= runtime | compiler
    with zipfile.ZipFile(made["halotile"]) as archive:
        (about,) = (archive.read(n).decode() for n in names["halotile"] if n.endswith("/METADATA"))
    version = made["halotile"].name.split("-")[1]
    assert f"\nRequires-Dist: halotile-runtime=={version}\n" in about


def test_it_needs_numpy_alone(python: Path) -> None:
    code = (
        "import importlib.metadata as m; print(sorted(d.metadata['Name'] for d in m.distributions()));"
        "print(m.requires('halotile-runtime'))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, env=venvs.outside(),
                          cwd=python.parent)  # not where a checkout's own egg-info lies  # fmt: skip
    assert done.stdout == "['halotile-runtime', 'numpy']\n['numpy>=1.26']\n"


PROGRAM = """
import pickle, sys
import numpy as np
import halotile
from halotile import HalotileError, Model, load
from halotile.errors import RunError

folder = sys.argv[1]
def pair(name): return np.load(f"{folder}/{name}.x.npy"), np.load(f"{folder}/{name}.y.npy")
def near(a, b): assert a.shape == b.shape and np.abs(a - b).max() <= 1e-5 * np.abs(b).max() + 1e-6, (a, b)

x, y = pair("fixed.2")
with load(f"{folder}/fixed", threads=1) as model:
    near(model(x), y)
    near(model({"x": x})["y"], y)
    near(model(x, threads=2), y)
    out = np.full_like(y, np.nan)
    assert model(x, out=out) is out
    near(out, y)
    again = np.full_like(y, np.nan)
    model.bind({"x": x}, {"y": again})()
    near(again, y)
    assert model.threads == 1 and model.arena_bytes() > 0 and model.target is not None
    assert model.input_shapes() == {"x": (2, 3, 7, 11)} and model.shapes_for({"x": x}) == {"y": (2, 5, 1, 1)}
    assert "halotile.Model fixed" in repr(model) and "<table>" in model._repr_html_()
    near(pickle.loads(pickle.dumps(model))(x), y)
    near(load(model.save(f"{folder}/copy"))(x), y)
    try:
        model(x[:1])
    except RunError as error:
        print(error)
    try:
        model.verify(model="m.onnx")
    except HalotileError as error:
        print(error.code, error)

with load(f"{folder}/open") as model:
    for n in (1, 3):
        x, y = pair(f"open.{n}")
        near(model(x), y)
    print([s.name for s in model.symbols], model.output_shapes(n=4))
    many = np.concatenate([pair("open.1")[0], pair("open.3")[0]])
    near(model.map_blocks(many, tile=2), model(many))
    assert "pointwise" in str(model.reach())

frame, y = pair("camera.1")
with load(f"{folder}/camera") as model:
    print(model.inputs[0])
    near(model(frame), y)

rows, y = pair("stream.1")
with load(f"{folder}/stream") as model:
    near(model.stream(rows), y)

for name in ("compile", "inspect", "tune"):
    try:
        getattr(halotile, name)
    except HalotileError as error:
        print(error.code, error)
loaded = {m.partition(".")[0] for m in sys.modules}
assert not loaded & {"tvm", "onnx", "onnxruntime", "msgspec", "click", "rich"}, loaded
"""


def test_it_loads_and_runs(python: Path, folder: Path) -> None:
    command = [python, "-W", "error", "-c", PROGRAM, folder]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=venvs.outside())
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "input 'x' has shape (1, 3, 7, 11), expected (2, 3, 7, 11)"
    assert lines[1].startswith("E500 verify() needs the compiler, and only halotile-runtime is installed: pip install")
    assert lines[2:4] == ["['n'] {'y': (4, 5, 1, 1)}", "x: uint8[1, 7, 11, 3]"]
    for line, name in zip(lines[4:], ("compile", "inspect", "tune"), strict=True):
        assert line.startswith(f"E500 halotile.{name} needs the compiler, and only halotile-runtime is installed: pip")


def halotile(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [python.with_name("halotile"), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, env=venvs.outside())


def test_run_on_the_command_line(python: Path, folder: Path) -> None:
    done = halotile(python, folder, "run", "fixed", "-i", "x=fixed.2.x.npy", "-o", "y=out.npy", "--json", "-j", "1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"][0]["shape"] == [2, 5, 1, 1]
    np.testing.assert_allclose(np.load(folder / "out.npy"), np.load(folder / "fixed.2.y.npy"), rtol=1e-4, atol=1e-6)
    done = halotile(python, folder, "run", "open", "--size", "n=3", "--repeat", "2")
    assert done.returncode == 0 and "float32[3, 5, 1, 1]" in done.stdout and "median of 2 runs" in done.stderr


def test_run_says_the_same_with_and_without_the_compiler(python: Path, folder: Path) -> None:
    for words in (
        ["run", "fixed", "-i", "x=fixed.2.x.npy"], ["run", "fixed", "-i", "z=fixed.2.x.npy"], ["run", "nothing"],
        ["run", "open", "--size", "m=3"], ["run", "fixed", "-o", "no/y.npy"],
    ):  # fmt: skip
        alone = halotile(python, folder, *words, "-q")
        whole = subprocess.run(
            [sys.executable, "-m", "halotile.compiler.cli", *words, "-q"], cwd=folder, capture_output=True, text=True
        )
        assert (alone.returncode, alone.stdout, alone.stderr) == (whole.returncode, whole.stdout, whole.stderr), words


@pytest.mark.parametrize("verb", alone.NEED_THE_COMPILER)
def test_other_commands_say_what_is_missing(python: Path, folder: Path, verb: str) -> None:
    done = halotile(python, folder, verb, "model.onnx")
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert f"error[E500]: halotile {verb} needs the compiler" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 0, "Commands: run."), (["--version"], 0, "halotile "), (["run", "--help"], 0, "DIR"),
        (["rum", "x"], 2, "did you mean 'run'?"), (["run"], 2, "DIR"), (["run", "fixed", "-j", "0"], 2, "--threads"),
        (["run", "fixed", "--size", "n"], 2, "--size"), (["run", "fixed", "--repeat", "0"], 2, "--repeat"),
    ],
)  # fmt: skip
def test_usage(python: Path, folder: Path, words: list[str], code: int, told: str) -> None:
    done = halotile(python, folder, *words)
    assert done.returncode == code and told in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_the_module_is_the_command(python: Path, folder: Path) -> None:
    command = [python, "-m", "halotile", "run", "fixed", "-i", "x=fixed.2.x.npy", "--json", "-j", "1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, env=venvs.outside())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"][0]["shape"] == [2, 5, 1, 1]

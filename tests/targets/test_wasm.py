"""WebAssembly, built here and run in Node.js: networks, corners of float32, bytes, errors, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from board_tools import halotile, needs_zig, network
from corners import check_corners, corners_input, corners_model
from halotile.benchmarks.models import MODELS
from halotile.compiler.codegen.wasm import read_wasm
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.compiler.verify import verify
from halotile.errors import HalotileError, OutputError, TargetError, ToolchainError
from halotile.targets.resolve import resolve
from node_tools import javascript, needs_node, run_in_node


def test_the_target_has_vectors_and_one_thread() -> None:
    target = resolve("wasm32")
    assert (target.vector_bits, target.bits, target.cores, target.system) == (128, 32, 1, "wasm")
    spelt = resolve("wasm32-unknown-unknown+generic+relaxed-simd")
    assert spelt.vector_bits == 128 and spelt.one_thread and "+relaxed-simd" in spelt.features
    assert resolve("wasm32+-simd128").vector_bits == 64


@pytest.mark.parametrize("name", ["mobilenet_v2", "bert", "espcn"])
def test_a_network_equals_onnxruntime(name: str, tmp_path: Path) -> None:
    needs_zig()
    needs_node()
    entry = MODELS[name]
    model = entry.model(small=True)
    out = tmp_path / "out"
    build = run_pipeline(model, Options(resolve("wasm32"), name=name), output=out)
    facts = read_wasm(out / f"{name}.wasm")
    assert not facts.imports and f"{name}_run" in facts.exports
    spec = build.library
    run = lambda feeds: run_in_node(out, spec.inputs, spec.outputs, feeds, tmp_path)[0]  # noqa: E731
    found = verify(run, model, spec.inputs, entry.inputs(model, seed=1))
    assert found.ok, found


@pytest.mark.parametrize("target", ["wasm32", "wasm32+-simd128"])
def test_corners_of_float32_are_numpys(target: str, tmp_path: Path) -> None:
    needs_zig()
    needs_node()
    build = run_pipeline(corners_model(), Options(resolve(target)), output=tmp_path / "out")
    spec = build.library
    check_corners(run_in_node(tmp_path / "out", spec.inputs, spec.outputs, {"x": corners_input()}, tmp_path)[0])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small network of the boards' tests, by the command line."""
    needs_zig()
    folder = tmp_path_factory.mktemp("wasm")
    (folder / "net.onnx").write_bytes(network().SerializeToString())
    done = halotile("build", "net.onnx", "-t", "wasm32", "-o", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def test_the_folder_holds_a_module_and_its_loader(library: Path) -> None:
    names = {path.name for path in library.iterdir()}
    assert names == {"net.wasm", "net.mjs", "net.h", "manifest.json"}
    manifest = json.loads((library / "manifest.json").read_text())
    assert (manifest["library"], manifest["loader"]) == ("net.wasm", "net.mjs")
    assert manifest["max_threads"] == 1 and set(manifest["files"]) == names - {"manifest.json"}
    again = halotile("build", "--from", "out/manifest.json", "-o", "again", cwd=library.parent)
    assert again.returncode == 0, again.stderr
    assert (library.parent / "again" / "net.wasm").read_bytes() == (library / "net.wasm").read_bytes()


def test_javascript_gives_inputs_and_is_told_what_is_wrong(library: Path) -> None:
    needs_node()
    script = """
        import { load, inputs, outputs, about } from "./out/net.mjs";
        import { readFile } from "node:fs/promises";
        const model = await load(await readFile("out/net.wasm")); // bytes
        const two = await load(new WebAssembly.Module(await readFile("out/net.wasm")));
        const x = new Float32Array(663).fill(1);
        const first = model.run({ x });
        two.input("x").fill(1); // in place
        const second = two.run({}, ["total"]);
        const told = [];
        for (const wrong of [{ z: x }, { x: x.slice(1) }]) {
            try { model.run(wrong); } catch (error) { told.push(error.message); }
        }
        model.close();
        try { model.run({ x }); } catch (error) { told.push(error.message); }
        console.log(JSON.stringify({
            names: Object.keys(first), other: Object.keys(second), told, about,
            dtype: inputs[0].dtype, shape: outputs[0].shape,
            same: first.total.every((value, i) => value === second.total[i]),
        }));
    """
    done = javascript(script, folder=library.parent)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["names"] == ["y", "total"] and found["other"] == ["total"] and found["same"]
    assert (found["dtype"], found["shape"]) == ("float32", [1, 5, 13, 17])
    assert found["told"] == [
        "net: there is no input z (known: x)",
        "net: input x takes 663 elements (1 x 3 x 13 x 17), 662 were given",
        "net: the model was closed",
    ]
    assert found["about"]["target"] == "wasm32"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "a"), "--format a is for Linux"),
        (("--format", "so,exe"), "--format exe is for Linux"),
        (("--static",), "--static is for Linux"),
        (("--threads", "4"), "run on one thread"),
        (("--timers",), "have no clock for timers"),
        (("--flush-denormals",), "no mode in which denormals count as zero"),
        (("--verify",), "can't run wasm32"),
    ],
)
def test_what_it_can_not_have_is_refused(arguments: tuple[str, ...], message: str, library: Path) -> None:
    done = halotile("build", "net.onnx", "-t", "wasm32", "-o", "no", *arguments, cwd=library.parent)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == 1 and message in lines[-1], done.stderr
    assert not (library.parent / "no").exists()


def test_open_sizes_and_levels_are_refused(tmp_path: Path) -> None:
    from evaluate import one_node

    model, _ = one_node("Relu", [np.zeros((2, 3), "float32")])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(TargetError, match=r"fixed sizes: fix n \(--shape\)"):
        run_pipeline(model, Options(resolve("wasm32")), output=tmp_path / "out")
    with pytest.raises(TargetError, match="levels of processors are for Linux"):
        run_pipeline(network(), Options(resolve("wasm32"), levels=(resolve("wasm32+relaxed-simd"),)))
    for wrong in ("wasm32-wasi+generic", "wasm64+generic"):
        with pytest.raises(TargetError):
            resolve(wrong)


def test_python_says_what_loads_it(library: Path) -> None:
    import halotile as package

    with pytest.raises(OutputError, match="WebAssembly module.*net.mjs"):
        package.load(library)


def test_a_damaged_module_is_told(library: Path, tmp_path: Path) -> None:
    data = (library / "net.wasm").read_bytes()
    for i, wrong in enumerate((data[:-100], b"\0asm\2\0\0\0", data[:12])):
        path = tmp_path / f"{i}.wasm"
        path.write_bytes(wrong)
        with pytest.raises(ToolchainError, match=r"\.wasm is (damaged|not a WebAssembly module)"):
            read_wasm(path)


def test_float16_weights_are_refused(tmp_path: Path) -> None:
    import halotile as package

    with pytest.raises(HalotileError, match="float16 weights need instructions"):
        package.compile(network(), target="wasm32", weights="float16")
    package.compile(network(), target="wasm32").save(tmp_path / "out")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"net.wasm", "net.mjs", "net.h", "manifest.json"}

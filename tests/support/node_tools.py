"""WebAssembly libraries run in Node.js, through the loader that lies beside them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_RUN = """
import { readFile, writeFile } from "node:fs/promises";
const [loader, folder, rounds] = process.argv.slice(2);
const { load, inputs, outputs } = await import(loader);
const model = await load();
for (const [i, tensor] of inputs.entries()) {
    const bytes = await readFile(`${folder}/in${i}.bin`);
    new Uint8Array(model.input(i).buffer, model.input(i).byteOffset, tensor.bytes).set(bytes);
}
let found = model.run();
const seconds = [];
for (let i = 0; i < +rounds; ++i) {
    const start = performance.now();
    model.run({}, []);
    seconds.push((performance.now() - start) / 1e3);
}
found = model.run();
for (const [i, tensor] of outputs.entries()) {
    const { buffer, byteOffset, byteLength } = found[tensor.name];
    await writeFile(`${folder}/out${i}.bin`, new Uint8Array(buffer, byteOffset, byteLength));
}
model.close();
console.log(JSON.stringify({ seconds }));
"""


def needs_node() -> str:
    """The command; skips, loudly, where there is none."""
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        pytest.skip("NOT RUN: needs node (.ci/debian.sh installs it)")
    return node


def javascript(script: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """A module run in Node.js."""
    (folder / "run.mjs").write_text(script)
    return subprocess.run(
        [needs_node(), "run.mjs", *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=300
    )


def run_in_node(
    library: Path, inputs: Any, outputs: Any, feeds: dict[str, np.ndarray], folder: Path, rounds: int = 0
) -> tuple[dict[str, np.ndarray], list[float]]:
    """(outputs by name, seconds of further rounds) of the module in the folder ``library``."""
    for i, tensor in enumerate(inputs):
        feeds[tensor.name].astype(tensor.dtype).tofile(folder / f"in{i}.bin")
    (loader,) = library.glob("*.mjs")
    done = javascript(_RUN, loader.resolve(), folder.resolve(), rounds, folder=folder)
    assert done.returncode == 0, done.stderr
    found = {
        t.name: np.fromfile(folder / f"out{i}.bin", t.dtype).reshape(t.shape) for i, t in enumerate(outputs)
    }
    return found, json.loads(done.stdout)["seconds"]

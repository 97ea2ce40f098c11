"""The k best of long rows, most elements of which are turned away in vectors: ties, NaN, both zeros, rising rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from board_tools import needs, needs_zig
from compiled import Compiled, module_of, staged
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Options
from halotile.schedules.operators import registry as operator
from halotile.schedules.operators.filtered import LONG
from halotile.targets.resolve import resolve
from onnx import helper, numpy_helper


def best(x: np.ndarray, k: int, largest: bool) -> np.ndarray:
    """Positions of the first k in order, equals as they stand; a NaN is larger than any number."""
    wide = x.astype("float64") if x.dtype.kind == "f" else x.astype("int64")
    number = np.where(np.isnan(wide), 0, wide)
    nan = np.isnan(wide)
    return np.stack([np.lexsort((n, e) if not largest else (-n, ~e)) for n, e in zip(number, nan)])[:, :k]


def rows(kind: str, length: int) -> np.ndarray:
    g = np.random.default_rng(length)
    x = g.standard_normal((3, length)).astype("float32")
    if kind == "ties":
        x = np.round(x)
        x[1, ::3] = -0.0
    if kind == "nan":
        x[g.random((3, length)) < 0.03] = np.nan
        x[2, : length // 2] = np.nan
    if kind == "rising":
        x.sort(axis=1)
    if kind == "infinite":
        x[:, ::5] = np.inf
        x[1] = -np.inf
    return x


@pytest.mark.sampled
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("kind", ["plain", "ties", "nan", "rising", "infinite"])
@pytest.mark.parametrize(("length", "k"), [(22, 2), (131, 5), (1000, 31), (LONG + 37, 11)])
def test_rows(length: int, k: int, kind: str, largest: bool) -> None:
    check(rows(kind, length), k, largest)


@pytest.mark.parametrize("dtype", ["float16", "int32", "int16", "int8", "uint8", "uint16", "int64", "float64"])
def test_types(dtype: str) -> None:
    x = (rows("plain", 700) * 40).astype("int32").astype(dtype)
    for largest in (True, False):
        check(x, 9, largest)


def check(x: np.ndarray, k: int, largest: bool) -> None:
    build = staged(module_of([x], lambda x: operator.call("halotile.topk", x, k=k, axis=1, largest=largest)))
    values, positions = Compiled(build).run([x])
    wanted = best(x, k, largest)
    np.testing.assert_array_equal(positions, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, 1))


def test_elements_are_compared_in_vectors() -> None:
    x = rows("plain", 1000)
    build = staged(module_of([x], lambda x: operator.call("halotile.topk", x, k=5, axis=1, largest=True)))
    text = str(build.kernels[0].function)
    assert "T.vectorized(16)" in text and "hit" in text


@pytest.mark.parametrize("board", ["raspberry-pi-2-32", "raspberry-pi-4"])
def test_boards_find_the_same(board: str, tmp_path: Path) -> None:
    """Every row has a place of its own, whatever a pointer's width: with a position that the simplifier saw as a
    difference from 2**31 - 1, LLVM compared all rows with elements of the first on 32 bits."""
    needs("qemu-aarch64-static", "qemu-arm-static")
    needs_zig()
    emulator = "qemu-arm-static -cpu cortex-a7" if board.endswith("32") else "qemu-aarch64-static -cpu cortex-a72"
    nodes, inputs, outputs, constants, feeds, wanted = [], [], [], [], {}, {}
    for kind in ("plain", "ties", "nan", "infinite"):
        for length, k in ((22, 2), (131, 5), (300, 290), (1000, 31), (LONG + 37, 11)):
            x = f"{kind}_{length}"
            feeds[x] = rows(kind, length)
            inputs.append(helper.make_tensor_value_info(x, 1, feeds[x].shape))
            constants.append(numpy_helper.from_array(np.array([k]), f"{x}_k"))
            for largest in (0, 1):
                found = [f"{x}_{largest}_{what}" for what in ("values", "positions")]
                nodes.append(helper.make_node("TopK", [x, f"{x}_k"], found, axis=1, largest=largest))
                outputs += [helper.make_tensor_value_info(n, t, (3, k)) for n, t in zip(found, (1, 7))]
                wanted[found[1]] = best(feeds[x], k, bool(largest))
                wanted[found[0]] = np.take_along_axis(feeds[x], wanted[found[1]], 1)
    graph = helper.make_graph(nodes, "best", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    run_pipeline(model, Options(resolve(board), threads=1, formats=("exe",)), output=tmp_path / "out")
    with RemoteModel(tmp_path / "out", emulator) as remote:
        got = remote(feeds)
    for name, array in wanted.items():
        np.testing.assert_array_equal(got[name], array, name)

"""Random whole models through everything that is on by default, and through tiles where they are possible."""

from __future__ import annotations

from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from halotile.compiler.verify import Reference, compare
from halotile.errors import HalotileError
from uncompiled import reported
from whole_models import whole_model

BLOCKS = 5
JUMPS = ("QuantizeLinear", "Round")  # a rounding that falls the other way is no error of the operators after it


def differences(model: onnx.ModelProto, arrays: dict[str, np.ndarray], **options: Any) -> list[str]:
    """How the compiled model's outputs differ from ONNX Runtime's; two runs must give the same bits."""
    compiled = halotile.compile(model, **options)
    feeds = {i.name: arrays[i.name] for i in compiled.inputs}
    ours, again = compiled(feeds), compiled(feeds)
    assert all(ours[n].tobytes() == again[n].tobytes() for n in ours)
    half = any(i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16 for i in model.graph.input)
    steps = any(n.op_type in JUMPS for n in model.graph.node)
    found = []
    for name, theirs in Reference(model)(arrays, 0).items():
        check = compare(name, ours.get(name), theirs, 1e-2 if half else 1e-3, 1e-5)
        few = check.mismatches <= max(1, 0.02 * theirs.size) and name in ours and ours[name].shape == theirs.shape
        if not check.ok and not (few and (steps or theirs.dtype.kind in "biu")):
            found.append(f"{name}: {check.reason}")
    return found


@pytest.mark.parametrize("seed", [1, 11, 13, 22, 26, 39])
def test_agrees_with_onnx_runtime(seed: int) -> None:
    model, arrays = whole_model(seed, BLOCKS)
    assert differences(model, arrays, threads=1 + seed % 3) == []


@pytest.mark.parametrize("seed", [1000, 1003])
def test_small_tiles_give_the_same(seed: int) -> None:
    """The last group that can be tiled, with all before it that can go along, in tiles of 4 x 6."""
    model, arrays = whole_model(seed, BLOCKS, "image")
    names = [k["name"] for k in reported(model, tile="off")["kernels"]]
    for name in reversed(names):
        try:
            found = differences(model, arrays, threads=2, tile={"last": name, "shape": (4, 6)})
        except HalotileError as refusal:
            assert "tiled" in str(refusal)
            continue
        assert found == []
        return
    raise AssertionError("nothing of this model can be tiled; choose another")


def test_the_least_memory_gives_the_same() -> None:
    model, arrays = whole_model(1001, BLOCKS, "image")
    assert differences(model, arrays, optimize="memory") == []


def test_the_same_seed_gives_the_same_model() -> None:
    for kind in ("image", "sequence", "half"):
        first, second = (whole_model(7, BLOCKS, kind)[0].SerializeToString(deterministic=True) for _ in range(2))
        assert first == second

"""Pads that repeat or mirror elements of an open dimension need as many: fewer are refused, as ONNX Runtime does."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.errors import RunError, UnsupportedError
from onnx import TensorProto, helper, numpy_helper


def padded(mode: str, pads: list[int], shape: tuple = ("b", "n")) -> onnx.ModelProto:
    rank = len(shape)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    taken = helper.make_tensor_value_info("y", TensorProto.FLOAT, [f"o{i}" for i in range(rank)])
    node = helper.make_node("Pad", ["x", "pads"], ["y"], "edges", mode=mode)
    graph = helper.make_graph([node], "pads", [given], [taken], [numpy_helper.from_array(np.int64(pads), "pads")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def alone(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray | None:
    """What ONNX Runtime makes of it; None if it refuses."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})[0]
    except Exception:
        return None


@pytest.mark.parametrize("pads", [[0, 20, 0, 20], [0, 3, 0, 0], [0, 0, 0, 7], [1, 2, 2, 5]])
@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_as_many_elements_as_pads_read(mode: str, pads: list[int]) -> None:
    most = max(pads[1], pads[3])
    least = most + 1 if mode == "reflect" else 1
    model = padded(mode, pads)
    with halotile.compile(model) as built:
        rows = max(pads[0], pads[2]) + 1
        for n in sorted({0, 1, 2, most, most + 1, least, least + 1, 2 * most, 37}):
            x = np.random.default_rng(n).standard_normal((rows, n)).astype(np.float32)
            if n < least:
                with pytest.raises(RunError, match=rf"n is {n}, and must be at least {least}.*'edges' \(Pad\)") as told:
                    built(x)
                assert "\n" not in str(told.value) and (n == 0 or mode != "wrap") and alone(model, x) is None
                continue
            around = [(pads[0], pads[2]), (pads[1], pads[3])]
            found = built(x)
            assert np.array_equal(found, np.pad(x, around, mode))
            assert (there := alone(model, x)) is None or np.array_equal(found, there)


def test_fixed_ones_are_mirrored_again_and_nothing_is_refused() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with halotile.compile(padded("reflect", [0, 20, 0, 9]), shapes={"x": (2, 3)}) as built:
        assert np.array_equal(built(x), np.pad(x, [(0, 0), (20, 9)], "reflect"))
    for mode in ("reflect", "edge", "wrap"):
        with pytest.raises(UnsupportedError, match=rf"'edges' \(Pad.*nothing of .* mode '{mode}' to repeat") as told:
            halotile.compile(padded(mode, [0, 1, 0, 1]), shapes={"x": (2, 0)})
        assert "\n" not in str(told.value)


def test_rows_of_an_image_that_are_mirrored() -> None:
    """Columns are open, rows are not, and a sum of an open dimension is mirrored as well."""
    model = padded("reflect", [0, 0, 2, 3, 0, 0, 2, 3], (1, 2, "h", "w"))
    with halotile.compile(model, typical={"h": 9, "w": 11}) as built:
        for h, w in ((3, 4), (7, 31), (40, 5)):
            x = np.random.default_rng(h).standard_normal((1, 2, h, w)).astype(np.float32)
            assert np.array_equal(built(x), np.pad(x, [(0, 0), (0, 0), (2, 2), (3, 3)], "reflect"))
        for h, w, name in ((2, 4, "h"), (3, 3, "w")):
            with pytest.raises(RunError, match=f"{name} is .* since pads of .* mirror more elements"):
                built(np.zeros((1, 2, h, w), np.float32))


def test_what_is_planned_for_has_the_elements() -> None:
    """Sizes by default are as large as the pads ask for, and a window that no default fills stops no build."""
    x = np.random.default_rng(1).standard_normal((1, 401)).astype(np.float32)
    with halotile.compile(padded("reflect", [0, 300, 0, 300])) as built:
        (symbol,) = [s for s in built.symbols if s.name == "n"]
        assert symbol.low == 301 <= symbol.typical
        assert np.array_equal(built(x), np.pad(x, [(0, 0), (300, 300)], "reflect"))

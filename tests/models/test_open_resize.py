"""Images resized to sizes in no fixed ratio, one axis after the other by tables of the run, beside ONNX Runtime."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest

from ..support.open_models import Drawing

SIZES = [(1, 1, 1, 1), (1, 7, 3, 2), (2, 3, 5, 19), (9, 16, 18, 33), (13, 40, 5, 7), (17, 35, 17, 131), (6, 5, 64, 35)]


def _model(mode: str, coordinate: str, channels: int, around: bool = False) -> onnx.ModelProto:
    """``x`` to the size of ``z``, to which it is added; with convolutions ``around`` in channel blocks."""
    g = Drawing(2)
    x, z = g.input("x", 2, channels, "h", "w"), g.input("z", 2, channels, "p", "q")
    x = g.conv(x, channels, channels, 1) if around else x
    size = g("Concat", g.whole(2, channels), g("Slice", g("Shape", z), g.whole(2), g.whole(4)), axis=0)
    y = g("Resize", x, "", "", size, mode=mode, coordinate_transformation_mode=coordinate)
    y = g("Add", y, z)
    g.output(g.conv(y, channels, channels, 1) if around else y, 4)
    return g.model()


@pytest.mark.sampled
@pytest.mark.parametrize("coordinate", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_to_the_size_of_another(mode, coordinate):
    for channels, around in ((3, False), (20, True)):
        model = _model(mode, coordinate, channels, around)
        built = halotile.compile(model, threads=2, typical={"h": 30, "w": 30, "p": 60, "q": 60})
        assert any("2 phases" in k["schedule"] for k in built.report["kernels"]), "the rows are stored"
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        random = np.random.default_rng(4)
        for h, w, p, q in SIZES:
            given = {
                "x": random.standard_normal((2, channels, h, w)).astype("float32"),
                "z": random.standard_normal((2, channels, p, q)).astype("float32"),
            }
            (wanted,) = session.run(None, given)
            found = np.full(wanted.shape, np.nan, "float32")
            built.bind(given, {"y0": found})()
            one = built(given, threads=1)["y0"]
            assert np.array_equal(found, one)
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5, err_msg=str((h, w, p, q)))


def test_elements_of_no_weight_do_not_count():
    """Every second row and column lies on an element, whose neighbour is infinite."""
    g = Drawing(2)
    x = g.input("x", 1, 1, "h", "w")
    g.output(
        g("Resize", x, "", g.constant([1, 1, 2, 2]), mode="linear", coordinate_transformation_mode="asymmetric"), 4
    )
    built = halotile.compile(g.model())
    given = np.arange(20, dtype="float32").reshape(1, 1, 4, 5)
    given[0, 0, 2, 3] = np.inf
    found = built({"x": given})["y0"]
    assert np.array_equal(found[..., ::2, ::2], given)
    assert not np.isnan(found).any() and np.isinf(found).sum() == 9

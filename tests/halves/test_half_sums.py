"""Runs of float16 sums: added up in float32, the last one to these; in convolutions of up to MOST terms in float16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from board_tools import needs, needs_zig
from half_models import Net
from halotile.benchmarks.boards import emulator
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Options
from halotile.passes.halves.halves import END
from halotile.schedules.kernel.half_sums import MOST, SHORT, SPAN
from halotile.targets.resolve import resolve

PI5 = "raspberry-pi-5"


def rounded_sums(a: np.ndarray, b: np.ndarray, narrow: bool = False, head: int = 0) -> np.ndarray:
    """a b as runs of terms in float16, one multiply-add behind the other, all but the last added up in float32, or all
    in float16 where ``narrow``; the first ``head`` terms have runs of their own."""
    span, kind = (SHORT, np.float16) if narrow else (SPAN, np.float32)
    wide = np.zeros((len(a), b.shape[1]), kind)
    run = np.zeros(wide.shape, np.float16)
    edges = [*range(0, head, span), *range(head, len(b), span), len(b)]
    for begin, end in zip(edges, edges[1:]):
        if begin:
            wide = (wide + run.astype(kind)).astype(kind)
        run = np.zeros(wide.shape, np.float16)
        for term in range(begin, end):
            product = a[:, term, None].astype(np.float64) * b[term].astype(np.float64)
            run = (run.astype(np.float64) + product).astype(np.float16)  # rounded once, but where float64 rounds
    return run + wide.astype(np.float16)


def on_board(model: onnx.ModelProto, x: np.ndarray, folder: Path) -> np.ndarray:
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    halves = largest_of(model, "float16")
    options = Options(resolve(PI5), precision="float16", halves=halves, formats=("exe",), tile="off", threads=1)
    run_pipeline(model, options, output=folder)
    with RemoteModel(folder, " ".join(run)) as remote:
        (found,) = remote({"x0": x.astype(np.float32)}).values()
    return found


@pytest.mark.parametrize("depth", [SPAN - 1, SPAN, SPAN + 1, 2 * SPAN, 3 * SPAN + 7])
def test_runs_are_those_of_the_model_of_it(depth: int, tmp_path: Path) -> None:
    """To the last bit, of a product of 5 rows and 37 columns, nearly everywhere."""
    net = Net((5, depth), seed=depth)
    weights = (net.rng.standard_normal((depth, 37)) / np.sqrt(depth)).astype(np.float16)
    model = net.model(net.add("MatMul", "x0", net.const(weights.astype(np.float32))))
    x = np.random.default_rng(3).standard_normal((5, depth)).astype(np.float16)
    found = on_board(model, x, tmp_path / "out")
    wanted = rounded_sums(x, weights).astype(np.float32)
    assert (found == wanted).mean() > 0.99
    assert np.abs(found - wanted).max() <= 2.0**-10 * np.abs(wanted).max()


@pytest.mark.parametrize("depth", [SPAN, SPAN + 8, 3 * SHORT, 3 * SHORT + 40, MOST, MOST + 8])
def test_runs_of_convolutions_are(depth: int, tmp_path: Path) -> None:
    """The same of a 1x1 convolution of 5 positions, whose first blocks of channels, beside which it asks for the lines
    of its results, are summed apart."""
    net = Net((1, depth, 1, 5), seed=depth)
    weights = (net.rng.standard_normal((depth, 37)) / np.sqrt(depth)).astype(np.float16)
    kernel = net.const(weights.T.reshape(37, depth, 1, 1).astype(np.float32))
    model = net.model(net.add("Conv", "x0", kernel))
    x = np.random.default_rng(3).standard_normal((5, depth)).astype(np.float16)
    found = on_board(model, x.T.reshape(1, depth, 1, 5), tmp_path / "out")[0, :, 0].T
    heads = [rounded_sums(x, weights, SPAN < depth <= MOST, 8 * h).astype(np.float32) for h in range(9)]
    wanted = max(heads, key=lambda w: float((found == w).mean()))
    assert (found == wanted).mean() > 0.99
    assert np.abs(found - wanted).max() <= 2.0**-10 * np.abs(wanted).max()


def alternating(depth: int) -> tuple[onnx.ModelProto, np.ndarray]:
    """Products of one sign in the first half and of the other in the second: results are near zero, sums on the way
    are not. Every row has its own size, of weights of about one."""
    net = Net((7, depth), seed=depth)
    signs = np.where(np.arange(depth) < depth // 2, 1.0, -1.0)
    weights = signs[:, None] * np.linspace(0.75, 1.0, 13)
    model = net.model(net.add("MatMul", "x0", net.const(weights.astype(np.float16).astype(np.float32))))
    return model, np.abs(weights.astype(np.float16).astype(np.float64)).sum(0).max()


@pytest.mark.parametrize("depth", [2 * SPAN, 3 * SPAN + 62, MOST + 2 * SPAN])
def test_sums_that_leave_the_range_on_the_way_are_float32(depth: int, tmp_path: Path) -> None:
    """At the boundary: the largest inputs whose sums fit are multiplied in float16 and give no infinity, and for those
    a little larger the layer stays in float32."""
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    model, size = alternating(depth)
    (name,) = [n.name for n in model.graph.node]
    edge = np.float16(np.nextafter(np.float16(END / size), np.float16(0)))
    weights = onnx.numpy_helper.to_array(model.graph.initializer[0]).astype(np.float64)
    for number, (most, half) in enumerate(((float(edge), True), (1.01 * END / size, False), (4000.0, False))):
        seen = {name: most}
        options = Options(resolve(PI5), precision="float16", halves=seen, formats=("exe",), tile="off", threads=1)
        build = run_pipeline(model, options, output=tmp_path / str(number))
        assert (build.details.get("halves", {}).get("in_float16", 0) == 1) == half
        assert half or any("sums of some of its terms could reach" in note for note in build.notes["halves"])
        x = np.full((7, depth), most, np.float16).astype(np.float32)
        x[1] *= np.linspace(0.5, 1, depth, dtype=np.float32).astype(np.float16)
        with RemoteModel(tmp_path / str(number), " ".join(run)) as remote:
            (found,) = remote({"x0": x}).values()
        exact = x.astype(np.float64) @ weights
        assert np.isfinite(found).all()
        assert np.abs(found - exact).max() <= 2.0**-11 * (SPAN + 40) * np.abs(x).max() * size

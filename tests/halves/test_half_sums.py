"""Runs of float16 sums: all but the last go to float32, which the last one is added to where results are rounded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from board_tools import needs, needs_zig
from half_models import Net
from halotile.benchmarks.boards import emulator
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Options
from halotile.schedules.kernel.half_sums import SPAN
from halotile.targets.resolve import resolve

PI5 = "raspberry-pi-5"


def rounded_sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b as runs of SPAN terms in float16, one multiply-add behind the other, all but the last added up in float32."""
    wide = np.zeros((len(a), b.shape[1]), np.float32)
    run = np.zeros(wide.shape, np.float16)
    for begin in range(0, len(b), SPAN):
        if begin:
            wide += run.astype(np.float32)
        run = np.zeros(wide.shape, np.float16)
        for term in range(begin, min(begin + SPAN, len(b))):
            product = a[:, term, None].astype(np.float64) * b[term].astype(np.float64)
            run = (run.astype(np.float64) + product).astype(np.float16)  # rounded once, but where float64 rounds
    return run + wide.astype(np.float16)


@pytest.mark.parametrize("depth", [SPAN - 1, SPAN, SPAN + 1, 2 * SPAN, 3 * SPAN + 7])
def test_runs_are_those_of_the_model_of_it(depth: int, tmp_path: Path) -> None:
    """To the last bit, of a product of 5 rows and 37 columns, nearly everywhere."""
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    net = Net((5, depth), seed=depth)
    weights = (net.rng.standard_normal((depth, 37)) / np.sqrt(depth)).astype(np.float16)
    model = net.model(net.add("MatMul", "x0", net.const(weights.astype(np.float32))))
    x = np.random.default_rng(3).standard_normal((5, depth)).astype(np.float16)
    halves = largest_of(model, "float16")
    options = Options(resolve(PI5), precision="float16", halves=halves, formats=("exe",), tile="off", threads=1)
    run_pipeline(model, options, output=tmp_path / "out")
    with RemoteModel(tmp_path / "out", " ".join(run)) as remote:
        (found,) = remote({"x0": x.astype(np.float32)}).values()
    wanted = rounded_sums(x, weights).astype(np.float32)
    assert (found == wanted).mean() > 0.99
    assert np.abs(found - wanted).max() <= 2.0**-10 * np.abs(wanted).max()

"""Random graphs of integer operators at the edges of every type, against numpy.

HALOTILE_INTEGERS=2000 runs so many, in some minutes; a part of them always runs.
"""

from __future__ import annotations

import os

import halotile
import numpy as np
import pytest
from integer_graphs import random_graphs

EACH = 20  # graphs of a model
SEEDS = range(max(1, int(os.environ.get("HALOTILE_INTEGERS", "60")) // EACH))


@pytest.mark.sampled
@pytest.mark.parametrize("exact", [False, True], ids=["default", "exact"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_integers_are_those_of_numpy(seed: int, exact: bool) -> None:
    graphs = random_graphs(seed, EACH)
    compiled = halotile.compile(graphs.model(), threads=1, exact=exact)
    got = compiled({i.name: graphs.inputs[i.name] for i in compiled.inputs})
    for name, wanted in graphs.wanted.items():
        assert got[name].dtype == wanted.dtype and got[name].shape == wanted.shape, graphs.stories[name]
        np.testing.assert_array_equal(got[name], wanted, graphs.stories[name])

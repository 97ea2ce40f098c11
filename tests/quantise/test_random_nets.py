"""Random networks in bytes: those of ONNX Runtime's quantiser, within float32's tolerance, on any number of threads.

    HALOTILE_RANDOM_NETS=0:500 pytest -s tests/quantise/test_random_nets.py -k many     that many, from that seed on
"""

from __future__ import annotations

import os

import halotile
import numpy as np
import pytest
from random_nets import drawn, random_nets


def checked(seeds: range, tile: str) -> int:
    """How many layers of the networks are in bytes."""
    model = random_nets(seeds)
    samples = [drawn(model, 100 * seeds.start + i) for i in range(6)]
    built = halotile.compile(model, precision="int8", calibrate=samples, threads=2, tile=tile)
    verdict = built.verify(model=model)
    assert verdict.ok, (seeds, verdict)
    inputs = drawn(model, seeds.start)
    found, again = (built(inputs, threads=n) for n in (1, 2))
    assert all(np.array_equal(found[name], again[name]) for name in found)
    return int(built.report["int8"]["layers"])


@pytest.mark.parametrize(("seeds", "tile"), [(range(5), "auto"), (range(5, 10), "off")])
def test_answers_are_those_of_the_networks_in_bytes(seeds: range, tile: str) -> None:
    assert checked(seeds, tile) > 8


@pytest.mark.skipif("HALOTILE_RANDOM_NETS" not in os.environ, reason="HALOTILE_RANDOM_NETS=first:count asks for many")
def test_many() -> None:
    first, count = (int(n) for n in os.environ["HALOTILE_RANDOM_NETS"].split(":"))
    for seed in range(first, first + count, 10):
        layers = checked(range(seed, min(seed + 10, first + count)), ("auto", "off")[seed // 10 % 2])
        print(f"{seed}: {layers} layers in bytes", flush=True)

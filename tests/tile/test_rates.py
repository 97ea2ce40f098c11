"""What the memory of a machine is like decides how deep tile groups are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled import native
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import Options, run_pipeline
from halotile.passes.tile.rates import Rates
from halotile.targets.target import Target

DESKTOP = replace(native(), fma_ports=1, vector_bits=512, l2_bytes=1 << 20, l3_bytes=32 << 20, far_bytes=12)
SERVER = replace(native(), fma_ports=2, vector_bits=512, l2_bytes=2 << 20, l3_bytes=300 << 20, far_bytes=10)


def test_rates_follow_from_the_target() -> None:
    desktop, server = Rates.of(DESKTOP, 1), Rates.of(SERVER, 1)
    assert (desktop.far, desktop.ahead, desktop.memory) == (16.0, 12.0, 4.0)
    assert desktop.hides and desktop.kept == 8 << 20
    assert server.far == pytest.approx(40 / 3) and server.ahead == 10.0 and server.memory == 8.0
    assert not server.hides and server.kept == 204 << 20
    assert server.at(118e6) == server.far and desktop.at(118e6) == desktop.memory


@pytest.mark.parametrize(("target", "least", "most"), [(DESKTOP, 5, 32), (SERVER, 0, 2)])
def test_deep_groups_of_edsr_are_for_a_small_last_level(target: Target, least: int, most: int) -> None:
    """Its values are 59 MB each: through memory on the one, while the other's last level holds them, and layers that
    write to rings that left the second level in the meantime are slower than whole ones (0.91)."""
    build = run_pipeline(MODELS["edsr"].model(), Options(target=target, threads=1, stop_after="tile"))
    deepest = max((len(p.members) for p in build.tiled.values()), default=0)
    assert least <= deepest <= most

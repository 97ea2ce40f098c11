"""Which sizes make a kernel too small to share."""

from __future__ import annotations

from halotile.compiler.codegen.launches import alone
from halotile.schedules.words import sizes
from halotile.schedules.words.dims import Dim
from halotile.schedules.words.group import Kernel, Value


def test_of_tensors_that_are_as_large_the_first_is_looked_at() -> None:
    """Which of them a set of values had first depended on where these lay: two builds of a model were different."""
    with sizes.no_symbols():
        sizes.TYPICAL.set({"h": 224})
        h = Dim.symbol("h", 1, 4096)
        counts = [h * 64, (h + 3) // 4 * 256, (h + 7) // 8 * 512, (h + 15) // 16 * 1024, (h + 31) // 32 * 2048]
        assert len({sizes.usual(size) for size in counts}) == 1
        for first in range(len(counts)):
            own = counts[first:] + counts[:first]
            values = tuple(Value(f"v{i}", (size,), "float32") for i, size in enumerate(own))
            told = alone(Kernel(None, values, values[:1], "", 0, 0))
            assert str(told) == str(alone(Kernel(None, values[:1], values[:1], "", 0, 0)))

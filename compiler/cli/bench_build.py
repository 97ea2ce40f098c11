"""``halotile bench DIR``: a built folder measured by its own program, here or elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from . import parameters
from .console import columns, emit, size

if TYPE_CHECKING:
    from ...targets.plain import Json

_COLUMNS = ("min", "p50", "p90", "p99", "max", "mean")


def bench_build(
    directory: str, on: str | None, threads: Sequence[int], warmup: int, runs: int, affinity: str | None,
    wanted: Mapping[str, int], quiet: bool = False,
) -> list[Json]:  # fmt: skip
    """Times of ``directory``'s program with each number of threads; prints a table, unless ``quiet``, and returns the
    figures. ``wanted``: sizes of open dimensions; the others have their typical ones."""
    from ..remote.model import RemoteModel
    from ..sized import chosen_sizes

    folder = parameters.check_library_path(directory)
    with RemoteModel(folder, on or "") as model:
        sizes = chosen_sizes(model, {}, wanted)
        found = [model.bench(count, warmup, runs, affinity, sizes) for count in threads]
        named = "".join(f", {name} {number}" for name, number in sizes.items())
        where = f"for {found[0]['target']} on {model.place}"
        head = f"{model.name}{named} {where}: {runs} runs after {warmup}, milliseconds"
    rows = [("threads", *_COLUMNS, "peak memory")]
    for entry in found:
        times = entry["milliseconds"]
        rows.append((entry["threads"], *(f"{times[c]:.3f}" for c in _COLUMNS), size(entry["peak_bytes"])))
    if not quiet:
        emit(head)
        emit(columns(rows))
    return found

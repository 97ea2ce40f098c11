"""What the harness found: plain dataclasses, as they go into the JSON file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from ..compiler.page.peak import Peak
from .summary import Summary, geometric_mean, paired_ratio

if TYPE_CHECKING:
    from ..targets.plain import Json

OURS = "halotile"


@dataclass
class EngineResult:
    """One engine on one model at one thread count, at a ``precision``: f32, or what it takes by itself. ``error``: why
    it has no figure; ``wrong``: where it disagrees; ``peak_rss`` of its process, and ``arena_bytes`` if it is ours."""

    engine: str
    version: str = ""
    load_seconds: float = 0.0
    peak_rss: int = 0
    foreign_cores: float = 0.0
    times: Summary | None = None
    error: str | None = None
    wrong: str | None = None
    arena_bytes: int = 0
    precision: str = "f32"

    @property
    def counts(self) -> bool:
        return self.times is not None and self.error is None and self.wrong is None


@dataclass
class BuildResult:
    """What compiling gave: the report's figures that the harness uses."""

    seconds: float
    stages: dict[str, float]
    flops: float
    moved: float
    arena_bytes: int
    weight_bytes: int
    kernels: list[Json] = field(default_factory=list)


@dataclass
class ModelResult:
    """All engines on one model at one thread count."""

    model: str
    threads: int
    engines: list[EngineResult]
    build: BuildResult | None
    warnings: list[str] = field(default_factory=list)
    fma_fraction: float | None = None
    limit_fraction: float | None = None
    peak: Peak | None = None

    def engine(self, name: str) -> EngineResult | None:
        return next((e for e in self.engines if e.engine == name), None)

    @property
    def best_peer(self) -> EngineResult | None:
        peers = [e for e in self.engines if e.counts and not e.engine.startswith(OURS)]
        return min(peers, key=lambda e: e.times.median if e.times else 0.0, default=None)

    def ratio(self, engine: str = OURS) -> float | None:
        """Median of the best peer over ours: above 1, we are faster. None when either has no figure that counts."""
        peer, ours = self.best_peer, self.engine(engine)
        if peer is None or ours is None or not ours.counts or peer.times is None or ours.times is None:
            return None
        return peer.times.median / ours.times.median

    def cost_of(self, variant: str) -> float | None:
        """Median of ``variant``, one of our builds without something, over that of ours: what it is worth."""
        ours, other = self.engine(OURS), self.engine(variant)
        if ours is None or other is None or not other.counts or ours.times is None or other.times is None:
            return None
        return other.times.median / ours.times.median

    def ratio_range(self) -> tuple[float, float] | None:
        """Lowest and highest ratio over the rounds, each of which ran both engines one after the other."""
        peer, ours = self.best_peer, self.engine(OURS)
        if self.ratio() is None or peer is None or ours is None or peer.times is None or ours.times is None:
            return None
        return paired_ratio(peer.times.rounds, ours.times.rounds)[1:]


def mean_ratio(results: Iterable[ModelResult], threads: int) -> float | None:
    """Geometric mean of the ratios at one thread count; None when there is none."""
    ratios = [r for result in results if result.threads == threads and (r := result.ratio()) is not None]
    return geometric_mean(ratios) if ratios else None


def mean_cost(results: Iterable[ModelResult], threads: int, variant: str) -> float | None:
    """Geometric mean of what ``variant`` costs at one thread count; None when there is no figure."""
    costs = [c for result in results if result.threads == threads and (c := result.cost_of(variant)) is not None]
    return geometric_mean(costs) if costs else None


def variants_of(results: Iterable[ModelResult]) -> list[str]:
    """Our builds without something, or within a budget, in the order they were measured."""
    engines = [e.engine for r in results for e in r.engines]
    return [name for name in dict.fromkeys(engines) if name.startswith(OURS) and name != OURS]


def peak_of(results: Iterable[ModelResult], threads: int) -> Peak | None:
    """The fastest that the machine was seen at that thread count; None when it was not measured."""
    peaks = [r.peak for r in results if r.threads == threads and r.peak is not None]
    return max(peaks, key=lambda p: p.flops, default=None)


def as_data(results: list[ModelResult], machine: Json) -> Json:
    """Everything as plain data for JSON; derived figures are written beside the measured ones."""
    models = []
    for result in results:
        plain = asdict(result)
        best = result.best_peer
        plain |= {
            "ratio": result.ratio(),
            "ratio_range": result.ratio_range(),
            "best_peer": best.engine if best else None,
            "costs": {v: result.cost_of(v) for v in variants_of([result])},
        }
        models.append(plain)
    counts = sorted({r.threads for r in results})
    return {
        "machine": machine,
        "geometric_mean": {str(t): mean_ratio(results, t) for t in counts},
        "geometric_mean_costs": {str(t): {v: mean_cost(results, t, v) for v in variants_of(results)} for t in counts},
        "models": models,
    }

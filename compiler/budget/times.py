"""What each layer is predicted to take in each precision: the pipeline run up to its choices, by the cost model.

    pure = Times(shares, options).layer_by_layer(kind)      {layer: cycles}, all layers in ``kind`` that may be
    Times(shares, options).cycles({"conv1": "int8", ...})   of the whole model as it would be built

A layer takes what the kernels take that its product is in. What is between such kernels counts for the whole alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...passes.tile.search.predict import predicted_cycles
from ...schedules.instructions.amx import has_matrix_unit
from ...schedules.instructions.bf16_pairs import has_pairs
from ...schedules.instructions.int8_dot import data_dtype
from ...schedules.words.group import PRODUCTS
from ..pipeline import run_pipeline
from ..quantise.halves import largest_in
from ..state import Build, Options
from .shares import Precisions, Shares


@dataclass(frozen=True)
class Pure:
    """All layers in one precision: ``cycles`` of each, and those that are ``able`` to be in it; ``why`` others are not,
    where it is known."""

    cycles: Mapping[str, float]
    able: frozenset[str]
    together: tuple[frozenset[str], ...]  # layers that are one kernel
    why: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Times:
    """``options`` are those of the build, ``shares`` know the model."""

    shares: Shares
    options: Options
    known: dict[frozenset[tuple[str, str]], float] = field(default_factory=dict)

    @cached_property
    def open(self) -> bool:
        """True if dimensions stay open, which float16 has no kernels for."""
        options = replace(self.options, stop_after="import")
        return bool(run_pipeline(self.shares.model, options).imported.symbols)

    @cached_property
    def kinds(self) -> list[tuple[str, ...]]:
        """The precisions beside float32 that the target has faster forms for: those in one tuple go with each other."""
        options, target = self.options, self.options.target
        unit = options.policy.parts and has_matrix_unit(target)
        found = [kind for kind, there in (
            ("bfloat16", unit or has_pairs(target)),
            ("int8", data_dtype(target) is not None),
        ) if there]  # fmt: skip
        apart = [("float16",)] if target.has_halves and not unit and not self.open else []
        return [*([tuple(found)] if found else []), *apart]

    @cached_property
    def largest(self) -> Mapping[str, float]:
        return largest_in(self.shares.model, [dict(s) for s in self.shares.split.used])

    def built(self, precision: Precisions, beside: bool = False) -> Build:
        """The pipeline's state where it knows how each kernel is computed; what is in float32 as it is ``beside``
        float16, whose blocks of channels it then has."""
        options = replace(with_precisions(self.options, precision, self.largest), stop_after="select", tile="off")
        if beside:
            options = replace(options, target=replace(options.target, in_halves=True))
        if self.open:
            sample = self.shares.used[0]
            options = replace(options, shapes={name: tuple(map(int, array.shape)) for name, array in sample.items()
                                               if name not in (options.fixed or {})})  # fmt: skip
        return run_pipeline(self.shares.in_bytes(precision), options)

    def cycles(self, precision: Precisions) -> float:
        """Predicted cycles of a run of the whole model."""
        key = frozenset((n, p) for n, p in precision.items() if p != "float32")
        if key not in self.known:
            self.known[key] = sum(_cycles(self.built(precision)))
        return self.known[key]

    def layer_by_layer(self, kind: str, beside: bool = False) -> Pure:
        """What each layer takes where all are in ``kind``; in float32, also ``beside`` float16."""
        names = frozenset(n.name for n in self.shares.layers)
        build = self.built(dict.fromkeys(names, kind), beside)
        cycles = _cycles(build)
        found: dict[str, float] = {}
        able: set[str] = set()
        together = []
        for group, taken in zip(build.groups, cycles):
            own = names & set(group.weighed)
            if own:
                together.append(own)
            for name in own:
                found[name] = found.get(name, 0.0) + taken / len(own)
            if kind != "float16" or any(n.operator in PRODUCTS and n.results[0].dtype == kind for n in group.nodes):
                able |= own
        why = {str(n): str(w) for n, w in build.details.get("halves", {}).get("left", {}).items()}
        return Pure(found, frozenset(able), tuple(together), why)


def with_precisions(options: Options, precision: Precisions, largest: Mapping[str, float]) -> Options:
    """The options of a build, of the model in bytes, whose layers have these precisions."""
    narrow = {p for p in precision.values() if p in ("bfloat16", "float16")}
    assert len(narrow) < 2, "one of them a build"
    kind = narrow.pop() if narrow else "float32"
    layers = {name: p for name, p in sorted(precision.items()) if p == kind != "float32"}
    return replace(
        options, int8=None, precision=kind, halves=largest if kind == "float16" else None, assigned={"layers": layers}
    )


def _cycles(build: Build) -> list[float]:
    placed = (*build.graph.inputs, *build.graph.outputs)
    return predicted_cycles(
        build.groups, build.layouts, build.places, placed, build.target, build.options.policy, build.closing
    )

"""A kernel as it is measured and as it is predicted: in seconds, and in cycles of a target with any constants."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ...compiler.pipeline import run_pipeline
from ...compiler.runtime.loader import load
from ...compiler.runtime.private import PrivateFolder
from ...compiler.sample import random_inputs
from ...compiler.state import Build, Options
from ...passes.tile.search.model import SearchModel
from ...passes.tile.search.program import Program
from ...schedules.conv import ConvFacts, supports_conv
from ...schedules.dispatch import family_of
from ...schedules.instructions.amx import has_matrix_unit
from ...schedules.instructions.bf16_parts import products_of
from ...schedules.matmul import PRODUCTS
from ...schedules.matmul.amx_blocks import ProductShape, choose_registers
from ...schedules.matmul.facts import MatmulFacts
from ...schedules.matmul.register_tile import least_cost, tile_space
from ...schedules.matmul.strassen import rows_of_image, seven_cycles
from ...schedules.operators.kind import facts_of
from ...schedules.words.choice import Choice
from ...schedules.words.group import Group, Request
from ...targets.target import Target
from .layers import LayerChain

LEAST_RUNS = 4
MATRIX, SEVEN = "the matrix unit", "seven products"  # algorithms of products
GENERAL = "maps, pools, norms"


class Sample(Protocol):
    """A kernel of ``family`` that took ``seconds``."""

    @property
    def family(self) -> str: ...

    @property
    def seconds(self) -> float: ...

    def cycles(self, target: Target) -> float:
        """What is predicted for the kernel on ``target``."""


@dataclass
class HeldModel(SearchModel):
    """The planner's model of a build, which takes the algorithms that were built whatever constants say."""

    choices: dict[Group, Choice] = field(default_factory=dict)

    def request(self, group: Group) -> Request:
        return replace(super().request(group), choice=self.choices.get(group))


@dataclass
class Network:
    """A build of one thread, and the planner's model of it by target."""

    build: Build
    models: dict[Target, HeldModel] = field(default_factory=dict)

    def model(self, target: Target) -> HeldModel:
        own = self.build.target
        seen = replace(target, weights_stay=own.weights_stay, cores=1)
        seen = replace(seen, in_halves=own.in_halves, half_growth=own.half_growth)
        if seen not in self.models:
            if len(self.models) > 8:
                self.models.clear()
            build = self.build
            placed = frozenset((*build.graph.inputs, *build.graph.outputs))
            program = Program(build.groups, build.layouts, build.places, placed)
            choices = {g: c for g, c in build.choices.items() if g.anchor is not None and supports_conv(g.anchor)}
            self.models[seen] = HeldModel(program, seen, 1, build.options.policy, build.closing, choices=choices)
        return self.models[seen]


@dataclass(frozen=True)
class KernelSample:
    """Kernel ``index`` of a network, as a :class:`Sample`."""

    network: Network
    index: int
    seconds: float = 0.0

    @property
    def group(self) -> Group:
        group: Group = self.network.build.groups[self.index]
        return group

    @property
    def name(self) -> str:
        return self.group.name

    @property
    def choice(self) -> Choice:
        choice: Choice = self.network.build.choices[self.group]
        return choice

    @property
    def family(self) -> str:
        anchor = self.group.anchor
        if anchor is None:
            return GENERAL
        if supports_conv(anchor):
            return f"convolution: {self.choice.algorithm}" if ConvFacts.of(anchor).taps else GENERAL
        return f"product: {self.choice.algorithm}" if self._is_product else GENERAL

    @property
    def _is_product(self) -> bool:
        return family_of(self.network.model(self.network.build.target).request(self.group)) is PRODUCTS

    def cycles(self, target: Target) -> float:
        """On one core; a kernel's start is that of a call."""
        call = target.fitted.with_values({("kernels", "launch"): target.fitted.kernels.call})
        model = self.network.model(replace(target, fitted=call))
        if self.family.startswith("product"):
            self._count_product(model)
        return float(model.whole(self.index).cycles)

    def _count_product(self, model: HeldModel) -> None:
        """Lets the planner's model take the cycles of the product's algorithm, which its boxes need not tell apart."""
        group = self.group
        if group in model.whole_costs:
            return
        assert group.anchor is not None
        cost, output, kernels = model.cost(self.index), group.outputs[0], model.target.fitted.kernels
        around = (n for n in group.nodes if n is not group.anchor)
        each = sum(kernels.function if facts_of(n).calls_functions else kernels.epilogue for n in around)
        own = product_cycles(model.request(group), self.choice)
        own += each * output.elements / model.target.lanes(output.dtype)
        model.whole_costs[group] = replace(cost, cycles=own / cost.positions)


def product_cycles(request: Request, choice: Choice) -> float:
    """Of a float32 product with constant weights by the algorithm that was chosen, on one core."""
    assert request.group.anchor is not None
    facts, target = MatmulFacts.of(request.group.anchor), request.target
    if choice.algorithm == MATRIX:
        shape = ProductShape(facts.rows, facts.k, facts.n, 1, products_of(request.policy))
        return choose_registers(target, shape, 1)[0]
    rows = rows_of_image(facts)
    seven = seven_cycles(target, rows, facts.k, facts.n, facts.output.dtype) if choice.algorithm == SEVEN else None
    if seven is not None:
        return seven * (facts.rows // rows)
    return facts.steps * least_cost(target, *tile_space(request, facts))


@dataclass(frozen=True)
class Variant:
    """What builds of the networks allow: products on the matrix unit, sums in another order than the model's."""

    matrix: bool = True
    exact: bool = False

    def options(self, target: Target) -> Options:
        """On one core, layer by layer, with a timer in each kernel."""
        alone = replace(target, cores=1)
        return Options(alone, threads=1, tile="off", timers=True, matrix=self.matrix, exact=self.exact)


def variants(target: Target) -> list[Variant]:
    """What is measured: as it comes, without the matrix unit, in the model's own order."""
    found = [Variant(), Variant(matrix=False)] if has_matrix_unit(target) else [Variant()]
    return [*found, Variant(exact=True)]


def predicted_kernels(chain: LayerChain, target: Target, variant: Variant) -> list[KernelSample]:
    """The chain's kernels, neither built nor measured."""
    build = run_pipeline(chain.model(), replace(variant.options(target), stop_after="select"))
    network = Network(build)
    return [KernelSample(network, i) for i in range(len(build.groups))]


def measured_kernels(found: Sequence[LayerChain], target: Target, seconds: float) -> Iterator[KernelSample]:
    """All kernels of the chains in all variants, each chain run for ``seconds`` and at least LEAST_RUNS times. Layers
    that an earlier variant computed by the same algorithm are not measured twice."""
    for chain in found:
        seen: set[tuple[str, str]] = set()
        for variant in variants(target):
            with PrivateFolder() as folder:
                build = run_pipeline(chain.model(), variant.options(target), output=Path(folder, "chain"))
                times = _kernel_seconds(Path(folder, "chain"), build, seconds)
            network = Network(build)
            for i, taken in enumerate(times):
                kernel = KernelSample(network, i, taken)
                key = kernel.name, f"{kernel.family} {build.kernels[i].schedule}"
                if key not in seen and taken > 0:
                    seen.add(key)
                    yield kernel


def _kernel_seconds(folder: Path, build: Build, seconds: float) -> list[float]:
    """The lower quartile of each kernel's times: what else the machine does only adds."""
    runs: list[Sequence[float]] = []
    with load(folder, threads=1) as model:
        feeds = random_inputs(build.imported.inputs)
        model(feeds)
        end = time.perf_counter() + seconds
        while len(runs) < LEAST_RUNS or time.perf_counter() < end:
            model(feeds)
            runs.append(model.kernel_seconds() or ())
    return [statistics.quantiles(column, n=4)[0] for column in zip(*runs, strict=True)]

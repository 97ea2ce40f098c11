"""What a build is asked for and what its stages have made so far: the state that runs down the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..schedules.words.half_error import HalfError
from ..schedules.words.policy import Policy, Tuning
from ..targets.plain import JsonView
from ..targets.target import Target
from .cache.place import cache_of_environment
from .cache.store import Cache
from .images import Plain
from .options import Fixed, Shapes
from .stream.columns import StreamFit

if TYPE_CHECKING:  # most of these load TVM
    from tvm import IRModule

    from ..passes.fuse.graph import ProgramGraph
    from ..passes.memory.places import Places
    from ..passes.memory.plan import MemoryPlan
    from ..schedules.kernel.cache import Repeats
    from ..schedules.words.choice import Choice
    from ..schedules.words.group import Group, Kernel, SharedWeights, Value
    from ..schedules.words.layout import Layout
    from ..schedules.words.stripe_plan import StripePlan
    from ..schedules.words.tile_plan import TilePlan
    from ..targets.plain import Json
    from .codegen.module import WeightBlob
    from .codegen.spec import BuiltLibrary, LibrarySpec
    from .flow.kernel import FlowKernel
    from .frontend.importer import ImportedModel
    from .stream.words import StreamPlan

UNMADE: Any = None  # what a stage has yet to make
REWRITES = ("simplify", "reassociate", "dots", "numbers", "merge")  # stages from a Relax module to another
STAGES = ("import", *REWRITES, "fuse", "layout", "select", "tile", "schedule", "plan", "assemble", "link")
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Options:
    """What a build is asked for. ``shapes`` fixes, bounds and names open dimensions, ``typical`` says what to plan for
    of those that stay open, and ``open`` whether they stay so to the end; ``fixed`` are values of inputs. ``threads``
    None takes the target's cores; ``formats`` are what is linked (so, a, exe, extras), ``cc`` the compiler that does
    it. ``tile``: auto, off, or a wish (passes/tile/user_request.py); None is auto. ``memory_budget`` is in bytes.
    ``tuning`` are choices that were measured (schedules/words/candidates.py), ``candidate`` which of each kernel's
    candidates to build for such a measurement. ``dots``: sums of products of bytes in int32, where the target has the
    instruction. ``matrix``: products of float32 in parts, where the target has a matrix unit. ``weights``: float32, or
    float16 for those of convolutions and matrix products. ``precision``: float32, or bfloat16 or float16 where that is
    faster. ``flush_denormals``: runs count floats below the normal ones
    as zero. ``inputs`` and ``outputs``: pre- and post-processing, by name, as plain data (images.py).
    ``int8``: the plan of layers in bytes, ranges included (compiler/quantise/plan.py). ``halves``: by node, the largest
    magnitude around it over the samples, by which layers may be in float16 (compiler/quantise/halves.py);
    ``half_error``: what that makes outputs off by, and what stays more exact for it (compiler/budget/bounded.py).
    ``assigned``: the precision of each layer, by which an error is kept, and what it is (compiler/budget/plan.py);
    ``precision`` and ``int8`` have what that means for a build.
    ``stream``: the network in steps of about so many rows of the image, whose height is open (compiler/stream); 0
    leaves their number to us. ``fit``: how it keeps within ``memory_budget`` (compiler/stream/fit.py), once known.
    ``levels`` are further targets, from less to more, of one architecture: the library has code for each of them.
    ``cache`` keeps compiled code for later builds; unless told, where the environment says
    (compiler/cache/place.py). ``explain``: the select stage notes what every algorithm says of every group."""

    target: Target
    shapes: Shapes | None = None
    typical: Mapping[str, int] | None = None
    open: bool = True
    fixed: Mapping[str, Fixed] | None = None
    threads: int | None = None
    exact: bool = False
    float_mode: str = "strict"
    name: str | None = None
    stop_after: str | None = None
    dump_ir: Path | None = None
    simplify: bool = True
    check: bool = False
    fuse: bool = True
    layout: bool = True
    winograd: bool = True
    matrix: bool = True
    dots: bool = True
    tile: str | JsonView | None = None
    memory_budget: int | None = None
    optimize: str = "speed"
    tuning: Mapping[str, str] | None = None
    candidate: int = 0
    timers: bool = False
    weights: str = "float32"
    precision: str = "float32"
    flush_denormals: bool = False
    inputs: Plain | None = None
    outputs: Plain | None = None
    formats: tuple[str, ...] = ("so",)
    cc: str | None = None
    cache: Cache | None = field(default_factory=cache_of_environment)
    explain: bool = False
    levels: tuple[Target, ...] | None = None
    int8: JsonView | None = None
    halves: Mapping[str, float] | None = None
    half_error: HalfError | None = None
    assigned: JsonView | None = None
    stream: int | None = None
    fit: StreamFit | None = None

    @property
    def arena_budget(self) -> int | None:
        """The most bytes that the arena may take: of a stream, what its fit leaves of the memory budget."""
        return self.memory_budget if self.fit is None else self.fit.arena

    @cached_property
    def policy(self) -> Policy:
        """What these options allow kernels."""
        return Policy.of(
            exact=self.exact,
            winograd=self.winograd,
            matrix=self.matrix,
            weights=self.weights,
            precision=self.precision,
            speed=self.arena_budget is None and self.optimize == "speed",
            threads=self.threads or self.target.cores,
            float_mode=self.float_mode,
            tuning=None if self.tuning is None else Tuning(self.tuning, self.candidate),
            layers=None if self.assigned is None else self.assigned["layers"],
        )


@dataclass
class Build:
    """Everything the stages have made so far; a stage reads what it needs and fills in its own."""

    source: Any
    options: Options
    output: Path | None = None
    level: int = 0  # of the library's levels of processors, the one that this is
    beneath: WeightBlob | None = None  # the weights that the levels above it have
    progress: Progress | None = None
    imported: ImportedModel = UNMADE
    module: IRModule = UNMADE
    wide: IRModule | None = None  # the same before layers went into float16, where some did
    stream: StreamPlan | None = None  # the plan of a network in steps (compiler/stream/words.py)
    target: Target = UNMADE  # the options' one, as the choice of kernels for this model sees it
    graph: ProgramGraph = UNMADE
    groups: tuple[Group, ...] = ()
    views: dict[Value, Value] = field(default_factory=dict)
    places: Places = UNMADE
    closing: frozenset[Value] = frozenset()  # what the last sums of products before the outputs write
    shared: SharedWeights | None = None  # the form of weights that several products read
    layouts: dict[Value, Layout] = field(default_factory=dict)
    choices: dict[Group, Choice] = field(default_factory=dict)  # group computed whole -> how
    vanished: dict[Value, Group] = field(default_factory=dict)  # a first result -> the group that slices replaced
    tiled: dict[Group, TilePlan | StripePlan] = field(default_factory=dict)  # group of several -> the plan of its tiles
    rooms: dict[Group, int] = field(default_factory=dict)  # whole group -> the most bytes that a core holds beside
    ready: dict[Group, Kernel] = field(default_factory=dict)  # group -> its kernel, where the tile stage had to know it
    flows: dict[Group, FlowKernel] = field(default_factory=dict)  # group that is a loop or a branch -> its kernel
    repeats: Repeats | None = None  # kernels that groups of one form share
    kernels: tuple[Kernel, ...] = ()
    memory: MemoryPlan = UNMADE
    weights: WeightBlob = UNMADE
    symbols: list[str] = field(default_factory=list)
    streams: dict[str, int] = field(default_factory=dict)  # symbol -> its stores that go past the caches
    library: LibrarySpec = UNMADE
    built: BuiltLibrary | None = None
    notes: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    reach: tuple[Json, ...] = ()  # what outputs need of inputs
    details: Json = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    levels: list[Json] = field(default_factory=list)  # what there is for each level of processors
    report: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.target = self.options.target

    def tell(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)

    def followed(self, options: Options, output: Path | None, progress: Progress | None) -> Build:
        """A build that has come as far as this one, and goes on as ``options`` say of all that is yet to be made."""
        own = replace(self.options, stop_after=options.stop_after, formats=options.formats, timers=options.timers)
        build = replace(
            self, options=own, output=output, progress=progress, symbols=list(self.symbols),
            streams=dict(self.streams), notes=dict(self.notes), warnings=list(self.warnings),
            details=dict(self.details), seconds=dict(self.seconds), levels=list(self.levels),
        )  # fmt: skip
        build.target = self.target
        return build

"""Tile groups and memory budgets of models whose sizes are open.

What is tiled, and in which shape, is searched for on the program's twin at the sizes that matter: the largest, where a
budget is to hold there; for the smallest arena, the typical ones; for speed, images of twice the typical rows and
columns, if these take far more memory than caches keep: what gains time there gains more in larger ones.
Plans are then made for every size (plan.py), and the arena that decides is that of the open kernels, at those sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ....errors import HalotileError, ShapeError
from ....schedules.tiled.box_support import any_box_opens, box_refusal
from ....schedules.words.dims import is_dim, is_open
from ....schedules.words.group import Group, Request, Value
from ....schedules.words.layout import Layout
from ....schedules.words.open_tile_plan import Images, OpenTilePlan
from ....schedules.words.policy import Policy
from ....schedules.words.refusal import Refusal
from ....schedules.words.sizes import TYPICAL, at_sizes, symbols_of, usual
from ....targets.target import Target
from ...memory.places import Places
from ...memory.plan import plan_memory
from ..plan.form import RING, Untileable
from ..plan.work import work_per_element
from ..search.bandwidth import Rates
from ..search.decide import GAIN, TileDecision, decide, points, untiled
from ..search.model import SearchModel, Shape
from ..search.program import Program, separable
from ..search.reinstate_concats import with_concatenations
from ..search.search import Rooms, Search
from ..tile import Arena, Build, Size, TileResult, replaced
from ..user_request import checked_shape, forced_run, wished
from .lines import Lines
from .one_image import OneImage
from .plan import Tiles, plan_open
from .twin import Twins

if TYPE_CHECKING:
    from ....targets.plain import JsonView

WHOLE = "every group is computed whole: dimensions are open"
WORTH = 0.05  # of the time of large images, what tiles must save: small ones lose up to as much

NEAR = 4  # times the second level of each core: what whole values may take beyond it without loss (Zen 4)
SPARE = 16 << 20  # bytes of an arena that half of them would do for, at sizes that others are larger than
LARGE = 64 << 20  # bytes of an arena: caches keep part of smaller ones, and tiles of small images may take more

Bounds = Mapping[str, int | None]  # the largest size of every symbol; None: whatever memory holds


@dataclass(frozen=True)
class OpenTile:
    """``tile``, ``memory_budget``, ``optimize``, ``policy`` and ``closing`` are those of Tile. ``most`` are the largest
    sizes of the symbols; ``may_be`` tells whether a run may have some."""

    tile: str | JsonView
    memory_budget: int | None
    optimize: str
    policy: Policy
    closing: frozenset[Value]
    most: Bounds
    may_be: Callable[[Mapping[str, int]], bool] = lambda _: True

    def apply(
        self,
        groups: Sequence[Group],
        layouts: Mapping[Value, Layout],
        places: Places,
        placed: Sequence[Value],
        target: Target,
        build: Build,
        size: Size,
        vanished: Mapping[Value, Group] | None = None,
    ) -> TileResult:
        """``groups`` with those tiled that a budget or a wish needs; arguments as those of Tile. Raises HalotileError
        if it can't be met."""
        one = OneImage.of(groups)
        speed = self.memory_budget is None and self.optimize == "speed" and self.tile in ("auto", "off")
        images, turns = _of_images(groups), any(map(_in_turns(one), groups))
        if speed and (self.tile == "off" or not (images or turns)):
            return TileResult(tuple(groups), notes=(WHOLE,))
        sizes = largest(self.most) if self.memory_budget is not None else dict(TYPICAL.get())
        if speed and images:
            sizes = _doubled(images, self.most)
            if not self.may_be(sizes):
                return TileResult(tuple(groups), notes=(WHOLE,))
        turns = speed and not images
        threads = self.policy.threads or target.cores
        if one is not None and speed:
            sizes |= one.sizes  # what is fast for one image is for each
        kept = _kept(target, threads) if speed and images else 0.0
        twins = Twins(sizes)
        source = TwinSource(twins, layouts, places, target, self.policy, threads, one=one, turns=turns, kept=kept)
        program = source.program(groups, placed)
        arena = OpenArena(placed, threads, build, size, self.memory_budget, source=source)
        if not isinstance(self.tile, str):
            return self._checked(replaced(groups, [_wished(source, program, self.tile, threads)]), arena)
        if self.tile == "off":
            return self._checked(TileResult(tuple(groups), {}, ("every group is computed whole",)), arena)
        model = SearchModel(program, target, threads, self.policy, self.closing, tight=not speed)
        model.planner, model.refuses, model.allows = source.plan, source.refuses, source.allows
        whole = untiled(program, model)
        if speed and images and whole.bytes < LARGE:
            return TileResult(tuple(groups), notes=(WHOLE,))
        gone = {source.twins.value(v): source.known(g) for v, g in (vanished or {}).items()}
        try:
            variants = [model, *with_concatenations(model, gone, self.memory_budget, speed)]
            decision = decide(variants, self.optimize, self.memory_budget, arena)
        except HalotileError as error:
            raise HalotileError(f"{error}, at its largest shape, {sizes_text(sizes)}") from None
        if speed and images:
            if decision.choice.cycles > (1 - WORTH) * whole.cycles:
                decision = TileDecision(program, whole, [], decision.curve)
            decision = _leaner(decision, model, gone, arena)
            if not decision.plans:
                return TileResult(tuple(groups), notes=(WHOLE,))
        own = source.groups(decision.program)
        result = replaced(own, decision.plans, decision.choice.rooms)
        details = {
            "untiled": points([whole])[0],
            "chosen": points([decision.choice])[0],
            "curve": points(decision.curve),
            "arena": decision.bytes,
            "at": sizes,
        }
        kernels = arena.kernels_of(result)
        return replace(result, details=details, kernels=kernels, places=source.places_of(decision.program))

    def _checked(self, result: TileResult, arena: OpenArena) -> TileResult:
        """``result``, whose arena is within the budget."""
        if self.memory_budget is None:
            return result
        needed = arena.of(result, arena.source.places)
        if needed > self.memory_budget:
            how = "with this tile=" if result.plans else "with tile='off'"
            raise HalotileError(
                f"the memory budget of {self.memory_budget} bytes can't be met {how}: the arena is {needed} bytes at "
                f"the largest shape, {sizes_text(arena.source.twins.sizes)}"
            )
        return replace(result, kernels=arena.kernels_of(result))


def _kept(target: Target, threads: int) -> float:
    """Bytes of values up to which whole layers, one after the other, take no longer than tiles."""
    rates = Rates.of(target, threads)
    return min(NEAR * rates.l2 * threads, rates.l3 / 4) if rates.private else float(rates.l2)


def _leaner(
    fastest: TileDecision, model: SearchModel, gone: Mapping[Value, Group], arena: OpenArena
) -> TileDecision:
    """What takes half the memory of ``fastest``, and half again, as long as it is expected to take no longer."""
    chosen, most = fastest, fastest.choice.cycles
    while chosen.choice.bytes >= SPARE:
        budget = int(chosen.choice.bytes // 2)
        tight = replace(model, tight=True, options=None, allows=_apart(model))
        variants = [tight, *with_concatenations(tight, gone, budget, False)]
        every = (c for variant in variants for c in Search(variant, GAIN).curve())
        if not any(c.bytes <= budget and c.cycles <= most for c in every):
            break
        try:
            lean = decide(variants, "speed", budget, replace(arena, budget=budget))
        except HalotileError:
            break
        if lean.choice.cycles > most:
            break
        chosen = lean
    return chosen


def _apart(model: SearchModel) -> Callable[[Program, int, int, Sequence[Shape]], list[bool]]:
    """What ``model`` allows, but no steps that cores share: they wait for each other behind every member, and EDSR took
    1.10 to 1.28 of the time of whole layers where 1.00 was expected."""
    allows = model.allows
    assert allows is not None

    def allowed(program: Program, first: int, last: int, shapes: Sequence[Shape]) -> list[bool]:
        every = allows(program, first, last, shapes)
        return [able and shape.sharing == 1 for able, shape in zip(every, shapes, strict=True)]

    return allowed


def _of_images(groups: Sequence[Group]) -> set[str]:
    """The symbols that rows and columns of images depend on."""
    dims = {d for g in groups for v in g.outputs if len(v.shape) == 4 for d in v.shape[2:] if is_dim(d)}
    return {name for dim in dims for name in symbols_of(dim)}


def _doubled(images: Collection[str], most: Bounds) -> dict[str, int]:
    """The typical sizes, those of ``images`` doubled up to ``most``."""
    typical, ends = TYPICAL.get(), {name: most.get(name) for name in images}
    return {**typical, **{n: 2 * typical[n] if end is None else min(2 * typical[n], end) for n, end in ends.items()}}


def _in_turns(one: OneImage | None) -> Callable[[Group], bool]:
    """Tells of groups whether they make a batch of images whose size is known, which can take turns."""

    def takes(group: Group) -> bool:
        images = all(len(v.shape) == 4 and not is_open(v.shape[1:]) for v in group.outputs)
        return one is not None and images and all(map(one.is_parted, group.outputs))

    return takes


def largest(most: Bounds) -> dict[str, int]:
    """The largest sizes, where all symbols have some. Raises ShapeError that names those without."""
    unbounded = [name for name, size in most.items() if size is None]
    if unbounded:
        names = ", ".join(map(repr, unbounded))
        have, them = ("has", "it") if len(unbounded) == 1 else ("have", "them")
        raise ShapeError(
            f"a memory budget must hold at the largest shape, and {names} {have} none: bound {them} with --shape, such "
            f"as --shape {unbounded[0]}=1..1024"
        )
    return {name: size for name, size in most.items() if size is not None}


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes as people write them."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


@dataclass
class OpenArena(Arena):
    """Arena bytes of plans for open sizes, at the sizes of the source's twins."""

    source: TwinSource = field(kw_only=True)

    def __call__(
        self, program: Program, plans: Sequence[Any], rooms: Rooms, sized: bool
    ) -> int:
        result = replaced(self.source.groups(program), plans, rooms)
        return self.of(result, self.source.places_of(program), sized)

    def of(self, result: TileResult, places: Places, sized: bool = False) -> int:
        """Arena bytes of the groups and plans of ``result``."""
        kernels = [self._kernel(g, result.plans.get(g), result.rooms.get(g), sized) for g in result.groups]
        with at_sizes(self.source.twins.sizes):
            most = max((usual(kernel.workspace) for kernel in kernels), default=0)
            slots = self.threads * (-(-most // 64) * 64)
            enough = 0.0 if self.budget is None or not sized else float(self.budget - slots)
            memory = plan_memory(kernels, self.source.layouts, places, set(self.placed), enough)
        return memory.planned_bytes + slots


@dataclass(eq=False)
class TwinSource:
    """What programs of twins stand for. Makes them, and the open plans of what is searched for on them."""

    twins: Twins
    layouts: Mapping[Value, Layout]
    places: Places
    target: Target
    policy: Policy
    threads: int
    opened: dict[Group, Group] = field(default_factory=dict)  # twin -> the group that it is one of
    refusals: dict[Group, str | None] = field(default_factory=dict)  # by twin

    one: OneImage | None = None  # where images of a batch may take turns
    turns: bool = False  # only images of one size that do are members
    kept: float = 0.0  # bytes of inner values up to which an image is one tile

    def __post_init__(self) -> None:
        self.lines = Lines.of()

    def known(self, group: Group) -> Group:
        """The twin of a group, of which it is then known whether it can be a member of a tile group."""
        twin = self.twins.group(group)
        if twin not in self.opened:
            self.opened[twin] = group
            self.refusals[twin] = self._refusal(twin, group)
        return twin

    def program(self, groups: Sequence[Group], placed: Sequence[Value]) -> Program:
        """The twin of the program of ``groups``."""
        own = [self.known(g) for g in groups]
        outputs = frozenset(map(self.twins.value, placed))
        layouts, places = self.twins.layouts(self.layouts), self.twins.places(self.places)
        return Program(own, layouts, places, outputs, self.refusals)

    def groups(self, program: Program) -> list[Group]:
        """The groups that those of ``program`` are twins of."""
        return [self.opened[g] for g in program.groups]

    def places_of(self, program: Program) -> Places:
        """The aliases of the groups that ``program`` has twins of."""
        left = program.places.slices
        return Places(self.places.views, {v: at for v, at in self.places.slices.items() if self.twins.value(v) in left})

    def _refusal(self, twin: Group, group: Group) -> str | None:
        """Why a group can't be a member of a tile group of open size, or None."""
        if any(len(v.shape) != 4 for v in group.outputs) or len({v.shape[2:] for v in group.outputs}) != 1:
            return "its outputs are not images of one size"
        if any(v.elements == 0 for v in twin.outputs):
            return "it computes nothing at the sizes that are planned for"
        if self.turns and (self.one is None or not _in_turns(self.one)(group)):
            return "images of any size are computed whole where no bytes need be saved"
        try:
            if self.turns and self.one is not None and not self.one.holds(group, self.layouts, self.lines):
                return "images of its batch do not take turns"
            why = box_refusal(group, self.layouts)
            if why is None and not any_box_opens(Request(group, self.layouts, self.target, self.policy)):
                why = "its results lie in rows, not in blocks of channels, of which no kernel takes boxes of any size"
            return separable(twin) if why is None else why
        except Refusal as refusal:
            return str(refusal)

    def refuses(self, program: Program, first: int, last: int) -> str | None:
        """Why groups ``first`` to ``last`` can't be one tile group, or None."""
        for value in (v for g in program.groups[first:last] for v in g.outputs):
            if not any(reader <= last for reader in program.readers.get(value, ())):
                return f"{value.name} is read by others alone"
        return program.joined(first, last)

    def allows(self, program: Program, first: int, last: int, shapes: Sequence[Shape]) -> list[bool]:
        """In which of ``shapes`` groups ``first`` to ``last`` may be: what others read too lies whole, in one band."""
        leaving = program.leaving(first, last)
        inner = any(v in leaving for g in program.groups[first:last] for v in g.outputs)
        width = program.groups[last].outputs[0].shape[3]

        def allowed(shape: Shape) -> bool:
            if shape.mode != RING or shape.others or shape.saves:
                return False
            return not inner or (shape.bands == 1 and shape.columns >= width)

        return [allowed(shape) for shape in shapes]

    def plan(
        self, program: Program, first: int, last: int, shape: Shape, quanta: Mapping[Value, int]
    ) -> OpenTilePlan:
        """The plan of a segment in a shape. Raises Untileable."""
        width = program.groups[last].outputs[0].shape[3]
        columns = shape.columns if shape.columns < width else self._widest(program, first, last)
        tiles = Tiles(
            shape.rows, columns, shape.bands, self.threads, shape.sharing, quanta, shape.room, kept=self.kept
        )
        return self.of(program, first, last, tiles)

    def _widest(self, program: Program, first: int, last: int) -> int | None:
        """The columns of blocks that are to have all columns: those of the image that was planned for, so that windows
        do not outgrow the caches in wider ones. None where there are no others, or all must be one block."""
        leaving = program.leaving(first, last)
        if any(v in leaving for g in program.groups[first:last] for v in g.outputs):
            return None
        own, twin = (g.outputs[0].shape[3] for g in (self.opened[program.groups[last]], program.groups[last]))
        return int(twin) if is_dim(own) else None

    def of(self, program: Program, first: int, last: int, tiles: Tiles) -> OpenTilePlan:
        """The plan of groups ``first`` to ``last`` in ``tiles``, whose quanta are by twins. Raises Untileable."""
        run = program.groups[first : last + 1]
        for i, twin in enumerate(run):
            why = program.refusal(first + i)
            if why is not None:
                raise Untileable(f"{twin.name} can't be tiled: {why}")
        why = self.refuses(program, first, last)
        if why is not None:
            raise Untileable(why)
        back = {t: v for w in run for v, t in zip(self.opened[w].outputs, w.outputs)}
        leaving = frozenset(back[v] for v in program.leaving(first, last) if v in back)
        quanta = {back[t]: number for t, number in (tiles.quanta or {}).items() if t in back}
        work = [work_per_element(w) for w in run]
        members = [self.opened[w] for w in run]
        one = self.one
        if one is None or not all(one.holds(g, self.layouts, self.lines) for g in members):
            return plan_open(members, self.layouts, replace(tiles, quanta=quanta), leaving, self.lines, work)
        values = dict.fromkeys(v for g in members for v in (*g.inputs, *g.outputs))
        images = Images(one.batch, tuple(members), {one.value(v): v for v in values if one.is_parted(v)})
        layouts = {**self.layouts, **one.layouts({v: self.layouts[v] for v in values if v in self.layouts})}
        quanta = {one.value(v): number for v, number in quanta.items()}
        singles = list(map(one.group, members))
        left = frozenset(map(one.value, leaving))
        return plan_open(singles, layouts, replace(tiles, quanta=quanta), left, self.lines, work, images)


def _wished(source: TwinSource, program: Program, wish: JsonView, cores: int) -> tuple[int, int, OpenTilePlan]:
    """The plan that a user's ``wish`` asks for (user_request.py), as (first group, last group, plan)."""
    asked = wished(program, wish, cores)
    rows, columns = checked_shape(wish.get("shape", (16, None)))
    if any(mode != RING for mode in asked.modes.values()):
        raise HalotileError("tile: where sizes are open all inner values are rings; leave modes out")
    quanta = dict.fromkeys((v for g in program.groups for v in g.outputs), asked.quantum)
    tiles = Tiles(rows, columns, asked.bands, cores, 1, quanta)

    def plan(first: int, last: int) -> OpenTilePlan:
        try:
            return source.of(program, first, last, tiles)
        except Untileable as error:
            names = f"{program.groups[first].name} to {program.groups[last].name}"
            raise HalotileError(f"tile: {names}: {error}") from None

    return forced_run(program, wish, plan)

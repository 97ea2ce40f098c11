"""The whole compiler, top to bottom: fourteen stages from an ONNX file to a library.

    import       ONNX -> Relax                         compiler/frontend
    simplify     Relax -> Relax                        passes/simplify
    reassociate  Relax -> Relax, rounded otherwise     passes/reassociate
    dots         Relax -> Relax: products of bytes     passes/dots
    numbers      Relax -> Relax: weights in bytes      passes/numbers
    merge        Relax -> Relax: products side by side passes/merge
    fuse         Relax -> groups                       passes/fuse
    layout       groups -> groups, layouts             passes/layout
    select       group -> choice of an algorithm       schedules
    tile         groups -> tile groups                 passes/tile
    schedule     group -> kernel                       schedules
    plan         buffers -> arena offsets              passes/memory
    assemble     kernels -> object code                compiler/codegen
    link         object + weights -> library           compiler/codegen

``STAGES`` (state.py) has the names that ``--stop-after`` takes and ``--dump-ir`` writes. Behind every stage come its
time, its report, its check under ``--check``, its dump, and the word to whoever watches the progress.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import HalotileError
from ..schedules.words.atoms import KNOWN
from ..schedules.words.choice import AlgorithmRefusal, Choice
from ..schedules.words.sizes import SYMBOLS, TYPICAL, at_sizes, no_symbols, plan_for
from . import rewrites
from .deep import deep
from .dump import dump_stage
from .given import ModelGiven
from .invariants import check_stage, require_made
from .refused import naming, naming_stage
from .report import budget_note, build_report
from .spec import Symbol
from .state import STAGES, Build, Options, Progress
from .systems import check_system

if TYPE_CHECKING:
    from ..passes.tile.open.tile import OpenTile
    from ..passes.tile.tile import TilePass
    from ..schedules.words.group import Group, Kernel, Value

log = logging.getLogger("halotile.compile")
_TURN = threading.RLock()  # TVM's builders are one stack for the whole process: builds in several threads take turns


def run_pipeline(
    model: ModelGiven, options: Options, progress: Progress | None = None, output: Path | None = None, *,
    level: int = 0, beneath: Any = None,
) -> Build:  # fmt: skip
    """Runs the stages in order, up to ``options.stop_after``; links into ``output`` if it is given. Of a further
    ``level`` of processors, ``beneath`` are the weights that the library has so far."""
    return _run(Build(model, options, output, level, beneath, progress), options, output)


def continued(begun: Build, options: Options, progress: Progress | None = None, output: Path | None = None) -> Build:
    """As :func:`run_pipeline`, from where ``begun``, a build of the same, is; that stays as it is and serves again."""
    return _run(begun.followed(options, output, progress), options, output)


def _run(build: Build, options: Options, output: Path | None) -> Build:
    """Runs the stages that are not behind the build yet."""
    check_system(options)
    if options.levels:
        from .levels import check_levels

        check_levels(options.target, options.levels, options.timers, options.tuning)
    if output is not None:
        from .codegen.library import check_linkers

        check_linkers(options.target, options.formats, options.cc)
    with _TURN, deep(), no_symbols():
        if _open(build):
            plan_for(build.imported.symbols, build.imported.conditions)
        for stage in STAGES[len(build.seconds):]:
            if stage == "link" and output is None:
                break
            build.tell(stage, 0, 1)
            start = time.perf_counter()
            with naming_stage(stage, _open(build)):
                _STAGE_FUNCTIONS[stage](build)
            build.seconds[stage] = time.perf_counter() - start
            log.info("%s: %.3f s", stage, build.seconds[stage])
            build.report = build_report(build)
            if options.check:
                check_stage(build, stage)
            if options.dump_ir is not None:
                dump_stage(build, stage, options.dump_ir)
            build.tell(stage, 1, 1)
            if options.stop_after == stage:
                break
    return build


def import_(build: Build) -> None:
    from .frontend import import_model
    from .in_bytes import in_bytes

    options = build.options
    if options.stream is not None and options.memory_budget is not None:
        from .stream.within import within_budget

        build.options = options = within_budget(build, run_pipeline)
    symbolic = options.open or options.stop_after in ("import", "simplify")
    around = (options.inputs, options.outputs)
    source = build.source if options.int8 is None else in_bytes(build)
    shapes = options.shapes if options.fit is None else options.fit.shapes
    build.imported = import_model(source, shapes, symbolic, options.fixed, options.typical, around)
    if options.fixed:  # with the shapes that they have
        build.options = replace(options, fixed=build.imported.fixed)
    build.module = build.imported.module
    if build.imported.symbols:
        plan_for(build.imported.symbols, build.imported.conditions)
    if options.stream is not None:
        _in_steps(build, options.stream if options.fit is None else options.fit.rows)
    build.notes["import"] = list(build.imported.notes)
    _note_precision(build)
    for line in build.imported.warnings:
        log.warning("%s", line)


def _in_steps(build: Build, rows: int) -> None:
    """Replaces the network by one step of its stream, whose shapes are fixed."""
    from ..passes.simplify.size_tables import spread
    from .stream.build import build_stream

    if build.options.simplify:  # the open network, whose views and pads are then few
        rewrites.simplify(build)
    build.imported, build.stream = build_stream(build.imported, spread(build.module), rows)
    if (fit := build.options.fit) is not None:
        build.stream = replace(build.stream, columns=fit.columns)
    build.module = build.imported.module
    SYMBOLS.set({})
    TYPICAL.set({})
    KNOWN.set(())


def _open(build: Build) -> tuple[Symbol, ...]:
    """The open dimensions of the model."""
    return () if build.imported is None else build.imported.symbols


def _note_precision(build: Build) -> None:
    """Says that the target has nothing faster than float32, where something was asked for."""
    from ..schedules.instructions.bf16_pairs import multiplies_faster

    target = build.options.target
    if build.options.precision == "bfloat16" and not multiplies_faster(target, build.options.matrix):
        build.warnings.append(f"{target.id} multiplies nothing faster in bfloat16: all layers stay in float32")


def fuse(build: Build) -> None:
    from ..passes.fuse.fuse import Fuse
    from ..passes.fuse.graph import build_graph
    from ..passes.fuse.outputs import own_outputs
    from .residence import with_residence

    graph = build_graph(build.module)
    build.target = with_residence(build.options.target, graph)
    if build.details.get("halves", {}).get("in_float16"):
        growth = build.details["halves"]["growth"]
        build.target = replace(build.target, in_halves=True, half_growth=growth)
    fusion = Fuse(build.options.fuse, build.target, build.options.policy, _joins_rows(build)).apply(graph)
    build.graph, fusion, build.views = own_outputs(graph, fusion)
    build.groups = fusion.groups
    build.notes["fuse"] = [note for group in fusion.groups for note in group.notes]


def layout(build: Build) -> None:
    from ..passes.fuse.closing import closing_values
    from ..passes.layout.assign import AssignLayouts
    from ..schedules.matmul.shared_weights import shared_weights
    from .storage import placed

    assign = AssignLayouts(build.options.layout, _joins_rows(build), _kept(build))
    result = assign.apply(build.graph, build.groups, build.views, build.target)
    build.groups, build.layouts, build.views = result.groups, result.layouts, result.views
    build.closing = closing_values(build.groups, build.graph.outputs, build.views)
    build.notes["layout"] = list(result.notes)
    build.places, build.vanished = placed(build, result.slices), result.vanished
    build.shared = shared_weights(build.groups, build.target)


def _joins_rows(build: Build) -> bool:
    """Whether rows lie in place behind those that were kept: in a step of a stream. Scratchpads take whole images."""
    return build.stream is not None and build.options.target.memory_kind != "scratchpad"


def _kept(build: Build) -> tuple[tuple[Value, Value], ...]:
    """The states of a step, as inputs and outputs, where one code alone reads what it wrote."""
    if not _joins_rows(build) or build.options.levels or build.level:
        return ()
    given = {s.name: v for s, v in zip(build.imported.inputs, build.graph.inputs, strict=True)}
    left = {s.name: v for s, v in zip(build.imported.outputs, build.graph.outputs, strict=True)}
    states = () if build.stream is None else build.stream.states
    return tuple((given[s.input], left[s.output]) for s in states)


def select(build: Build) -> None:
    """How every group is computed where it is computed whole. Tile groups choose anew, for boxes, and groups that are
    given less memory than they like, for that."""
    from ..schedules.dispatch import considered, select
    from ..schedules.tiled import builds_open_images
    from .wide import settle

    settle(build, _STAGE_FUNCTIONS)
    build.choices = {}
    for group in build.groups:
        with naming(group):
            in_boxes = builds_open_images(request := _request(build, group))
            build.choices[group] = Choice("boxes of open images") if in_boxes else select(request)
    if build.options.explain or build.options.dump_ir is not None:
        for group, choice in build.choices.items():
            if builds_open_images(_request(build, group)):
                continue
            others = [o for o in considered(_request(build, group)) if o.algorithm != choice.algorithm]
            lines = (f"    not {o}" if isinstance(o, AlgorithmRefusal) else f"    rather than {o}" for o in others)
            build.notes.setdefault("select", []).extend([f"{group.name}: {choice}", *lines])


def tile(build: Build) -> None:
    from ..passes.tile.tile import TilePass
    from .wide import arena_aimed

    options = build.options
    if _open(build):
        return _tile_open(build)
    if options.target.memory_kind == "scratchpad" and options.tile != "off":
        from ..passes.tile.scratchpad.stripes import Stripes

        striped = Stripes.of(options.tile or "auto", build.options.policy).apply(
            build.groups, build.layouts, build.places, build.graph.outputs, options.target
        )
        build.groups, build.tiled, build.layouts = striped.groups, dict(striped.plans), dict(striped.layouts)
        build.notes["tile"] = list(striped.notes)
        return
    wish, aim = options.tile or "auto", arena_aimed(build, _STAGE_FUNCTIONS)
    _take_tiles(build, TilePass(wish, options.arena_budget, options.optimize, options.policy, build.closing, aim=aim))


def _tile_open(build: Build) -> None:
    from ..passes.tile.open.tile import OpenTile
    from .frontend.together import may_be

    options, allows = build.options, partial(may_be, _open(build), build.imported.conditions)
    most = {s.name: None if s.high is None else s.most for s in _open(build)}
    wish, budget = options.tile or "auto", options.memory_budget
    _take_tiles(build, OpenTile(wish, budget, options.optimize, options.policy, build.closing, most, allows))


def _take_tiles(build: Build, choice: TilePass | OpenTile) -> None:
    """Lets a pass choose the tile groups of the build, and takes over what it made."""
    from ..schedules.tiled import PartSizes

    placed = (*build.graph.inputs, *build.graph.outputs)
    result = choice.apply(
        build.groups,
        build.layouts,
        build.places,
        placed,
        build.target,
        partial(_kernel, build),
        partial(_sized, build, PartSizes()),
        build.vanished,
    )
    build.groups, build.tiled, build.ready = result.groups, dict(result.plans), dict(result.kernels)
    build.rooms = dict(result.rooms)
    build.places = result.places or build.places
    build.notes["tile"] = list(result.notes)
    if result.details:
        build.details["tile"] = dict(result.details)


def schedule(build: Build) -> None:
    kernels: list[Kernel] = []
    for i, group in enumerate(build.groups):
        build.tell("schedule", i, len(build.groups))
        with naming(group):
            ready = build.ready.get(group)
            kernels.append(ready or _kernel(build, group, build.tiled.get(group), build.rooms.get(group)))
    build.kernels = tuple(kernels)
    require_made(kernels, build.graph.inputs, build.places)
    if build.options.tuning:  # what is recorded with the library is what it has of the tuning
        from .flow.kernel import kernels_of
        used = {k.decision.key for whole in kernels for k in (whole, *kernels_of(whole)) if k.decision is not None}
        build.options = replace(build.options, tuning={k: n for k, n in build.options.tuning.items() if k in used})


def _kernel(build: Build, group: Group, plan: Any, room: int | None = None) -> Kernel:
    from ..schedules.dispatch import build_kernel
    from ..schedules.kernel.cache import Repeats
    from ..schedules.scratchpad.kernel import build_striped
    from ..schedules.tiled import build_open_images, build_open_tiled, build_tiled, builds_open_images
    from ..schedules.words.open_tile_plan import OpenTilePlan
    from ..schedules.words.stripe_plan import StripePlan
    from .flow.compile import flow_kernel, is_flow

    if is_flow(group):
        return flow_kernel(build, group, _STAGE_FUNCTIONS)
    request = _request(build, group, room, whole=plan is None)
    if isinstance(plan, StripePlan):
        return build_striped(plan, request)
    if isinstance(plan, OpenTilePlan):
        return build_open_tiled(plan, request)
    if plan is not None:
        return build_tiled(plan, request, build.options.policy.threads)
    if builds_open_images(request):
        return build_open_images(request)
    if build.repeats is None:
        build.repeats = Repeats(build_kernel)
    return build.repeats.kernel(request)


def _sized(build: Build, sizes: Any, group: Group, plan: Any) -> Kernel:
    from ..schedules.tiled import sized_open_tiled, sized_tiled
    from ..schedules.words.open_tile_plan import OpenTilePlan

    request = _request(build, group, whole=False)
    if isinstance(plan, OpenTilePlan):
        return sized_open_tiled(plan, request, sizes)
    return sized_tiled(plan, request, build.options.policy.threads, sizes)


def _request(build: Build, group: Group, room: int | None = None, whole: bool = True) -> Any:
    """What asks for the kernel of ``group``, which holds at most ``room`` bytes a core beside. Members of tile groups,
    which are not computed ``whole``, each have a precision of their own."""
    from ..schedules.words.group import Limits, Request

    limits = Limits(room, closing=not build.closing.isdisjoint(group.outputs))
    policy = build.options.policy
    policy = policy.narrowed(group.weighed) if whole else policy
    request = Request(group, build.layouts, build.target, policy, limits, shared=build.shared)
    return request if room is not None else replace(request, choice=build.choices.get(group))


def plan(build: Build) -> None:
    from ..passes.memory.open_offsets import other_sizes
    from ..passes.memory.plan import plan_memory

    placed = {*build.graph.inputs, *build.graph.outputs}
    budgeted = build.options.memory_budget is not None and bool(_open(build))
    with at_sizes({s.name: s.most for s in _open(build)} if budgeted else TYPICAL.get()):  # where a budget must hold
        also = () if budgeted else other_sizes(_open(build))
        build.memory = plan_memory(build.kernels, build.layouts, build.places, placed, also=also)
    if build.stream is not None and not (build.options.levels or build.level):  # several codes have orders of their own
        from .stream.single import with_single_states

        build.stream = with_single_states(build.stream, build.imported, build.graph, build.kernels, build.places)
    if budgeted:
        build.notes["plan"] = [budget_note(build)]
    elif build.options.fit is not None:
        build.notes["plan"] = [build.options.fit.note]
    budget, needed = build.options.arena_budget, build.memory.planned_bytes
    if budget is not None and needed > budget:  # the tile stage has seen to it, but where stripes are all there is
        raise HalotileError(
            f"the memory budget of {budget} bytes can't be met: the arena of this model on {build.options.target.id} "
            f"is {needed} bytes; raise the budget"
        )


def assemble(build: Build) -> None:
    from ..schedules.words.group import Scratchpad
    from .codegen import module
    from .codegen.open_sizes import count_facts
    from .codegen.spec import LibrarySpec, suffix
    from .codegen.streaming import streamed
    from .levels import further_levels, with_levels
    from .stored import stored_weights, told

    options, target = build.options, build.options.target
    further = further_levels(build, run_pipeline)
    build.kernels = streamed(build.kernels, build.places, build.memory, target)
    build.weights = module.gather_weights(build.kernels, build.places, build.beneath)
    if options.weights != "float32":
        build.details["stored"] = stored_weights(build)
        build.notes["assemble"] = [told(build.details["stored"])]
    code, kernels, build.symbols, build.streams = module.assemble(
        build.kernels, build.graph.inputs, build.graph.outputs, build.places, build.memory, build.weights, target,
        options.timers, options.cache, [s.name for s in _open(build)], suffix(build.level),
    )  # fmt: skip
    build.report = build_report(build)
    threads = options.threads or target.cores
    pads = [o for kernel in build.kernels for o in kernel.operands if isinstance(o, Scratchpad)]
    build.library = LibrarySpec(
        name=options.name or build.imported.name,
        inputs=build.imported.inputs,
        outputs=build.imported.outputs,
        metadata=build.imported.metadata,
        object_bytes=code,
        weights=list(build.weights.stream()),
        planned_bytes=build.memory.planned_bytes,
        workspace_bytes=module.workspace_bytes(build.kernels),
        max_threads=1 if target.one_thread else max(threads, 64),
        default_threads=1 if target.one_thread else threads,
        target=target,
        report=build.report,
        kernel_objects=kernels,
        timers=len(build.kernels) if options.timers else 0,
        scratchpad_bytes=max((p.bytes for p in pads), default=0),
        scratchpad_offset=cast(int, build.memory.offsets[pads[0]]) if pads else 0,  # stripes have fixed sizes
        flush_denormals=options.flush_denormals,
        matrix_unit=any(map(module.matrix_work, build.kernels)),
        symbols=_open(build),
        facts=count_facts(build.graph.inputs, build.graph.outputs, build.memory),
        conditions=build.imported.conditions,
        form=build.weights.form,
        reach=build.reach,
    )
    with_levels(build, further)


def link(build: Build) -> None:
    from .codegen.library import build_library
    from .recipe import describe_model, describe_options

    assert build.library is not None and build.output is not None
    options = build.options
    build.library = spec = replace(
        build.library, report=build_report(build),
        model=describe_model(build.source), options=describe_options(options),
    )  # fmt: skip
    build.built = build_library(spec, build.output, formats=options.formats, cc=options.cc, cache=options.cache)


_STAGE_FUNCTIONS: dict[str, Callable[[Build], None]] = {
    "import": import_,
    "simplify": rewrites.simplify,
    "reassociate": rewrites.reassociate,
    "dots": rewrites.dots,
    "numbers": rewrites.numbers,
    "merge": rewrites.merge,
    "fuse": fuse,
    "layout": layout,
    "select": select,
    "tile": tile,
    "schedule": schedule,
    "plan": plan,
    "assemble": assemble,
    "link": link,
}

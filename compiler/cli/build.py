"""``halotile build``: from a model file to a library in a folder, verified before it appears there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import TargetError, ToolchainError, VerificationError
from . import completers, parameters
from .console import StageProgress, emit, emit_json, note, on_terminal
from .images import Pairs, images_options, images_wanted
from .interrupt import removed_on_exit
from .models import remember_model
from .one_of import OneOf
from .recipe import FormatType, GlibcType, chosen_formats, compare_with, from_manifest, linked_target
from .shapes import shape_options
from .verb import OTHERS, verb

if TYPE_CHECKING:
    from ...targets.plain import Json
    from ..cache.store import Cache
    from ..options import Shapes
    from ..runtime.recorded import Recorded
    from ..state import Options

STAGES = (
    "import", "simplify", "reassociate", "dots", "numbers", "merge", "fuse", "layout", "select", "tile", "schedule",
    "plan", "assemble", "link",
)  # fmt: skip


@verb(
    groups={
        "Model": ("shapes", "typical", "min_shapes", "opt_shapes", "max_shapes", "fixed", "recorded"),
        "Images": ("inputs", "outputs", "images"),
        "Target": ("target", "levels", "threads"),
        "What to make": ("output", "name", "formats", "static", "cc", "glibc", "timers", "stream", "stream_rows"),
        "Speed, memory, precision": (
            "precision", "calibrate", "error", "exact", "float_mode", "tile", "memory_budget", "optimize", "weights",
            "flush_denormals", "tuning", "cache",
        ),
        "Comparison": ("verify", "rtol", "atol", "seed"),
        "Looking inside": ("explain", "dump_ir", "stop_after"),
        OTHERS: ("table", "as_json"),
    },
    examples=[
        ("halotile build model.onnx -o out", "For this machine, compared with ONNX Runtime:"),
        ("halotile build model.onnx --shape x=1,3,224,224 -o out", "With open dimensions fixed:"),
        ("halotile build model.onnx -t raspberry-pi-5 --format so,exe -o out/pi5", "For a board:"),
        ("halotile build model.onnx --levels v2,v3,v4,amx -o out", "For any x86 server, the best code for each:"),
        ("halotile build model.onnx --memory-budget 8MiB -o out", "Within 8 MiB of memory:"),
        ("halotile build model.onnx --precision int8 --calibrate samples.npz -o out", "In bytes, where samples allow:"),
        ("halotile build model.onnx --precision auto --error 1e-2 --calibrate samples.npz", "Within an error:"),
        ("halotile build --from out/manifest.json -o again", "The same bytes once more:"),
        ("python export.py | halotile build - -o out", "A model from standard input:"),
    ],
)  # fmt: skip
@parameters.model_argument(required=False)
@parameters.target_option
@click.option(
    "--levels", metavar="v2,v3,...",
    help="Code for several processors in one library: v2, v3, v4, amx, armv8.0, armv8.2 or targets.",
)
@click.option(
    "-o", "--output", shell_complete=completers.folders,
    help="Folder for everything that is made.  [default: out/<model's name>]",
)  # fmt: skip
@click.option(
    "--format", "formats", type=FormatType(),
    help="What to make: shared library, archive, static program.  [default: so,a,exe]",
)  # fmt: skip
@click.option("--static", is_flag=True, help="Build on musl: nothing of the board's own libraries is used.")
@click.option("--cc", help="The C compiler that links, with its options.  [default: zig for other machines]")
@click.option("--glibc", type=GlibcType(), help="Oldest glibc to run on.  [default: the board's]")
@click.option("--from", "recorded", metavar="MANIFEST", help="Build again what a manifest.json records.")
@click.option("--name", help="Name of the library and prefix of its functions.  [default: the model's]")
@shape_options
@parameters.fix_option
@images_options
@parameters.threads_option
@click.option(
    "--exact", is_flag=True,
    help="Keep to the order of operations: no Winograd, no matrix unit, ten times tighter check.",
)
@click.option(
    "--float-mode", type=OneOf(["strict", "finite", "exact"]), default="strict", show_default=True,
    help="What simplification may assume of floats.",
)  # fmt: skip
@parameters.tiling_options
@click.option(
    "--stream", is_flag=True, help="Rows come and go piece by piece, the height stays open (halotile stream)."
)
@click.option("--stream-rows", type=click.IntRange(1), help="Rows of the image a step, about.  [default: 48, or fewer]")
@parameters.weights_option
@parameters.precision_options
@click.option(
    "--flush-denormals", is_flag=True,
    help="Count floats below the normal ones (1.2e-38) as zero: x86 is slow with them.",
)  # fmt: skip
@parameters.tuning_option
@click.option(
    "--verify/--no-verify", default=None, help="Compare with ONNX Runtime.  [default: if it can be done]"
)
@parameters.tolerance_options
@click.option("--timers", is_flag=True, help="Time each kernel of a run (NAME_kernel_seconds in the C API).")
@click.option("--explain", is_flag=True, help="Print what each pass did and declined, and each kernel.")
@click.option("--dump-ir", type=click.Path(), help="Folder for the IR after each stage.")
@click.option("--stop-after", type=OneOf(STAGES), help="Stop after this stage; nothing is built.")
@parameters.cache_option
@click.option("--table/--no-table", default=None, help="Print the final table.  [default: on a terminal]")
@parameters.json_option
@click.pass_context
def build(
    ctx: click.Context,
    model: str | None,
    target: str,
    cache: bool,
    output: str | None,
    shapes: Shapes | None,
    as_json: bool,
    table: bool | None,
    **options: Any,
) -> None:
    """Compile MODEL (ONNX; - is standard input) into native code with a C API.

    The folder holds lib<name>.so, lib<name>.a, <name>.h, manifest.json, the program model_run, and main.c, <name>.cmake
    and <name>.pc for C users. It appears, or is replaced, only when all is whole and, for this machine, agrees with
    ONNX Runtime.
    """
    if model is None and options["recorded"] is None:
        raise click.UsageError("Missing argument 'MODEL'.")
    stop = options["stop_after"]
    path = None if model is None else parameters.check_model_path(model)
    stem = path.stem if path else None
    if options["verify"] and stop not in (None, "link"):
        raise click.UsageError(f"--verify needs a built library, but --stop-after {stop} builds none")
    if output:
        parameters.check_destination(Path(output))
    if options["recorded"] is not None:
        path, chosen, manifest = from_manifest(ctx, options["recorded"], model, options["cc"])
        chosen = replace(
            chosen, stop_after=stop, dump_ir=_path(options["dump_ir"]), explain=options["explain"],
            cache=parameters.cache_of(cache),
        )  # fmt: skip
        stem = path.stem
    else:
        chosen, manifest = _options(target, shapes, parameters.cache_of(cache), **options), None
        assert path is not None
        chosen = _narrowed(path, chosen, as_json, **options)
    final = Path(output or Path("out") / str(stem)) if stop in (None, "link") else None
    if final is not None:
        parameters.check_destination(final)
    assert path is not None
    _build(path, final, chosen, manifest, as_json, on_terminal() if table is None else table, **options)


def _options(
    target_text: str, shapes: Shapes | None, cache: Cache | None, *, typical: Mapping[str, int] | None,
    fixed: Sequence[tuple[str, object]], name: str | None,
    threads: int | None, exact: bool, float_mode: str, formats: tuple[str, ...] | None, static: bool, cc: str | None,
    glibc: str | None, stop_after: str | None, dump_ir: str | None, tile: str | None, memory_budget: int | None,
    inputs: Pairs, outputs: Pairs, images: str | None,
    optimize: str, timers: bool, tuning: str | None, weights: str, flush_denormals: bool, explain: bool,
    levels: str | None, precision: str, stream: bool, stream_rows: int | None,
    **_: object,
) -> Options:  # fmt: skip
    """The pipeline's options from the command's; what can be refused without loading the compiler is refused first."""
    from ...targets.resolve import precheck
    from ..cache.targets import resolved, resolved_levels

    if levels is None:
        precheck(target_text)
        chosen = [resolved(target_text, cache)[0]]
    else:
        chosen = list(resolved_levels(levels, target_text, cache))
    target, *others = (linked_target(one, static, glibc) for one in chosen)
    for line in target.notes if not target.native else ():
        note(f"note: {line}")
    from ..options import checked_denormals, checked_precision, checked_weights
    from ..state import Options
    from ..tuning_file import choices

    before, behind = images_wanted(inputs, outputs, images)
    making = stop_after in (None, "link")
    return Options(
        target=target, levels=tuple(others) or None, shapes=shapes, typical=typical,
        fixed=parameters.fixed_of(fixed), threads=threads, exact=exact,
        float_mode=float_mode, name=name, tile=tile, memory_budget=memory_budget, optimize=optimize, timers=timers,
        weights=checked_weights(weights, exact, precision), precision=checked_precision(precision, exact),
        flush_denormals=checked_denormals(flush_denormals, exact),
        tuning=choices(Path(tuning), target, threads) if tuning else None,
        inputs=before, outputs=behind, stream=(stream_rows or 0) if stream or stream_rows else None,
        stop_after=stop_after, dump_ir=_path(dump_ir), cc=cc, explain=explain, cache=cache,
        formats=chosen_formats(target, formats, static, cc) if making else (),
    )  # fmt: skip


def _narrowed(
    path: Path, chosen: Options, quiet: bool, *, precision: str, calibrate: str | None, error: float | None, **_: object
) -> Options:
    """The options with what the precision means for this model."""
    from ..narrow import narrowed

    with StageProgress(quiet=quiet) as progress:
        return narrowed(path, chosen, precision, calibrate, error, progress)


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _build(
    path: Path, final: Path | None, options: Options, manifest: Recorded | None, as_json: bool, table: bool,
    *, verify: bool | None, rtol: float | None, atol: float, seed: int, explain: bool, **_: object,
) -> None:  # fmt: skip
    wanted = final is not None and _should_verify(verify, options)
    from ...schedules.words.half_error import rtol_within
    from ..cache.library import library as made_library
    from ..pipeline import run_pipeline
    from ..runtime.place import read_manifest, staged
    from ..stored import told
    from ..verify import default_rtol
    from .summary import explanation, print_table

    with removed_on_exit(final), StageProgress(quiet=as_json) as progress:
        if final is None:
            report = run_pipeline(path, options, progress=progress).report
        else:
            with staged(final) as stage:
                library = stage.work / "library"
                report = made_library(path, options, library, progress).report
                if wanted:
                    progress("verify", 0, 1)
                    usual = rtol_within(default_rtol(options.weights, options.precision), options.half_error)
                    allowed = usual if rtol is None else rtol
                    report["verification"] = _verify(
                        path, library, allowed, atol, options.exact, seed, asked=bool(verify)
                    )
                if manifest is not None and (changed := compare_with(manifest, library)):
                    note(f"note: not the recorded bytes: {', '.join(changed)} (another compiler or version?)")
                for file in library.iterdir():
                    os.replace(file, stage.result / file.name)
            made = read_manifest(final)
            if not parameters.is_temporary(path):
                remember_model(path, (made.model.sha256 if made else None) or "")
    for line in report.get("warnings", ()):
        note(f"note: {line}")
    if (report.get("stream") or {}).get("columns"):
        note(f"note: {report['notes']['plan'][0]}")
    if report.get("stored_weights"):
        note(f"note: {told(report['stored_weights'])}")
    if report.get("denormal_constants") and options.target.triple.startswith("x86_64") and not options.flush_denormals:
        note(
            f"note: {report['denormal_constants']} constants are denormal (below 1.2e-38), which x86 processors are "
            "slow with; --flush-denormals counts such floats as zero"
        )
    if as_json:
        emit_json({"output": str(final) if final else None, **report})
        return
    if explain:
        emit(explanation(report))
    if table:
        print_table(report, path, final)
    if final is not None:
        emit(str(final))


def _should_verify(verify: bool | None, options: Options) -> bool:
    """As asked; when not asked, if the library runs here and onnxruntime is installed."""
    from ..cache.targets import resolved
    from ..verify import available

    if verify is False:
        return False
    target, here = resolved(options.target, options.cache)
    if verify is None and not here:
        note(
            f"note: not compared with ONNX Runtime, as this machine can't run {target.id}; "
            "`halotile verify MODEL DIR --on PLACE` does, on a board or in an emulator"
        )
    elif verify is None and not available():
        note("note: not compared: onnxruntime is not installed (pip install onnxruntime)")
    if verify and not here:
        raise TargetError(
            f"--verify needs code that runs on this machine, which can't run {target.id}; use --no-verify"
        )
    if verify and not available():
        raise ToolchainError(
            "--verify needs onnxruntime, which is not installed: pip install onnxruntime"
        )
    return here and available()


def _verify(
    path: Path, library: Path, rtol: float, atol: float, exact: bool, seed: int, *, asked: bool
) -> Json | None:  # fmt: skip
    """Runs the staged library beside ONNX Runtime; a disagreement is an error, and so nothing gets its final name.

    Without a shared library its program stands in, and without either there is nothing to run.
    Where ONNX Runtime itself can't run the model, a comparison that nobody asked for is left out with a note.
    """
    from ..recipe import fixed_of, reference_of
    from ..runtime.place import read_manifest
    from ..sized import verify_built
    from ..verify import NoReference

    made = read_manifest(library)
    if made is None or not (made.library or made.executable):
        note("note: not compared: an archive alone can't be run")
        return None
    try:
        if parameters.streams(made):
            from ..model import load

            with load(library) as model:
                result = model.verify(model=path, rtol=rtol, atol=atol, seed=seed)
        else:
            with parameters.open_model(library, None, None) as loaded:
                result = verify_built(
                    loaded, reference_of(path, made), dropped=made.report.dropped_shapes, fixed=fixed_of(made),
                    rtol=rtol, atol=atol, exact=exact, seed=seed,
                )  # fmt: skip
    except NoReference as error:
        if asked:
            raise
        note(f"note: not compared: {error}")
        return None
    if not result.ok:
        raise VerificationError(f"{result.message()}; nothing was written (--no-verify builds it anyway)")
    return result.data()

"""``halotile build``: from a model file to a library in a folder, verified before it appears there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ...errors import TargetError, ToolchainError, VerificationError
from . import parameters
from .console import StageProgress, emit, emit_json, note, on_terminal
from .interrupt import removed_on_exit

STAGES = ("import", "simplify", "fuse", "layout", "tile", "schedule", "plan", "assemble", "link")


@click.command()
@click.argument("model")
@parameters.target_option
@click.option(
    "-o", "--output", help="Folder for library, header and manifest.  [default: out/<model's name>]"
)
@click.option("--name", help="Name of the library and prefix of its functions.  [default: the model's]")
@parameters.shape_option
@parameters.threads_option
@click.option(
    "--exact", is_flag=True, help="Keep to the order of operations: no Winograd, ten times tighter check."
)
@click.option(
    "--float-mode", type=click.Choice(["strict", "finite", "exact"]), default="strict", show_default=True,
    help="What simplification may assume of floats.",
)  # fmt: skip
@click.option(
    "--verify/--no-verify", default=None, help="Compare with ONNX Runtime.  [default: if it can be done]"
)
@parameters.tolerance_options
@click.option("--explain", is_flag=True, help="Print what each pass did and declined, and each kernel.")
@click.option("--dump-ir", type=click.Path(), help="Folder for the IR after each stage.")
@click.option("--stop-after", type=click.Choice(STAGES), help="Stop after this stage; nothing is built.")
@click.option("--table/--no-table", default=None, help="Print the final table.  [default: on a terminal]")
@parameters.json_option
def build(
    model: str,
    target: str,
    output: str | None,
    shapes: Any,
    as_json: bool,
    table: bool | None,
    **options: Any,
) -> None:
    """Compile MODEL (ONNX) into a native library with a C API.

    The folder holds lib<name>.so, <name>.h and manifest.json. It appears, or is replaced, only when the library is
    whole and, for this machine, agrees with ONNX Runtime.
    """
    fixed = parameters.shapes_of(shapes)
    path = parameters.check_model_path(model)
    stop = options.pop("stop_after")
    final = Path(output or Path("out") / path.stem) if stop in (None, "link") else None
    if final is not None:
        parameters.check_destination(final)
    from ...targets.resolve import precheck

    precheck(target)
    if options["verify"] and final is None:
        raise click.UsageError(f"--verify needs a built library, but --stop-after {stop} builds none")
    _build(path, target, final, fixed, stop, as_json, on_terminal() if table is None else table, **options)


def _build(
    path: Path, target_text: str, final: Path | None, shapes: dict[str, tuple[int, ...]] | None, stop: str | None,
    as_json: bool, table: bool, *, name: str | None, threads: int | None, exact: bool, float_mode: str,
    verify: bool | None, rtol: float, atol: float, seed: int, explain: bool, dump_ir: str | None,
) -> None:  # fmt: skip
    from ...targets.resolve import resolve

    target = resolve(target_text)
    for line in target.notes if not target.native else ():
        note(f"note: {line}")
    wanted = final is not None and _should_verify(verify, target)
    from ..pipeline import Options, run_pipeline
    from ..runtime.place import staged
    from .summary import explanation, print_table

    options = Options(
        target=target, shapes=shapes, threads=threads, exact=exact, float_mode=float_mode, name=name,
        stop_after=stop, dump_ir=Path(dump_ir) if dump_ir else None,
    )  # fmt: skip
    with removed_on_exit(final), StageProgress(on_terminal() and not as_json) as progress:
        if final is None:
            report = run_pipeline(path, options, progress=progress).report
        else:
            with staged(final) as stage:
                library = stage.work / "library"
                report = run_pipeline(path, options, progress=progress, output=library).report
                if wanted:
                    progress("verify", 0, 1)
                    report["verification"] = _verify(
                        path, library, rtol, atol, exact, seed, asked=bool(verify)
                    )
                for file in library.iterdir():
                    os.replace(file, stage.result / file.name)
    if as_json:
        emit_json({"output": str(final) if final else None, **report})
        return
    if explain:
        emit(explanation(report))
    if table:
        print_table(report, path, final)
    if final is not None:
        emit(str(final))


def _should_verify(verify: bool | None, target: Any) -> bool:
    """As asked; when not asked, if the library runs here and onnxruntime is installed."""
    from ...targets.detect import runs_here
    from ..verify import available

    if verify is False:
        return False
    here = runs_here(target)
    if verify and not here:
        raise TargetError(
            f"--verify needs code that runs on this machine, which can't run {target.id}; use --no-verify"
        )
    if verify and not available():
        raise ToolchainError(
            "--verify needs onnxruntime, which is not installed: pip install 'halotile[verify]'"
        )
    return here and available()


def _verify(
    path: Path, library: Path, rtol: float, atol: float, exact: bool, seed: int, *, asked: bool
) -> dict[str, Any] | None:  # fmt: skip
    """Runs the staged library beside ONNX Runtime; a disagreement is an error, and so nothing gets its final name.

    Where ONNX Runtime itself can't run the model, a comparison that nobody asked for is left out with a note.
    """
    from ..runtime.loader import load
    from ..verify import NoReference, verify

    loaded = load(library)
    try:
        result = verify(loaded, path, loaded.inputs, rtol=rtol, atol=atol, exact=exact, seed=seed)
    except NoReference as error:
        if asked:
            raise
        note(f"note: not compared: {error}")
        return None
    if not result.ok:
        raise VerificationError(f"{result.message()}; nothing was written (--no-verify builds it anyway)")
    return result.data()

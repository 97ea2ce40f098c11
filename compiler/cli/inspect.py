"""``halotile inspect``: what is in a model, before compiling it or after a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from ...errors import RunError, did_you_mean, several
from ..options import Shapes, Stage
from . import completers, parameters
from .console import columns, count, emit, emit_json, note, seconds, size
from .failure import one_line
from .images import Pairs, images_options, images_wanted
from .one_of import OneOf
from .shapes import shape_options
from .summary import explanation, symbol_text
from .verb import verb

if TYPE_CHECKING:
    from ...targets.plain import Json

STAGES = get_args(Stage)
_TILING = ("tile", "memory_budget", "optimize", "threads")
_IMAGES = ("inputs", "outputs", "images")
# What each view reads beside --shape, --typical, --target and --json; the first names are the options that choose it.
_VIEWS = {
    "--timeline": ("timeline", "svg"),
    "--reach": ("reach", "float_mode", *_IMAGES),
    "--precision-plan": ("precision_plan", "calibrate", "error", "float_mode", "threads"),
    "--plan": ("plan", "pareto", "float_mode", *_IMAGES, *_TILING),
    "--stop-after": ("stage", "explain", "nodes", "check", "float_mode", *_IMAGES, *_TILING),
}


@verb(
    groups={
        "Model": ("shapes", "typical", "min_shapes", "opt_shapes", "max_shapes", "fixed"),
        "Images": _IMAGES,
        "Views": ("stage", "explain", "nodes", "check", "plan", "pareto", "precision_plan", "reach", "timeline", "svg"),
        "As a build would be asked": (
            "target", "threads", "float_mode", "tile", "memory_budget", "optimize", "calibrate", "error",
        ),
    },
    examples=[
        ("halotile inspect model.onnx", "What is in the file, and whether it can be compiled:"),
        ("halotile inspect model.onnx --explain --node conv1", "How a layer is computed, and why:"),
        ("halotile inspect model.onnx --stop-after simplify", "What simplification left:"),
        ("halotile inspect model.onnx --reach", "Which rows of the image a row of the output needs:"),
        (
            "halotile inspect model.onnx --precision-plan --calibrate samples.npz --error 1e-2",
            "Each layer's precision within an error, and error against time:",
        ),
        ("halotile inspect model.onnx --plan --pareto -t raspberry-pi-4", "Tile groups, and memory against time:"),
    ],
)
@parameters.model_argument()
@shape_options
@parameters.fix_option
@images_options
@click.option(
    "--stop-after", "stage", type=OneOf(STAGES), help="Run the pipeline so far and show what is left."
)
@click.option(
    "--float-mode", type=OneOf(["strict", "finite", "exact"]), default="strict", show_default=True,
    help="What the simplification may change: rounding; rounding, with no NaN or infinity; or no bit.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Check what each stage left, and rewrites on numbers (slow).")
@click.option("--explain", is_flag=True, help="Print what each pass did and declined, and each kernel (no compiling).")
@click.option(
    "--node", "nodes", multiple=True, metavar="NAME", shell_complete=completers.nodes,
    help="With --explain, only the kernels that a node of the model is in.",
)  # fmt: skip
@click.option("--timeline", is_flag=True, help="Predict loads, computations and stores on a target with a scratchpad.")
@click.option("--svg", type=click.Path(dir_okay=False), help="Also draw the timelines into this file.")
@click.option("--plan", "plan", is_flag=True, help="Show the tile groups: tiles, boxes, modes, bytes, extra work.")
@click.option("--pareto", is_flag=True, help="With the curve of arena bytes against predicted time.")
@click.option(
    "--precision-plan", is_flag=True, help="Show each layer's precision within --error, and error against time."
)
@click.option("--reach", is_flag=True, help="Show which input rows an output row needs: stride, halo, multiple.")
@parameters.tiling_options
@parameters.error_options
@parameters.threads_option
@parameters.target_option
@parameters.json_option
def inspect(
    model: str, shapes: Shapes | None, typical: Mapping[str, int] | None,
    fixed: Sequence[tuple[str, object]], stage: Any, float_mode: str, check: bool,
    timeline: bool, svg: str | None, target: str, as_json: bool, plan: bool, pareto: bool, explain: bool,
    nodes: tuple[str, ...], inputs: Pairs, outputs: Pairs, images: str | None, reach: bool,
    precision_plan: bool, calibrate: str | None, error: float | None, **tiling: object,
) -> None:  # fmt: skip
    """Show inputs, outputs, operators, coverage, multiply-adds and weights of MODEL (ONNX).

    With --stop-after, show what is left after a stage instead, what each pass did, and what it declined and why. Up to
    simplify, dimensions may stay open.
    """
    if check and stage is None:
        stage = "simplify"
    if nodes and not explain:
        raise click.UsageError("--node picks kernels of --explain; give both")
    if explain and stage is None:
        stage = "plan"
    views = {"--timeline": timeline or svg, "--reach": reach, "--precision-plan": precision_plan}
    views |= {"--plan": plan or pareto, "--stop-after": stage}
    _refuse_unread(next((name for name, asked in views.items() if asked), ""))
    if check and stage == "import":
        raise click.UsageError("--check validates the simplification, which --stop-after import leaves out")
    known = parameters.fixed_of(fixed)
    before, behind = images_wanted(inputs, outputs, images)
    path = parameters.check_model_path(model)
    from ...targets.resolve import precheck

    precheck(target)
    if timeline or svg:
        from .timeline import show

        return show(path, shapes, known, target, svg, as_json, typical)
    if reach:
        from .reach import show as show_reach

        wish: Json = {"fixed": known, "float_mode": float_mode, "typical": typical, "inputs": before, "outputs": behind}
        return show_reach(path, shapes, target, as_json, wish)
    if precision_plan:
        from .precision import show as show_precision

        wish = {"fixed": known, "float_mode": float_mode, "typical": typical, "threads": tiling["threads"]}
        return show_precision(path, shapes, target, as_json, wish, calibrate, error)
    if plan or pareto:
        from .plan import show as show_plan

        wish = {"fixed": known, "float_mode": float_mode, "typical": typical, **tiling}
        wish |= {"inputs": before, "outputs": behind}
        return show_plan(path, shapes, target, pareto, as_json, wish)
    from ..api import inspect as look

    wish = {"fixed": known, "typical": typical, "float_mode": float_mode, "check": check, **tiling}
    wish |= {"inputs": before, "outputs": behind}
    data = look(path, stage, shapes, target=target, **wish)
    if nodes:
        data = {**data, "notes": {}, "kernels": _kernels_of(data["kernels"], nodes, path)}
    if as_json:
        emit_json(data)
    elif explain:
        emit(explanation(data))
    else:
        emit(_file_text(data) if stage is None else _stage_text(data))


def _kernels_of(kernels: list[Json], nodes: tuple[str, ...], path: Path) -> list[Json]:
    """The kernels that have one of the nodes in them; RunError for a node that the model has not."""
    from ..frontend.load import load

    known = [n.name for n in load(path).model.graph.node if n.name]
    inside = {n for kernel in kernels for n in kernel.get("nodes", ())}
    for name in nodes:
        if name not in known and name not in inside:
            near = did_you_mean(name, known) or "; `--explain` without --node names those of each kernel"
            raise RunError(f"the model has no node {name!r}{near}")
        if name not in inside:
            note(f"note: node {name!r} is in no kernel: it was computed at import, or taken into its neighbours")
    return [k for k in kernels if set(nodes) & set(k.get("nodes", ()))]


def _refuse_unread(view: str) -> None:
    """A usage error for an option that the chosen view would pass over."""
    read = _VIEWS.get(view, ())
    others = {name for names in _VIEWS.values() for name in names} - set(read)
    parameters.refuse_given(others, f"can't go with {view}" if view else "needs --plan, --explain or --stop-after")


def _inside(nodes: int) -> str:
    return f", {nodes} of them in branches, bodies and functions" if nodes else ""


def _file_text(data: Json) -> str:
    macs = (
        count(data["macs"])
        if data["macs"] is not None
        else f"open for {several(len(data['macs_unknown_for']), 'node')}"
    )
    weights = data["weights"]
    rows = [
        ("name", data["name"]),
        ("opset", ", ".join(f"{domain} {version}" for domain, version in data["opsets"].items())),
        *(("metadata", f"{key}: {_short(value)}") for key, value in data["metadata"].items()),
        *(("input", _tensor(t)) for t in data["inputs"]),
        *(("output", _tensor(t)) for t in data["outputs"]),
        *(("dimension", symbol_text(s)) for s in data["symbols"]),
        *(("needs", line) for line in data["conditions"]),
        ("operators", f"{data['nodes']} of {len(data['operators'])} kinds{_inside(data['nodes_inside'])}"),
        ("multiply-adds", macs),
        (
            "weights",
            f"{size(weights['bytes'])}, {count(weights['elements'])} numbers in "
            f"{several(weights['tensors'], 'tensor')}",
        ),
        ("coverage", _coverage(data["coverage"])),
    ]
    parts = [columns(rows)]
    parts += [f"  {line}" for line in data["coverage"]["refused"]]
    parts += [f"note: {line}" for line in data["coverage"]["notes"]]
    parts.append(columns(((n, name) for name, n in data["operators"].items()), indent=2))
    return "\n".join(parts)


def _short(text: str) -> str:
    """The beginning of a text, on one line."""
    line = one_line(text)
    return line if len(line) <= 100 else f"{line[:97]}..."


def _coverage(coverage: Json) -> str:
    if coverage["supported"]:
        return (
            "all operators"
            if coverage["exact"]
            else "all operators known; fix the open dimensions to be sure"
        )
    return f"{len(coverage['refused'])} refused"


def _stage_text(data: Json) -> str:
    parts = [
        columns(
            [
                ("name", data["name"]),
                *(("input", _tensor(t)) for t in data["inputs"]),
                *(("output", _tensor(t)) for t in data["outputs"]),
                *(("dimension", symbol_text(s)) for s in data["symbols"]),
                *(("needs", line) for line in data["conditions"]),
                ("nodes of the model", str(data["nodes_before"])),
                (f"operators after {data['stage']}", str(data["nodes_after"])),
                *((f"time, {s}", seconds(t)) for s, t in data["seconds"].items()),
            ]
        ),
        columns(((n, name) for name, n in data["operators_after"].items()), indent=2),
    ]
    if "simplify" in data["details"]:
        parts.append(_simplify_text(data["details"]["simplify"]))
    for stage, notes in data["notes"].items():
        if notes and stage != "simplify":
            parts.append(f"{stage}:\n" + "\n".join(f"  {line}" for line in notes))
    if data["kernels"]:
        rows = ((k.get("name", ""), ", ".join(map(str, k.get("operators", ())))) for k in data["kernels"])
        parts.append("kernels:\n" + columns(rows, indent=2))
    return "\n".join(parts)


def _simplify_text(details: Json) -> str:
    """What each rule did how often, what was declined and why, and what the check covered."""
    applied = details["applied"]
    head = f"simplify ({details['float_mode']}): {sum(applied.values())} rewrites by {len(applied)} rules"
    if "checked" in details:
        skipped = f", {details['unchecked']} too large for it" if details["unchecked"] else ""
        head += f"; {details['checked']} checked on numbers{skipped}"
    lines = [head, columns(((n, rule) for rule, n in sorted(applied.items(), key=lambda a: (-a[1], a[0]))), indent=2)]
    if details["declined"]:
        lines.append("declined:")
    for entry in details["declined"]:
        places = list(dict.fromkeys(entry["nodes"]))
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        lines.append(f"  {entry['rule']} at {places[0]}{more}: {entry['reason']}")
    return "\n".join(line for line in lines if line)


def _tensor(tensor: Json) -> str:
    if tensor["shape"] is None:
        return f"{tensor['name']}: {tensor['dtype']} of unknown rank"
    return f"{tensor['name']}: {tensor['dtype']}[{', '.join('?' if d is None else str(d) for d in tensor['shape'])}]"

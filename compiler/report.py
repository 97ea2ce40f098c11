"""The report of a build: plain data, filled in as far as the stages have come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING

from ..schedules.words.dims import is_dim
from ..schedules.words.group import Group, Node, Value, dtype_bytes
from ..schedules.words.sizes import at_sizes, usual
from ..version import __version__

if TYPE_CHECKING:
    from ..schedules.words.stripe_plan import StripePlan
    from ..targets.plain import Json, JsonView
    from .state import Build, Options


def build_report(build: Build) -> Json:
    """Kernels, bytes, times and notes. Bytes are exact: ``arena_bytes`` is what a run with ``threads`` uses."""
    options = build.options
    threads = options.threads or options.target.cores
    report: Json = {
        "target": options.target.id,
        "cpu": options.target.cpu,
        "threads": threads,
        "exact": options.exact,
        "float_mode": options.float_mode,
        "flush_denormals": options.flush_denormals,
        "seconds": dict(build.seconds),
        "notes": {stage: notes for stage, notes in build.notes.items() if notes},
        "versions": dict(_versions()),
    }
    if build.imported is not None:
        report["operators_before"] = dict(build.imported.operators)
        report["dropped_inputs"] = [s.name for s in build.imported.dropped]
        report["dropped_shapes"] = {s.name: s.shape for s in build.imported.dropped}
        report["lengths"] = dict(build.imported.lengths)
        if build.imported.symbols:
            report["symbols"] = [asdict(s) for s in build.imported.symbols]
        report["warnings"] = [*build.warnings, *build.imported.warnings]
    if build.stream is not None:
        report["stream"] = build.stream.plain()
    if build.graph is not None:
        report["operators_after"] = len(build.graph.nodes)
        report["macs"] = sum(macs(node) for node in build.graph.nodes)
    if build.groups:
        nodes = _nodes(build)
        report["groups"] = [_group(build, group, nodes[group]) for group in build.groups]
    if build.kernels:
        from .codegen.module import workspace_bytes

        report["kernels"] = [_kernel(build, i, nodes[group]) for i, group in enumerate(build.groups)]
        report["workspace_bytes"] = workspace_bytes(build.kernels)
    if build.kernels and options.precision == "bfloat16":
        report["precision"] = _in_bfloat16(build)
    if build.kernels and options.precision == "float16":
        report["precision"] = {**_in_float16(build), **build.details.get("halves", {})}
    if build.tiled:
        report["tile"] = {"groups": planned(build), **build.details.get("tile", {})}
    if build.memory is not None:
        report["planned_bytes"] = build.memory.planned_bytes
        report["arena_bytes"] = build.memory.planned_bytes + threads * report["workspace_bytes"]
    if build.weights is not None:
        report["weight_bytes"] = build.weights.bytes
        report["denormal_constants"] = build.weights.denormals
    if "stored" in build.details:
        report["stored_weights"] = build.details["stored"]
    report |= _narrow_layers(build.options)
    if build.levels:
        report["levels"] = list(build.levels)
        report["arena_bytes"] = max(level["arena_bytes"] for level in build.levels)
        report["weight_bytes"] = sum(level["weight_bytes"] for level in build.levels)
    return report


def _in_bfloat16(build: Build) -> Json:
    """How many kernels of convolutions and matrix products are in bfloat16, and of how many."""
    from .codegen.module import in_bfloat16

    having = [k for g, k in zip(build.groups, build.kernels) if any(macs(n) for n in g.nodes)]
    return {"asked": "bfloat16", "kernels": sum(map(in_bfloat16, having)), "of": len(having)}


def _narrow_layers(options: Options) -> Json:
    """What samples have decided: the layers in bytes, or the precision of each."""
    if options.assigned is not None and "limit" in options.assigned:
        return {"auto": _assigned(options.assigned)}
    plan = options.int8
    return {} if plan is None else {"int8": {key: plan[key] for key in ("layers", "left", "error")}}


def _assigned(assigned: JsonView) -> Json:
    """How many layers are in which precision, and the error that they keep."""
    layers = assigned["layers"]
    found = {kind: sum(p == kind for p in layers.values()) for kind in ("int8", "bfloat16", "float16")}
    found["float32"] = assigned["of"] - len(layers)
    return {**assigned, "precisions": {k: n for k, n in found.items() if n}}


def _in_float16(build: Build) -> Json:
    """How many kernels of convolutions and matrix products are in float16, and of how many."""
    having = [[n for n in g.nodes if macs(n)] for g in build.groups]
    done = sum(any(n.results[0].dtype == "float16" for n in nodes) for nodes in having)
    return {"asked": "float16", "kernels": done, "of": sum(map(bool, having))}


def planned(build: Build) -> list[Json]:
    """The tile groups of a build, in order, as plain data."""
    from ..passes.tile.describe import plan_data
    from ..passes.tile.open.at_size import plan_at
    from ..schedules.words.open_tile_plan import OpenTilePlan
    from ..schedules.words.tile_plan import TilePlan

    found: Mapping[Group, StripePlan | TilePlan] = build.tiled
    plans = [(g.name, found.get(g)) for g in build.groups]
    typical = {} if build.imported is None else {s.name: s.typical for s in build.imported.symbols}
    plans = [(name, plan_at(plan, typical) if isinstance(plan, OpenTilePlan) else plan) for name, plan in plans]
    return [plan_data(name, plan) for name, plan in plans if isinstance(plan, TilePlan)]


def macs(node: Node) -> int:
    """Multiply-adds of a convolution or matrix multiplication, at the sizes planned for, else 0."""
    if node.operator.startswith(("relax.nn.conv", "halotile.dot_conv")) and len(node.inputs) > 1:
        weight = node.inputs[1].shape
        taps = 1
        for k in weight[1:]:
            taps *= k
        return usual(node.results[0].elements * taps)
    if node.operator == "halotile.conv_transpose":
        taps = 1
        for k in node.inputs[1].shape[1:]:
            taps *= k
        return usual(node.inputs[0].elements * taps)
    if node.operator == "relax.matmul":
        return usual(node.results[0].elements * node.inputs[0].shape[-1])
    return 0


def _nodes(build: Build) -> dict[Group, list[str]]:
    """For each group the model's nodes that it computes; for a copy into another layout, which computes none, the node
    or the input that the value comes from."""
    made: dict[Value, tuple[str, ...]] = {}
    if build.imported is not None and build.graph is not None:
        made = {value: (spec.name,) for value, spec in zip(build.graph.inputs, build.imported.inputs)}
    found = {}
    for group in build.groups:
        for node in group.nodes:
            names = node.sources
            if not names and node.operator == "halotile.copy":
                base = node.inputs[0]
                while base not in made and base in build.views:
                    base = build.views[base]
                names = made.get(base, ())[-1:]
            made.update(dict.fromkeys(node.results, names))
        moved = made[group.outputs[0]] if group.operators == ("halotile.copy",) else ()
        found[group] = list(group.sources or moved)
    return found


def budget_note(build: Build) -> str:
    """The memory budget, and what the arena takes of it at the largest, the typical and the smallest shape."""
    from .codegen.module import workspace_bytes

    symbols, memory, parts = build.imported.symbols, build.memory, []
    threads = build.options.policy.threads
    shapes = (("largest", "most"), ("typical", "typical"), ("smallest", "least"))
    for word, what in shapes:
        sizes = {s.name: getattr(s, what) for s in symbols}
        with at_sizes(sizes):
            slots = threads * workspace_bytes(build.kernels)
        where = ", ".join(f"{name}={size}" for name, size in sizes.items())
        parts.append(f"{memory.bytes_at(sizes) + slots} at the {word} shape ({where})")
    return f"of the memory budget of {build.options.memory_budget} bytes the arena takes {', '.join(parts)}"


def _group(build: Build, group: Group, nodes: list[str]) -> Json:
    return {
        "name": group.name,
        "nodes": nodes,
        "operators": list(group.operators),
        "anchor": group.anchor.operator if group.anchor is not None else None,
        "inputs": [_value(build, v) for v in group.inputs],
        "outputs": [_value(build, v) for v in group.outputs],
        "notes": list(group.notes),
    }


def _value(build: Build, value: Value) -> dict[str, list[int | str] | str]:
    layout = build.layouts.get(value)
    return {
        "name": value.name,
        "shape": [str(d) if is_dim(d) else d for d in value.shape],
        "dtype": value.dtype,
        "layout": str(layout) if layout is not None else "plain",
    }


PICKING = {"halotile.gather", "relax.take", "relax.strided_slice"}  # read no more than they write


def read_bytes(group: Group, value: Value) -> int:
    """Bytes that a group reads of one of its inputs: all of it, or what the operators that pick from it write."""
    readers = [n for n in group.nodes if value in n.inputs]
    if any(n.operator not in PICKING or n.inputs[0] is not value for n in readers):
        return usual(value.bytes)
    return int(min(usual(value.bytes), sum(usual(r.bytes) for n in readers for r in n.results)))


def _share(build: Build, value: Value) -> float:
    """The part of a value's bytes that it has in memory."""
    layout = build.layouts.get(value)
    return 1.0 if layout is None else dtype_bytes(layout.held(value.dtype)) / dtype_bytes(value.dtype)


def _kernel(build: Build, index: int, nodes: list[str]) -> Json:
    from ..schedules.instructions.bf16_pairs import PAIR, multiplies_pairs
    from ..schedules.instructions.int8_dot import per_word
    from .codegen.module import matrix_work

    group, kernel = build.groups[index], build.kernels[index]
    entry: Json = {
        "name": group.name,
        "nodes": nodes,
        "operators": list(group.operators),
        "schedule": kernel.schedule,
        "flops": 2 * sum(macs(n) for n in group.nodes) or kernel.flops,  # what tiles do twice counts once
        "bytes": int(
            sum(read_bytes(group, v) * _share(build, v) for v in group.inputs)
            + sum(usual(v.bytes) * _share(build, v) for v in group.outputs)
        ),
        "notes": [*group.notes, *kernel.notes],
    }
    for n in group.nodes:
        if macs(n) and n.results[0].dtype == "int32" and n.inputs[1].dtype == "int8":
            entry["at_once"] = per_word(n.inputs[0].dtype)  # products of bytes that one multiply-add takes
    if multiplies_pairs(kernel.function):
        entry["at_once"] = PAIR
    if work := matrix_work(kernel):
        entry["matrix"] = work / 2  # products of bfloat16 for each multiply-add; one of bytes is half of one
    if kernel.decision is not None:
        entry["decision"] = asdict(kernel.decision)
    if build.symbols:
        entry["function"] = build.symbols[index]
        if entry["function"] in build.streams:
            open_ = any(part.large for part in getattr(kernel, "parts", ()))
            fact = "result is larger than caches keep"
            entry["notes"].append(
                f"where its {fact}, it is written past them" if open_ else f"its {fact}, and is written past them"
            )
    return entry


@cache
def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"halotile": __version__}
    for package in ("apache-tvm", "onnx", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found

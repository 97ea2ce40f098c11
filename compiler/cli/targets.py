"""``halotile targets``: the machines that Halotile knows, and this one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ...errors import did_you_mean
from ...targets.target import Target
from . import completers, parameters
from .console import columns, emit, emit_json, size
from .verb import Verb

if TYPE_CHECKING:
    from ...targets.plain import Json


class Targets(click.Group):
    """The group, which knows what a misspelt verb of it may have meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(f"there is no command {args[0]!r} of targets{did_you_mean(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


@click.group(cls=Targets)
def targets() -> None:
    """List, show and detect machines to compile for."""


@targets.command("list", cls=Verb, examples=[("halotile targets list", "All names:")])
@parameters.json_option
def list_(as_json: bool) -> None:
    """List the boards and levels that have a name."""
    from ...targets.boards import boards

    known = boards().values()
    if as_json:
        rows = ({"name": b.name, "description": b.description, "aliases": b.aliases, **_data(b.target)} for b in known)
        emit_json({"targets": [*rows]})
    else:
        emit(columns([("native", "this machine"), *((b.name, b.description) for b in known)]))


@targets.command(
    cls=Verb, short_help="Show what Halotile knows of a target.",
    examples=[("halotile targets show raspberry-pi-5", "What Halotile knows of a board:")],
)  # fmt: skip
@click.argument("target", shell_complete=completers.targets)
@parameters.json_option
def show(target: str, as_json: bool) -> None:
    """Show the facts behind TARGET: a name, native, a board file, or triple+cpu+features."""
    from ...targets.resolve import precheck, resolve

    precheck(target)
    _show(resolve(target), as_json)


@targets.command(cls=Verb, examples=[("halotile targets detect", "What it sees of this machine:")])
@parameters.json_option
def detect(as_json: bool) -> None:
    """Show what Halotile sees of this machine."""
    from ...targets.resolve import resolve

    _show(resolve("native"), as_json)


def _show(target: Target, as_json: bool) -> None:
    from ...schedules.instructions.amx import has_matrix_unit

    facts = _data(target)
    facts["instructions"] = _instructions(target)
    facts["matrix_unit"] = has_matrix_unit(target)  # no fact of a target, but what its features come to
    if as_json:
        emit_json(facts)
        return
    notes, _ = facts.pop("notes"), facts.pop("fitted")
    own = target.fitted.changed()
    facts["fitted"] = [f"{group}.{name} {value:g}" for group, found in own.items() for name, value in found.items()]
    if facts["memory_kind"] == "cache":
        facts = {k: v for k, v in facts.items() if k not in ("scratchpad_bytes", "hertz", "transfer_seconds")}
    rows = [(k, _fact(k, v)) for k, v in facts.items() if v not in ("", (), [])]
    emit(columns([*rows, *(("note", n) for n in notes)]))


def _instructions(target: Target) -> list[str]:
    """LLVM's names of what the processor computes with beyond its architecture's first version; ``features`` are the
    switches on top of what its name implies."""
    from ...targets import flags, llvm

    arch = llvm.architecture(target.triple)
    here = llvm.features(arch, target.cpu, target.features)
    return sorted(flags.computing(here & flags.visible(arch)))


def _data(target: Target) -> Json:
    """The facts of a machine, without what a build says of itself."""
    return {name: fact for name, fact in asdict(target).items() if name not in ("in_halves", "half_growth")}


def _fact(key: str, value: Any) -> str:
    if key.endswith("_bytes"):
        return size(value) if value else "none"
    if key == "bandwidth":
        return f"{value / 1e9:g} GB/s"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, (tuple, list)) else str(value)

"""Verb: a command whose help has its options in groups and examples, and that takes -v and -q."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from . import console

OTHERS = "Output"  # the group that also has --json, -v, -q and --help


class Verb(click.Command):
    """A command. ``groups``: heading -> names of its parameters, in the order of the help; what no group names stands
    under ``Output``. ``examples``: (command line, what it does)."""

    def __init__(
        self, *args: Any, groups: Mapping[str, Sequence[str]] | None = None,
        examples: Sequence[tuple[str, str]] = (), **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **more)
        self.groups, self.examples = dict(groups or {}), tuple(examples)
        self.params += [_verbose(), _quiet()]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        shown = {p.name: r for p in options if (r := p.get_help_record(ctx)) is not None}
        grouped = {name for names in self.groups.values() for name in names}
        sections = {**self.groups}
        sections[OTHERS] = (*sections.get(OTHERS, ()), *(n for n in shown if n not in grouped))
        for heading, names in sections.items():
            rows = [shown[name] for name in names if name in shown]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_epilog(ctx, formatter)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[tuple[str, str]]) -> None:
    """Command lines, each below what it does."""
    if not examples:
        return
    with formatter.section("Examples"):
        for line, what in examples:
            formatter.write_text(what)
            formatter.write(f"{'':>{formatter.current_indent + 2}}{line}\n")


def verb(name: str | None = None, **more: object) -> Callable[[Callable[..., object]], click.Command]:
    """The decorator that makes a function a :class:`Verb`."""
    return click.command(name, cls=Verb, **more)


def _verbose() -> click.Option:
    return click.Option(
        ["-v", "--verbose"], count=True, expose_value=False, callback=_louder,
        help="Say more on stderr; -vv says everything.",
    )  # fmt: skip


def _quiet() -> click.Option:
    return click.Option(
        ["-q", "--quiet"], is_flag=True, expose_value=False, callback=_quieter,
        help="No progress, notes or tables on stderr: errors alone.",
    )  # fmt: skip


def _louder(ctx: click.Context, parameter: click.Parameter, value: int) -> None:
    """What our loggers have to say goes to stderr as well."""
    if value:
        _refuse_both(console.volume() < 0)
        console.set_volume(value)
        logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s")
        logging.getLogger("halotile").setLevel(logging.INFO if value == 1 else logging.DEBUG)


def _quieter(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        _refuse_both(console.volume() > 0)
        console.set_volume(-1)


def _refuse_both(other: bool) -> None:
    if other:
        raise click.UsageError("-q and -v say the opposite; give one of them")

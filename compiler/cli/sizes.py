"""``--size``, for commands that run a library whose runs choose sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from .running import sizes_in

F = TypeVar("F", bound=Callable[..., object])


class SizeType(click.ParamType):
    """``h=720`` or ``h=720,w=1280`` -> {"h": 720, "w": 1280}. A name alone may hold commas and equals signs."""

    name = "name=n,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, int]:
        if isinstance(value, dict):
            return value
        found = sizes_in(value)
        if not found:
            self.fail(f"{value!r} is not of the form name=720, with a whole number", param, ctx)
        return found


def size_option(function: F) -> F:
    """The option, given to ``function`` as ``sizes``."""
    return click.option(
        "--size", "sizes", type=SizeType(), multiple=True,
        help="Size of an open dimension in this run; else inputs say it, or it is the typical one. Repeatable.",
    )(function)  # fmt: skip


def sizes_of(found: Sequence[dict[str, int]]) -> dict[str, int]:
    """All sizes that were given."""
    return {name: size for sizes in found for name, size in sizes.items()}

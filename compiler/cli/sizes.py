"""``--size``, for commands that run a library whose runs choose sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class SizeType(click.ParamType):
    """``h=720`` or ``h=720,w=1280`` -> {"h": 720, "w": 1280}. A name alone may hold commas and equals signs."""

    name = "name=n,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> dict[str, int]:
        if isinstance(value, dict):
            return value
        found = _sizes(value.split(",")) or _sizes([value])
        if not found:
            self.fail(f"{value!r} is not of the form name=720, with a whole number", param, ctx)
        return found


def _sizes(parts: Sequence[str]) -> dict[str, int]:
    """The sizes in texts of the form name=number; none where one of them is not."""
    pairs = [part.rpartition("=") for part in parts]
    if not all(name and number.strip().isdecimal() for name, _, number in pairs):
        return {}
    return {name.strip(): int(number) for name, _, number in pairs}


def size_option(function: F) -> F:
    """The option, given to ``function`` as ``sizes``."""
    return click.option(
        "--size", "sizes", type=SizeType(), multiple=True,
        help="Size of an open dimension in this run; else inputs say it, or it is the typical one. Repeatable.",
    )(function)  # fmt: skip


def sizes_of(found: Sequence[dict[str, int]]) -> dict[str, int]:
    """All sizes that were given."""
    return {name: size for sizes in found for name, size in sizes.items()}

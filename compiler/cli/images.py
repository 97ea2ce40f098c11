"""``--input``, ``--result`` and ``--images``: pre- and post-processing on the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ...errors import HalotileError
from ...targets.plain import JsonView
from . import completers

if TYPE_CHECKING:
    from ...targets.plain import Json
    from ..images import Plain

F = TypeVar("F", bound=Callable[..., object])
Pairs = Sequence[tuple[str, JsonView]]  # of an option that is given once for each input: its name, and what is said


class AroundType(click.ParamType):
    """``x=NV12,size=720x1280,scale=255`` -> ("x", fields of an Image or Output)."""

    name = "NAME=KEY=VALUE,..."

    def __init__(self, of_inputs: bool) -> None:
        self._of_inputs = of_inputs

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Json]:
        if isinstance(value, tuple):
            return value
        from ..images import Image, Output, from_text

        try:
            return from_text(str(value), Image if self._of_inputs else Output)
        except HalotileError as error:
            self.fail(str(error), param, ctx)


def images_option(function: F) -> F:
    """``--images``: the file alone, where ``--input`` is an array."""
    return click.option(
        "--images", metavar="FILE", shell_complete=completers.files(".toml"),
        help="Frames in place of inputs, and what is done with outputs: a TOML file, [inputs.NAME] and [outputs.NAME].",
    )(function)  # fmt: skip


def images_options(function: F) -> F:
    """What is put before the model's inputs and behind its outputs."""
    function = images_option(function)
    function = click.option(
        "--result", "outputs", type=AroundType(False), multiple=True,
        help="Post-process an output: --result y=argmax,uint8, or y=uint8,multiply=255,NHWC.",
    )(function)  # fmt: skip
    return click.option(
        "--input", "inputs", type=AroundType(True), multiple=True,
        help="Take frames as an input: --input x=NV12,size=720x1280,letterbox,scale=255.",
    )(function)  # fmt: skip


def images_wanted(inputs: Pairs, outputs: Pairs, file: str | None) -> tuple[Plain | None, Plain | None]:
    """What is asked for of inputs and of outputs, by name; one name given twice is a usage error."""
    from ..images import both

    for flag, pairs in (("--input", inputs), ("--result", outputs)):
        names = [name for name, _ in pairs]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise click.UsageError(f"{flag} {twice[0]}=... is given twice")
    return both(dict(inputs) or None, dict(outputs) or None, Path(file) if file else None)

"""The options that speak of dimensions: ``--shape``, ``--typical``, and TensorRT's words for both."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from ...errors import ShapeError
from ..extents import Extent, checked_dimension
from . import completers

F = TypeVar("F", bound=Callable[..., object])
Dim = int | str
OPTIONS = ("shapes", "typical", "min_shapes", "opt_shapes", "max_shapes")


class ShapeType(click.ParamType):
    """``x=1,3,224,224`` -> ("x", (1, 3, 224, 224)); ``x=n,3,h:64..2160:32,w`` has text for what is open; ``x=`` is a
    scalar. The name may hold an equals sign."""

    name = "name=d,d,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[Dim, ...]]:
        if isinstance(value, tuple):
            return value
        name, equals, dims = str(value).rpartition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not of the form name=1,3,224,224", param, ctx)
        try:
            return name, tuple(checked_dimension(d) for d in dims.strip("[]() ").split(",") if d.strip())
        except ShapeError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class TypicalType(click.ParamType):
    """``h=720,w=1280`` -> (("h", 720), ("w", 1280))."""

    name = "name=size,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[str, int], ...]:
        if isinstance(value, tuple):
            return value
        found = []
        for part in str(value).split(","):
            name, _, size = part.strip().rpartition("=")
            if not name or not size.isdecimal() or int(size) < 1:
                self.fail(f"{value!r} is not of the form h=720,w=1280 with whole numbers from 1", param, ctx)
            found.append((name, int(size)))
        return tuple(found)


class ProfileType(click.ParamType):
    """TensorRT's ``x:1x3x64x64,y:1x4`` -> {"x": (1, 3, 64, 64), "y": (1, 4)}."""

    name = "name:dxd...,..."

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, tuple[int, ...]]:
        if isinstance(value, dict):
            return value
        found: dict[str, tuple[int, ...]] = {}
        for part in str(value).split(","):
            name, colon, dims = part.strip().rpartition(":")
            sizes = dims.lower().split("x") if dims and dims.lower() != "scalar" else []
            if not colon or not name or not all(d.isdecimal() for d in sizes):
                self.fail(f"{value!r} is not of the form x:1x3x64x64,y:1x4", param, ctx)
            if name.strip("'\"") in found:
                self.fail(f"{value!r} has '{name}' twice", param, ctx)
            found[name.strip("'\"")] = tuple(map(int, sizes))
        return found


def shape_options(function: F) -> F:
    """``--shape``, ``--typical`` and TensorRT's three, given to ``function`` as ``shapes`` and ``typical``."""

    @functools.wraps(function)
    def with_shapes(*arguments: Any, **options: Any) -> object:
        given = {name: options.pop(name) for name in OPTIONS}
        shapes = _shapes_of(given["shapes"])
        for name, dims in _profiles(*(given[o] or {} for o in OPTIONS[2:])).items():
            if name in shapes:
                raise click.UsageError(f"the shape of {name!r} is given by --shape and by --min, --opt or --max-shapes")
            shapes[name] = dims
        return function(*arguments, shapes=shapes or None, typical=_typical_of(given["typical"]), **options)

    add: Any = with_shapes
    for flag, says in (("max", "largest"), ("opt", "typical"), ("min", "least")):
        add = click.option(
            f"--{flag}-shapes", type=ProfileType(), help=f"As TensorRT has it, the {says} shapes: x:1x3x64x64,y:1x4."
        )(add)
    add = click.option(
        "--typical", type=TypicalType(), multiple=True,
        help="What to plan for where dimensions are open: --typical h=720,w=1280.",
    )(add)  # fmt: skip
    return click.option(
        "--shape", "shapes", type=ShapeType(), multiple=True, shell_complete=completers.tensors("inputs"),
        help="Fix an input's shape, --shape x=1,3,224,224, or name and bound what is open, --shape "
        "x=n,3,h:64..2160:32,w; by a dimension's name: --shape batch=4, --shape batch=1..16.",
    )(add)  # type: ignore[no-any-return]  # fmt: skip


def _shapes_of(pairs: Sequence[tuple[str, tuple[Dim, ...]]]) -> dict[str, tuple[Dim, ...]]:
    """The shapes by name; one name given twice is a usage error."""
    names = [name for name, _ in pairs]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise click.UsageError(f"--shape {twice[0]}=... is given twice")
    return dict(pairs)


def _typical_of(given: Sequence[tuple[tuple[str, int], ...]]) -> dict[str, int] | None:
    pairs = [pair for pairs in given for pair in pairs]
    names = [name for name, _ in pairs]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise click.UsageError(f"--typical {twice[0]}=... is given twice")
    return dict(pairs) or None


def _profiles(
    least: Mapping[str, tuple[int, ...]], typical: Mapping[str, tuple[int, ...]], most: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[Dim, ...]]:
    """The extents of inputs with a least, a typical and a largest shape; a dimension of one size is fixed."""
    found = {}
    for name in dict.fromkeys((*least, *typical, *most)):
        shapes = [given.get(name) for given in (least, typical, most)]
        ranks = {len(s) for s in shapes if s is not None}
        if len(ranks) > 1:
            raise click.UsageError(f"the shapes given for {name!r} have {' and '.join(map(str, sorted(ranks)))} dims")
        dims = zip(*(s if s is not None else (None,) * max(ranks) for s in shapes))
        try:
            found[name] = tuple(_extent(*sizes) for sizes in dims)
        except ShapeError as error:
            raise click.UsageError(f"the shapes given for {name!r}: {error}") from None
    return found


def _extent(low: int | None, typical: int | None, high: int | None) -> Dim:
    if low is not None and low == high and typical in (None, low):
        return low
    extent = Extent(None, low or 0, high, 1, typical)
    return str(extent.checked(str(extent)))

"""Checks what callers pass as options, before anything heavy is loaded."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..errors import HalotileError, ShapeError, TargetError, did_you_mean
from .extents import UNTOLD, checked_dimension

if TYPE_CHECKING:
    from ..targets.target import Target

MAX_THREADS = 1024
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
FloatMode = Literal["strict", "finite", "exact"]
Objective = Literal["speed", "memory"]
Weights = Literal["float32", "float16", "int8"]
Precision = Literal["float32", "bfloat16", "float16", "int8", "auto"]
Tiling = Literal["auto", "off"]
Stage = Literal[  # that can be looked at; what follows makes code
    "import", "simplify", "reassociate", "dots", "numbers", "merge", "fuse", "layout", "select", "tile", "schedule",
    "plan",
]  # fmt: skip
FLOAT_MODES: tuple[str, ...] = get_args(FloatMode)
OBJECTIVES: tuple[str, ...] = get_args(Objective)
WEIGHTS: tuple[str, ...] = get_args(Weights)
PRECISIONS: tuple[str, ...] = get_args(Precision)


Shapes = Mapping[str, tuple[int | str, ...]]  # of numbers, and extents as text (extents.py)


def checked_shapes(shapes: object) -> dict[str, tuple[int | str, ...]] | None:
    """Input name -> whole shape, symbol name -> one dimension; None when nothing is said.

    Dimensions are numbers that are not negative, or text that says more (:class:`..extents.Extent`)."""
    if shapes is None:
        return None
    if not isinstance(shapes, Mapping):
        raise ShapeError(f"shapes={shapes!r}: give a dict of input names and shapes, such as {{'x': (1, 3, 224, 224)}}")
    if not shapes:
        return None
    return {str(name): _shape(str(name), dims) for name, dims in shapes.items()}


def checked_typical(typical: object) -> dict[str, int] | None:
    """Symbol name -> the size to plan for; None when nothing is said."""
    if typical is None:
        return None
    if not isinstance(typical, Mapping):
        raise ShapeError(f"typical={typical!r}: give a dict of dimensions and sizes, such as {{'h': 720, 'w': 1280}}")
    for name, size in typical.items():
        if (_whole(size) or 0) < 1:
            raise ShapeError(f"typical size of {str(name)!r} is {size!r}; give a whole number from 1")
    return {str(name): operator.index(size) for name, size in typical.items()} or None


def checked_stream(stream: int) -> int | None:
    """Rows of a step, 0 where their number is left to us; None for a library that does not stream."""
    if stream is None or stream is False:
        return None
    if stream is True:
        return 0
    if (_whole(stream) or 0) < 1:
        raise HalotileError(f"stream={stream!r}: give True, or about how many rows a step takes")
    return operator.index(stream)


@dataclass(frozen=True)
class Fixed:
    """The value of an input that is known at compile time: its elements in row-major order, and its shape; a list that
    the command line gives has none (None), and takes the model's."""

    shape: tuple[int, ...] | None
    values: tuple[int | float | bool, ...]


def checked_fixed(fixed: object) -> dict[str, Fixed] | None:
    """Input name -> its value: an array, or what makes one of numbers; None when nothing is fixed."""
    if fixed is None:
        return None
    if not isinstance(fixed, Mapping):
        raise HalotileError(f"fixed={fixed!r}: give a dict of input names and values, such as {{'size': [480, 640]}}")
    return {str(name): _fixed(str(name), value) for name, value in fixed.items()} or None


def _fixed(name: str, value: object) -> Fixed:
    if isinstance(value, Fixed):
        return value
    import numpy as np

    try:
        array = np.asarray(value)
        if array.dtype.kind == "V":  # the narrow floats of ml_dtypes have a kind of their own
            array = array.astype(np.float32)
    except (TypeError, ValueError):
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise HalotileError(f"the value given for input {name!r} is no array of numbers")
    return Fixed(array.shape, tuple(array.reshape(-1).tolist()))


def checked_threads(threads: int | None) -> int | None:
    """None, or a number of threads from 1 to 1024."""
    if threads is None:
        return None
    number = _whole(threads)
    if number is None or not 1 <= number <= MAX_THREADS:
        raise HalotileError(
            f"threads={threads!r}: give a whole number from 1 to {MAX_THREADS}, or None for the target's cores"
        )
    return number


def checked_name(name: str | None) -> str | None:
    """The name of a library: None, or text that UTF-8 has bytes for."""
    if name is None:
        return None
    if not isinstance(name, str) or not encodable(name):
        raise HalotileError(f"name={name!r}: give text, from which the names in C are made")
    return name


def encodable(text: str) -> bool:
    """Whether there is UTF-8 for a text; names of files that are not UTF-8 hold halves of characters."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def checked_path(path: object, what: str) -> Path | None:
    """A path or None; ``what`` names the argument."""
    if path is None:
        return None
    found = path_of(path)
    if found is None or not can_be(found):
        raise HalotileError(f"{what}={path!r} is no path")
    return found


def path_of(path: Any) -> Path | None:
    """What is named by text, or by an object that stands for text; None for anything else, bytes included."""
    try:
        text = os.fspath(path)
    except TypeError:
        return None
    return Path(text) if isinstance(text, str) else None


def can_be(path: Path) -> bool:
    """Whether a file can have this name."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def checked_float_mode(mode: str) -> str:
    """``strict``, ``finite`` or ``exact``."""
    return _one_of(mode, FLOAT_MODES, "float_mode")


def checked_tile(tile: object) -> Any:
    """``auto``, ``off``, a mapping (its keys are checked against the model), or None."""
    if isinstance(tile, Mapping):
        return _plain(tile)
    if tile is None or (isinstance(tile, str) and tile in ("auto", "off")):
        return tile
    raise HalotileError(f"tile={tile!r}: give 'auto', 'off' or a dict such as {{'last': name, 'shape': (16, 64)}}")


def checked_budget(budget: object) -> int | None:
    """Bytes, as a number or as text such as ``32MiB``; None for no limit."""
    if budget is None:
        return None
    found = bytes_of(budget) if isinstance(budget, str) else _whole(budget)
    if found is None or found < 1:
        raise HalotileError(f"memory_budget={budget!r}: give bytes, or text such as '32MiB' or '500KB'")
    return found


def bytes_of(text: str) -> int | None:
    """``32MiB`` -> 33554432; None for what is no size."""
    number = text.strip().rstrip("kKmMgGiIbB ")
    unit = UNITS.get(text.strip()[len(number) :].strip().upper())
    try:
        return int(float(number) * unit) if unit is not None else None
    except (ValueError, OverflowError):
        return None


def checked_optimize(optimize: str) -> str:
    """``speed`` or ``memory``."""
    return _one_of(optimize, OBJECTIVES, "optimize")


def checked_weights(weights: str, exact: bool, precision: str = "float32") -> str:
    """``float32``, or ``float16`` or ``int8`` where nobody asked for exactness. Bytes are widened to float32, beside
    which no layer may be in float16."""
    _one_of(weights, WEIGHTS, "weights")
    if weights == "int8" and precision in ("float16", "auto"):
        raise HalotileError(
            f"weights in int8 are widened to float32, and precision {precision} computes layers in float16: "
            "choose one of them, or precision int8"
        )
    if weights != "float32" and exact:
        raise HalotileError(f"{weights} weights are rounded, which exact forbids: choose one of them")
    return weights


def checked_precision(precision: str, exact: bool) -> str:
    """What floats of layers may be rounded to: ``float32``, or ``bfloat16`` or ``float16`` where nobody asked for
    exactness. Layers in ``int8`` have a plan of their own (quantise/wish.py), beside those in float32; with ``auto``
    all have (budget/wish.py)."""
    _one_of(precision, PRECISIONS, "precision")
    if precision == "bfloat16" and exact:
        raise HalotileError("precision bfloat16 rounds to eight bits, which exact forbids: choose one of them")
    if precision == "float16" and exact:
        raise HalotileError("precision float16 rounds to eleven bits, which exact forbids: choose one of them")
    return "float32" if precision in ("int8", "auto") else precision


def check_widening(weights: str, target: Target) -> None:
    """Raises TargetError for weights of float16 where the target can't widen them. LLVM is asked."""
    from ..targets.llvm import widens_float16

    if weights == "float16" and not widens_float16(target.triple, target.cpu, target.features):
        raise TargetError(
            f"float16 weights need instructions that widen vectors of float16, which {target.id} lacks; "
            "choose a target that has them (x86-64-v3, any 64-bit ARM), or float32 weights"
        )


def checked_denormals(flush: bool, exact: bool) -> bool:
    """Whether floats below the normal ones count as zero, which nobody may ask for who asks for exactness."""
    if not isinstance(flush, bool):
        raise HalotileError(f"flush_denormals={flush!r}: give True or False")
    if flush and exact:
        raise HalotileError("flushed denormals are changed, which exact forbids: choose one of them")
    return flush


def _one_of(value: str, choices: Sequence[str], what: str) -> str:
    if not isinstance(value, str) or value not in choices:
        raise HalotileError(f"{what}={value!r} is not one of {', '.join(choices)}{did_you_mean(value, choices)}")
    return value


def _plain(value: object) -> object:
    """Mappings as dicts, sequences as tuples, numpy's whole numbers as Python's, which a manifest can hold."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    number = _whole(value)
    return value if number is None else number


def _whole(value: Any) -> int | None:
    """A whole number, numpy's included; None for anything else, and for True and False."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _shape(name: str, dims: Any) -> tuple[int | str, ...]:
    single = isinstance(dims, str) or _whole(dims) is not None
    try:
        return tuple(_dimension(d) for d in ([dims] if single else dims))
    except (TypeError, ValueError):
        raise ShapeError(
            f"shape of {name!r} is {dims!r}; give whole numbers, such as (1, 3, 224, 224), or text for what is open, "
            "such as ('n', 3, 'h:64..2160:32', 'w')"
        ) from None
    except ShapeError as error:
        raise ShapeError(f"shape of {name!r}: {error}") from None


def _dimension(dim: Any) -> int | str:
    found = UNTOLD if dim is None else checked_dimension(dim) if isinstance(dim, str) else operator.index(dim)
    if isinstance(found, int) and found < 0:
        raise ShapeError(f"dimensions can't be negative, but one is {found}; '{UNTOLD}' leaves it as the model has it")
    return found

"""The size that a build plans for where the user does not say: one batch, a sentence, a picture, a row of text.

Any choice is right, and some are faster: only estimates depend on it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from ...schedules.words.dims import Dim
from ..spec import Condition, Symbol, TensorSpec
from .implied import at, symbol_name, symbols_of
from .symbols import Known, Symbols, require_typical
from .together import going_together

BATCH, SEQUENCE, IMAGE, FRAMES, SAMPLES = 1, 128, 224, 16, 16_000
ROW = 10  # times its height is a row of text wide, such as 32 by 320
TALLEST_ROW = 64
_NAMES = (
    (re.compile(r"batch|(^|[^a-z])(bs|bsz)($|[^a-z0-9])", re.I), BATCH),
    (re.compile(r"height|width|(^|[^a-z])(h|w)($|[^a-z0-9])", re.I), IMAGE),
    (_SOUND := re.compile(r"samples|audio|wave", re.I), SAMPLES),
    (re.compile(r"seq|len|token|time|step|past|frames|words|(^|[^a-z])(t|s|l)($|[^a-z0-9])", re.I), SEQUENCE),
)


_LETTERS = re.compile(r"(^|[^a-z])(n|b)($|[^a-z0-9])", re.I)  # a batch in some places, any number in others


def told_symbols(
    symbols: Symbols, inputs: Sequence[TensorSpec], conditions: Sequence[Condition] = ()
) -> tuple[tuple[Symbol, ...], list[str]]:
    """The symbols of ``inputs`` in order of first appearance, with typical sizes that satisfy ``conditions``, and a
    note on each."""
    found: dict[str, Symbol] = {}
    for spec in inputs:
        for dim in spec.shape:
            for name in sorted(s.text for s in symbols_of(dim)) if isinstance(dim, Dim) else ():
                if name in found:
                    continue
                known = symbols.facts[name]
                require_typical(name, known)
                wished = known.typical if known.typical is not None else _default(name, inputs)
                size = fitting(wished, known)
                high = None if math.isinf(known.high) else int(known.largest)
                found[name] = Symbol(name, known.least, high, known.multiple, size, tuple(known.why.values()))
    free = {name for name in found if symbols.facts[name].typical is None}
    told = going_together(tuple(found.values()), conditions, free)
    return told, [_note(symbol, symbols.facts[symbol.name]) for symbol in told]


def at_typical(specs: Sequence[TensorSpec], symbols: Sequence[Symbol]) -> tuple[TensorSpec, ...]:
    """The tensors as they are at the sizes that the build plans for."""
    sizes = {s.name: s.typical for s in symbols}
    return tuple(replace(spec, shape=tuple(at(d, sizes) for d in spec.shape)) for spec in specs)


def fitting(size: int, known: Known) -> int:
    """The allowed size that is nearest from above, or the largest."""
    size = max(size, known.least)
    return int(min(-(-size // known.multiple) * known.multiple, known.largest))


def _note(symbol: Symbol, known: Known) -> str:
    open_ = f"dimension '{symbol.name}' is open, {known.sizes}, and planned for {symbol.typical}"
    if known.typical is None:
        return f"{open_} by default (--typical {symbol.name}=SIZE says otherwise)"
    return open_ if known.typical == symbol.typical else f"{open_}, the next multiple from {known.typical}"


def _default(name: str, inputs: Sequence[TensorSpec]) -> int:
    """By what stands around the symbol's first appearance, or else by its name."""
    spec, axis = next(((s, a) for s in inputs for a, d in enumerate(s.shape) if symbol_name(d) == name), (None, 0))
    size = None if spec is None else _by_place(spec, axis)
    if size is None:
        size = _by_name(name)
    if size is None and spec is not None and _is_sound(spec, axis):
        size = SAMPLES
    if size is None and _LETTERS.search(name) and any(_leads(name, s) for s in inputs):
        size = BATCH
    if size is None:
        size = BATCH if spec is not None and axis == 0 and len(spec.shape) > 1 else SEQUENCE
    return size


def _is_sound(spec: TensorSpec, axis: int) -> bool:
    """Whether an axis has the samples of an input that is called a sound: its last one, of two at most but for ones."""
    others = [dim for dim in spec.shape[:-1] if dim != 1]
    return bool(_SOUND.search(spec.name)) and axis == len(spec.shape) - 1 and len(others) < 2 and "float" in spec.dtype


def _by_name(name: str) -> int | None:
    return next((size for pattern, size in _NAMES if pattern.search(name)), None)


def _leads(name: str, spec: TensorSpec) -> bool:
    """Whether a symbol is the first axis of several, or the next one behind a sequence: [n, 3, h, w] or [t, n, 64], and
    not [1, n, 64]."""
    at = [axis for axis, dim in enumerate(spec.shape) if symbol_name(dim) == name]
    if not at or len(spec.shape) < 2 or at[0] > 1:
        return at[:1] == [0]
    first = symbol_name(spec.shape[0])
    return at[0] == 0 or first is not None and _by_name(first) == SEQUENCE


def _by_place(spec: TensorSpec, axis: int) -> int | None:
    """The size of an axis of pictures: of those with channels in front or behind, of rows of text, of films."""
    shape, rank = spec.shape, len(spec.shape)
    if "float" not in spec.dtype and spec.dtype != "uint8" or rank not in (3, 4, 5):
        return None
    behind = isinstance(shape[-1], int) and shape[-1] <= 4
    height = rank - 3 if behind else rank - 2
    channels = shape[-1] if behind else shape[height - 1] if rank < 5 else shape[1]
    if not isinstance(channels, int) or rank == 3 and channels > 4:
        return None
    if rank == 5 and axis == height - 1 and isinstance(shape[height], Dim):
        return FRAMES
    if axis not in (height, height + 1):
        return None
    if axis == height + 1 and isinstance(shape[height], int):
        tall = shape[height]
        return ROW * tall if 1 < tall <= TALLEST_ROW else tall if tall > 1 else None
    return IMAGE if isinstance(shape[height + 1], Dim) else None

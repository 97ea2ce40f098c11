"""The constants of the cost models that were fitted to measurements, as ``fitted.toml`` has them with their sources.

A target has its own where its file says so (``[target.fitted.<group>]``); ``halotile calibrate`` writes such a file.
The models read them from the target that they are asked about, and from nowhere else.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .plain import Json

FILE = Path(__file__).parent / "fitted.toml"


@cache
def table() -> dict[str, dict[str, Json]]:
    """Group -> constant -> its ``value``, what it ``is``, and its ``source``."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def _of(group: str, name: str) -> Any:
    """The usual value of a constant; 0 where the runtime is alone, which has no cost model, nor the file."""
    return field(default_factory=lambda: table()[group][name]["value"] if FILE.exists() else 0)


@dataclass(frozen=True)
class Memory:
    """The group ``memory`` of ``fitted.toml``."""

    near: float = _of("memory", "near")
    in_order: float = _of("memory", "in_order")
    moves: float = _of("memory", "moves")
    hidden: float = _of("memory", "hidden")
    shared: float = _of("memory", "shared")
    stream: float = _of("memory", "stream")
    reached: float = _of("memory", "reached")
    clock: float = _of("memory", "clock")
    near_share: float = _of("memory", "near_share")
    far_share: float = _of("memory", "far_share")
    others: int = _of("memory", "others")
    stay: int = _of("memory", "stay")
    beyond: float = _of("memory", "beyond")
    kept: float = _of("memory", "kept")
    most_kept: int = _of("memory", "most_kept")
    past: int = _of("memory", "past")
    beside: float = _of("memory", "beside")
    rest: float = _of("memory", "rest")


@dataclass(frozen=True)
class Kernels:
    """The group ``kernels`` of ``fitted.toml``."""

    launch: float = _of("kernels", "launch")
    call: float = _of("kernels", "call")
    settle: float = _of("kernels", "settle")
    streamed: float = _of("kernels", "streamed")
    exposed: float = _of("kernels", "exposed")
    phased: float = _of("kernels", "phased")
    copied: float = _of("kernels", "copied")
    epilogue: float = _of("kernels", "epilogue")
    function: float = _of("kernels", "function")
    element: float = _of("kernels", "element")
    move: float = _of("kernels", "move")
    norm: float = _of("kernels", "norm")
    tap: float = _of("kernels", "tap")
    transposed: float = _of("kernels", "transposed")


@dataclass(frozen=True)
class FittedRegisters:
    """The group ``registers`` of ``fitted.toml``."""

    load: float = _of("registers", "load")
    stream: float = _of("registers", "stream")
    step: float = _of("registers", "step")
    box_step: float = _of("registers", "box_step")
    product_load: float = _of("registers", "product_load")
    product_launch: float = _of("registers", "product_launch")
    product: float = _of("registers", "product")


@dataclass(frozen=True)
class FittedWinograd:
    """The group ``winograd`` of ``fitted.toml``."""

    step: float = _of("winograd", "step")
    exposed: float = _of("winograd", "exposed")
    exposed_starved: float = _of("winograd", "exposed_starved")
    starved: float = _of("winograd", "starved")
    fill: float = _of("winograd", "fill")
    moved: float = _of("winograd", "moved")
    moved_starved: float = _of("winograd", "moved_starved")
    moved_part: float = _of("winograd", "moved_part")
    spread: float = _of("winograd", "spread")
    near_weights: float = _of("winograd", "near_weights")
    far: float = _of("winograd", "far")
    last: float = _of("winograd", "last")
    split: float = _of("winograd", "split")
    loaded: float = _of("winograd", "loaded")
    stored: float = _of("winograd", "stored")
    parts_rate: float = _of("winograd", "parts_rate")
    asked: float = _of("winograd", "asked")
    unasked: float = _of("winograd", "unasked")


@dataclass(frozen=True)
class FittedStrassen:
    """The group ``strassen`` of ``fitted.toml``."""

    conv_state: float = _of("strassen", "conv_state")
    conv_sum: float = _of("strassen", "conv_sum")
    product_state: float = _of("strassen", "product_state")
    product_sum: float = _of("strassen", "product_sum")


@dataclass(frozen=True)
class FittedUnit:
    """The group ``unit`` of ``fitted.toml``."""

    slower: float = _of("unit", "slower")
    conv_full: float = _of("unit", "conv_full")
    conv_split: float = _of("unit", "conv_split")
    conv_split_once: float = _of("unit", "conv_split_once")
    conv_far: float = _of("unit", "conv_far")
    conv_farthest: float = _of("unit", "conv_farthest")
    conv_fill: float = _of("unit", "conv_fill")
    conv_unaligned: float = _of("unit", "conv_unaligned")
    conv_result: float = _of("unit", "conv_result")
    bytes_full: float = _of("unit", "bytes_full")
    bytes_copy: float = _of("unit", "bytes_copy")
    bytes_result: float = _of("unit", "bytes_result")
    product_split: float = _of("unit", "product_split")
    product_split_once: float = _of("unit", "product_split_once")
    product_step: float = _of("unit", "product_step")
    product_sum: float = _of("unit", "product_sum")
    product_block: float = _of("unit", "product_block")
    product_task: float = _of("unit", "product_task")
    product_bytes_full: float = _of("unit", "product_bytes_full")
    product_bytes_sum: float = _of("unit", "product_bytes_sum")
    product_bytes_task: float = _of("unit", "product_bytes_task")
    product_bytes_copy: float = _of("unit", "product_bytes_copy")


@dataclass(frozen=True)
class Fitted:
    """All fitted constants of a machine; those of ``fitted.toml`` where nothing else was measured."""

    memory: Memory = field(default_factory=Memory)
    kernels: Kernels = field(default_factory=Kernels)
    registers: FittedRegisters = field(default_factory=FittedRegisters)
    winograd: FittedWinograd = field(default_factory=FittedWinograd)
    strassen: FittedStrassen = field(default_factory=FittedStrassen)
    unit: FittedUnit = field(default_factory=FittedUnit)

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, f.name) for f in fields(self)))

    def __hash__(self) -> int:  # once: targets are keys of many memos
        return self._hash

    def constants(self) -> Iterator[tuple[str, str, float]]:
        """(group, name, value) of every constant."""
        for group in fields(self):
            inner = getattr(self, group.name)
            for constant in fields(inner):
                yield group.name, constant.name, getattr(inner, constant.name)

    def changed(self) -> dict[str, dict[str, float]]:
        """Group -> constant -> value of those that are not as in ``fitted.toml``."""
        found: dict[str, dict[str, float]] = {}
        for (group, name, value), (_, _, own) in zip(self.constants(), usual().constants(), strict=True):
            if value != own:
                found.setdefault(group, {})[name] = value
        return found

    def with_values(self, values: Mapping[tuple[str, str], float]) -> Fitted:
        """The same with other ``values``, by group and name."""
        groups: dict[str, dict[str, float]] = {}
        for (group, name), value in values.items():
            groups.setdefault(group, {})[name] = value
        return replace(self, **{g: replace(getattr(self, g), **inner) for g, inner in groups.items()})


@cache
def usual() -> Fitted:
    """The constants of ``fitted.toml``."""
    return Fitted()


_MOST = 1e12


def checked_constants(given: object) -> str:
    """What is wrong with the constants of a file, from the place on (``.kernels.launch: ...``); nothing where nothing
    is. Constants that are not there stay as usual."""
    if given is None or isinstance(given, Fitted) or not FILE.exists():
        return ""
    if not isinstance(given, Mapping):
        return ": expected a table of groups"
    known = table()
    for group, constants in given.items():
        if group not in known:
            return f": unknown group {str(group)!r} (known: {', '.join(known)})"
        if not isinstance(constants, Mapping):
            return f".{group}: expected a table of constants"
        for name, value in constants.items():
            if name not in known[group]:
                return f".{group}: unknown constant {str(name)!r} (known: {', '.join(known[group])})"
            own = known[group][name]["value"]
            if type(value) not in ((int,) if type(own) is int else (int, float)):
                return f".{group}.{name}: expected {type(own).__name__}, got {value!r}"
            if not (math.isfinite(value) and 0 < value <= _MOST):
                return f".{group}.{name}: {value!r} is not from 0 (without it) to {_MOST:g}"
    memory = {**{n: e["value"] for n, e in known["memory"].items()}, **given.get("memory", {})}
    if memory["beyond"] <= memory["near_share"]:
        return f".memory.beyond: {memory['beyond']!r} is no more than near_share, {memory['near_share']!r}"
    return ""

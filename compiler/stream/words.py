"""The words of streams: what of a network in steps is known before it runs, as plain data.

    image   rows [t R, (t + 1) R) come with step t
    value   rows [t C - D, (t + 1) C - D) are made in it: C rows a step, D rows behind

C is R times the value's rows for each of the image's. D is the least delay with which every row that a row depends on
is there. Rows before 0 and from the value's height on do not exist; what an operator puts there is made by feeds: small
inputs of every step that say which rows exist, or where to find the row that is read instead.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...errors import several
from .columns import Columns, columns_of
from .heights import UNKNOWN, Height
from .statistics import Statistic

if TYPE_CHECKING:
    from ...targets.plain import Json, JsonView

__all__ = ["UNKNOWN", "Feed", "Gather", "Height", "Port", "State", "StreamPlan"]


@dataclass(frozen=True)
class Gather:
    """Where rows of a value come from: row y, first clamped to those that exist, is row ``top[y]`` at the top, the
    height less ``bottom[i]`` for the i-th from the end, and row y + ``shift`` in between."""

    shift: int = 0
    top: tuple[int, ...] = ()
    bottom: tuple[int, ...] = ()

    def rows(self, y: np.ndarray, height: int, source: int) -> np.ndarray:
        """The source's rows for rows ``y`` of a value of that height."""
        y = np.clip(y, 0, height - 1)
        found = y + self.shift
        if self.bottom:
            last = height - 1 - y
            near = np.array(self.bottom)[np.minimum(last, len(self.bottom) - 1)]
            found = np.where(last < len(self.bottom), source - near, found)
        if self.top:
            far = np.array(self.top)[np.minimum(y, len(self.top) - 1)]
            found = np.where(y < len(self.top), far, found)
        return np.clip(found, 0, source - 1)


@dataclass(frozen=True)
class Feed:
    """A small input that the runtime fills before every step, for rows t * count - back + (0 .. length - 1) of a value.

    ``mask``    whether the row exists
    ``gather``  its place in a window of ``window[1]`` rows of another value, from row t * window[0] - window[2] on
    ``share``   for pools that average what exists: the rows of a window by those of them that exist
    ``part``    1 / how many of the rows exist, one number
    """

    name: str
    kind: str
    count: int
    back: int
    length: int
    height: Height
    gather: Gather | None = None
    window: tuple[int, int, int] = (0, 0, 0)
    source: Height | None = None
    pool: tuple[int, int, int, int] = (1, 1, 1, 0)  # kernel, stride, dilation, rows before

    def fill(self, out: np.ndarray, step: int, rows: int) -> None:
        """Writes the feed of a step into ``out``; ``rows`` is the image's height, or UNKNOWN."""
        y = step * self.count - self.back + np.arange(self.length)
        height = self.height.at(rows)
        if self.kind == "part":
            out.reshape(-1)[:] = 1 / max(int(((y >= 0) & (y < height)).sum()), 1)
        elif self.kind == "mask":
            out.reshape(-1)[:] = (y >= 0) & (y < height)
        elif self.kind == "gather":
            assert self.gather is not None and self.source is not None
            found = self.gather.rows(y, height, self.source.at(rows)) - (step * self.window[0] - self.window[2])
            out.reshape(-1)[:] = np.clip(found, 0, self.window[1] - 1)
        else:
            kernel, stride, dilation, begin = self.pool
            at = y[:, None] * stride - begin + np.arange(kernel) * dilation
            there = ((at >= 0) & (at < height)).sum(axis=1)
            out.reshape(-1)[:] = kernel / np.maximum(there, 1)


@dataclass(frozen=True)
class Port:
    """An input or output of which rows are given or taken: its name, axis, rows a step, rows behind, and height, which
    ``text`` says as a formula."""

    name: str
    axis: int
    count: int
    delay: int
    height: Height
    text: str = ""


@dataclass(frozen=True)
class State:
    """What a step leaves for the next: an output that becomes an input, which holds ``fill`` at first. ``single``: the
    step has read all of the input when it writes the output, so that one memory is both."""

    input: str
    output: str
    fill: float
    single: bool = False


@dataclass(frozen=True)
class StreamPlan:
    """A network in steps of ``rows`` rows of the image, which has at least ``least``, a multiple of ``multiple``."""

    symbol: str
    rows: int
    least: int
    multiple: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[State, ...] = ()
    feeds: tuple[Feed, ...] = ()
    notes: tuple[str, ...] = ()
    statistics: tuple[Statistic, ...] = ()
    still: tuple[str, ...] = ()  # outputs without rows, which follow from statistics alone
    giving: int = 0  # the pass in which rows of the outputs come
    columns: Columns | None = None  # the strips of columns, where a step is not as wide as the image

    @property
    def passes(self) -> int:
        """How often the image is read."""
        return max([*(s.level + 1 for s in self.statistics), self.giving + 1 if self.outputs else 1])

    def steps(self, rows: int) -> int:
        """Steps that an image of that height takes: those that its rows fill, and those that bring the last out."""
        ports = [-(-(port.height.at(rows) + port.delay) // port.count) for port in self.outputs]
        return max([*ports, *(s.steps(rows) for s in self.statistics), 1])

    def refusal(self, rows: int) -> str:
        """What to say of an image of that height; empty if it is fine."""
        if rows < self.least:
            return f"the image has {several(rows, 'row')}, and the network needs at least {self.least}"
        if rows % self.multiple:
            return f"the image has {several(rows, 'row')}, and the network needs a multiple of {self.multiple}"
        return ""

    def plain(self) -> Json:
        """As plain data, for the manifest."""
        data = asdict(self)
        for state in data["states"]:
            state["fill"] = str(state["fill"])  # JSON has no infinity
        return data

    @staticmethod
    def of(data: JsonView) -> StreamPlan:
        """From plain data."""
        return StreamPlan(
            data["symbol"], data["rows"], data["least"], data["multiple"],
            tuple(_port(p) for p in data["inputs"]), tuple(_port(p) for p in data["outputs"]),
            tuple(State(s["input"], s["output"], float(s["fill"]), s.get("single", False)) for s in data["states"]),
            tuple(map(_feed, data["feeds"])), tuple(data["notes"]), tuple(map(_statistic, data["statistics"])),
            tuple(data["still"]), data["giving"], columns_of(data.get("columns")),
        )  # fmt: skip


def _height(data: JsonView) -> Height:
    return Height(data["period"], data["steps"], tuple(data["rest"]))


def _port(data: JsonView) -> Port:
    return Port(data["name"], data["axis"], data["count"], data["delay"], _height(data["height"]), data["text"])


def _statistic(data: JsonView) -> Statistic:
    told: Json = {k: tuple(v) if isinstance(v, list | tuple) else v for k, v in data.items()}
    return Statistic(**{**told, "height": _height(data["height"])})


def _feed(data: JsonView) -> Feed:
    gather, source = data["gather"], data["source"]
    return Feed(
        data["name"], data["kind"], data["count"], data["back"], data["length"], _height(data["height"]),
        gather and Gather(gather["shift"], tuple(gather["top"]), tuple(gather["bottom"])),
        tuple(data["window"]), source and _height(source), tuple(data["pool"]),
    )  # fmt: skip

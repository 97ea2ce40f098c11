"""The words that fusion and the kernel generators share: values, nodes, groups, kernels.

They are plain data and live here, in the lower room, so that a pass can ask a generator for a kernel and no generator
ever reaches back into a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .choice import Choice, Decision
from .layout import Layout
from .policy import Policy
from .sizes import product

if TYPE_CHECKING:
    from ...targets.target import Target
    from .size_like import SizeLike
    from .tvm_types import Attribute, Expr, PrimFunc

CONTROL = frozenset({"halotile.rounds", "halotile.branch"})  # hold bodies (schedules/operators/control.py)


PRODUCTS = frozenset(  # sums of products, whose second operand may be weights
    (
        *("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d"),
        *("halotile.conv_transpose", "halotile.dot_conv", "relax.matmul"),
    )
)


@dataclass(frozen=True, eq=False)
class Value:
    """One tensor of the graph. ``constant`` has its data where it is known at compile time."""

    name: str
    shape: tuple[SizeLike, ...]
    dtype: str
    constant: np.ndarray | None = None

    @property
    def elements(self) -> SizeLike:
        """Number of elements of the logical shape."""
        return product(self.shape)

    @property
    def bytes(self) -> SizeLike:
        """Bytes of the elements, without margins or padding lanes."""
        return self.elements * dtype_bytes(self.dtype)

    @cached_property
    def is_whole(self) -> bool:
        """True for constant whole numbers, not all of them zero: weights of quantised layers, whose sums float32 holds
        exactly as long as nothing but sums of products is computed."""
        if self.constant is None:
            return False
        flat = np.asarray(self.constant).reshape(-1)
        return all(bool((part == np.rint(part)).all()) for part in (flat[:64], flat)) and bool(flat.any())

    @cached_property
    def extremes(self) -> tuple[int, int]:
        """Of constant whole numbers: the largest absolute value, and the largest sum of them along all axes but the
        first."""
        flat = np.abs(np.asarray(self.constant).reshape(self.shape[0], -1).astype(np.int64))
        return int(flat.max(initial=0)), int(flat.sum(axis=1).max(initial=0))

    def __repr__(self) -> str:
        return f"{self.name}{list(self.shape)}"


@dataclass(frozen=True, eq=False)
class Node:
    """One operator. ``operands`` mirror the call's arguments: a Value, a tuple of Values, or the Relax argument itself
    (shapes, prim values). ``sources`` are the names of the model's nodes that it comes from."""

    name: str
    operator: str
    call: Expr
    operands: tuple[Attribute, ...]
    results: tuple[Value, ...]
    sources: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The node's place in the model, for messages: the last of its sources, or its own name."""
        return self.sources[-1] if self.sources else self.name

    @property
    def inputs(self) -> tuple[Value, ...]:
        """All values that the node reads, in order, tuples flattened."""
        flat: list[Value] = []
        for operand in self.operands:
            if isinstance(operand, Value):
                flat.append(operand)
            elif isinstance(operand, tuple):
                flat.extend(v for v in operand if isinstance(v, Value))
        return tuple(flat)


@dataclass(frozen=True, eq=False)
class Group:
    """The unit of fusion: at most one anchor, with the operators fused before and after it, in program order."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    anchor: Node | None = None
    notes: tuple[str, ...] = ()

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of the nodes, in program order."""
        return tuple(n.operator for n in self.nodes)

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the model's nodes that the group computes, each once."""
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.sources))


    @property
    def weighed(self) -> tuple[str, ...]:
        """The names of the model's nodes that the group's products by constant weights come from."""
        found = (n for n in self.nodes if n.operator in PRODUCTS and len(n.inputs) > 1)
        return tuple(dict.fromkeys(s for n in found if n.inputs[1].constant is not None for s in n.sources))


class Packed:
    """A constant in the form in which one kernel reads it (packed weights). ``data`` is an array, or a function that
    makes it when it is first read, where that takes long; kernels that are only planned never call it. ``elements`` and
    ``dtype`` say before that what it will be, ``reads_as`` the type that it would have if it were not to take few
    bytes. Where the data are, in some order, a linear map of plain weights, ``linear`` gives its matrix and the
    weights, [X, T] and float32 [T, N], so that a library for several levels of processors need not store both."""

    def __init__(
        self,
        name: str,
        data: np.ndarray | Callable[[], np.ndarray],
        elements: int = 0,
        dtype: str = "float32",
        reads_as: str = "",
        linear: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None,
    ) -> None:
        self.name = name
        self.linear = linear
        self.given = data
        self.elements = elements if callable(data) else data.size
        self.dtype = dtype if callable(data) else str(data.dtype)
        self.reads_as = reads_as

    @cached_property
    def data(self) -> np.ndarray:
        """The array, made if need be."""
        return self.given() if callable(self.given) else self.given

    def keep(self, same: np.ndarray) -> None:
        """Replaces the data by ``same``, an equal array that others hold as well, so that the memory is there once."""
        self.given = same
        self.__dict__["data"] = same


@dataclass(frozen=True, eq=False)
class Scratch:
    """Arena memory that a kernel uses while it runs, in bytes."""

    bytes: int


@dataclass(frozen=True, eq=False)
class Scratchpad(Scratch):
    """Memory of the target's scratchpad, from its start; one kernel uses it at a time."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """One compiled group: a PrimFunc on raw pointers, and what its pointers are.

    ``operands`` follow the function's parameters: Values, Packed constants and Scratch memory.
    ``inplace`` are inputs whose memory the first output may take over: each element is read before it is written, by
    the iteration that writes it. ``workspace`` bounds the bytes a worker takes from its workspace slot. ``scalars`` are
    the int32 parameters after the pointers: "row" and "column" of a box's origin, "rows" and "columns" of an open box,
    "part" and "parts" for one of so many equal shares of its channels, which lie in ``groups`` that are not divided,
    and (value, 0 or 1) for the base row or column of a windowed value. ``least`` is the smallest box that an open
    kernel computes. ``decision`` is what its family chose, if there was a choice. ``takes``: outputs, each with the
    input whose memory it may take over: no element is written that is read afterwards. ``counts`` are the open numbers
    of elements of what it holds beside in memory, where it calls other kernels. ``fitted`` gives the bytes that each of
    its Scratch takes in an open box of so many rows and columns, where that is not what they may take at most.
    ``large``: of several kernels for an open size the one for results that are written past the caches. ``shared``:
    cores share it at every size, as ``flops`` are not its work. ``since``: the times of the usual size from which on
    they do, where that is more than one.
    """

    function: PrimFunc
    operands: tuple[Value | Packed | Scratch, ...]
    outputs: tuple[Value, ...]
    schedule: str
    flops: int = 0
    workspace: int = 0
    inplace: tuple[Value, ...] = ()
    notes: tuple[str, ...] = ()
    scalars: tuple[str | tuple[Value, int], ...] = ()
    least: tuple[int, int] = (1, 1)
    groups: int = 1
    decision: Decision | None = None
    takes: Mapping[Value, Value] = field(default_factory=dict)
    counts: tuple[SizeLike, ...] = ()
    fitted: Callable[[SizeLike, SizeLike], list[SizeLike]] | None = None
    large: bool = False
    shared: bool = False
    since: float = 0.0


@dataclass(frozen=True)
class Box:
    """A kernel that computes ``rows x columns`` (axes 2 and 3) of its outputs, from an origin given at run time.

    ``windowed`` values lie in memory as a part: a window of rows and columns whose base is given at run time, in the
    layout that the request has for them. All others lie whole. An ``open`` box has its size at run time as well;
    ``rows`` and ``columns`` are what is expected of it. Its origin is a multiple of ``steps``. ``spread``: (rows,
    columns, weight) of sizes at which it is to be fast; none: at what is expected. ``flat``: the image's rows lie end
    to end in what it reads, and its pixels are counted through them: they are the columns of a single row.
    ``by_channels``: which part of its channels a kernel computes may be given at run time as well.
    """

    rows: int
    columns: int
    windowed: frozenset[Value] = frozenset()
    open: bool = False
    steps: tuple[int, int] = (1, 1)
    spread: tuple[tuple[int, int, float], ...] = ()
    flat: bool = False
    by_channels: bool = False

    def spread_of(self, rows: int, columns: int) -> tuple[tuple[int, int, float], ...]:
        """``spread`` of what has so many rows and columns where the box is as large as is expected."""
        down, across = rows / self.rows, columns / self.columns
        return tuple((max(1, round(r * down)), max(1, round(c * across)), weight) for r, c, weight in self.spread)


@dataclass(frozen=True, eq=False)
class SharedWeights:
    """The width in vectors of the panels in which a product of a size reads a weight, where it is not the product's
    own choice; by the weight and the size (matmul/shared_weights.py)."""

    widths: Mapping[tuple[Value, SizeLike], int] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """What a group's surroundings leave to its kernel.

    ``room``        the most bytes that a core holds beside what the kernel reads and writes; None is any number
    ``once``        no output is computed twice, in boxes of multiples of so many columns; 0 where one may be
    ``crowded``     the weights of the box's tile group drive each other out of the second-level cache
    ``closing``     a model's output follows: the last sums of products round as the model says
    """

    room: int | None = None
    once: int = 0
    crowded: bool = False
    closing: bool = False


@dataclass(frozen=True, eq=False)
class Request:
    """What a generator is asked for: this group, values in these layouts, for this target, within the build's policy
    and the limits of its surroundings. With ``box`` the kernel computes a part of its outputs, on one core. ``shared``
    has the form of weights that several products read. ``choice`` is what the select stage took for it; None: the
    generator chooses.

    Requests are equal, and hash alike, where every kernel for one is a kernel for the other: a memo's key is the
    request."""

    group: Group
    layouts: Mapping[Value, Layout]
    target: Target
    policy: Policy = Policy()
    limits: Limits = Limits()
    box: Box | None = None
    shared: SharedWeights | None = None
    choice: Choice | None = None

    @cached_property
    def _key(self) -> tuple[object, ...]:
        """Layouts of other groups' values are left out."""
        group = self.group
        inner = (v for n in group.nodes for v in (*n.inputs, *n.results))
        values = dict.fromkeys((*group.inputs, *group.outputs, *inner))
        own = tuple((v, self.layouts[v]) for v in values if v in self.layouts)
        return group, own, self.target, self.target.native, self.policy, self.limits, self.box, self.shared, self.choice

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Request) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def workers(self) -> int:
        """Number of cores that a parallel loop of the kernel is dealt to; 1 for a box."""
        return 1 if self.box is not None else max(1, self.policy.threads or self.target.cores)

    def layout(self, value: Value) -> Layout:
        """The layout of ``value``; plain where none is given."""
        found = self.layouts.get(value)
        return found if found is not None else Layout.plain(value.shape)


def dtype_bytes(dtype: str) -> int:
    """Bytes of an element of ``dtype`` in memory."""
    if dtype == "bool":
        return 1
    digits = "".join(c for c in dtype.split("_")[0] if c.isdigit())
    return max(1, int(digits[:2]) // 8) if dtype.startswith("float8") is False else 1

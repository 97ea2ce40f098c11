"""Values between layers stored as bfloat16 or float16, where layers compute in it.

    conv -> C16 float32 -> relu, pool -> C16 float32 -> conv      ->      the same in C16 bfloat16
    conv16 -> silu -> C8 float32 -> mean                          ->      the same in C8 float16

What a kernel reads is widened, what it writes is rounded; in between all is float32, as before. So arenas and traffic
are halved, and nothing else is another: NaN and infinity stay, sums are as long.

A value is stored so if it is off by the type's rounding already: a layer that multiplies in it made it, or a map,
pool, norm or move of what such a layer made. All others stay in float32:

- what the model is given and gives, and all that has their memory;
- the last sums before the outputs, whose rounding a user sees, or a softmax enlarges;
- what operators read or make that find positions by numbers (samplings, the largest of many, indices);
- what operators of loops of their own read and make, who know float32 alone;
- open sizes, unless ``opens``;
- and of float16 what may leave its range: ``fits`` says of a node whether what it makes stays within.

A float16 value that a group writes beside itself widened, which is stored as float16 again, lies in memory once:
:func:`once`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...schedules.math.bfloat16 import NAME
from ...schedules.operators.kind import ANCHORS, facts_of
from ...schedules.words.dims import is_open
from ...schedules.words.group import Group, Node, Value
from ...schedules.words.layout import Layout
from ...schedules.words.policy import Layers

WIDE = "float32"
POSITIONS = frozenset(
    (
        *("halotile.grid_sample", "halotile.deformed", "halotile.roi_align", "halotile.non_max_suppression"),
        *("halotile.argmax", "halotile.argmin", "halotile.topk", "halotile.nonzero", "halotile.bitcast"),
    )
)


@dataclass(frozen=True)
class Stored:
    """``layouts`` and ``slices`` of all values, as the layout pass gives them, with those stored so; ``count``
    of ``of`` values between layers are."""

    layouts: dict[Value, Layout]
    slices: dict[Value, tuple[Value, int]]
    count: int
    of: int


def store_narrow(
    groups: Sequence[Group],
    layouts: Mapping[Value, Layout],
    views: Mapping[Value, Value],
    slices: Mapping[Value, tuple[Value, int]],
    fixed: Iterable[Value],
    layers: Layers | None = None,
    kind: str = NAME,
    fits: Callable[[Node], bool] = lambda _: True,
    opens: bool = False,
) -> Stored:
    """The layouts with all that may be stored as ``kind``. ``fixed``: inputs and outputs of the model, and what else
    stays in float32. Where ``layers`` have precisions of their own, no number is rounded that they would not round:
    what is stored so is read as data of layers in bfloat16, and by nothing else."""
    shared = _Shared()
    for value, base in (*views.items(), *((v, base) for v, (base, _) in slices.items())):
        shared.join(value, base)
    values = dict.fromkeys(v for g in groups for v in (*g.inputs, *g.outputs) if v.constant is None)
    values |= dict.fromkeys(shared.members)
    rounded: set[Value] = set()  # by what stands for all that share memory
    for group in groups if layers is None else ():
        if _multiplies(group, kind) or any(v.dtype == kind or shared.of(v) in rounded for v in group.inputs):
            rounded.update(shared.of(v) for v in group.outputs)
    if layers is not None:
        read = [(shared.of(v), _rounds(group, v, layers)) for group in groups for v in group.inputs]
        rounded = {v for v, alike in read if alike} - {v for v, alike in read if not alike}
    left = {shared.of(v) for v in fixed}
    left |= {shared.of(v) for g in groups if _is_exact(g) for v in (*g.inputs, *g.outputs)}
    left |= {shared.of(v) for v in values if v.dtype != WIDE or v.constant is not None}
    left |= {shared.of(v) for v in values if not opens and is_open(v.shape)}
    if kind != NAME:
        makers = {r: n for g in groups for n in g.nodes for r in n.results}
        left |= {shared.of(v) for v in values if v in makers and not fits(makers[v])}
    narrow = {v for v in values if shared.of(v) in rounded - left}
    known = {v: layouts.get(v, Layout.plain(v.shape)).storing(kind) for v in narrow}
    at = {v: (base, offset // 2 if base in narrow else offset) for v, (base, offset) in slices.items()}
    of = sum(1 for g in groups for v in g.outputs if v.dtype == WIDE)
    count = sum(1 for g in groups for v in g.outputs if v in narrow)
    return Stored({**layouts, **known}, at, count, of)


def once(
    groups: Sequence[Group], layouts: Mapping[Value, Layout], taken: Iterable[Value], kind: str = "float16"
) -> tuple[tuple[Group, ...], dict[Value, Value]]:
    """The groups without results that are others of theirs widened, and stored narrow as these are; and those results,
    with what they are views of.

        y = sum16 -> x + conv        z = float32(y) -> norm, stored as float16        ->        z is y in memory

    ``taken``: values that have memory of their own, or share it in another way. Where values lie in blocks of channels
    tile groups would not hold one that has two names."""
    left, views = set(taken), {}
    kept = list(groups)
    for i, group in enumerate(groups):
        for node in group.nodes:
            if node.operator != "relax.astype" or node.inputs[0].dtype != kind:
                continue
            (source,), (wide,) = node.inputs, node.results
            both = source in group.outputs and wide in group.outputs and left.isdisjoint((source, wide))
            own = layouts.get(source, Layout.plain(source.shape))
            if not both or not own.is_plain or layouts.get(wide) != own.storing(kind):
                continue
            used = any(wide in n.inputs for n in group.nodes)
            nodes = group.nodes if used else tuple(n for n in kept[i].nodes if n is not node)
            kept[i] = replace(kept[i], nodes=nodes, outputs=tuple(v for v in kept[i].outputs if v is not wide))
            views[wide] = source
    return tuple(kept), views


@dataclass
class _Shared:
    """Values that share memory, and what stands for them."""

    members: dict[Value, Value] = field(default_factory=dict)

    def of(self, value: Value) -> Value:
        while (found := self.members.get(value, value)) is not value:
            value = found
        return value

    def join(self, one: Value, other: Value) -> None:
        self.members.setdefault(one, one)
        self.members.setdefault(other, other)
        self.members[self.of(one)] = self.of(other)


def _rounds(group: Group, value: Value, layers: Layers) -> bool:
    """True if ``value`` is the data of a layer in bfloat16, and nothing else in the group reads it."""
    anchor = group.anchor
    if anchor is None or layers.of(group.weighed) != NAME or anchor.operands[0] is not value:
        return False
    return sum(v is value for n in group.nodes for v in n.inputs) == 1


def _multiplies(group: Group, kind: str = NAME) -> bool:
    """True for layers that may multiply in ``kind``."""
    dtype = WIDE if kind == NAME else kind
    return any(n.operator in ANCHORS and n.results[0].dtype == dtype for n in group.nodes)


def _is_exact(group: Group) -> bool:
    """True for groups whose values stay as they are."""
    found = any(n.operator in POSITIONS or facts_of(n).kind == "opaque" for n in group.nodes)
    whole = any(r.dtype.startswith(("int", "uint")) for n in group.nodes for r in n.results)
    return found or whole and not _multiplies(group)

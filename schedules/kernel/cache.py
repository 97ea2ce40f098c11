"""Groups that are the same but for the tensors that they read and write have one kernel, built once.

    unrolled loop:   round 1: matmul(h1, W) + b -> h2        kernel k, operands (h1, packed W, b, h2)
                     round 2: matmul(h2, W) + b -> h3        kernel k, operands (h2, packed W, b, h3)

The same are groups with the same operators and attributes on values of the same shapes, types and layouts, and on the
very same constants, whose packed forms they then share; repeated layers with weights of their own are not. What a
generator is asked for beside has to be the same too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import tvm_ffi

from ..words.group import Group, Kernel, Node, Packed, Request, Scratch, Value
from ..words.tvm_types import Attribute, Attrs, Expr


@dataclass
class Repeats:
    """The kernels of one build, by what was asked for; a generator is a pure function of its request."""

    build: Callable[[Request], Kernel]
    known: dict[object, list[tuple[Group, Kernel]]] = field(default_factory=dict)

    def kernel(self, request: Request) -> Kernel:
        """The kernel for ``request``: that of an equal group, on other values, if there was one."""
        values = _values(request.group)
        key = _key(request, values)
        if key is None:
            return self.build(request)
        same = self.known.setdefault(key, [])
        for group, kernel in same:
            if _same_attributes(group, request.group):
                return _on(kernel, dict(zip(_values(group), values)))
        same.append((request.group, self.build(request)))
        return same[-1][1]


def _values(group: Group) -> list[Value]:
    """All values of ``group`` in the order in which its nodes name them."""
    found = dict.fromkeys(v for n in group.nodes for v in (*n.inputs, *n.results))
    return list(dict.fromkeys([*found, *group.inputs, *group.outputs]))


def _key(request: Request, values: list[Value]) -> object:
    """What has to be equal; None for what can't be compared."""
    group = request.group
    if request.box is not None:
        return None
    number = {v: i for i, v in enumerate(values)}
    places = {n: i for i, n in enumerate(group.nodes)}

    def form(operand: Expr | Value | tuple[Expr | Value | tuple[Expr | Value, ...], ...]) -> Attribute:
        if isinstance(operand, Value):
            return number[operand]
        if isinstance(operand, tuple):
            return tuple(map(form, operand))
        return "attribute"

    nodes = tuple((n.operator, form(n.operands), form(n.results), _hash(n)) for n in group.nodes)
    tensors = tuple((v.shape, v.dtype, None if v.constant is None else v, request.layout(v)) for v in values)
    anchor = None if group.anchor is None else places.get(group.anchor)
    beside = (request.policy, request.limits, request.shared, request.choice)
    try:
        key = (nodes, tensors, form(group.inputs), form(group.outputs), anchor, beside)
        hash(key)
    except TypeError:
        return None
    return key


def _attributes(node: Node) -> list[Attrs | Expr | None]:
    """What an operator is told beside its tensors: attributes, and operands that are none."""

    def others(operands: tuple[Expr | Value | tuple[Expr | Value, ...], ...]) -> Iterator[Expr]:
        for operand in operands:
            if isinstance(operand, tuple):
                yield from others(operand)
            elif not isinstance(operand, Value):
                yield operand

    return [node.call.attrs, *others(node.operands)]


def _hash(node: Node) -> tuple[int, ...]:
    return tuple(tvm_ffi.structural_hash(part) for part in _attributes(node))


def _same_attributes(one: Group, other: Group) -> bool:
    pairs = [p for a, b in zip(one.nodes, other.nodes) for p in zip(_attributes(a), _attributes(b), strict=True)]
    return all(tvm_ffi.structural_equal(a, b) for a, b in pairs)


def _on(kernel: Kernel, values: dict[Value, Value]) -> Kernel:
    """``kernel`` for other tensors, with scratch of its own."""

    def other(operand: Value | Packed | Scratch) -> Value | Packed | Scratch:
        if isinstance(operand, Value):
            return values[operand]
        return replace(operand) if isinstance(operand, Scratch) else operand

    return replace(
        kernel,
        operands=tuple(map(other, kernel.operands)),
        outputs=tuple(values[v] for v in kernel.outputs),
        inplace=tuple(values[v] for v in kernel.inplace),
    )

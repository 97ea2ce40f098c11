"""Sequences that import can resolve: lists of tensors of known length, taken apart at known positions.

SplitToSequence(x, [2, 3]) -> s; SequenceAt(s, 1)     becomes     x[2:5]

No sequence reaches Relax: each operator here makes or reads a :class:`TensorSequence`, and what comes out in the end is
slices, concatenations and the tensors themselves. Optionals are handled alike: a present one is the value in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import relax

from ...schedules.words.refusal import Refusal
from .converters.movement import concatenated
from .node import OnnxNode, normal_axis
from .parts import counted, from_front, with_part
from .slot import Growing, Slot, TensorSequence
from .value import OnnxValue, unknown

R = relax.op

Operands = Sequence["OnnxValue | TensorSequence | None"]
PASS_THROUGH = ("Identity",)  # operators on tensors that take a sequence as it is


def run_sequence(node: OnnxNode, operands: Operands) -> Slot:
    """The result of the sequence operator ``node``; its tensors are in ``operands``."""
    return OPERATORS[node.operator](node, operands)


def _sequence(operands: Operands, index: int = 0) -> TensorSequence:
    value = operands[index] if index < len(operands) else None
    if not isinstance(value, TensorSequence):
        raise Refusal(f"operand {index} is not a sequence")
    if isinstance(value, Growing):
        raise Refusal(
            "the length of its sequence is known at run time only; a loop of run time can add a tensor at its end, and "
            "what follows the loop can stack or join all of them (ConcatFromSequence)"
        )
    return value


def _tensor(operands: Operands, index: int) -> OnnxValue:
    value = operands[index] if index < len(operands) else None
    if not isinstance(value, OnnxValue):
        raise Refusal(f"operand {index} is not a tensor")
    return value


def _position(operands: Operands, index: int, length: int, last: int) -> int | None:
    """The position in operand ``index``, counted from the front; None where it was left out."""
    if index >= len(operands) or operands[index] is None:
        return None
    array = _tensor(operands, index).array
    if array is None:
        raise unknown("its position", _tensor(operands, index))
    position = int(array.reshape(-1)[0])
    if not -length <= position <= last:
        raise Refusal(f"position {position} is outside a sequence of {length}")
    return position + length if position < 0 else position


def _construct(node: OnnxNode, operands: Operands) -> TensorSequence:
    items = [_tensor(operands, i) for i in range(len(operands))]
    if len({v.dtype for v in items}) > 1:
        raise Refusal(f"its operands have different types: {', '.join(map(str, items))}")
    return TensorSequence(items)


def _empty(node: OnnxNode, operands: Operands) -> TensorSequence:
    return TensorSequence([])


def _at(node: OnnxNode, operands: Operands) -> OnnxValue:
    items = _sequence(operands).items
    position = _position(operands, 1, len(items), len(items) - 1)
    if position is None:
        raise Refusal("it has no position")
    return items[position]


def _length(node: OnnxNode, operands: Operands) -> OnnxValue:
    if isinstance(operands[0], Growing) and operands[0].rows is not None:
        rows = operands[0].rows
        return node.reshape(counted(node, rows.shape[0]) if rows.part is None else rows.part.count, ())
    return node.const(np.array(len(_sequence(operands).items), "int64"))


def _insert(node: OnnxNode, operands: Operands) -> TensorSequence:
    if isinstance(operands[0], Growing) and operands[0].rows is None and (len(operands) < 3 or operands[2] is None):
        return Growing([*operands[0].added, _tensor(operands, 1)])
    items = list(_sequence(operands).items)
    new = _tensor(operands, 1)
    if items and items[0].dtype != new.dtype:
        raise Refusal(f"{new} does not belong in a sequence of {items[0].dtype}")
    position = _position(operands, 2, len(items), len(items))
    items.insert(len(items) if position is None else position, new)
    return TensorSequence(items)


def _erase(node: OnnxNode, operands: Operands) -> TensorSequence:
    items = list(_sequence(operands).items)
    if not items:
        raise Refusal("its sequence is empty")
    position = _position(operands, 1, len(items), len(items) - 1)
    del items[len(items) - 1 if position is None else position]
    return TensorSequence(items)


MOST_PIECES = 1 << 12  # each is an operator of the graph


def _split(node: OnnxNode, operands: Operands) -> TensorSequence:
    """Pieces of the sizes given, or of one size (the last may be shorter), or of one row each."""
    x = _tensor(operands, 0)
    axis = normal_axis(node.attr("axis", 0), x.rank)
    length = x.shape[axis]
    given = operands[1] if len(operands) > 1 else None
    if given is None:
        _require_few(length)
        sizes = [1] * length
    else:
        array = _tensor(operands, 1).array
        if array is None:
            raise unknown("its split", _tensor(operands, 1))
        if array.ndim == 0:
            chunk = int(array)
            if chunk <= 0:
                raise Refusal(f"its split is {chunk}")
            _require_few(length // chunk)
            sizes = [min(chunk, length - at) for at in range(0, length, chunk)]
        else:
            sizes = [int(n) for n in array.reshape(-1)]
    if sum(sizes) != length or any(n < 0 for n in sizes):
        raise Refusal(f"pieces {sizes} do not make up axis {axis} of {x}")
    items, start = [], 0
    for size in sizes:
        piece = _piece(node, x, axis, start, start + size)
        if given is None and not node.attr("keepdims", 1):
            piece = node.reshape(piece, x.shape[:axis] + x.shape[axis + 1 :])
        items.append(piece)
        start += size
    return TensorSequence(items)


def _require_few(pieces: int) -> None:
    if pieces > MOST_PIECES:
        raise Refusal(f"a sequence of {pieces} tensors is not supported, one of {MOST_PIECES} is")


def _piece(node: OnnxNode, x: OnnxValue, axis: int, start: int, end: int) -> OnnxValue:
    if start == end:
        return node.empty([0 if a == axis else d for a, d in enumerate(x.shape)], x.dtype)
    return node.slice(x, axis, start, end)


def _joined(node: OnnxNode, rows: OnnxValue, axis: int, new: bool) -> OnnxValue:
    """Tensors that lie side by side along the first axis, stacked or joined along another."""
    axis = normal_axis(axis, rows.rank - 1 + new)
    if new:
        return from_front(node, rows, axis)
    apart = from_front(node, rows, axis)
    length = apart.shape[axis + 1]
    whole = node.reshape(
        apart.with_part(None), (*apart.shape[:axis], apart.shape[axis] * length, *apart.shape[axis + 2 :])
    )
    if rows.part is None:
        return whole
    return with_part(whole, axis, node.do(R.multiply, rows.part.count, counted(node, length)))


def _concat(node: OnnxNode, operands: Operands) -> OnnxValue:
    if isinstance(operands[0], Growing) and operands[0].rows is not None:
        return _joined(node, operands[0].rows, node.attr("axis"), bool(node.attr("new_axis", 0)))
    items = list(_sequence(operands).items)
    if not items:
        raise Refusal("its sequence is empty")
    new = bool(node.attr("new_axis", 0))
    axis = normal_axis(node.attr("axis"), items[0].rank + new)
    if new:
        items = [node.reshape(v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in items]
    return concatenated(node, items, axis)


def _present(node: OnnxNode, operands: Operands) -> OnnxValue:
    return node.const(np.array(bool(operands) and operands[0] is not None))


def _content(node: OnnxNode, operands: Operands) -> Slot:
    if not operands or operands[0] is None:
        raise Refusal("it is an optional without a value")
    return operands[0]


OPERATORS: dict[str, Callable[[OnnxNode, Operands], Slot]] = {
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceAt": _at,
    "SequenceLength": _length,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SplitToSequence": _split,
    "ConcatFromSequence": _concat,
    "Optional": _content,
    "OptionalHasElement": _present,
    "OptionalGetElement": _content,
}


def map_sequence(
    count: int, operands: Operands, names: Sequence[str], run: Callable[[dict[str, Slot], str], Sequence[Slot]]
) -> list[Slot]:
    """SequenceMap: the body once for each position; sequences give their items, tensors themselves."""
    first = _sequence(operands)
    rounds: list[Sequence[Slot]] = []
    for index in range(len(first.items)):
        given: dict[str, Slot] = {}
        for name, operand in zip(names, operands):
            if isinstance(operand, TensorSequence):
                if len(operand.items) != len(first.items):
                    raise Refusal(f"its sequences have {len(first.items)} and {len(operand.items)} items")
                given[name] = operand.items[index]
            else:
                given[name] = operand
        rounds.append(run(given, f"round {index}"))
    results: list[Slot] = []
    for output in range(count):
        values = [r[output] for r in rounds]
        results.append(TensorSequence([_only(v) for v in values]))
    return results


def _only(value: Slot) -> OnnxValue:
    if not isinstance(value, OnnxValue):
        raise Refusal("its body makes something else than tensors")
    return value

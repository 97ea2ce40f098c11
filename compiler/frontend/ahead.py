"""What is computed ahead: operators whose operands are all known at import, by the meaning that they have at run time.

    Shape -> Gather -> Unsqueeze -> Concat -> Reshape     becomes     Reshape to a known shape
    Conv(x, Transpose(w))                                 becomes     Conv(x, w'), whose kernel packs w'

A converter writes Relax whatever its operands are. Where these are known, the Relax operator is evaluated on the spot
if numpy gives the very value (passes/simplify/evaluate.py); else the value keeps a recipe, and once the node is written
what it needs of those is compiled from the operators' own expressions and run. Nothing else evaluates a node.

What is computed ahead lands in the library, and a file of a few bytes can ask for terabytes or for hours: what
:class:`AheadLimits` does not admit stays in the graph, as if its operands were not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
from tvm import relax

from ...schedules.words.dims import is_open
from ...schedules.words.refusal import Refusal
from ...schedules.words.sizes import dim_of
from ...schedules.words.tvm_types import Expr, Type
from .value import PLAIN, OnnxValue, Recipe

if TYPE_CHECKING:
    from ...passes.simplify.graph import GraphNode

#: Bytes that a result may have when it is larger than its operands together: it would bloat the library, and a kernel
#: makes it in no time.
LARGEST = 16 << 20
#: How much larger than their operands weights may be, which kernels pack when they are compiled: int8 in float64.
WIDENED = 8
#: Bytes that an import may compute, beside so many times what the file holds: int8 weights that become float32 in a
#: cast, a subtraction, a product and a transposition are 16.
ALLOWANCE, STAGES = 256 << 20, 32
#: Steps of unscheduled loops, of which a second has about 1e9, that an import may take, one operator of it, and the
#: compiling of one.
STEPS, MOST_STEPS, COMPILATION = 1 << 33, 1 << 31, 1 << 26


#: Bytes from which on a result is kept for the next node that asks for the same.
KEPT = 64 << 10

WEIGHTED = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
#: What makes wider weights of bytes by itself.
WIDENING = frozenset(
    "DequantizeLinear ConvInteger MatMulInteger MatMulIntegerToFloat DynamicQuantizeMatMul QLinearConv QLinearMatMul "
    "QGemm QAttention DynamicQuantizeLSTM".split()
)


def weight_names(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """What convolutions and products read as weights, which a kernel packs when they are known at compile time."""
    return {name for node in nodes if node.op_type in WEIGHTED for name in list(node.input)[1:] if name}


class AheadLimits:
    """What an import may still compute ahead: bytes of results, and steps of loops."""

    def __init__(self) -> None:
        self._bytes = ALLOWANCE
        self._held: list[Callable[[], int]] = []
        self.steps = STEPS

    def hold(self, size: Callable[[], int]) -> None:
        """Tensors of the file, of ``size`` bytes: weights may be cast, turned and dequantised, whatever their size. It
        is asked where that decides: a model has to be written out to know its size."""
        self._held.append(size)

    def allow(self, size: int) -> bool:
        """Whether so many bytes more may be computed."""
        while size > self._bytes and self._held:
            self._bytes += STAGES * self._held.pop()()
        return size <= self._bytes

    def admit(self, size: int, operands: int, steps: int, weight: bool = False) -> bool:
        """Whether a result of ``size`` bytes from so many bytes of operands may be computed; takes it off if so."""
        if size > max(LARGEST, operands * (WIDENED if weight else 1)) or steps > MOST_STEPS:
            return False
        if steps > self.steps or not self.allow(size):
            return False
        self._bytes -= size
        self.steps -= steps
        return True

    def charge(self, size: int) -> None:
        """Takes off a constant that a converter has made; refuses one too many."""
        enough = self.allow(size)
        self._bytes -= size
        if not enough:
            raise Refusal(
                f"the constants made of those in the file take more than {STAGES} times what it holds"
            )


class KeptResults:
    """Large results of calls on the same values: an unrolled recurrent layer turns its weights in every step, and each
    would be an array of its own."""

    def __init__(self) -> None:
        # the operands stay, for their ids are in the key
        self._found: dict[object, tuple[Sequence[OnnxValue], OnnxValue]] = {}

    def once(self, made: Recipe, limits: AheadLimits) -> OnnxValue | None:
        """The value of a recipe, as :func:`evaluated` has it, the same one for the same call."""
        call = made.call
        if not call.is_tensor or not call.static or call.nbytes < KEPT:
            return _value(made, limits)
        written = tuple(o if isinstance(o, (int, tuple)) else str(o) for o in call.operands)
        key = (call.op, written, str(call.attrs), str(call.ty), tuple(map(id, made.operands)))
        if key not in self._found:
            value = _value(made, limits)
            if value is None:
                return None
            self._found[key] = made.operands, value
        return self._found[key][1]


def _value(made: Recipe, limits: AheadLimits) -> OnnxValue | None:
    array = evaluated(made, limits)
    return None if array is None else OnnxValue.of_array(array, made.call.dtype)


def is_known(value: OnnxValue) -> bool:
    """Whether its contents are there, or can be computed."""
    return value.dtype in PLAIN and (value.array is not None or value.recipe is not None)


def recipe(write: Callable[[Callable[[OnnxValue], Expr]], Expr], weight: bool) -> Recipe | None:
    """The recipe of the call that ``write`` makes of an expression for each operand; None while its shape is open."""
    from ...passes.simplify.convert import from_call
    from ...passes.simplify.graph import CONST
    from ...passes.simplify.graph import GraphNode as Operator

    values: dict[relax.Var, OnnxValue] = {}
    order: list[OnnxValue] = []

    def stand_in(value: OnnxValue) -> relax.Var:
        variable = relax.Var(f"c{len(values)}", relax.TensorType(list(value.shape), value.dtype))
        values[variable] = value
        return variable

    def leaf(variable: relax.Var) -> GraphNode:
        order.append(values[variable])
        return Operator(CONST, [], (), None, variable.ty)

    call = relax.BlockBuilder().normalize(write(stand_in))
    if any(
        not isinstance(t.shape, relax.ShapeExpr) or is_open(map(dim_of, t.shape.values))
        for t in _types(call)
    ):
        return None
    return Recipe(from_call(call, leaf), order, weight)


def evaluated(made: Recipe, limits: AheadLimits) -> np.ndarray | None:
    """The value of a recipe on operands that are there, if numpy gives the very one; None otherwise."""
    from ...passes.simplify.evaluate import evaluate, steps

    call = made.call
    arrays = [v.array for v in made.operands if v.array is not None]
    if made.item is not None or not call.is_tensor or len(arrays) < len(made.operands):
        return None
    if not limits.admit(call.nbytes, _bytes(arrays), steps(call, arrays), made.weight):
        return None
    value = evaluate(call, arrays)
    return None if value is None or value.shape != call.shape else np.asarray(value, order="C")


def computed(value: OnnxValue, limits: AheadLimits) -> OnnxValue:
    """``value`` with its contents where they can be computed within the limits; as it is where not."""
    pending = [value]
    while pending:
        last = pending[-1]
        made = last.recipe
        missing = [] if made is None else [v for v in made.operands if v.array is None]
        wanted = [v for v in missing if v.recipe is not None]
        if wanted:
            pending.append(wanted[0])
            continue
        pending.pop()
        last.recipe = None
        if made is not None and last.array is None and not missing:
            last.learn(_run(made, limits))
    return value


def _run(made: Recipe, limits: AheadLimits) -> np.ndarray | None:
    """By numpy, or by the operator's own expression, compiled."""
    value = evaluated(made, limits)
    if value is not None:
        return value
    from ...passes.simplify.interpret import compiled

    arrays = [v.array for v in made.operands if v.array is not None]
    size = sum(8 * math.prod(map(int, t.shape.values)) for t in _types(made.call))
    if not all(a.size for a in arrays) or not limits.admit(size, _bytes(arrays), COMPILATION, made.weight):
        return None
    try:
        results = compiled(made.call, arrays, MOST_STEPS)
    except (ValueError, RuntimeError, TypeError):  # no expression of it, or not in this form
        return None
    return np.asarray(results if made.item is None else results[made.item])


def _types(call: Expr | GraphNode) -> list[Type]:
    return list(call.ty.fields) if isinstance(call.ty, relax.TupleType) else [call.ty]


def _bytes(arrays: Sequence[np.ndarray]) -> int:
    """Of tensors that differ: one that is joined to itself is there once."""
    return sum({id(a): a.nbytes for a in arrays}.values())

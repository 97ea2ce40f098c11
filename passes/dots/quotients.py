"""What becomes bytes again is computed by fewer instructions, with the same bits.

    x / s                                       ->      quotient(x, s, 1 / s)
    saturated(round(x) + zero, low, high)       ->      rounded(x): in whole numbers from where it is rounded on
    int8(uint8(rounded(x)) - 128)               ->      rounded(x) with another zero point and other ends

A division takes as long as ten other operators of an epilogue: sixteen cycles a vector of sixteen floats on Golden
Cove, where three multiply-adds take one and a half. They give what division does (P. Markstein, Computation of
Elementary Functions on the IBM RISC System/6000, 1990) where nothing overflows on the way. So ``x`` must be known to
stay far from that: what was made of whole numbers does. The last bit of numbers below 1e-30 may differ, so quotients
are ``exact`` only where they are rounded to whole numbers.

x86-64 rounds to whole numbers of 32 bits by one instruction, where two and a conversion take four slots; 64-bit ARM by
two, and narrows many together then, which holds ends as well. ``x`` must be one of these.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...schedules.operators.registry import call
from ...targets import llvm
from ...targets.target import Target
from ..simplify.graph import CONST, GraphNode
from ..simplify.identity import RESHAPES
from ..simplify.patterns import split_constant
from ..simplify.requantised import SATURATED
from ..sweep import Build
from .operands import BYTES, alike

if TYPE_CHECKING:
    from ...schedules.words.tvm_types import Attribute

LARGE = 2.0**60  # numbers, divisors and quotients stay below, divisors above its reciprocal
ROUNDING = 1.001  # of bounds, for what float32 rounds up
DEEP = 24  # operators between whole numbers and the division
QUOTIENT, ROUNDED = "halotile.quotient", "halotile.rounded"
WHOLE = 2.0**30  # of numbers that are rounded, and zeros: their sums are int32
CONVOLUTION, PRODUCT = "halotile.dot_conv", "relax.matmul"
SUMS = ("relax.add", "relax.subtract")
UNIT = ("relax.erf", "relax.tanh", "relax.sigmoid")  # of any number that is one
LARGEST = ("relax.maximum", "relax.minimum")
KEPT = RESHAPES | {f"relax.{n}" for n in "permute_dims strided_slice nn.relu abs negative astype".split()}


def quotient(target: Target, exact: bool, node: GraphNode) -> Build | None:
    """What builds the quotient ``node`` as a product, with the same bits; None if it is none, or its dividend may be
    anything. ``exact``: only if the result is rounded."""
    if node.op != "relax.divide" or node.dtype != "float32" or node.inputs[1].op != CONST or not _fuses(target):
        return None
    if exact and (node.outputs or any(u.op != "relax.round" for u in node.users)):
        return None
    dividend, divisor = node.inputs[0], node.inputs[1].array
    if not alike(dividend, node):
        return None
    size = np.abs(divisor.astype(np.float64))
    if not size.size or not (np.isfinite(size).all() and 1 / LARGE < size.min() and size.max() < LARGE):
        return None
    most = _reach(dividend, DEEP)
    if most is None or max(most, most / size.min()) > LARGE:
        return None
    inverse = (1 / divisor.astype(np.float64)).astype(np.float32)

    return lambda b: b.call(partial(call, QUOTIENT), dividend, b.const(divisor), b.const(inverse))


def rounded(target: Target, exact: bool, node: GraphNode) -> Build | None:
    """What builds bytes from numbers that are known to be small, by fewer instructions; None if ``node`` is nothing of
    the kind."""
    found = _saturated(node) if node.dtype in BYTES and _rounds(target) else None
    if found is None or found[0].dtype != "float32":
        return None
    value, low, high = found
    whole = all(isinstance(n, (int, float)) and abs(n) < WHOLE and n == int(n) for n in (low, high))
    limits = np.iinfo(node.dtype)
    if not whole or not limits.min <= low <= high <= limits.max:
        return None
    zero = 0
    pair = split_constant(value) if value.op == "relax.add" else None
    if pair is not None:
        number = pair[1].array
        if number.size != 1 or not alike(pair[0], value) or not float(number.reshape(())).is_integer():
            return None
        value, zero = pair[0], int(number.reshape(()))
    if value.op != "relax.round" or abs(zero) > WHOLE:
        return None
    most = _reach(value.inputs[0], DEEP)
    if most is None or most > WHOLE:
        return None
    own = {"zero": zero, "low": int(low), "high": int(high), "dtype": node.dtype}
    return lambda b: b.call(partial(call, ROUNDED), value.inputs[0], **own)


def moved(target: Target, exact: bool, node: GraphNode) -> Build | None:
    """What builds rounded bytes that are moved to the other sign, as products of signed bytes read them, as such at
    once; None if ``node`` is nothing of the kind."""
    total = node.inputs[0] if node.op == "relax.astype" and node.dtype in BYTES else None
    pair = split_constant(total) if total is not None and total.op in SUMS else None
    cast = pair[0] if pair is not None else None
    if total is None or pair is None or cast is None or cast.op != "relax.astype" or total.dtype != "int32":
        return None
    found, number = cast.inputs[0], pair[1].array
    if found.op != ROUNDED or any(n.outputs or len(n.users) != 1 for n in (found, cast, total)):
        return None
    if number.size != 1 or not alike(cast, total):
        return None
    by = int(number.reshape(())) * (1 if total.op == "relax.add" else -1)
    low, high, zero = (int(found.attr(name)) + by for name in ("low", "high", "zero"))
    limits = np.iinfo(node.dtype)
    if total.inputs[0] is not cast or not limits.min <= low <= high <= limits.max or abs(zero) > WHOLE:
        return None
    own = {"zero": zero, "low": low, "high": high, "dtype": node.dtype}
    return lambda b: b.call(partial(call, ROUNDED), found.inputs[0], **own)


def _saturated(node: GraphNode) -> tuple[GraphNode, Attribute, Attribute] | None:
    """What ``node`` makes an integer of, and its limits. (NaN are known to be none, in which the two forms differ.)"""
    if node.op == SATURATED:
        return node.inputs[0], node.attr("low"), node.attr("high")
    clip = node.inputs[0] if node.op == "relax.astype" else None
    return (clip.inputs[0], clip.raw(1), clip.raw(2)) if clip is not None and clip.op == "relax.clip" else None


def _rounds(target: Target) -> bool:
    """True if vectors of numbers are rounded to int32 by an instruction or two."""
    return target.is_aarch64 or target.triple.startswith("x86_64")


def _fuses(target: Target) -> bool:
    """True if a product and a sum are rounded once."""
    if target.is_aarch64:
        return True
    found = llvm.features(llvm.architecture(target.triple), target.cpu, target.features)
    return bool(found & {"fma", "vfp4"})


def _reach(node: GraphNode, depth: int) -> float | None:
    """The largest absolute value that ``node`` may hold; None if nothing is known of it."""
    unsigned = node.dtype is not None and node.dtype.startswith("uint")  # they wrap where numbers are small
    found = _computed(node, depth) if depth and not unsigned else None
    if node.dtype is None or not node.dtype.startswith(("int", "uint")):
        return found
    limits = np.iinfo(node.dtype)
    most = max(-float(limits.min), float(limits.max))
    return most if found is None else min(found, most)


def _computed(node: GraphNode, depth: int) -> float | None:
    """The same, of what is computed to get there."""
    if node.op == CONST:
        most = float(np.abs(node.array.astype(np.float64)).max(initial=0))
        return most if np.isfinite(most) else None
    if node.op in (CONVOLUTION, PRODUCT) and node.dtype == "int32" and node.inputs[1].op == CONST:
        terms = np.abs(node.inputs[1].array.astype(np.float64))
        sums = terms.sum(axis=tuple(range(1, terms.ndim)) if node.op == CONVOLUTION else -2)
        return (_reach(node.inputs[0], depth - 1) or 0.0) * float(sums.max(initial=0)) or None
    if node.op in UNIT:
        return None if _reach(node.inputs[0], depth - 1) is None else 1.0
    if node.op not in (*KEPT, *SUMS, *LARGEST, "relax.multiply", "relax.round", "relax.clip", QUOTIENT):
        return None
    if node.op == QUOTIENT:
        most_of = _reach(node.inputs[0], depth - 1)
        return None if most_of is None else most_of / float(np.abs(node.inputs[1].array).min()) * ROUNDING
    sides = [_reach(i, depth - 1) for i in node.inputs]
    numbers = [s for s in sides if s is not None]
    if not numbers or len(numbers) < len(sides) or max(numbers) > LARGE:
        return None
    if node.op == "relax.clip":
        ends = [node.raw(1), node.raw(2)]
        numbers += [abs(float(e)) for e in ends if isinstance(e, (int, float)) and np.isfinite(e)]
        return max(numbers[1:] if len(numbers) == 3 else numbers)
    if node.op == "relax.multiply":
        return numbers[0] * numbers[1] * ROUNDING
    if node.op in SUMS:
        return sum(numbers) * ROUNDING
    return max(numbers) + (node.op == "relax.round")

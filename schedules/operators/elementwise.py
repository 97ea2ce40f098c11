"""Elementwise operators that Relax lacks, or computes with fewer digits than the C library."""

from __future__ import annotations

from tvm import te, tirx

from ..emit.written_out import HELD
from ..instructions.nearest import NEAREST
from ..math.wrapping import number, width
from ..words.tvm_types import Expr
from .common import broadcast_read, broadcast_shape, dtype_of, elementwise, shape_of
from .open_shapes import broadcast, same
from .registry import define
from .wrapping_elements import WITHIN


@define("halotile.libm", shapes=same)
def libm(x: te.Tensor, *, function: str) -> te.Tensor:
    """A function of the C library, by its name (``expm1``, ``log1p``, ``tan`` ...), at full precision."""

    def apply(v: Expr) -> Expr:
        dtype = dtype_of(v)
        if dtype == "float64":
            return tirx.call_pure_extern("float64", function, v)
        result = tirx.call_pure_extern("float32", f"{function}f", v.astype("float32"))
        return result if dtype == "float32" else result.astype(dtype)

    return elementwise(function, apply, x)


@define("halotile.integer_divide", shapes=broadcast)
def integer_divide(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """a / b, rounded towards zero; division by zero gives zero instead of a trap, the least number over -1 wraps."""
    return elementwise("integer_divide", tirx.truncdiv, a, b)


@define("halotile.quotient", shapes=broadcast)
def quotient(x: te.Tensor, divisor: te.Tensor, inverse: te.Tensor) -> te.Tensor:
    """x / divisor, ``inverse`` being 1 / divisor rounded once: a product, what it lacks, and the product of that. Every
    bit is a division's where no step leaves the range of normal numbers."""

    def fused(x: Expr, y: Expr, z: Expr) -> Expr:
        return tirx.call_llvm_pure_intrin("float32", "llvm.fma", x, y, z)

    def apply(v: Expr, d: Expr, r: Expr) -> Expr:
        near = v * r
        return fused(fused(-near, d, v), r, near)

    return elementwise("quotient", apply, x, divisor, inverse)


@define("halotile.saturated")
def saturated(x: te.Tensor, *, low: float, high: float, dtype: str) -> te.Tensor:
    """x from ``low`` to ``high``, a NaN for ``low``, as ``dtype``: float32, or a signed or unsigned integer of up to 32
    bits that has both ends. Numbers between two whole ones are rounded towards zero.

    A NaN costs nothing: ``x > low ? x : low`` is one maximum, of which x86-64 takes the second operand for NaN.
    """
    bottom, top = tirx.const(low, dtype_of(x)), tirx.const(high, dtype_of(x))

    def apply(v: Expr) -> Expr:
        held = tirx.min(tirx.Select(v > bottom, v, bottom), top)
        return held.astype(dtype)

    return te.compute(shape_of(x), lambda *i: apply(x(*i)), name="saturated", attrs={WITHIN: True, HELD: True})


@define("halotile.rounded", shapes=same)
def rounded(x: te.Tensor, *, zero: int, low: int, high: int, dtype: str) -> te.Tensor:
    """The whole number next to x, of two the even one, and ``zero``, from ``low`` to ``high``. It must be an int32."""

    def apply(v: Expr) -> Expr:
        whole = tirx.call_llvm_pure_intrin("int32", NEAREST, v) + tirx.const(zero, "int32")
        return tirx.min(tirx.max(whole, tirx.const(low, "int32")), tirx.const(high, "int32")).astype(dtype)

    return te.compute(shape_of(x), lambda *i: apply(x(*i)), name="rounded", attrs={WITHIN: True, HELD: True})


@define("halotile.modulo", shapes=broadcast)
def modulo(a: te.Tensor, b: te.Tensor, *, truncate: bool) -> te.Tensor:
    """The remainder: with the sign of ``a`` when ``truncate`` (C), else with the sign of ``b`` (Python); of integers
    and zero, zero."""

    def remainder(x: Expr, y: Expr) -> Expr:
        dtype = dtype_of(x)
        if "float" in dtype:
            wide = "float64" if dtype == "float64" else "float32"
            p, q = x.astype(wide), y.astype(wide)
            r = tirx.call_pure_extern(wide, "fmod" if wide == "float64" else "fmodf", p, q)
            if not truncate:
                r = tirx.Select(
                    tirx.all(r != 0, tirx.any(tirx.all(r < 0, q > 0), tirx.all(r > 0, q < 0))), r + q, r
                )
            return r.astype(dtype)
        return tirx.truncmod(x, y) if truncate else tirx.floormod(x, y)

    return elementwise("modulo", remainder, a, b)


@define("halotile.bit_shift", shapes=broadcast)
def bit_shift(a: te.Tensor, b: te.Tensor, *, left: bool) -> te.Tensor:
    """a << b or a >> b (arithmetic for signed types); a shift outside the type's width leaves only the sign's fill."""

    def shift(x: Expr, y: Expr) -> Expr:
        dtype = dtype_of(x)
        bits = int("".join(c for c in dtype if c.isdigit()))
        wide = y.astype("int64")  # an unsigned comparison with a constant trips TVM's simplifier
        inside = tirx.all(wide >= 0, wide < bits)
        amount = tirx.Select(inside, wide, tirx.const(0, "int64")).astype(dtype)
        fill: Expr = tirx.const(0, dtype)
        if not left and not dtype.startswith("u"):
            fill = tirx.Select(x < 0, tirx.const(-1, dtype), fill)
        return tirx.Select(inside, x << amount if left else x >> amount, fill)

    return elementwise("bit_shift", shift, a, b)


@define("halotile.integer_power", shapes=broadcast)
def integer_power(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """a ** b for integers, exact (modulo the type's width) by squaring; a negative exponent gives 0, 1 or -1.

    The powers of odd numbers of n bits repeat after 2**(n - 2), those of even ones are 0 from the n-th on, so n - 2
    bits of the exponent tell.
    """
    shape = broadcast_shape(shape_of(a), shape_of(b))
    dtype, signed = dtype_of(a), not dtype_of(b).startswith("u")
    bits = width(dtype)

    def whole_shape(x: te.Tensor) -> te.Tensor:
        return te.compute(shape, lambda *i: broadcast_read(x, i, shape), name="operand")

    def squared(x: te.Tensor) -> te.Tensor:
        return te.compute(shape, lambda *i: x(*i) * x(*i), name="square")

    def step(power: te.Tensor, x: te.Tensor, bit: int) -> te.Tensor:
        def taken(*i: Expr) -> Expr:
            chosen = (exponent(*i) >> tirx.const(bit, dtype_of(b))) & tirx.const(1, dtype_of(b))
            return tirx.Select(chosen != 0, power(*i) * x(*i), power(*i))

        return te.compute(shape, taken, name="power")

    first, exponent = whole_shape(a), whole_shape(b)
    base, result = first, te.compute(shape, lambda *i: number(1, dtype), name="power")
    for bit in range(min(width(dtype_of(b)) - signed, bits - 2)):
        base = squared(base) if bit else base
        result = step(result, base, bit)

    def whole(*i: Expr) -> Expr:
        x, y = first(*i), exponent(*i)
        one, zero, minus = (number(c, dtype) for c in (1, 0, -1))
        vanishes = tirx.all(y >= tirx.const(bits, dtype_of(b)), (x & one) == 0)
        power = tirx.Select(vanishes, zero, result(*i))
        if not signed:
            return power
        odd = (y & tirx.const(1, dtype_of(b))) != 0
        inverse = tirx.Select(x == one, one, zero)
        if not dtype.startswith("u"):
            inverse = tirx.Select(x == minus, tirx.Select(odd, minus, one), inverse)
        return tirx.Select(y < 0, inverse, power)

    return te.compute(shape, whole, name="integer_power")


@define("halotile.bitcast")
def bitcast(x: te.Tensor, *, dtype: str) -> te.Tensor:
    """The same bits read as another type of the same width."""
    return elementwise("bitcast", lambda v: tirx.reinterpret(dtype, v), x)

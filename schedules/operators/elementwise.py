"""Elementwise operators that Relax lacks, or computes with fewer digits than the C library."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from ..operator import define
from .common import dtype_of, elementwise


@define("halotile.libm")
def libm(x: te.Tensor, *, function: str) -> te.Tensor:
    """A function of the C library, by its name (``expm1``, ``log1p``, ``tan`` ...), at full precision."""

    def apply(v: Any) -> Any:
        dtype = dtype_of(v)
        if dtype == "float64":
            return tirx.call_pure_extern("float64", function, v)
        result = tirx.call_pure_extern("float32", f"{function}f", v.astype("float32"))
        return result if dtype == "float32" else result.astype(dtype)

    return elementwise(function, apply, x)


@define("halotile.integer_divide")
def integer_divide(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """a / b, rounded towards zero; division by zero gives zero instead of a trap."""

    def divide(x: Any, y: Any) -> Any:
        one = tirx.const(1, dtype_of(y))
        safe = tirx.Select(y == 0, one, y)
        return tirx.Select(y == 0, tirx.const(0, dtype_of(x)), tirx.truncdiv(x, safe))

    return elementwise("integer_divide", divide, a, b)


@define("halotile.quotient")
def quotient(x: te.Tensor, divisor: te.Tensor, inverse: te.Tensor) -> te.Tensor:
    """x / divisor, ``inverse`` being 1 / divisor rounded once: a product, what it lacks, and the product of that. Every
    bit is a division's where no step leaves the range of normal numbers."""

    def fused(x: Any, y: Any, z: Any) -> Any:
        return tirx.call_llvm_pure_intrin("float32", "llvm.fma", x, y, z)

    def apply(v: Any, d: Any, r: Any) -> Any:
        near = v * r
        return fused(fused(-near, d, v), r, near)

    return elementwise("quotient", apply, x, divisor, inverse)


@define("halotile.rounded")
def rounded(x: te.Tensor, *, zero: int, low: int, high: int, dtype: str) -> te.Tensor:
    """The whole number next to x, of two the even one, and ``zero``, from ``low`` to ``high``. It must be an int32."""

    def apply(v: Any) -> Any:
        whole = tirx.call_llvm_pure_intrin("int32", "llvm.lrint", v) + tirx.const(zero, "int32")
        return tirx.min(tirx.max(whole, tirx.const(low, "int32")), tirx.const(high, "int32")).astype(dtype)

    return elementwise("rounded", apply, x)


@define("halotile.modulo")
def modulo(a: te.Tensor, b: te.Tensor, *, truncate: bool) -> te.Tensor:
    """The remainder: with the sign of ``a`` when ``truncate`` (C), else with the sign of ``b`` (Python)."""

    def remainder(x: Any, y: Any) -> Any:
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
        safe = tirx.Select(y == 0, tirx.const(1, dtype_of(y)), y)
        r = tirx.truncmod(x, safe)
        if not truncate and not dtype.startswith("u"):
            zero = tirx.const(0, dtype)
            opposite = tirx.any(tirx.all(r < zero, y > zero), tirx.all(r > zero, y < zero))
            r = tirx.Select(opposite, r + y, r)
        return tirx.Select(y == 0, tirx.const(0, dtype), r)

    return elementwise("modulo", remainder, a, b)


@define("halotile.bit_shift")
def bit_shift(a: te.Tensor, b: te.Tensor, *, left: bool) -> te.Tensor:
    """a << b or a >> b (arithmetic for signed types); a shift outside the type's width leaves only the sign's fill."""

    def shift(x: Any, y: Any) -> Any:
        dtype = dtype_of(x)
        bits = int("".join(c for c in dtype if c.isdigit()))
        wide = y.astype("int64")  # an unsigned comparison with a constant trips TVM's simplifier
        inside = tirx.all(wide >= 0, wide < bits)
        amount = tirx.Select(inside, wide, tirx.const(0, "int64")).astype(dtype)
        fill: Any = tirx.const(0, dtype)
        if not left and not dtype.startswith("u"):
            fill = tirx.Select(x < 0, tirx.const(-1, dtype), fill)
        return tirx.Select(inside, x << amount if left else x >> amount, fill)

    return elementwise("bit_shift", shift, a, b)


@define("halotile.integer_power")
def integer_power(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """a ** b for integers, exact (modulo the type's width) by squaring; a negative exponent gives 0, 1 or -1."""

    def power(x: Any, y: Any) -> Any:
        dtype = dtype_of(x)
        one, zero = tirx.const(1, dtype), tirx.const(0, dtype)
        result, base = one, x
        for bit in range(6):
            chosen = (y >> tirx.const(bit, dtype_of(y))) & tirx.const(1, dtype_of(y))
            result = tirx.Select(chosen != 0, result * base, result)
            base = base * base
        if dtype_of(b).startswith("u"):
            return result
        odd = (y & tirx.const(1, dtype_of(y))) != 0
        inverse = tirx.Select(x == one, one, zero)
        if not dtype.startswith("u"):
            minus = tirx.const(-1, dtype)
            inverse = tirx.Select(x == minus, tirx.Select(odd, minus, one), inverse)
        return tirx.Select(y < 0, inverse, result)

    return elementwise("integer_power", power, a, b)


@define("halotile.bitcast")
def bitcast(x: te.Tensor, *, dtype: str) -> te.Tensor:
    """The same bits read as another type of the same width."""
    return elementwise("bitcast", lambda v: tirx.reinterpret(dtype, v), x)

"""Numbers of which LLVM knows nothing."""

from __future__ import annotations

from typing import Any

from tvm import tirx


def fence(value: Any) -> Any:
    """``value``, a float or a vector, as LLVM may neither make it anew nor change the order of sums around it."""
    return tirx.call_llvm_pure_intrin(str(value.ty.dtype), "llvm.arithmetic.fence", value)

"""What a reduction combines with, and what it begins with."""

from __future__ import annotations

import numpy as np
from tvm import tirx
from tvm.ir.prim import expr as prim

from ..words.tvm_types import Expr


def is_extremum(combiner: Expr) -> bool:
    """True if the combiner reads its operands more than once."""
    return isinstance(combiner.result[0], (prim.Max, prim.Min, prim.Select))


def identities(reduce: Expr) -> list[Expr]:
    """The combiner's identities; the largest finite number stands for infinity in TOPI's max and min."""
    result = []
    for identity in reduce.combiner.identity_element:
        if isinstance(identity, prim.FloatImm) and str(identity.ty.dtype) in ("float16", "float32", "float64"):
            limit = float(np.finfo(str(identity.ty.dtype)).max)
            if abs(identity.value) == limit:
                identity = tirx.FloatImm(identity.ty, float(np.copysign(np.inf, identity.value)))
        result.append(identity)
    return result

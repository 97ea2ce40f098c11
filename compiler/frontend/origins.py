"""What is written while a node of the model is converted carries that node's name (schedules/provenance.py)."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from ...schedules.provenance import span_of
from .ahead import Limits


class Writer(relax.BlockBuilder):
    """A builder that notes for every variable the node of the model in ``origin`` when it was emitted. ``limits`` are
    on what is computed instead."""

    def __init__(self) -> None:
        super().__init__()
        self.origin = ""
        self.limits = Limits()
        self.origins: dict[relax.Var, str] = {}

    def emit(self, expr: Any, name_hint: str = "") -> relax.Var:
        variable = super().emit(expr, name_hint)
        self.origins[variable] = self.origin
        return variable

    def traced(self, module: tvm.IRModule) -> tvm.IRModule:
        """``module``, which this builder wrote, with the names as spans of the bindings of ``main``. What was bound on
        the way to a variable, as operands of its expression, has its name."""
        main = module["main"]
        blocks = []
        origin = ""
        for block in reversed(main.body.blocks):
            bindings: list[Any] = []
            for binding in reversed(block.bindings):
                origin = self.origins.get(binding.var, origin)
                if isinstance(binding, relax.VarBinding) and origin:
                    binding = relax.VarBinding(binding.var, binding.value, span_of([origin]))
                bindings.append(binding)
            blocks.append(type(block)(bindings[::-1]))
        body = relax.SeqExpr(blocks[::-1], main.body.body)
        relax.expr._update_type(body, main.body.ty)
        named = relax.Function(list(main.params), body, main.ret_ty, True, main.attrs, main.span)
        return tvm.IRModule({"main": named})

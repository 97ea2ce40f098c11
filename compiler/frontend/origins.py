"""What is written while a node of the model is converted carries that node's name (schedules/words/provenance.py).

There is a limit to it: rounds of loops, calls of functions and steps of recurrent layers are written out one by one,
they multiply where they are nested, and a file of some hundred bytes can ask for millions.
"""

from __future__ import annotations

import tvm
from tvm import relax

from ...errors import UnsupportedError
from ...schedules.words.provenance import span_of
from ...schedules.words.tvm_types import Binding, Expr
from .ahead import AheadLimits, KeptResults

WRITTEN_OUT = 1 << 16  # steps: operators written, and twice the nodes looked at; some ten seconds of import
A_NODE = 16  # steps more for every node of the file: what a converter writes for one, with room


class Writer(relax.BlockBuilder):
    """A builder that notes for every variable the node of the model in ``origin`` when it was emitted, for a model of
    so many ``nodes`` in its file. ``limits`` are on what is computed instead, ``kept`` has what was."""

    def __init__(self, nodes: int = 0) -> None:
        super().__init__()
        self.origin = ""
        self.limits = AheadLimits()
        self.kept = KeptResults()
        self.origins: dict[relax.Var, str] = {}
        self.left = WRITTEN_OUT + A_NODE * nodes

    def spend(self, steps: int) -> None:
        """Counts ``steps`` of work; refuses the model when they are too many."""
        self.left -= steps
        if self.left < 0:
            raise UnsupportedError(
                f"the model can't be compiled: its loops, functions and recurrent layers, written out, come to more "
                f"than {WRITTEN_OUT} operators (at node '{self.origin}'); make their sequences shorter, or run the "
                "loop outside of the model"
            )

    def emit(self, expr: Expr, name_hint: str = "") -> relax.Var:
        self.spend(1)
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
            bindings: list[Binding] = []
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

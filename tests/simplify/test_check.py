"""The translation check catches a rule that lies, and lets the honest ones pass on whole graphs."""

from __future__ import annotations

import numpy as np
import pytest
from halotile.errors import InternalError
from halotile.passes.simplify import Simplify, simplify
from halotile.passes.simplify.rule import EXACT, Rewrite, Rule
from tvm import relax

op = relax.op
F32 = "float32"


class Lie(Rule):
    """tanh(x) -> x, which is wrong."""

    name = "lie"
    modes = EXACT
    roots = frozenset(("relax.tanh",))

    def match(self, node, graph):
        return Rewrite(lambda b: node.inputs[0])


class AbsIsNothing(Rule):
    """abs(x) -> x, right only where x is never negative."""

    name = "abs-is-nothing"
    modes = EXACT
    roots = frozenset(("relax.abs",))

    def match(self, node, graph):
        return Rewrite(lambda b: node.inputs[0])


@pytest.mark.parametrize("batch", [3, "n"])
def test_a_wrong_rule_is_named(tools, monkeypatch, batch):
    monkeypatch.setattr(simplify, "rules_for", lambda mode: [Lie()])
    mod = tools.module([((batch, 4), F32)], lambda emit, x: emit(op.exp(emit(op.tanh(x)))))
    with pytest.raises(InternalError, match=r"rule lie changed the values at lv \(relax.tanh\)"):
        Simplify(check=True).apply(mod)
    assert Simplify().apply(mod).changed


def test_facts_upstream_hold_for_the_numbers(tools, monkeypatch):
    monkeypatch.setattr(simplify, "rules_for", lambda mode: [AbsIsNothing()])
    honest = tools.module([((4,), F32)], lambda emit, x: emit(op.abs(emit(op.exp(x)))))
    assert Simplify(check=True).apply(honest).details["checked"] == 1
    wrong = tools.module([((4,), F32)], lambda emit, x: emit(op.abs(emit(op.tanh(x)))))
    with pytest.raises(InternalError, match="abs-is-nothing"):
        Simplify(check=True).apply(wrong)


def test_a_rule_that_changes_the_type_is_declined(tools, monkeypatch):
    class Flatten(Rule):
        name = "flatten"
        roots = frozenset(("relax.exp",))

        def match(self, node, graph):
            return Rewrite(lambda b: b.call(op.reshape, node.inputs[0], [-1]))

    monkeypatch.setattr(simplify, "rules_for", lambda mode: [Flatten()])
    result = Simplify().apply(tools.module([((2, 3), F32)], lambda emit, x: emit(op.exp(x))))
    assert not result.changed
    assert "instead of" in result.details["declined"][0]["reason"]


def test_a_rule_that_makes_the_graph_larger_is_not_carried_out(tools, monkeypatch):
    class Grow(Rule):
        name = "grow"
        roots = frozenset(("relax.exp",))

        def match(self, node, graph):
            return Rewrite(lambda b: b.call(op.exp, b.call(op.abs, node.inputs[0])))

    monkeypatch.setattr(simplify, "rules_for", lambda mode: [Grow()])
    assert not Simplify().apply(tools.module([((2, 3), F32)], lambda emit, x: emit(op.exp(x)))).changed


def test_an_unknown_float_mode_is_refused():
    with pytest.raises(ValueError, match="exact, strict, finite"):
        Simplify("fast")


def test_what_is_not_straight_line_code_is_left_alone(tools):
    x = relax.Var("x", relax.TensorType([2], F32))
    flag = relax.Var("flag", relax.TensorType([], "bool"))
    builder = relax.BlockBuilder()
    with builder.function("main", [flag, x]):
        branches = [relax.SeqExpr([], builder.normalize(e)) for e in (x, x)]
        out = builder.emit(relax.If(flag, *branches))
        builder.emit_func_output(out)
    module = builder.get()
    result = Simplify().apply(module)
    assert result.module is module and "left alone" in result.notes[0]


def test_notes_count_what_was_done_and_say_what_was_not(tools):
    def body(emit, x):
        y = emit(op.reshape(emit(op.reshape(x, [6])), [3, 2]))
        return emit(op.multiply(y, tools.const(np.float32(0))))

    result = Simplify().apply(tools.module([((2, 3), F32)], body))
    assert result.notes == (
        "reshape-chain 1x",
        "multiply-by-zero declined at lv2: NaN and infinity times zero are NaN",
    )
    assert result.details["operators_before"] == 3 and result.details["operators_after"] == 2


def test_a_rule_that_fails_is_named_with_its_node(tools, monkeypatch):
    class Broken(Rule):
        name = "broken"
        roots = frozenset(("relax.exp",))

        def match(self, node, graph):
            raise KeyError("lost")

    monkeypatch.setattr(simplify, "rules_for", lambda mode: [Broken()])
    with pytest.raises(InternalError, match="rule broken failed at lv relax.exp"):
        Simplify().apply(tools.module([((2, 3), F32)], lambda emit, x: emit(op.exp(x))))

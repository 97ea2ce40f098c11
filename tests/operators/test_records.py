"""What the records of our operators say is what their TE expressions compute."""

from __future__ import annotations

import inspect
from typing import Any

import halotile.schedules.operators  # noqa: F401  (registers them)
import numpy as np
import pytest
from halotile.passes.simplify.convert import read
from halotile.passes.simplify.interpret import compiled, interpret
from halotile.passes.simplify.patterns import UNARY
from halotile.schedules.operators.registry import Operator, call, define, operators, own
from halotile.schedules.words.dims import Dim, to_relax
from halotile.schedules.words.sizes import dim_of
from tvm import relax

ATTRIBUTES: dict[str, dict[str, Any]] = {"halotile.hard_sigmoid": {"alpha": 0.3, "beta": 0.4}}
MOVABLE = [o for o in operators() if o.movable]


def called(operator: Operator, shape: list[Any]) -> tuple[Any, Any]:
    """The operand, and the call in a function of its own."""
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(call(operator.name, x, **ATTRIBUTES.get(operator.name, {})))
        builder.emit_func_output(y)
    return y, builder.get()["main"]


@pytest.mark.parametrize("operator", MOVABLE, ids=lambda o: o.name)
def test_a_movable_operator_is_a_function_of_one_element(operator: Operator) -> None:
    assert operator.name in UNARY
    parameters = inspect.signature(operator.expression).parameters.values()
    assert len([p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]) == 1
    n = Dim.symbol("n", 1, 99)
    y, _ = called(operator, [to_relax(n), 7])
    assert [dim_of(d) for d in y.ty.shape.values] == [n, 7]


@pytest.mark.parametrize("operator", MOVABLE, ids=lambda o: o.name)
def test_the_reference_is_what_the_expression_computes(operator: Operator) -> None:
    x = np.random.default_rng(7).standard_normal((3, 7)).astype(np.float32) * np.float32(9)
    x[0, :5] = 0, -0.0, np.inf, -200, 3e38
    graph = read(called(operator, list(x.shape))[1])
    (node,) = graph.outputs
    (wanted,) = interpret([node], {graph.inputs[0]: x})
    assert operator.reference is not None
    reference = operator.reference(x.astype(float), **ATTRIBUTES.get(operator.name, {}))
    np.testing.assert_array_equal(wanted, reference.astype(np.float32))
    np.testing.assert_allclose(compiled(node, [x]), wanted, rtol=2e-6, atol=1e-6)


def test_a_name_is_defined_once() -> None:
    assert own("relax.add") is None
    with pytest.raises(ValueError, match="defined twice"):
        define("halotile.mish")(lambda x: x)

"""Small Relax modules, their operators and their values."""

from __future__ import annotations

import numpy as np
from halotile.passes.simplify.convert import read
from halotile.passes.simplify.graph import CONST, INPUT
from halotile.passes.simplify.interpret import interpret
from tvm import relax

RNG = np.random.default_rng(11)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def const(value: np.ndarray) -> relax.Expr:
    return relax.const(value, str(value.dtype))


def module(body, *shapes, returns=None):
    parameters = [relax.Var(f"x{i}", relax.TensorType(list(s), "float32")) for i, s in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            result = body(builder.emit, *parameters)
            outputs = list(result) if isinstance(result, tuple) else [result]
            output = builder.emit_output(relax.Tuple(outputs))
        builder.emit_func_output(output)
    return builder.get()


def operators(mod) -> list[str]:
    return [n.op.rsplit(".", 1)[-1] for n in read(mod["main"]).order() if n.op not in (INPUT, CONST)]


def values(mod) -> list[np.ndarray]:
    graph = read(mod["main"])
    rng = np.random.default_rng(3)
    feeds = {i: rng.standard_normal(i.shape).astype("float32") for i in graph.inputs}
    return interpret(graph.outputs, feeds)

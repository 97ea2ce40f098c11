"""Models of many independent cases, full of NaN, infinities, zeros of both signs and denormal numbers: a case costs a
kernel and not a build. The rules are those of docs/numerics.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40], np.float32)
DOMAINS = {"": 21, "com.microsoft": 1, "ai.onnx.ml": 3}


def special(
    rng: np.random.Generator, shape: Sequence[int], share: float, pool: np.ndarray = SPECIAL
) -> np.ndarray:
    """Normal numbers, ``share`` of them out of ``pool`` instead."""
    x = (rng.standard_normal(shape) * 2).astype(np.float32)
    return np.where(rng.random(shape) < share, rng.choice(pool, shape), x).astype(np.float32)


def assert_equal(got: np.ndarray, wanted: np.ndarray, signs: bool = False, rtol: float = 3e-5) -> None:
    """NaN where NaN are wanted, infinities of the same sign, and numbers within rounding; with ``signs``, zeros of the
    same sign."""
    assert got.shape == wanted.shape
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, wanted)
        return
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(over="ignore"):
        narrow = wanted.astype(got.dtype).astype(np.float64)  # what is too large or too small for the type
    b = np.where(np.isinf(narrow), narrow, b)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=2e-6)
    if signs:
        zero = (a == 0) & (b == 0)
        np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(b[zero]))


@dataclass
class _Case:
    outputs: list[str]
    wanted: list[np.ndarray]
    signs: bool
    rtol: float


@dataclass
class Sheet:
    """Nodes of many cases, their inputs, and what each is to give."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    cases: dict[str, _Case] = field(default_factory=dict)
    made: int = 0

    def input(self, array: np.ndarray) -> str:
        name = f"x{len(self.feeds)}"
        self.feeds[name] = array
        return name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(self, operator: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """The name of the result, or a list of several."""
        self.made += 1
        names = [f"t{self.made}_{i}" for i in range(outputs)]
        self.nodes.append(
            helper.make_node(operator, inputs, names, name=f"n{self.made}", domain=domain, **attributes)
        )
        return names[0] if outputs == 1 else names

    def case(
        self, name: str, results: str | list[str], wanted: Any, signs: bool = False, rtol: float = 3e-5
    ) -> None:
        assert name not in self.cases, f"two cases {name}"
        many = wanted if isinstance(wanted, (list, tuple)) else [wanted]
        outputs = [results] if isinstance(results, str) else results
        self.cases[name] = _Case(outputs, [np.asarray(w) for w in many], signs, rtol)

    def model(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in self.feeds.items()
        ]
        outputs = [
            onnx.ValueInfoProto(name=n)
            for n in dict.fromkeys(o for c in self.cases.values() for o in c.outputs)
        ]
        graph = helper.make_graph(self.nodes, "sheet", inputs, outputs, self.weights)
        imports = [helper.make_opsetid(d, v) for d, v in DOMAINS.items()]
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=imports, ir_version=10)
        )

    def check(self, name: str, results: dict[str, np.ndarray]) -> None:
        """Asserts that a case of this model is right in the results of a run."""
        case = self.cases[name]
        for output, wanted in zip(case.outputs, case.wanted, strict=True):
            assert_equal(results[output], wanted, case.signs, case.rtol)

"""What a twin is: a model that takes each of its dims as a number or as a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from exports import Raw
from onnx import TensorProto, helper

#: What the dims are where they are numbers.
SIZES = {"b": 2, "n": 13, "m": 11, "h": 8, "w": 12, "k": 5}


class Dims:
    """``d.n`` is the name where the dim is open, else its number; which names were asked for is remembered."""

    def __init__(self, opened: frozenset[str], sizes: dict[str, int]) -> None:
        self.opened, self.sizes, self.asked = opened, sizes, dict[str, None]()

    def __getattr__(self, name: str) -> Any:
        if name not in self.sizes:
            raise AttributeError(name)
        self.asked[name] = None
        return name if name in self.opened else self.sizes[name]


Build = Callable[[Raw, Dims], Any]


@dataclass(frozen=True)
class Twin:
    """``extra`` says how many operators an open dim may leave beyond those of the static twin: what depends on the size
    can't be a constant. ``least`` is the smallest size at which the model runs."""

    title: str
    build: Build
    extra: dict[str, int] = field(default_factory=dict)
    least: int = 1
    multiple: int = 1
    sizes: dict[str, int] = field(default_factory=dict)

    def model(self, *opened: str, sizes: dict[str, int] | None = None) -> onnx.ModelProto:
        g = Raw(18)
        outputs = self.build(g, Dims(frozenset(opened), {**SIZES, **self.sizes, **(sizes or {})}))
        names = [outputs] if isinstance(outputs, str) else list(outputs)
        infos = [onnx.ValueInfoProto(name=o) for o in names]
        kinds = {n.output[0]: _kind(n, g) for n in g.nodes}
        for info in infos:
            info.type.tensor_type.elem_type = kinds.get(info.name, TensorProto.FLOAT)
        graph = helper.make_graph(g.nodes, "twin", g.inputs, infos, g.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=8)

    def dims(self) -> list[str]:
        asked = Dims(frozenset(), {**SIZES, **self.sizes})
        self.build(Raw(18), asked)
        return list(asked.asked)

    def opened(self) -> Iterator[tuple[str, ...]]:
        """Each dim alone, and all of them."""
        names = self.dims()
        yield from ((n,) for n in names)
        if len(names) > 1:
            yield tuple(names)

    def chosen(self) -> list[tuple[str, ...]]:
        """All of the dims, and one of them: another for each title."""
        names = self.dims()
        return [tuple(names), *([(names[len(self.title) % len(names)],)] if len(names) > 1 else [])]

    def runs(self, opened: tuple[str, ...]) -> Iterator[dict[str, int]]:
        """Sizes to run at: the smallest, one more, odd, and large."""
        for step in (0, 1, 4, 9):
            yield {n: self.least + self.multiple * (step + k) for k, n in enumerate(opened)}


def _kind(node: onnx.NodeProto, g: Raw) -> int:
    if node.op_type in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal", "Not", "And", "Or", "Xor"):
        return TensorProto.BOOL
    if node.op_type in ("Shape", "Range", "NonZero", "ArgMax", "Size"):
        return TensorProto.INT64
    return next((a.i for a in node.attribute if a.name == "to"), TensorProto.FLOAT)


TWINS: list[Twin] = []


def twin(title: str, extra: dict[str, int] | None = None, **options: Any) -> Callable[[Build], Build]:
    """Enters the model that the function makes."""

    def enter(build: Build) -> Build:
        assert all(t.title != title for t in TWINS), title
        TWINS.append(Twin(title, build, extra or {}, **options))
        return build

    return enter


def feeds(model: onnx.ModelProto, sizes: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else sizes[d.dim_param] for d in kind.shape.dim]
        if kind.elem_type == TensorProto.FLOAT:
            found[value.name] = rng.standard_normal(shape).astype(np.float32)
        elif kind.elem_type == TensorProto.BOOL:
            found[value.name] = rng.integers(0, 2, shape).astype(bool)
        else:
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            found[value.name] = rng.integers(0, 4, shape).astype(dtype)
    return found

"""Random whole models: images, sequences and vectors through blocks of every kind, with what real graphs have beside.

    model, arrays = whole_model(seed)        the same seed gives the same

Sizes are odd and prime as often as not, pads asymmetric, biases not zero. Values are used several times; outputs may
be used inside, be integers or booleans, repeat one value, be an input or a constant.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto
from whole_graph import Graph, Impossible, Tensor
from whole_images import BLOCKS
from whole_sequences import (
    SEQUENCES,
    VECTORS,
    image_to_sequence,
    image_to_vector,
    sequence_to_image,
    sequence_to_vector,
)

SIZES = (5, 7, 8, 9, 11, 13, 16, 17, 19, 23, 24)


def whole_model(seed: int, blocks: int = 8, kind: str | None = None) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of about ``blocks`` blocks and inputs for it; ``kind`` is image, sequence or half (float16 images)."""
    rng = np.random.default_rng([seed, 1])
    kind = kind or ("image", "image", "image", "image", "sequence", "sequence", "half")[int(rng.integers(7))]
    g = Graph(seed, TensorProto.FLOAT16 if kind == "half" else TensorProto.FLOAT)
    batch = g.pick((1, 1, 2, 3))
    if kind == "sequence":
        at = _tokens(g, batch) if g.chance(0.4) else g.input((batch, g.pick(SIZES[:8]), g.pick((8, 12, 15, 16, 24))))
    else:
        at = g.input((batch, g.pick((1, 3, 3, 8, 17)), g.pick(SIZES), g.pick(SIZES)))
    for _ in range(blocks):
        at = _step(g, at)
        if g.chance(0.1):
            at = g.pick([v for v in g.values if v.is_float and v.rank in (3, 4)] or [at])
    outputs = _outputs(g, at)
    return g.model(outputs, f"whole{seed}"), g.arrays(seed)


def _step(g: Graph, at: Tensor) -> Tensor:
    if at.rank == 4:
        ways = BLOCKS if g.chance(0.93) else [image_to_sequence, image_to_vector]
    elif at.rank == 3:
        ways = SEQUENCES if g.chance(0.9) else [sequence_to_image, sequence_to_vector]
    else:
        ways = VECTORS
    made = g.attempt(g.pick(ways), at)
    if made is None or made.rank not in (2, 3, 4) or not made.is_float:
        return at
    return made


def _tokens(g: Graph, batch: int) -> Tensor:
    ids = g.input((batch, g.pick(SIZES[:7])), TensorProto.INT64)
    return g.add("Gather", g.weight(5, g.pick((8, 16, 24)), fan=1), ids)


def _outputs(g: Graph, at: Tensor) -> list[Tensor]:
    """What nothing reads (the last few), perhaps an inner value, a decision, and the odd ones."""
    read = {n for node in g.nodes for n in node.input}
    inputs = {t.name for t in g.inputs}
    ends = [v for v in g.values if v.name not in read and v.name not in inputs][-3:]
    outputs = [*g.outputs, *ends] or [at]
    inner = [v for v in g.values if v.name in read and v.name not in inputs]
    if inner and g.chance(0.3):
        outputs.append(g.pick(inner))
    if g.chance(0.3):
        outputs += _decided(g, at)
    if g.chance(0.08):
        outputs.append(g.pick(g.inputs))
    if g.chance(0.08):
        outputs.append(g.weight(2, 3))
    if all(v.name in inputs for v in outputs):
        outputs.append(g.add("Neg", at) if at.is_float else g.add("Identity", at))
    return list({v.name: v for v in outputs}.values())


def _decided(g: Graph, at: Tensor) -> list[Tensor]:
    """Integers and booleans computed from a value."""
    kind = g.pick(("argmax", "greater", "count", "shape", "bytes", "twice"))
    try:
        if kind == "argmax":
            return [g.add("ArgMax", at, axis=1, keepdims=g.between(0, 1))]
        if kind == "greater":
            return [g.add("Greater", at, g.scalar(0.0))]
        if kind == "count":
            positive = g.cast(g.add("Greater", at, g.scalar(0.0)), TensorProto.INT32)
            return [g.add("ReduceSum", positive, g.ints(-1), keepdims=0)]
        if kind == "shape":
            return [g.add("Shape", at)]
        if kind == "bytes":
            clipped = g.add("Clip", g.add("Mul", at, g.scalar(20.0)), g.scalar(0.0), g.scalar(255.0))
            return [g.cast(g.add("Round", clipped), TensorProto.UINT8)]
        return [g.add("Identity", at), g.add("Identity", at)]
    except Impossible:
        return []

"""A BERT-like encoder (MiniLM's size by default): embeddings, attention mask subgraph, post-norm blocks, pooler."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import activation, attention, extended_mask, layer_norm, linear, slice_


def bert(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    tokens: int = 128,
    width: int = 384,
    layers: int = 6,
    heads: int = 12,
    vocabulary: int = 30522,
    masked: bool = True,
    seed: int = 0,
) -> onnx.ModelProto:
    """``masked=False`` leaves the mask out of the inputs: an all-ones mask is built from the shape of the ids."""
    g = ModelGraph("bert", form, seed)
    ids = g.input("input_ids", (batch, tokens), "int64")
    mask = g.input("attention_mask", (batch, tokens), "int64") if masked else _ones(g, ids)
    bias = extended_mask(g, mask)
    with g.scope("embeddings"):
        words = g.op("Gather", g.weight("word", g.normal((vocabulary, width), 0.5)), ids, axis=0)
        places = g.weight("position_ids", _range(512))
        places = slice_(g, places, 1, 0, tokens)
        position = g.op("Gather", g.weight("position", g.normal((512, width), 0.3)), places, axis=0)
        kind = g.weight("token_type", g.normal((1, 1, width), 0.1))
        x = layer_norm(g, g.op("Add", g.op("Add", words, kind), position), epsilon=1e-12)
    for index in range(layers):
        with g.scope(f"layer.{index}"):
            x = layer_norm(g, g.op("Add", attention(g, x, heads, mask=bias), x), epsilon=1e-12, name="norm1")
            y = linear(
                g, activation(g, linear(g, x, 4 * width, name="fc1"), "gelu"), width, gain=2.35, name="fc2"
            )
            x = layer_norm(g, g.op("Add", y, x), epsilon=1e-12, name="norm2")
    first = g.op("Gather", x, g.const(0, "int64"), axis=1)
    pooled = g.op("Tanh", linear(g, first, width, gain=0.5, name="pooler"))
    return g.finish(last_hidden_state=x, pooler_output=pooled)


def _ones(g: ModelGraph, ids: str) -> str:
    value = onnx.numpy_helper.from_array(_range(2)[0, 1:])
    shape = g.op("Shape", ids)
    return g.op("ConstantOfShape", shape, shape=g.shape(ids), value=value)


def _range(stop: int):  # type: ignore[no-untyped-def]
    import numpy as np

    return np.arange(stop, dtype=np.int64)[None]

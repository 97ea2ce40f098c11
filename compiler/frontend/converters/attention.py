"""Attention as ONNX Runtime's transformer optimiser writes it, and rotary positions.

MultiHeadAttention(q, k, v)     becomes     softmax(q k' scale + masks) v, head by head

Masks are additive, as ONNX Runtime has them: 0 for keys that are seen, ``mask_filter_value`` for the others.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from ....schedules.words.refusal import Refusal
from ..node import OnnxNode
from ..registry import converts
from ..value import OnnxValue
from .fused import MICROSOFT, biased
from .matmul import product
from .quantize import _centred, _spread

R = relax.op


@converts("Attention", domain=MICROSOFT)
def attention(node: OnnxNode) -> list[OnnxValue | None]:
    """Self-attention with the projection of queries, keys and values in one weight."""
    return _self_attention(node, product(node, node.need(0), node.need(1)), *(node[i] for i in range(2, 6)))


def _self_attention(
    node: OnnxNode,
    both: OnnxValue,
    bias: OnnxValue | None,
    mask: OnnxValue | None,
    past: OnnxValue | None,
    extra: OnnxValue | None,
) -> list[OnnxValue | None]:
    """Attention on the projections of queries, keys and values side by side."""
    _only(node, ("do_rotary", "past_present_share_buffer"))
    heads = _count(node, "num_heads")
    sizes = [int(n) for n in node.attr("qkv_hidden_sizes", [])] or [both.shape[-1] // 3] * 3
    both = biased(node, both, bias)
    q, k, v = (_heads(node, p, heads) for p in _pieces(node, both, sizes))
    if past is not None:
        old = [node.reshape(node.slice(past, 0, i, i + 1), past.shape[1:]) for i in range(2)]
        k, v = (_after(node, o, p) for o, p in zip(old, (k, v)))
    present = None
    if node.wants(1):
        present = node.do(R.concat, [node.reshape(p, (1, *p.shape)) for p in (k, v)], axis=0)
    return [_attended(node, q, k, v, mask, extra), present]


@converts("QAttention", domain=MICROSOFT)
def quantised_attention(node: OnnxNode) -> list[OnnxValue | None]:
    """Attention on 8-bit numbers and weights: the integers' products times their scales are the projections."""
    x, w = _centred(node, node.need(0), node[6], rows=True), _centred(node, node.need(1), node[7], rows=False)
    scale = node.do(R.multiply, node.reshape(node.need(3), ()), _spread(node, node.need(4), w, 1, 0))
    both = node.do(R.multiply, node.cast(product(node, x, w), "float32"), scale)
    return _self_attention(node, both, node[2], node[5], node[8], None)


@converts("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(node: OnnxNode) -> list[OnnxValue | None]:
    """Attention on projected queries, keys and values: apart, packed, or keys and values that have their heads.

    With a ``past_sequence_length`` the past is a buffer of which so much is filled; the new keys follow there.
    """
    if node.has(9):
        raise Refusal("a cache that beams share is not supported")
    query, key, value, bias = node.need(0), node[1], node[2], node[3]
    past = [node[6], node[7]]
    heads = _count(node, "num_heads")
    if query.rank == 5:
        q, k, v = (_packed(node, query, i) for i in range(3))
        biases: list[OnnxValue | None] = [None] * 3
        if bias is not None:
            parts = _pieces(node, bias, [bias.size // 3] * 3)
            biases = [node.reshape(b, (heads, 1, b.size // heads)) for b in parts]
        q, k, v = (biased(node, p, b) for p, b in zip((q, k, v), biases))
    else:
        given = [query, key, value]
        if bias is not None:
            width = query.shape[-1]
            parts = _pieces(node, bias, [width, width, bias.size - 2 * width])
            given = [g if g is None or g.rank != 3 else biased(node, g, b) for g, b in zip(given, parts)]
        q = _heads(node, query if given[0] is None else given[0], heads)
        if key is not None and key.rank == 5:
            k, v = (_packed(node, key, i) for i in range(2))
        elif given[1] is not None and given[2] is not None:
            k, v = (g if g.rank == 4 else _heads(node, g, heads) for g in given[1:] if g is not None)
        else:
            raise Refusal("its keys or values are missing")
    filled = node[8] if past[0] is not None and past[1] is not None else None
    if filled is not None:
        return _in_buffers(node, q, (k, v), (node.need(6), node.need(7)), filled)
    k, v = (p if old is None else _after(node, old, p) for old, p in zip(past, (k, v)))
    y = _attended(node, q, k, v, node[4], node[5])
    return [y, k if node.wants(1) else None, v if node.wants(2) else None]


def _in_buffers(
    node: OnnxNode, q: OnnxValue, new: tuple[OnnxValue, OnnxValue], old: tuple[OnnxValue, OnnxValue], filled: OnnxValue
) -> list[OnnxValue | None]:
    """Attention to the ``filled`` first keys of buffers and the new ones, which take the next places there:

    present = old[: filled], new, old[filled + S :]
    """
    room, length = old[0].shape[2], new[0].shape[2]
    if filled.array is not None:
        first = int(filled.array.reshape(-1)[0])
        if not 0 <= first <= room - length:
            raise Refusal(f"{length} keys behind {first} do not fit a buffer of {room}")
        k, v = (_after(node, node.slice(o, 2, 0, first), n) for o, n in zip(old, new))
        rest = [node.slice(o, 2, first + length, room) for o in old]
        whole = [_after(node, p, r) if r.shape[2] else p for p, r in zip((k, v), rest)]
        return [_attended(node, q, k, v, node[4], node[5]), *whole]
    if node.has(4) or node.has(5):
        raise Refusal("a past_sequence_length of run time beside a mask or an attention_bias is not supported")
    filled = node.reshape(node.cast(filled, "int64"), ())
    places = node.const(np.arange(room))
    behind = node.do(R.subtract, places, filled)
    fresh = node.do(R.logical_and, node.do(R.greater_equal, behind, node.scalar(0, behind)),
                    node.do(R.less, behind, node.scalar(length, behind)))  # fmt: skip
    at = node.do(R.where, fresh, node.do(R.add, behind, node.scalar(room, behind)), places)
    k, v = (node.own("halotile.gather", node.do(R.concat, [o, n], axis=2), at, axis=2) for o, n in zip(old, new))
    seen = node.do(R.less, behind, node.scalar(length, behind))
    # what lies in the buffer behind the new values may be anything: weights of zero are not enough
    shown = node.do(R.where, node.reshape(seen, (room, 1)), v, node.scalar(0, v))
    return [_attended(node, q, k, shown, None, None, _visible(node, q, seen, behind, length)), k, v]


def _visible(node: OnnxNode, q: OnnxValue, seen: OnnxValue, behind: OnnxValue, length: int) -> OnnxValue:
    """Which keys of a buffer every query sees, [1 or S, T]; ``behind``: how far they lie behind the filled ones."""
    if not node.attr("unidirectional", 0):
        return node.reshape(seen, (1, seen.size))
    last = node.const(np.arange(q.shape[2]).reshape(-1, 1) + (length - q.shape[2]))
    return node.do(R.less_equal, node.reshape(behind, (1, behind.size)), last)


@converts("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(node: OnnxNode) -> list[OnnxValue | None]:
    """Causal attention whose heads share keys and values in groups, after a cache as long as each row's own past.

        past[b] = seqlens_k[b] + 1 - S, and 0 where the S tokens are all that there is
        present[b] = past[b, : past[b]], the S new ones, zeros
    """
    _only(node, ("smooth_softmax", "qk_output", "kv_cache_bit_width"))
    for index, what in ((11, "a sink of heads"), (12, "a quantised cache"), (13, "a quantised cache")):
        if node.has(index):
            raise Refusal(f"{what} is not supported")
    heads, shared = _count(node, "num_heads"), _count(node, "kv_num_heads")
    query, old = node.need(0), [node[3], node[4]]
    total = node.constant(6, "its total length")
    if total is None:
        raise Refusal("its total length is missing")
    if node.has(1):
        given = [query, node.need(1), node.need(2)]
    else:
        width = query.shape[-1] // (heads + 2 * shared)
        given = _pieces(node, query, [heads * width, shared * width, shared * width])
    if heads % shared or any(g.rank != 3 or g.shape[2] % n for g, n in zip(given, (heads, shared, shared))):
        widths = ", ".join(map(str, given))
        raise Refusal(f"{heads} heads that share {shared} of keys and values do not divide {widths}")
    batch, length = query.shape[:2]
    size = given[0].shape[2] // heads
    q, k, v = (node.reshape(g, (batch, length, n, size)) for g, n in zip(given, (heads, shared, shared)))
    first = length == int(total.reshape(-1)[0])
    steps = np.arange(length).reshape(1, length)
    past = None
    if not first:
        past = node.cast(node.reshape(node.need(5), (batch, 1)), "int64")
        past = node.do(R.add, past, node.scalar(1 - length, past))  # [B, 1]
    places = node.const(steps) if past is None else node.do(R.add, past, node.const(steps))  # [B or 1, S]
    if node.attr("do_rotary", 0):
        cosine, sine, at = node.need(7), node.need(8), node[9] or places
        turn = (at, cosine, sine, 2 * cosine.shape[1], bool(node.attr("rotary_interleaved", 0)))
        q, k = (_rotated(node, p, *turn) for p in (q, k))
    q, k, v = (node.transpose(p, [0, 2, 1, 3]) for p in (q, k, v))
    room = max([int(total.reshape(-1)[0]), *(o.shape[2] for o in old if o is not None)])
    k, v = (_appended(node, o, p, past, room) for o, p in zip(old, (k, v)))
    y = _grouped(node, q, k, v, places)
    return [node.reshape(node.transpose(y, [0, 2, 1, 3]), (batch, length, heads * size)), k, v]


def _appended(node: OnnxNode, old: OnnxValue | None, new: OnnxValue, past: OnnxValue | None, room: int) -> OnnxValue:
    """[B, N, room, H]: the first ``past`` of ``old``, all of ``new``, and zeros."""
    batch, heads, length, size = new.shape
    if past is None:
        rest = node.broadcast(node.scalar(0, new), (batch, heads, room - length, size))
        return node.do(R.concat, [new, rest], axis=2) if room > length else new
    before = 0 if old is None else old.shape[2]
    zero = node.broadcast(node.scalar(0, new), (batch, heads, 1, size))
    parts = ([old] if old is not None and before else []) + [new, zero]
    places = node.reshape(node.counting(room), (1, room))
    behind = node.do(R.subtract, places, past)  # [B, room]: places among the new ones
    at = node.do(R.minimum, node.do(R.add, behind, node.scalar(before, behind)), node.scalar(before + length, behind))
    at = node.do(R.where, node.do(R.less, behind, node.scalar(0, behind)), places, at)
    index = node.broadcast(node.reshape(at, (batch, 1, room, 1)), (batch, heads, room, size))
    return node.own("halotile.gather_elements", node.do(R.concat, parts, axis=2), index, axis=2)


def _grouped(node: OnnxNode, q: OnnxValue, k: OnnxValue, v: OnnxValue, places: OnnxValue) -> OnnxValue:
    """softmax(q k' scale) v, [B, N, S, H], each group of heads with its own k and v; no query sees later keys."""
    batch, heads, length, size = q.shape
    shared, total = k.shape[1], k.shape[2]
    group = heads // shared
    keys = node.transpose(k, [0, 1, 3, 2])
    scores = product(node, node.reshape(q, (batch, shared, group * length, size)), keys)
    scores = node.do(R.multiply, scores, node.scalar(node.attr("scale", 0.0) or size**-0.5, q))
    cap = node.attr("softcap", 0.0)
    if cap > 0:
        capped = node.do(R.tanh, node.do(R.divide, scores, node.scalar(cap, q)))
        scores = node.do(R.multiply, capped, node.scalar(cap, q))
    scores = node.reshape(scores, (batch, heads, length, total))
    if (bias := node[10]) is not None:
        bias = node.slice(bias, 3, 0, total) if bias.shape[3] > total else bias
        scores = node.do(R.add, scores, bias)
    rows = node.reshape(places, (places.shape[0], 1, length, 1))
    columns = node.const(np.arange(total).astype(places.dtype).reshape(1, 1, 1, total))
    seen = node.do(R.less_equal, columns, rows)
    window = int(node.attr("local_window_size", -1))
    if window > 0:
        late = node.do(R.greater, columns, node.do(R.subtract, rows, node.scalar(window, rows)))
        seen = node.do(R.logical_and, seen, late)
    scores = node.do(R.where, seen, scores, node.scalar(float(np.finfo("float32").min) / 2, q))
    weights = node.reshape(node.do(R.nn.softmax, scores, axis=-1), (batch, shared, group * length, total))
    return node.reshape(product(node, weights, v), (batch, heads, length, size))


def _count(node: OnnxNode, name: str) -> int:
    """An attribute that must be there."""
    value = node.attr(name)
    if not isinstance(value, int) or value < 1:
        raise Refusal(f"attribute {name} is {'missing' if value is None else value}, and not a number of at least 1")
    return value


def _only(node: OnnxNode, names: tuple[str, ...]) -> None:
    for name in names:
        if node.attr(name, 0):
            raise Refusal(f"{name} is not supported")


def _pieces(node: OnnxNode, x: OnnxValue, sizes: list[int]) -> list[OnnxValue]:
    if sum(sizes) != x.shape[-1] or len(sizes) != 3:
        raise Refusal(f"widths {sizes} do not make up {x}")
    ends = np.cumsum([0, *sizes])
    return [node.slice(x, x.rank - 1, int(a), int(b)) for a, b in zip(ends, ends[1:])]


def _heads(node: OnnxNode, x: OnnxValue, heads: int) -> OnnxValue:
    """[B, S, N * H] -> [B, N, S, H]"""
    if x.rank != 3 or x.shape[-1] % heads:
        raise Refusal(f"{heads} heads do not divide {x}")
    batch, length, width = x.shape
    return node.transpose(node.reshape(x, (batch, length, heads, width // heads)), [0, 2, 1, 3])


def _packed(node: OnnxNode, x: OnnxValue, index: int) -> OnnxValue:
    """Part ``index`` of [B, S, N, parts, H], as [B, N, S, H]."""
    part = node.slice(x, 3, index, index + 1)
    return node.transpose(node.reshape(part, (*x.shape[:3], x.shape[4])), [0, 2, 1, 3])


def _after(node: OnnxNode, past: OnnxValue, new: OnnxValue) -> OnnxValue:
    return new if past.shape[2] == 0 else node.do(R.concat, [past, new], axis=2)


def _attended(
    node: OnnxNode,
    q: OnnxValue,
    k: OnnxValue,
    v: OnnxValue,
    mask: OnnxValue | None,
    extra: OnnxValue | None,
    visible: OnnxValue | None = None,
) -> OnnxValue:
    """softmax(q k' scale + masks) v, back in [B, S, N * H]; ``visible``: the keys that count at all."""
    batch, heads, length, size = q.shape
    total = k.shape[2]
    scale = node.attr("scale", 0.0) or size**-0.5
    scores = node.do(R.multiply, product(node, q, node.transpose(k, [0, 1, 3, 2])), node.scalar(scale, q))
    if extra is not None:
        scores = node.do(R.add, scores, extra)
    low = node.scalar(node.attr("mask_filter_value", -10000.0), q)
    if mask is not None:
        seen = _seen(node, mask, batch, length, total)
        scores = node.do(R.add, scores, node.do(R.where, seen, node.scalar(0, q), low))
    if visible is not None:
        scores = node.do(R.where, visible, scores, node.scalar(-np.inf, q))
    elif node.attr("unidirectional", 0):
        places, own = (node.counting(n) for n in (total, length))
        last = node.do(R.add, node.reshape(own, (length, 1)), OnnxValue.of_contents(total - length, "int64"))
        ahead = node.do(R.greater, node.reshape(places, (1, total)), last)
        worst = float(np.finfo("float16" if q.dtype == "float16" else "float32").min / 2)
        scores = node.do(R.add, scores, node.do(R.where, ahead, node.scalar(worst, q), node.scalar(0, q)))
    y = product(node, node.do(R.nn.softmax, scores, axis=-1), v)
    return node.reshape(node.transpose(y, [0, 2, 1, 3]), (batch, length, heads * v.shape[3]))


def _seen(node: OnnxNode, mask: OnnxValue, batch: int, length: int, total: int) -> OnnxValue:
    """Which keys are seen, to broadcast over [B, N, S, T]: from lengths, ends and starts, or zeros and ones."""
    places = node.reshape(node.counting(total, mask.dtype), (1, 1, 1, total))
    if mask.shape in ((batch, total), (batch, length, total)):
        middle = 1 if mask.rank == 2 else length
        return node.do(R.greater, node.reshape(mask, (batch, 1, middle, total)), node.scalar(0, mask))
    if mask.shape not in ((batch,), (2 * batch,)):
        raise Refusal(f"the mask {mask} fits neither {batch} rows of {total} keys nor their lengths")
    ends = node.reshape(node.slice(mask, 0, 0, batch), (batch, 1, 1, 1))
    seen = node.do(R.less, places, ends)
    if mask.shape == (batch,):
        return seen
    starts = node.reshape(node.slice(mask, 0, batch, 2 * batch), (batch, 1, 1, 1))
    return node.do(R.logical_and, seen, node.do(R.greater_equal, places, starts))


@converts("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(node: OnnxNode) -> OnnxValue:
    """Pairs of a head turned by the angle of their position; ``position_ids`` is one offset or a position each."""
    x, places, cosine, sine = (node.need(i) for i in range(4))
    _only(node, ("is_packed_batching",))
    shape, turned = x.shape, int(node.attr("rotary_embedding_dim", 0)) or 2 * cosine.shape[1]
    if x.rank == 3:
        heads = int(node.attr("num_heads", 0)) or shape[2] // turned
        x = node.reshape(x, (*shape[:2], heads, shape[2] // heads))
    else:
        x = node.transpose(x, [0, 2, 1, 3])
    batch, length = x.shape[:2]
    if places.size == 1:
        steps = node.const(np.arange(length).astype(places.dtype).reshape(1, length))
        places = node.do(R.add, node.reshape(places, (1, 1)), steps)
    y = _rotated(node, x, places, cosine, sine, turned, bool(node.attr("interleaved", 0)))
    return node.reshape(y, shape) if len(shape) == 3 else node.transpose(y, [0, 2, 1, 3])


def _rotated(
    node: OnnxNode, x: OnnxValue, places: OnnxValue, cosine: OnnxValue, sine: OnnxValue, turned: int, interleaved: bool
) -> OnnxValue:
    """The first ``turned`` numbers of every head of [B, S, N, H] turned by the angles of its place, [B or 1, S]."""
    batch, length, heads, size = x.shape
    c, s = (node.own("halotile.gather", t, places, axis=0) for t in (cosine, sine))
    c, s = (node.reshape(t, (*t.shape[:2], 1, t.shape[2])) for t in (c, s))
    rest = node.slice(x, 3, turned, size) if turned < size else None
    first, second = _pairs(node, node.slice(x, 3, 0, turned), turned, interleaved)
    real = node.do(R.subtract, node.do(R.multiply, first, c), node.do(R.multiply, second, s))
    imaginary = node.do(R.add, node.do(R.multiply, second, c), node.do(R.multiply, first, s))
    if interleaved:
        apart = [node.reshape(p, (batch, length, heads, turned // 2, 1)) for p in (real, imaginary)]
        y = node.reshape(node.do(R.concat, apart, axis=4), (batch, length, heads, turned))
    else:
        y = node.do(R.concat, [real, imaginary], axis=3)
    return y if rest is None else node.do(R.concat, [y, rest], axis=3)


def _pairs(node: OnnxNode, x: OnnxValue, turned: int, interleaved: bool) -> tuple[OnnxValue, OnnxValue]:
    if not interleaved:
        return node.slice(x, 3, 0, turned // 2), node.slice(x, 3, turned // 2, turned)
    apart = node.reshape(x, (*x.shape[:3], turned // 2, 2))
    even, odd = (node.reshape(node.slice(apart, 4, i, i + 1), apart.shape[:4]) for i in range(2))
    return even, odd

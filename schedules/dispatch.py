"""Which generator builds a group. One line a family; each family decides the rest for itself."""

from __future__ import annotations

from .attention import attention_facts, build_attention
from .conv import build_conv, builds_conv
from .general.channel_norm import build_channel_norm, norms_channels
from .general.channel_shuffle import build_shuffle, shuffles_channels
from .general.generator import build_staged
from .general.loop_operators import build_opaque
from .matmul import build_matmul, makes_one_column, supports_matmul
from .operators.kind import Facts
from .words.group import Group, Kernel, Request


def build_kernel(request: Request) -> Kernel:
    """The kernel of ``request.group`` in the layouts that ``request`` gives."""
    anchor = request.group.anchor
    if anchor is not None:
        if builds_conv(request.group, lambda v: request.layout(v).block):
            return build_conv(request)
        if supports_matmul(anchor) and _all_plain(request):
            if sum(supports_matmul(n) for n in request.group.nodes) == 1:
                return build_staged(request) if makes_one_column(request) else build_matmul(request)
            attention = attention_facts(request.group)
            assert not isinstance(attention, str), attention
            return build_attention(request, attention)
        if Facts(anchor).kind == "opaque":
            return build_opaque(request)
    blocks = {v: request.layout(v).block for v in (*request.group.inputs, *request.group.outputs)}
    lanes = blocks[request.group.outputs[0]]
    if lanes and set(blocks.values()) == {lanes} and shuffles_channels(request.group, blocks, lanes):
        return build_shuffle(request)
    if lanes and norms_channels(request.group, blocks, lanes):
        return build_channel_norm(request)
    return build_staged(request)


def works_on_plain(group: Group) -> bool:
    """True for groups whose generator reads and writes plain memory only."""
    anchor = group.anchor
    return anchor is not None and (supports_matmul(anchor) or Facts(anchor).kind == "opaque")


def _all_plain(request: Request) -> bool:
    anchor = request.group.anchor
    assert anchor is not None
    return all(request.layout(v).is_plain for v in (*request.group.inputs, *request.group.outputs))

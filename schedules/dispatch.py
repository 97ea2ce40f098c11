"""Which generator builds a group. One line a family; each family decides the rest for itself."""

from __future__ import annotations

from collections.abc import Callable

from .attention import attention_facts, build_attention
from .conv import (
    build_conv,
    builds_conv,
    considered_convs,
    conv_expected,
    conv_pays,
    conv_peers,
    conv_transforms,
    larger_conv,
    select_conv,
    smaller_conv,
)
from .general.channel_norm import build_channel_norm, norms_channels
from .general.channel_shuffle import build_shuffle, shuffles_channels
from .general.generator import build_staged
from .general.loop_operators import build_opaque
from .kernel.missing_rows import MissingRows
from .matmul import (
    build_matmul,
    considered_matmuls,
    is_product,
    makes_one_column,
    select_matmul,
)
from .operators.kind import facts_of
from .words.choice import AlgorithmRefusal, Choice
from .words.group import Group, Kernel, Request

CONVOLUTION, PRODUCT, ATTENTION, LOOPS = "convolution", "matrix product", "attention", "loops of an operator's own"
SHUFFLE, CHANNEL_NORM, GENERAL = "channel shuffle", "norm over channels", "loop nests"


def family_of(request: Request) -> str:
    """The family that computes the group in the layouts that ``request`` gives, by its name."""
    group, anchor = request.group, request.group.anchor
    if anchor is not None:
        if builds_conv(group, lambda v: request.layout(v).block):
            return CONVOLUTION
        if is_product(anchor) and _all_plain(request):
            if sum(map(is_product, group.nodes)) > 1:
                return ATTENTION
            return GENERAL if makes_one_column(request) else PRODUCT
        if facts_of(anchor).kind == "opaque":
            return LOOPS
    blocks = {v: request.layout(v).block for v in (*group.inputs, *group.outputs)}
    lanes = blocks[group.outputs[0]]
    if lanes and set(blocks.values()) == {lanes} and shuffles_channels(group, blocks, lanes):
        return SHUFFLE
    return CHANNEL_NORM if lanes and norms_channels(group, blocks, lanes) else GENERAL


def _attention(request: Request) -> Kernel:
    facts = attention_facts(request.group)
    assert not isinstance(facts, str), facts
    return build_attention(request, facts)


_BUILD: dict[str, Callable[[Request], Kernel]] = {
    CONVOLUTION: build_conv,
    PRODUCT: build_matmul,
    ATTENTION: _attention,
    LOOPS: build_opaque,
    SHUFFLE: build_shuffle,
    CHANNEL_NORM: build_channel_norm,
    GENERAL: build_staged,
}
_SELECT: dict[str, Callable[[Request], Choice]] = {CONVOLUTION: select_conv, PRODUCT: select_matmul}
_CONSIDERED: dict[str, Callable[[Request], list[Choice | AlgorithmRefusal]]] = {
    CONVOLUTION: considered_convs,
    PRODUCT: considered_matmuls,
}


def select(request: Request) -> Choice:
    """How :func:`build_kernel` computes the request."""
    request = _computed(request)
    family = family_of(request)
    return _SELECT[family](request) if family in _SELECT else Choice(family)


def considered(request: Request) -> list[Choice | AlgorithmRefusal]:
    """What the algorithms of the request's family say of it, where there are several."""
    request = _computed(request)
    family = family_of(request)
    return _CONSIDERED[family](request) if family in _CONSIDERED else []


def smaller(request: Request, choice: Choice, least: tuple[int, int], times: int) -> Choice | None:
    """What computes boxes of fewer than ``least`` (rows, columns), the fewest that ``choice`` takes, from the same
    weights, with about so many times fewer columns; None if the family has no such thing."""
    return smaller_conv(choice, least, times) if family_of(request) == CONVOLUTION else None


def peers(request: Request, choice: Choice) -> list[tuple[Choice, float]]:
    """``choice`` and others that read the same weights, each with the cycles of one of its tiles: images of open size
    take the one of the fewest. None where it is the only one."""
    return conv_peers(request, choice) if family_of(request) == CONVOLUTION else []


def larger(request: Request, choice: Choice) -> Choice:
    """``choice``, which was made for a smaller box, for that of the request, with the same weights."""
    return larger_conv(request, choice) if family_of(request) == CONVOLUTION else choice


def pays(request: Request, choice: Choice, images: int) -> bool:
    """True if ``choice``, which won by its cycles for a larger box, is expected to win for that of the request, in a
    batch of so many ``images``."""
    return family_of(request) != CONVOLUTION or conv_pays(request, choice, images)


def expected(request: Request, choice: Choice, images: int) -> float | None:
    """Predicted cycles of ``choice``, which may have been made for another box, for that of the request, in a batch of
    so many ``images``; None where nothing predicts them."""
    return conv_expected(request, choice, images) if family_of(request) == CONVOLUTION else None


def transforms(request: Request, choice: Choice, other: Choice) -> bool:
    """True if ``choice`` transforms weights, and not to what ``other`` reads."""
    return family_of(request) == CONVOLUTION and conv_transforms(request, choice, other)


def build_kernel(request: Request) -> Kernel:
    """The kernel of ``request.group`` in the layouts that ``request`` gives, by its choice, if it has one."""
    missing = MissingRows.of(request)
    if missing is not None:
        return missing.with_rows(build_kernel(missing.request))
    return _BUILD[family_of(request)](request)


def _computed(request: Request) -> Request:
    """What the kernel for the request computes, before rows that do not exist are written."""
    missing = MissingRows.of(request)
    return request if missing is None else _computed(missing.request)


def works_on_plain(group: Group) -> bool:
    """True for groups whose generator reads and writes plain memory only."""
    anchor = group.anchor
    return anchor is not None and (is_product(anchor) or facts_of(anchor).kind == "opaque")


def _all_plain(request: Request) -> bool:
    anchor = request.group.anchor
    assert anchor is not None
    return all(request.layout(v).is_plain for v in (*request.group.inputs, *request.group.outputs))

"""Which family of kernels computes a group; the family decides the rest for itself."""

from __future__ import annotations

from collections.abc import Callable

from .attention import ATTENTION
from .conv import CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS
from .general.channel_norm import build_channel_norm, norms_channels
from .general.channel_shuffle import build_shuffle, shuffles_channels
from .general.generator import build_staged
from .general.loop_operators import build_opaque
from .kernel.missing_rows import MissingRows
from .matmul import PRODUCTS, is_product
from .operators.kind import facts_of
from .words.choice import AlgorithmRefusal, Choice
from .words.family import Family, OneWay
from .words.group import Group, Kernel, Request, Value


def _is_opaque(group: Group) -> bool:
    return group.anchor is not None and facts_of(group.anchor).kind == "opaque"


def _in_blocks(asked: Callable[[Group, dict[Value, int], int], bool]) -> Callable[[Request], bool]:
    """Asks of groups whose outputs lie in channel blocks, with those of all that they read and write."""

    def takes(request: Request) -> bool:
        group = request.group
        blocks = {v: request.layout(v).block for v in (*group.inputs, *group.outputs)}
        lanes = blocks[group.outputs[0]]
        return lanes > 0 and asked(group, blocks, lanes)

    return takes


def _shuffles(group: Group, blocks: dict[Value, int], lanes: int) -> bool:
    return set(blocks.values()) == {lanes} and shuffles_channels(group, blocks, lanes)


FAMILIES: tuple[Family, ...] = (  # the first that takes a group computes it
    CONVOLUTIONS,
    TRANSPOSED_CONVOLUTIONS,
    ATTENTION,
    PRODUCTS,
    OneWay("loops of an operator's own", lambda request: _is_opaque(request.group), build_opaque),
    OneWay("channel shuffle", _in_blocks(_shuffles), build_shuffle),
    OneWay("norm over channels", _in_blocks(norms_channels), build_channel_norm),
    OneWay("loop nests", lambda request: True, build_staged),
)


def family_of(request: Request) -> Family:
    """The family that computes the group in the layouts that ``request`` gives."""
    return next(family for family in FAMILIES if family.takes(request))


def select(request: Request) -> Choice:
    """How :func:`build_kernel` computes the request."""
    request = _computed(request)
    return family_of(request).select(request)


def considered(request: Request) -> list[Choice | AlgorithmRefusal]:
    """What the algorithms of the request's family say of it, where there are several."""
    request = _computed(request)
    return family_of(request).considered(request)


def build_kernel(request: Request) -> Kernel:
    """The kernel of ``request.group`` in the layouts that ``request`` gives, by its choice, if it has one."""
    missing = MissingRows.of(request)
    if missing is not None:
        return missing.with_rows(build_kernel(missing.request))
    return family_of(request).build(request)


def _computed(request: Request) -> Request:
    """What the kernel for the request computes, before rows that do not exist are written."""
    missing = MissingRows.of(request)
    return request if missing is None else _computed(missing.request)


def works_on_plain(group: Group) -> bool:
    """True for groups whose generator reads and writes plain memory only."""
    return _is_opaque(group) or (group.anchor is not None and is_product(group.anchor))

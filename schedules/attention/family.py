"""The family of attention: two products with what lies between them, all of it plain."""

from __future__ import annotations

from ..matmul import is_plain_product, is_product
from ..words.family import OneWay
from ..words.group import Kernel, Request
from .kernel import build_attention
from .recognise import attention_facts


def _takes(request: Request) -> bool:
    return is_plain_product(request) and sum(map(is_product, request.group.nodes)) > 1


def _build(request: Request) -> Kernel:
    facts = attention_facts(request.group)
    assert not isinstance(facts, str), facts
    return build_attention(request, facts)


ATTENTION = OneWay("attention", _takes, _build)

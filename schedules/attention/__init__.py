"""The attention family: two matrix products with row-wise work (scale, mask, softmax) between them, as one kernel."""

from __future__ import annotations

from .facts import AttentionFacts
from .family import ATTENTION
from .recognise import attention_facts

__all__ = ["ATTENTION", "AttentionFacts", "attention_facts"]

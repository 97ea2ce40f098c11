"""The attention family: two matrix products with row-wise work (scale, mask, softmax) between them, as one kernel."""

from __future__ import annotations

from .facts import AttentionFacts
from .kernel import build_attention
from .recognise import attention_facts

__all__ = ["AttentionFacts", "attention_facts", "build_attention"]

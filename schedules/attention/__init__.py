"""The attention family: two matrix products with row-wise work (scale, mask, softmax) between them, as one kernel."""

from __future__ import annotations

from .facts import AttentionFacts, attention_facts
from .kernel import build_attention

__all__ = ["AttentionFacts", "attention_facts", "build_attention"]

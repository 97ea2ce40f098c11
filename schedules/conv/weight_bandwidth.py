"""How fast a core reads a layer's weights: from the last-level cache, where they stay between runs, or from memory; and
which data come from as far."""

from __future__ import annotations

from ...targets.target import Target


def stream_rate(target: Target, weight_bytes: float, again: bool = False, readers: int = 1) -> float:
    """Bytes a cycle at which one core, beside all others, reads weights of ``weight_bytes`` in order. A run finds a
    layer's in the last-level cache if they take less than its share of that, and all layers' together stay; a strip
    finds those of the strip before it, ``again``, in all of it. What ``readers`` cores read at about the same time
    comes from memory once."""
    fitted = target.fitted.memory
    near = min(float(target.l3_bytes), fitted.most_kept) if again else kept_bytes(target)
    if (again or target.weights_stay) and weight_bytes <= max(target.l2_bytes, near):
        return target.far_bytes
    if target.native or not target.bandwidth:  # of this machine it is only assumed
        return min(target.far_bytes, fitted.stream if target.weights_stay else fitted.stream * readers)
    memory = fitted.reached * target.bandwidth / (target.hertz or fitted.clock)
    return min(target.far_bytes, memory / max(1, target.cores))


def kept_bytes(target: Target) -> float:
    """Bytes of one tensor that the last-level cache has for sure when a later kernel reads it."""
    return min(target.fitted.memory.kept * target.l3_bytes, target.fitted.memory.most_kept)


def far_from(target: Target, workers: int) -> float:
    """Bytes of a tensor that caches may have lost, or are too far to wait for."""
    kept = kept_bytes(target)
    return min(kept, target.fitted.winograd.asked * target.l2_bytes * workers) if target.l2_bytes else kept

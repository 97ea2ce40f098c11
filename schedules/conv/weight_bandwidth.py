"""How fast a core reads a layer's weights: from the last-level cache, where they stay between runs, or from memory."""

from __future__ import annotations

from ...targets.target import Target

MEMORY = 5.0  # bytes a cycle that one core reads in order from memory, where the target doesn't say
REACHED = 0.7  # of a memory's bandwidth at best, what programs get
CLOCK = 2e9  # hertz, where the target doesn't say
KEPT = 0.25  # share of the last-level cache that one layer's weights may take to be there in the next run
MOST_KEPT = 32 << 20  # bytes; of a cache of hundreds of megabytes most belongs to other cores


def stream_rate(target: Target, weight_bytes: float, again: bool = False, readers: int = 1) -> float:
    """Bytes a cycle at which one core, beside all others, reads weights of ``weight_bytes`` in order. A run finds a
    layer's in the last-level cache if they take less than its share of that, and all layers' together stay; a strip
    finds those of the strip before it, ``again``, in all of it. What ``readers`` cores read at about the same time
    comes from memory once."""
    near = min(float(target.l3_bytes), MOST_KEPT) if again else kept_bytes(target)
    if (again or target.weights_stay) and weight_bytes <= max(target.l2_bytes, near):
        return target.far_bytes
    if target.native or not target.bandwidth:  # of this machine it is only assumed
        return min(target.far_bytes, MEMORY if target.weights_stay else MEMORY * readers)
    return min(target.far_bytes, REACHED * target.bandwidth / (target.hertz or CLOCK) / max(1, target.cores))


def kept_bytes(target: Target) -> float:
    """Bytes of one tensor that the last-level cache has for sure when a later kernel reads it."""
    return min(KEPT * target.l3_bytes, MOST_KEPT)

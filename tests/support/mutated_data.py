"""Damaged data of JSON: a value of another type, an extreme one, a field more or less, a cut or a wrong byte; the same
for the same seed."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

EXTREMES = (None, True, False, 0, -1, 1, 3, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308, float("nan"), float("inf"), "",
            "x", "..", "../../x", "/etc/passwd", "a\0b", "\ud800", "é" * 300, "-1", "1e9", [], {}, [[]], {"": {}}, [0],
            ["x"], [None], {"x": 1}, "touch ran", "sh -c 'touch ran'", "./evil", "exact", "memory")  # fmt: skip


def mutated(data: Any, seed: int) -> str:
    """``data`` as JSON text with one to three fields changed, or (one in eight) with the text itself damaged."""
    rng = random.Random(seed)
    changed = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change(changed, rng)
    text = json.dumps(changed)
    if rng.random() < 0.875:
        return text
    at = rng.randrange(len(text))
    kinds = (text[:at], text[:at] + rng.choice("{}[]\",:0é\0") + text[at + 1 :], "[" * 100_000 + text, text + text)
    return rng.choice(kinds)


def _change(data: Any, rng: random.Random) -> None:
    """Goes down to a random place, the upper ones no rarer than the many below, and changes what is there."""
    while True:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        if not keys:
            return
        key = rng.choice(keys)
        inner = data[key]
        if isinstance(inner, (dict, list)) and inner and rng.random() < 0.7:
            data = inner
            continue
        break
    kind = rng.random()
    if kind < 0.15:
        del data[key]
    elif kind < 0.3 and isinstance(data, dict):
        data[rng.choice(("x", "", "cc", "warp", "../x", "\0"))] = data.pop(key) if rng.random() < 0.5 else inner
    elif kind < 0.4 and isinstance(inner, int) and not isinstance(inner, bool):
        data[key] = inner * rng.choice((2, -1, 1000, 2**40)) + rng.choice((0, 1))
    else:
        data[key] = copy.deepcopy(rng.choice(EXTREMES))

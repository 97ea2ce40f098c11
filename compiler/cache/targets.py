"""What a target's text means, without TVM: LLVM's word on it is kept, which takes seconds to load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...errors import TargetError
from ...targets.detect import fingerprint, runs_here
from ...targets.levels import level_names
from ...targets.resolve import resolve
from ...targets.target import Target
from ...targets.typed import typed
from .keys import key_of
from .origin import origin
from .store import Cache


def resolved_levels(levels: Any, target: str, cache: Cache | None) -> tuple[Target, ...]:
    """The targets of ``levels`` (text such as ``v2,v3``, or a sequence) for machines like ``target``, from the least
    on; raises TargetError."""
    text = levels if isinstance(levels, str) else ",".join(map(str, levels)) if is_list(levels) else None
    if text is None or not isinstance(target, str):
        raise TargetError(f"levels={levels!r}: give names such as ['v2', 'v3'], and a triple for the target")
    return tuple(resolved(name, cache)[0] for name in level_names(text, target))


def is_list(levels: object) -> bool:
    """Whether these are several names."""
    return isinstance(levels, Sequence) and all(isinstance(level, str) for level in levels)


def resolved(target: str | Target, cache: Cache | None) -> tuple[Target, bool]:
    """The target that is named, and whether this machine runs its code; TargetError as of :func:`resolve`."""
    if cache is None or not cache.libraries or not isinstance(target, (str, Target)):
        found = resolve(target)
        return found, runs_here(found)
    named = target if isinstance(target, str) else json.dumps(asdict(target), sort_keys=True)
    key = key_of("target", origin(), fingerprint(), named)

    def make() -> bytes:
        found = resolve(target)
        return json.dumps({"target": asdict(found), "here": runs_here(found)}).encode()

    data = json.loads(cache.entry(key, make))
    return typed(data["target"], Target, "the cache", TargetError), bool(data["here"])

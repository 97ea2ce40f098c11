"""What a target's text means, without TVM: LLVM's word on it is kept, which takes seconds to load."""

from __future__ import annotations

import json
from dataclasses import asdict

from ...errors import TargetError
from ...targets.detect import fingerprint, runs_here
from ...targets.resolve import resolve
from ...targets.target import Target
from ...targets.typed import typed
from .keys import key_of
from .origin import origin
from .store import Cache


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

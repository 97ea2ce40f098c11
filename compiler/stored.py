"""How many bytes the weights of a build take where few were asked for, beside those of float32 in the same forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..schedules.words.group import Packed, dtype_bytes

if TYPE_CHECKING:
    from ..targets.plain import Json
    from .state import Build


def stored_weights(build: Build) -> Json:
    """What the report has of a build whose weights are to take few bytes: how many arrays do (tables of rows aside),
    all bytes of weights, what they would be in float32, and how far a weight is off at most, as a part of its
    channel's largest (int8)."""
    kind, weights = build.options.weights, build.weights
    packed = {weights.offsets[o]: o for o in weights.offsets if isinstance(o, Packed)}.values()
    small = [o for o in packed if o.reads_as]
    details = build.details.get("numbers", {})
    saved = sum(o.elements * (dtype_bytes(o.reads_as) - dtype_bytes(o.dtype)) for o in small)
    found = {
        "as": kind,
        "arrays": len(small),
        "of": sum(o.reads_as != "" or o.dtype.startswith("float") for o in packed),
        "bytes": weights.bytes,
        "bytes_in_float32": weights.bytes + saved + details.get("saved_bytes", 0),
    }
    return {**found, **({"largest_rounding": details.get("largest_rounding", 0.0)} if kind == "int8" else {})}


def told(found: Json) -> str:
    """The same in words."""
    if not found["arrays"]:
        return f"no packed array of weights is stored as {found['as']}: {found['bytes']} bytes, as in float32"
    text = (
        f"{found['arrays']} of {found['of']} packed arrays of weights are stored as {found['as']}: "
        f"{found['bytes']} bytes of weights in place of {found['bytes_in_float32']}"
    )
    if "largest_rounding" not in found:
        return text
    return f"{text}; a weight is off by at most {found['largest_rounding']:.1e} of its channel's largest"

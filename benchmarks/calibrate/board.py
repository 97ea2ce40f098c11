"""A target as a board file, which ``-t ./my-machine.toml`` takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING

from ...errors import several
from ...targets.target import Target
from ...targets.typed import UNTOLD
from .calibration import Calibration

if TYPE_CHECKING:
    from ...targets.plain import JsonView

_OWN = ("id", "fitted", *UNTOLD)  # the file's name, tables of their own, and what no file states
_MEASURED = "measured by halotile calibrate"


def board_text(found: Calibration) -> str:
    """The file, with the errors of predictions as comments."""
    lines = ["# Written by `halotile calibrate`: facts and constants of one machine, measured on it.", "#"]
    lines += [f"# Predictions of kernels that it was not fitted on are off by (fitted on {found.fitted_on}):"]
    lines += [
        f"#   {e.family}: {e.median:.0%}, at worst {e.worst:.0%} ({several(e.kernels, 'kernel')})" for e in found.errors
    ]
    lines += ["", f"description = {_value(f'{found.target.id}, calibrated')}", "", "[target]"]
    lines += [f"{name} = {_value(value)}" for name, value in told(found.target).items()]
    for group, constants in found.target.fitted.changed().items():
        lines += ["", f"[target.fitted.{group}]", *(f"{name} = {_value(value)}" for name, value in constants.items())]
    sources = {"chip": found.target.source, "core": _MEASURED, "memory": _MEASURED, "glibc": found.target.source}
    lines += ["", "[sources]", *(f"{name} = {_value(text)}" for name, text in sources.items())]
    return "\n".join(lines) + "\n"


def told(target: Target) -> JsonView:
    """The facts that a file has to state: those that are not as they would be without it."""
    found = {}
    for field in fields(target):
        value = getattr(target, field.name)
        if field.name not in _OWN and (field.default is MISSING or value != field.default):
            found[field.name] = value
    return found


def _value(value: object) -> str:
    """As TOML writes it; a basic string is one of JSON's."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return f"[{', '.join(map(_value, value))}]" if isinstance(value, Sequence) else repr(value)

"""The catalogue: every rewrite of the list on a minimal model, and every trap on which a careless rule would fire."""

from __future__ import annotations

from . import algebra, folds, logic, movement, recognition, shapes, strength, traps
from .base import Emit, Entry

FAMILIES = {
    "logic": logic.ENTRIES,
    "algebra": algebra.ENTRIES,
    "folds": folds.ENTRIES,
    "shapes and slices": shapes.ENTRIES,
    "data movement": movement.ENTRIES,
    "recognition": recognition.ENTRIES,
    "strength": strength.ENTRIES,
}
CATALOGUE = [entry for entries in FAMILIES.values() for entry in entries]
TRAPS = traps.ENTRIES

__all__ = ["CATALOGUE", "FAMILIES", "TRAPS", "Emit", "Entry"]

"""The list of all rules, top to bottom in the order in which they are tried at a node."""

from __future__ import annotations

from . import fold_affine, identity
from .constant_fold import FoldConstants
from .rule import Rule


def all_rules(float_mode: str = "strict") -> list[Rule]:
    return [
        FoldConstants(float_mode),
        identity.NoOperation(),
        identity.ReshapeChain(),
        identity.PermuteChain(),
        identity.PermuteAsReshape(),
        identity.CastChain(),
        identity.NeutralElement(),
        identity.AddZero(),
        fold_affine.FoldAffineIntoWeights(),
        fold_affine.FoldInputAffine(),
        fold_affine.MergeAffine(),
    ]


def rules_for(float_mode: str) -> list[Rule]:
    """The rules that keep the promise of ``float_mode``."""
    return [r for r in all_rules(float_mode) if float_mode in r.modes]

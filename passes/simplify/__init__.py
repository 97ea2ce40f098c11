"""Relax -> Relax: exact algebra, to a fixed point. What is exact is the caller's choice (``float_mode``).

    simplify.py       the pass              convert.py    Relax <-> graph      rules.py     the list of rules
    driver.py         sweeps to a fixpoint  graph.py      nodes and users      rule.py      what a rule is
    measure.py        why it ends           common.py     shared values        check.py     every rewrite on numbers
    interpret.py, evaluate.py               values of graphs and of operators on constants
    affine.py, anchors.py, scale_paths.py, facts.py, zero_sign.py, patterns.py    what rules ask of nodes

and a file of rules for each family: identity, logic, slices, broadcasts, sinks, transposes, space, activations, gates,
clips, norms, softmax, einsum, constant_fold, fold_affine, padding, scales, strength.
"""

from __future__ import annotations

from .simplify import Simplify

__all__ = ["Simplify"]

"""How large a sum of some of a product's terms can become, whatever their order, where inputs are like the samples.

    |sum of any terms| <= max |x| * max over outputs of the sum of |w|

Kernels add terms up in an order of their own, in runs, and their sums too (schedules/kernel/half_sums.py): what
leaves its range on the way is infinite, though the result may be small. 4096 and its like, of both signs, do so in 17
terms. Seven products of halves (schedules/conv/strassen_steps.py) make sums of up to nine times as much.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..simplify.graph import GraphNode

SEVEN = 9.0  # times the sums of eight products
READ = " reads"  # behind a node's name: the largest magnitude of what it multiplies by weights

_OUTPUTS = {"relax.matmul": -1, "halotile.conv_transpose": 1}  # axes of the weights that count outputs; of others 0


def most_of_sums(node: GraphNode, largest: Mapping[str, float]) -> float:
    """The bound for the product ``node`` by constants. ``largest``: magnitudes by the nodes of the model."""
    seen = [largest.get(name + READ, largest[name]) for name in node.sources if name in largest]
    weights = np.abs(np.asarray(node.inputs[1].array, np.float64))
    axis = _OUTPUTS.get(node.op, 0) % weights.ndim
    sums = weights.sum(axis=tuple(i for i in range(weights.ndim) if i != axis))
    return max(seen, default=0.0) * float(sums.max(initial=0.0))

"""Whether anyone can tell -0.0 from 0.0 in a value."""

from __future__ import annotations

from .graph import GraphNode

#: Operators whose result jumps between the two zeros: 1 / 0.0 is inf, 1 / -0.0 is -inf.
_TELLS = frozenset(
    f"relax.{n}"
    for n in "divide power atan2 rsqrt bitwise_and bitwise_or bitwise_xor bitwise_not floor_divide mod".split()
)
#: Operators that give equal numbers for both zeros and never a zero whose sign depends on it.
_FORGETS = frozenset(
    f"relax.{n}"
    for n in (
        "exp cos cosh abs square sigmoid equal not_equal less less_equal greater greater_equal isnan isinf isfinite"
        " matmul nn.conv1d nn.conv2d nn.conv3d nn.conv2d_transpose nn.softmax nn.log_softmax nn.layer_norm nn.rms_norm"
        " nn.softplus log argmax argmin"
    ).split()
)


def zero_sign_matters(node: GraphNode, limit: int = 64) -> bool:
    """Follows ``node``'s readers through operators that keep a zero's sign, up to ``limit`` of them."""
    seen: set[GraphNode] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        for user in current.users:
            if user.op in _TELLS or user.op.startswith("halotile."):
                return True
            if user.op in _FORGETS or user in seen:
                continue
            seen.add(user)
            if len(seen) > limit:
                return True
            stack.append(user)
    return False

"""Padding: the box moves by what is put before, and what lies outside is fill.

    pad 1, output rows 0..18 of 50  ->  input rows -1..17, of which row -1 is fill

Pads in "edge", "reflect" and "wrap" modes that became tables of positions are in slices.py.
"""

from __future__ import annotations

import math

from ...words.group import Node
from .attributes import ints, own
from .box import Box, BoxRefusal, Fill, Needs, Span, need

_MODES: dict[str, Fill] = {
    "reflect": "reflect", "replicate": "edge", "circular": "wrap", "edge": "edge", "wrap": "wrap",
}  # fmt: skip


def _moved(box: Box, before: list[int]) -> list[Span]:
    return [(lo - b, hi - b) for (lo, hi), b in zip(box, before)]


def constant_fill(number: float) -> tuple[Fill, float]:
    if number == 0 and math.copysign(1.0, number) > 0:
        return "zero", 0.0
    return ("-inf", 0.0) if number == -math.inf else ("value", float(number))


def pad(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    attrs = node.call.attrs
    fill, number = constant_fill(float(attrs.pad_value))
    mode = str(attrs.pad_mode)
    if mode != "constant":
        if mode not in _MODES:
            return BoxRefusal(f"padding mode {mode}")
        fill, number = _MODES[mode], 0.0
    return (need(node.inputs[0], _moved(box, ints(attrs.pad_width)[::2]), fill, number),)


def own_pad(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    data, number = node.operands
    if number.constant is None:
        return BoxRefusal("the number it pads with is computed at run time")
    fill, value = constant_fill(float(number.constant.reshape(-1)[0]))
    return need(data, _moved(box, own(node)["begin"]), fill, value), need(number, [(0, n) for n in number.shape])


def own_mirror(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    attrs = own(node)
    return (need(node.inputs[0], _moved(box, attrs["begin"]), _MODES[attrs["mode"]]),)


RULES = {"relax.nn.pad": pad, "halotile.pad": own_pad, "halotile.mirror": own_mirror}

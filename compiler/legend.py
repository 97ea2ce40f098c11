"""What the short words of kernels' schedules and of tile groups' plans mean, for those that stand in a text."""

from __future__ import annotations

import re

LEGEND = (
    (r"\bC\d+", "C16: channels lie in blocks of 16"),
    (r"\bC\d+, tile \d", "tile 2x3x2: registers hold 2 rows by 3 columns of the output, 2 vectors of channels each"),
    (r"matmul.*\btile \d", "tile 4x2x16 of matmul: registers hold 4 rows by 2 vectors of 16 columns of the product"),
    (r"\bF\(", "F(4x4,3x3): Winograd, 4 x 4 outputs of a 3 x 3 convolution at once; /2 is its stride"),
    (r"winograd.*\bstrip \d+", "strip 8: Winograd's tiles that are transformed and multiplied together"),
    (r"winograd.*\btile \d", "tile 8x2 of winograd: registers hold 8 of its tiles by 2 vectors of output channels"),
    (r"channel groups\b", "channel groups: parts of the output channels, each of which transforms tiles anew"),
    (r"seven products of halves", "seven products of halves: Strassen's algorithm, seven products in place of eight"),
    (r"\bpacked\b", "packed: a matrix lies in panels, as it is read; packed first: each run brings it so"),
    (r"matrix conv.*\bstrip \d+x", "strip 8x16: rows by columns of the output that are computed as one"),
    (r"\d products\b", "3 products: float32 as sums of bfloat16 parts, so many of which are multiplied"),
    (r", bfloat16\b", "bfloat16: numbers rounded to eight bits are multiplied, and added up in float32"),
    (r"\bmap\b", "map: one loop nest over the elements of the result"),
    (r"\bstaged\b", "staged: loop nests one after the other, called phases"),
    (r"\bprefix \d+", "prefix 2: phases share the 2 outer loops; 0: each is finished before the next"),
    (r"\blanes \d+", "lanes 8: vectors of 8 channels, which lie side by side"),
    (r"^loop over", "loop over: the kernels of a body, called once a round"),
    (r"^branch over", "branch over: the kernels of two bodies, of which a condition takes one"),
    (r"\bplain\b", "plain: in the order of the ONNX tensor"),
    (r"\bin streams\b", "in streams: weights are read once, from beginning to end"),
    (r"^tiled,", "tiled: a chain of layers, its members, computed tile by tile"),
    (r"\d parts?,", "parts: pieces of the members' code, called box by box"),
    (r"\d tasks?\b", "task: a band of rows by a block of columns, which waits for no other task"),
    (r"\d stripes?\b", "stripe: the rows that a task computes, of each member its own, before it goes on below"),
    (r"\bwork x \d", "work x 1.007: multiply-adds, over those without tiles; above 1 where halos are computed again"),
    (r"\b[1-9]\d* fills?\b", "fill: places outside of a tensor become the number that its reader expects there"),
    (r"\b[1-9]\d* shifts?\b", "shift: the rows that a ring keeps move to its start"),
    (r"\d of \d+ x \d+", "6 of 8 x 55: so many boxes of 8 rows by 55 columns"),
    (r"\] ring\b|[1-9]\d* rings?\b", "ring: rows stay in scratch from stripe to stripe, and are computed once"),
    (r"\] recompute\b", "recompute: each stripe computes its halo again"),
    (r"\] whole\b", "whole: all of it lies in the arena"),
    (r", window \d", "window 8 x 55 at byte 0: the part of a tensor that scratch holds, and where in it"),
)


def legend(text: str) -> list[str]:
    """A line for each short word in a text, which has a line for each schedule."""
    return [meaning for pattern, meaning in LEGEND if re.search(pattern, text, re.M)]

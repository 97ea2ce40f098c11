"""SizeLike: what a size, a position or a count of elements is called in signatures.

A number where the shape is fixed, a Dim where it is open, and within a kernel an expression of TVM. Code that treats
all three alike says SizeLike. What arithmetic between them gives depends on the values (a Dim minus itself is a number,
a Dim times an expression is an expression), and TVM's part carries no types; so that a checker takes a SizeLike for
anything. Where only numbers may stand, a signature says int, and where only numbers and Dims do, Size (dims.py).
"""

from __future__ import annotations

from typing import Any

SizeLike = Any

"""A function of a byte as the 256 bytes that it may be."""

from __future__ import annotations

from tvm import te

from ..instructions.byte_tables import looked_up
from ..words.tvm_types import Expr
from .common import shape_of
from .open_shapes import same
from .registry import define
from .wrapping_elements import WITHIN

TABLE = "halotile.byte_table"


@define(TABLE, shapes=same)
def byte_table(x: te.Tensor, *, words: list[int], dtype: str) -> te.Tensor:
    """The byte of the table for every byte of x, as if that were unsigned. ``words``: the table
    (:func:`..instructions.byte_tables.table_words`)."""

    def apply(v: Expr) -> Expr:
        return looked_up(v.astype("int32"), words).astype(dtype)

    return te.compute(shape_of(x), lambda *i: apply(x(*i)), name="byte_table", attrs={WITHIN: True})

"""Converters, one file per family. Importing this package fills the registry; the list below is the whole of it."""

from __future__ import annotations

from . import (  # noqa: F401
    activation,
    attention,
    axes,
    conv,
    diagonals,
    einsum,
    elementwise,
    fused,
    indexing,
    matmul,
    movement,
    normalization,
    older,
    pooling,
    qlinear,
    quantised_lstm,
    quantize,
    recurrent,
    reduction,
    resize,
    scatter,
    signal,
    tabular,
    tensor,
    trees,
    unique,
    vision,
)

"""TE expressions of Halotile's own operators, and of Relax operators whose own expression is wrong; one file a family.

Importing this package registers them all; the list below is the whole of it.
"""

from __future__ import annotations

from . import (  # noqa: F401
    activation,
    columns,
    contraction,
    control,
    conv,
    copy,
    dots,
    elementwise,
    indexing,
    linear,
    movement,
    of_sizes,
    overrides,
    pool,
    recurrent,
    resize,
    resize_ratio,
    roi_align,
    sampling,
    scan,
    scatter,
    select,
    trees,
    views,
)

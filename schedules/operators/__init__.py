"""TE expressions of Halotile's own operators, and of Relax operators whose own expression is wrong; one file a family.

Importing this package registers them all; the list below is the whole of it.
"""

from __future__ import annotations

from . import conv, elementwise, indexing, linear, movement, overrides, pool, resize  # noqa: F401
from . import contraction  # noqa: F401

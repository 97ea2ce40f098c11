"""The matrix unit of this machine, or, where it has none, what does its instructions' work when they trap.

    with unit() as target:          skips, loudly, where there are no 512-bit vectors either
        halotile.compile(model, precision="bfloat16")        for target, which "native" is within the block

Sums are the unit's to the last bit (unit_sums.py is the same in NumPy), times are not.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

import pytest
from board_tools import needs
from compiled import machine
from halotile.compiler.codegen import processor
from halotile.schedules.instructions.amx import has_matrix_unit
from halotile.targets import detect
from halotile.targets.target import Target

SOURCE = Path(__file__).parent / "matrix_unit.c"
UNIT = ("amx-tile", "amx-bf16", "amx-int8")
VECTORS = {"avx512f", "fma"}


@contextmanager
def unit() -> Iterator[Target]:
    """This machine with a matrix unit, whose libraries run within the block."""
    here = machine()
    if has_matrix_unit(here):
        yield here
        return
    if not here.triple.startswith("x86_64-") or here.system != "linux" or here.vector_bits != 512:
        pytest.skip("NOT RUN: this machine has neither a matrix unit nor the vectors to emulate one")
    needs("cc")
    library = _emulator()
    asked = {name: place for name, place in processor.X86.items() if name not in UNIT}
    left = [f for f in here.features if f[1:] not in UNIT]
    assert library.matrix_unit_begin() == 0
    try:
        made = replace(here, features=(*left, *(f"+{f}" for f in UNIT)))
        # no library asks for what isn't there
        with patch.object(processor, "X86", asked), patch.object(detect, "native", lambda: made):
            yield made
    finally:
        assert library.matrix_unit_end() == 0


def emulated_products() -> int:
    """How many registers were multiplied so far by the emulator."""
    return int(_emulator().matrix_unit_multiplied())


@cache
def _emulator() -> ctypes.CDLL:
    path = Path(mkdtemp(prefix="halotile-unit-"), "unit.so")
    flags = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-mavx512f", "-mfma", "-shared", "-fPIC")
    subprocess.run(["cc", *flags, str(SOURCE), "-o", str(path)], check=True)
    found = ctypes.CDLL(str(path))
    found.matrix_unit_multiplied.restype = ctypes.c_ulonglong
    return found

"""Products of bytes by the target's instruction, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from halotile.schedules.instructions.int8_dot import data_dtype, words
from halotile.targets.resolve import resolve


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        ("x86_64-linux-gnu+icelake-server", "uint8"),
        ("x86_64-linux-gnu+alderlake", "uint8"),  # AVX-VNNI
        ("x86_64-linux-gnu+znver4", "uint8"),
        ("x86-64-v3", "int16"),
        ("x86_64-linux-gnu+x86-64-v2", "int16"),
        ("x86_64-linux-gnu+sandybridge", None),  # 256 bits of floats only
        ("x86-64-v4", None),  # its list ends before VNNI, and pairs win nothing in its vectors
        ("raspberry-pi-5", "int8"),
        ("graviton2", "int8"),
        ("raspberry-pi-4", None),
        ("raspberry-pi-3-32", None),
    ],
)
def test_data_is_what_the_instruction_takes(target: str, dtype: str | None) -> None:
    assert data_dtype(resolve(target)) == dtype


def test_words_hold_four_bytes_in_order() -> None:
    weights = np.array([[1, -2, 3, -4, 5, -128]], np.int8)
    found = words(weights, "uint8")
    assert found.dtype == np.int32 and found.shape == (1, 2)
    assert found.tobytes() == np.array([1, -2, 3, -4, 5, -128, 0, 0], np.int8).tobytes()


def test_words_hold_pairs_in_order() -> None:
    found = words(np.array([[1, -2, 3, -4, -128]], np.int8), "int16")
    assert found.dtype == np.int32 and found.shape == (1, 3)
    assert found.tobytes() == np.array([1, -2, 3, -4, -128, 0], np.int16).tobytes()

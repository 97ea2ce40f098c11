"""Runs of libraries with open dimensions in memory of the caller's, poisoned and guarded."""

from __future__ import annotations

import ctypes

import numpy as np
import onnxruntime
from halotile.compiler.runtime.loader import LoadedModel

GUARD = 4096


def run_in(model: LoadedModel, sizes: dict[str, int], x: np.ndarray, threads: int, poison: int) -> np.ndarray:
    """The one output of a run in memory that is exact for the sizes, between guards that must stay, and full of
    ``poison`` before each of two runs."""
    binding, calls = model._binding, model._binding.open
    assert calls is not None
    size = model.arena_bytes(threads, sizes)
    memory = np.full(size + 2 * GUARD + 64, 0xA5, np.uint8)
    start = GUARD + -(memory.ctypes.data + GUARD) % 64
    shape = calls.shape(tuple(sizes.values()))
    at = ctypes.addressof(shape)
    if size:
        assert calls.create_in(threads, at, memory.ctypes.data + start, size - 1)[0] == 4
    code, instance = calls.create_in(threads, at, memory.ctypes.data + start, size)
    assert code == 0
    y = np.full(next(iter(model.output_shapes(sizes).values())), np.nan, np.float32)
    inputs, outputs = (ctypes.c_void_p * 1)(x.ctypes.data), (ctypes.c_void_p * 1)(y.ctypes.data)
    for _ in range(2):
        memory[start : start + size] = poison
        assert calls.run(instance, at, ctypes.addressof(inputs), ctypes.addressof(outputs)) == 0
    binding.destroy(instance)
    assert (memory[:start] == 0xA5).all() and (memory[start + size :] == 0xA5).all()
    return y


def checked(
    model: LoadedModel, session: onnxruntime.InferenceSession, given: dict[str, np.ndarray], close: float, about: object
) -> None:
    """The one output is ``session``'s but for ``close`` of the largest number, and has the same bits on one and
    two threads; of a single input of open size also where memory is full of NaN and as large as it has to be."""
    (wanted,) = session.run(None, given)
    one, two = (next(iter(model(given, threads=threads).values())) for threads in (1, 2))
    assert np.abs(one - wanted).max() <= close * np.abs(wanted).max(), about
    assert np.array_equal(one, two), about
    if len(given) == 1 and model.symbols:
        (x,) = given.values()
        shape = dict(zip(model.inputs[0].shape, x.shape, strict=True))
        sizes = {symbol.name: shape[symbol.name] for symbol in model.symbols}
        for threads in (1, 2):
            assert np.array_equal(run_in(model, sizes, x, threads, 0xFF), one), (about, threads)

"""Sample inputs for calibration: an .npz or .npy file, a folder of them, or arrays.

    read_samples(calibrate, inputs) -> one dict of arrays by input name for each sample
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import HalotileError
from ..spec import TensorSpec

if TYPE_CHECKING:
    from ...targets.plain import JsonView

Arrays = dict[str, np.ndarray]
MOST = 4096  # samples: more tell no more of the ranges


def read_samples(calibrate: object, inputs: Sequence[TensorSpec]) -> list[Arrays]:
    """The samples in ``calibrate``: the path of an .npz (arrays by input name), of an .npy for a model with one input,
    or of a folder of such files; a dict of arrays; or several dicts.

    An array has the input's own shape, or one axis more in front that counts samples. Raises HalotileError that names
    the file and the input.
    """
    found: list[Arrays] = []
    for where, arrays in _sources(calibrate, inputs):
        found += _split(where, arrays, inputs)
        if len(found) > MOST:
            raise HalotileError(f"calibrate: more than {MOST} samples; a few hundred tell as much")
    if not found:
        raise HalotileError(f"calibrate={str(calibrate)!r} holds no sample")
    return found


def _sources(calibrate: object, inputs: Sequence[TensorSpec]) -> Iterable[tuple[str, Mapping[str, np.ndarray]]]:
    if isinstance(calibrate, Mapping):
        yield "calibrate", calibrate
    elif isinstance(calibrate, (str, os.PathLike)):
        path = Path(calibrate)
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix in (".npz", ".npy"))
            if not files:
                raise HalotileError(f"calibrate: the folder {path} holds no .npz and no .npy file")
        else:
            files = [path]
        for file in files:
            yield str(file), _read(file, inputs)
    elif isinstance(calibrate, Iterable) and not isinstance(calibrate, (bytes, np.ndarray)):
        for i, sample in enumerate(calibrate):
            if not isinstance(sample, Mapping):
                raise HalotileError(f"calibrate[{i}] is no dict of input names and arrays, but {type(sample).__name__}")
            yield f"calibrate[{i}]", sample
    else:
        raise HalotileError("calibrate: give an .npz or .npy file, a folder of them, or dicts of arrays by input name")


def _read(file: Path, inputs: Sequence[TensorSpec]) -> JsonView:
    try:
        if file.suffix == ".npy":
            if len(inputs) != 1:
                names = ", ".join(t.name for t in inputs)
                raise HalotileError(f"calibrate: {file} is one array, the model has the inputs {names}: give an .npz")
            return {inputs[0].name: np.load(file, allow_pickle=False)}
        with np.load(file, allow_pickle=False) as held:
            if isinstance(held, np.ndarray):
                raise HalotileError(f"calibrate: {file} holds one array without a name")
            return {name: held[name] for name in held.files}
    except (OSError, ValueError, EOFError, KeyError) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
        raise HalotileError(f"calibrate: {file} can't be read as arrays: {reason}") from None


def _split(where: str, arrays: Mapping[str, object], inputs: Sequence[TensorSpec]) -> list[Arrays]:
    """One sample, or as many as the first axis counts."""
    known = {t.name: t for t in inputs}
    unknown = sorted(set(map(str, arrays)) - known.keys())
    if unknown:
        raise HalotileError(f"{where}: the model has no input {unknown[0]!r}; its inputs are {', '.join(known)}")
    missing = [name for name in known if name not in arrays]
    if missing:
        raise HalotileError(f"{where}: there is no array for input {missing[0]!r}")
    given = {name: np.asarray(arrays[name]) for name in known}
    more = {name: array.ndim - len(known[name].shape) for name, array in given.items()}
    counts = {given[name].shape[0] for name, axes in more.items() if axes == 1}
    if any(axes not in (0, 1) for axes in more.values()) or (counts and 0 in more.values()) or len(counts) > 1:
        name = next(iter(given))
        shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in given.items())
        raise HalotileError(
            f"{where}: arrays are {shapes}; each has the input's own axes ({name}: {len(known[name].shape)}), or all "
            "have one more in front that counts samples"
        )
    if not counts:
        return [{name: _fitting(where, array, known[name]) for name, array in given.items()}]
    return [
        {name: _fitting(where, array[i], known[name]) for name, array in given.items()} for i in range(counts.pop())
    ]


def _fitting(where: str, array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """The array in the input's type; HalotileError where its shape or type is another."""
    wanted = np.dtype(spec.dtype)
    if array.dtype != wanted and not np.can_cast(array.dtype, wanted, "same_kind"):
        raise HalotileError(f"{where}: input {spec.name!r} is {spec.dtype}, the array {array.dtype}")
    if any(isinstance(d, int) and d != have for d, have in zip(spec.shape, array.shape)):
        shape = ", ".join(map(str, spec.shape))
        raise HalotileError(f"{where}: input {spec.name!r} is [{shape}], the array {list(array.shape)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise HalotileError(f"{where}: the array for input {spec.name!r} holds NaN or infinity, which give no range")
    return np.ascontiguousarray(array, wanted)

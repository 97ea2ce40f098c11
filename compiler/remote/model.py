"""A built model that runs elsewhere: the same call as a loaded library, by way of its program ``model_run``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import OutputError, RemoteError, RunError
from ..runtime.loader import numpy_dtype
from ..runtime.place import read_manifest
from ..runtime.private import PrivateFolder
from ..runtime.readings import sizes_of
from ..spec import TensorSpec
from .failure import explain
from .place import open_place

if TYPE_CHECKING:
    from ...targets.plain import Json

PROGRAM = "model_run"


class RemoteModel:
    """The program of a built folder in a place; a context manager. ``details`` is what the last run told.

    Arrays travel as bare bytes, so that every dtype goes the same way.
    """

    def __init__(self, folder: Path, on: str) -> None:
        recorded = read_manifest(folder)
        if recorded is None:
            raise OutputError(f"{folder} holds no Halotile build")
        program = folder / (recorded.executable or "")
        if not recorded.executable or not program.is_file():
            raise OutputError(f"{folder} has no {PROGRAM}, which --on runs; build it with --format so,a,exe")
        recorded.check(program)
        self.recorded = recorded
        self.name = recorded.name
        self.inputs = tuple(t.spec() for t in recorded.inputs)
        self.outputs = tuple(t.spec() for t in recorded.outputs)
        self.symbols = tuple(s.symbol() for s in recorded.symbols)
        self.details: Json = {}
        self._place = open_place(on)
        try:
            self._place.put(program, PROGRAM)
        except BaseException:
            self._place.close()
            raise

    @property
    def place(self) -> str:
        return self._place.name

    def describe(self, sizes: Mapping[str, int] | None = None) -> Json:
        """What the program says of itself, where its runs choose sizes at these or at the typical ones."""
        return self._run(["--describe", *_sizes(sizes or {})])

    def input_shapes(self, shape: Mapping[str, int] | None = None, **sizes: int) -> dict[str, tuple[int, ...]]:
        """The inputs' shapes by name, where open dimensions have the sizes that are given by name (in ``shape`` where
        the name is no identifier), or their typical ones."""
        if not self.symbols:
            return {spec.name: spec.shape for spec in self.inputs}
        told = self.describe({**(shape or {}), **sizes})
        return {tensor["name"]: tuple(tensor["shape"]) for tensor in told["inputs"]}

    def __call__(
        self, inputs: Mapping[str, object], threads: int | None = None, runs: int = 1
    ) -> dict[str, np.ndarray]:
        """Outputs by name for inputs by name; with ``runs`` above one it is timed as well."""
        arrays = {spec.name: _checked(spec, inputs.get(spec.name)) for spec in self.inputs}
        shapes = {name: array.shape for name, array in arrays.items()}
        words = _sizes(sizes_of(self.symbols, self.inputs, shapes))
        with PrivateFolder() as scratch:
            for i, spec in enumerate(self.inputs):
                file = Path(scratch) / f"in{i}.bin"
                file.write_bytes(arrays[spec.name].tobytes())
                self._place.put(file, file.name)
                words += ["-i", f"{spec.name}={file.name}"]
            for i, spec in enumerate(self.outputs):
                words += ["-o", f"{spec.name}=out{i}.bin"]
            if runs > 1:
                words += ["--bench", "--warmup", "0", "--runs", str(runs)]
            self.details = self._run([*words, *_threads(threads)])
            told = self.details["outputs"]
            made = [replace(spec, shape=tuple(its["shape"])) for spec, its in zip(self.outputs, told)]
            return {spec.name: self._fetch(Path(scratch), i, spec) for i, spec in enumerate(made)}

    def bench(
        self, threads: int | None, warmup: int, runs: int, affinity: str | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> Json:  # fmt: skip
        """Times of many runs on random inputs, as the program gives them; where runs choose ``sizes``, at these or at
        the typical ones."""
        words = ["--bench", "--warmup", str(warmup), "--runs", str(runs), *_threads(threads), *_sizes(sizes or {})]
        return self._run([*words, *(["--affinity", affinity] if affinity else [])])

    def _run(self, words: list[str]) -> Json:
        done = self._place.run([f"./{PROGRAM}", *words, "--json"])
        if done.code != 0:
            raise explain(done, self._place, self.recorded)
        try:
            return dict(json.loads(done.out))
        except ValueError:
            raise RemoteError(f"on {self.place}: {PROGRAM} did not answer in JSON; is the build whole?") from None

    def _fetch(self, scratch: Path, index: int, spec: TensorSpec) -> np.ndarray:
        file = scratch / f"out{index}.bin"
        self._place.get(file.name, file)
        data = file.read_bytes()
        if len(data) != spec.nbytes:
            raise RemoteError(f"output {spec.name!r} came back with {len(data)} bytes instead of {spec.nbytes}")
        return np.frombuffer(data, numpy_dtype(spec.dtype)).reshape(spec.shape)

    def close(self) -> None:
        self._place.close()

    def __enter__(self) -> RemoteModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _threads(threads: int | None) -> list[str]:
    return ["--threads", str(threads)] if threads else []


def _sizes(sizes: Mapping[str, int]) -> list[str]:
    return [word for name, size in sizes.items() for word in ("--size", f"{name}={size}")]


def _checked(spec: TensorSpec, value: object) -> np.ndarray:
    if value is None:
        raise RunError(f"input {spec.name!r} is missing")
    array = np.asarray(value)
    fits = len(array.shape) == len(spec.shape) and all(
        isinstance(dim, str) or dim == size for dim, size in zip(spec.shape, array.shape)
    )
    if array.dtype != numpy_dtype(spec.dtype) or not fits:
        raise RunError(f"input {spec.name!r} is {array.dtype}{list(array.shape)}, expected {spec}")
    return np.ascontiguousarray(array)

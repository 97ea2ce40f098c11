"""A compiled model: run it, read its report, save its library, compare it with ONNX Runtime."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..errors import RunError
from ..targets.target import Target
from .options import Fixed
from .runtime.loader import LoadedModel, opened
from .runtime.place import folder_of, staged
from .runtime.private import PrivateFolder
from .runtime.recorded import Recorded
from .spec import TensorSpec
from .verify import ATOL, Verification, default_rtol, verify


class Model:
    """What :func:`halotile.compile` returns. The library lives in a private folder that goes with the object."""

    def __init__(
        self,
        folder: PrivateFolder,
        library: Path,
        recorded: Recorded,
        *,
        source: Any,
        target: Target,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        report: dict[str, Any],
        exact: bool,
        weights: str,
        fixed: Mapping[str, Fixed] | None,
        runs_here: bool,
    ) -> None:
        self._folder = folder
        self._library = library
        self._source = source
        self._exact = exact
        self._weights = weights
        self._fixed = fixed
        self.target = target
        self.inputs = inputs
        self.outputs = outputs
        self.report = report
        self._loaded: LoadedModel | None = None
        if runs_here and recorded.library:
            self._loaded = opened(library / recorded.library, recorded)

    def __call__(self, inputs: Mapping[str, np.ndarray], threads: int | None = None) -> dict[str, np.ndarray]:
        """Outputs by ONNX name for inputs by ONNX name; raises :class:`RunError` for a wrong name, dtype or shape."""
        if self._loaded is None:
            raise RunError(
                f"the model was compiled for {self.target.id}, which this machine can't run; save() it instead"
            )
        return self._loaded(inputs, threads=threads)

    def bind(
        self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], threads: int | None = None
    ) -> Callable[[], None]:
        """A function that runs the model on these arrays, in place (:meth:`LoadedModel.bind`)."""
        if self._loaded is None:
            raise RunError(f"the model was compiled for {self.target.id}, which this machine can't run")
        return self._loaded.bind(inputs, outputs, threads)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Writes library, header and manifest into ``directory``, whole or not at all, and returns it."""
        place = folder_of(directory)
        with staged(place) as stage:
            shutil.copytree(self._library, stage.result, dirs_exist_ok=True)
        return place

    def verify(
        self,
        inputs: Mapping[str, np.ndarray] | None = None,
        *,
        rtol: float | None = None,
        atol: float = ATOL,
        seed: int = 0,
    ) -> Verification:
        """Compares with ONNX Runtime on ``inputs``, or on random ones; with ``exact=True`` ten times as tight.

        ``rtol`` is 1e-3, or 1e-2 for weights in float16, unless it is given."""
        return verify(
            self.__call__,
            self._source,
            self.inputs,
            inputs,
            dropped=self.report.get("dropped_shapes"),
            fixed=self._fixed,
            rtol=default_rtol(self._weights) if rtol is None else rtol,
            atol=atol,
            exact=self._exact,
            seed=seed,
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """A copy would share threads, memory and a folder that go with the original."""
        raise TypeError("a compiled model can't be copied or pickled; save() it and load() it where it is needed")

    def __repr__(self) -> str:
        sides = (", ".join(map(str, side)) for side in (self.inputs, self.outputs))
        return f"<halotile.Model for {self.target.id}: {' -> '.join(sides)}>"

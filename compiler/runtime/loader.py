"""Loads a built library into Python: numpy arrays in, numpy arrays out, through the same C API that a board uses.

Needs numpy alone; neither the compiler nor TVM nor onnx is imported.
"""

from __future__ import annotations

import ctypes
import operator
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...errors import OutputError, RunError, ShapeError
from ..guard import guarded
from ..options import path_of
from ..spec import Symbol, TensorSpec, length_name
from .arrays import array_of
from .binding import Binding
from .elf import check_library
from .open_shapes import Shapes, Sized
from .place import MANIFEST, folder_of, read_manifest, staged
from .recycled import Outputs
from .seal import check_seal
from .trace import Traced, take_trace

if TYPE_CHECKING:
    from .recorded import Recorded

_addressof = ctypes.addressof  # of every call, which may take no longer than a small model
_start: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer


@guarded
def load(path: str | os.PathLike[str], threads: int | None = None) -> LoadedModel:
    """Loads the library in ``path``: a folder that a build made, its manifest.json, or the .so alone.

    ``threads`` is the number used by default; None leaves it to the library. Raises OutputError when there is no
    library, or it is damaged, for another machine, or does not belong to its manifest.
    """
    place = path_of(path)
    if place is None:
        raise OutputError(f"a library is named by a path, not by {type(path).__name__}")
    if isinstance(threads, bool):
        raise RunError(f"threads must be a positive integer, got {threads!r}")
    count = _number(threads)
    if place.is_dir() or place.name == MANIFEST:
        folder = place if place.is_dir() else place.parent
        manifest = read_manifest(folder)
        if manifest is None:
            raise OutputError(
                f"{folder} holds no Halotile library ({MANIFEST} is missing or not one of ours)"
            )
        library = folder / (manifest.library or "")
        if not library.is_file():
            raise OutputError(
                f"{folder} is incomplete: {manifest.library or 'the library'} is missing; build it again"
            )
    else:
        if not place.is_file():
            raise OutputError(f"there is no library at {place}")
        library = place
        manifest = read_manifest(place.parent)
        if manifest is not None and manifest.library != place.name:
            manifest = None
    check_library(library)
    if manifest is not None:
        manifest.check(library)
    else:
        check_seal(library)
    return opened(library, manifest, count)


def opened(library: Path, manifest: Recorded | None, count: int = 0) -> LoadedModel:
    """A library whose bytes are known to be those of its manifest: from there they have just come."""
    binding = Binding(library)
    if manifest is not None and manifest.fingerprint != binding.fingerprint:
        raise OutputError(f"{library} and its {MANIFEST} are from different builds; build it again")
    return LoadedModel(binding, library, manifest, count)


class LoadedModel:
    """A model that runs. ``inputs`` and ``outputs`` are TensorSpecs in the order of the ONNX model.

    Calls from several Python threads are safe: one model runs one call at a time (load it twice to run two at once).
    A call releases the interpreter lock.
    """

    def __init__(
        self, binding: Binding, library: Path, recorded: Recorded | None, threads: int
    ) -> None:
        self.inputs: tuple[TensorSpec, ...] = binding.inputs
        self.outputs: tuple[TensorSpec, ...] = binding.outputs
        self.name = binding.name
        self.target = binding.target
        self.path = library
        self.recorded = recorded  # None when the manifest is not beside the library
        self._binding = binding
        self._lock = threading.Lock()
        self._instances: dict[int, int] = {}
        self._expected = tuple((s.name, numpy_dtype(s.dtype), s.shape) for s in self.inputs)
        self._made = tuple((s.name, numpy_dtype(s.dtype), s.shape) for s in self.outputs)
        self._names = tuple(name for name, _, _ in self._made)
        self._open = Shapes(binding, [dtype for _, dtype, _ in self._made]) if binding.open is not None else None
        self._fresh = Outputs([] if self._open else [(shape, dtype) for _, dtype, shape in self._made])
        self._closed = False
        self._cut = self._lengths()
        self._in = (ctypes.c_void_p * max(1, len(self.inputs)))()
        self._out = (ctypes.c_void_p * max(1, len(self.outputs)))()
        self._in_address, self._out_address = ctypes.addressof(self._in), ctypes.addressof(self._out)
        self._default = self._resolved(threads)

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest as plain data; empty when it is not beside the library."""
        return {} if self.recorded is None else dict(self.recorded.everything)

    @property
    def report(self) -> dict[str, Any]:
        """What the compiler wrote about the build; empty when the manifest is not beside the library."""
        return dict(self.manifest.get("report") or {})

    def _lengths(self) -> tuple[tuple[int, int, tuple[slice, ...]], ...]:
        """Outputs whose length depends on the data: which, where the length is, axes before it."""
        number = {name: i for i, name in enumerate(self._names)}
        found = []
        for name, axis in (self.recorded.report.lengths if self.recorded is not None else {}).items():
            if name not in number or length_name(name) not in number or axis >= len(self.outputs[number[name]].shape):
                raise OutputError(
                    f"{self.path.parent / MANIFEST}: report.lengths: the library has no such output as {name!r} with "
                    f"an axis {axis} and a length; build it again"
                )
            found.append((number[name], number[length_name(name)], (slice(None),) * axis))
        return tuple(found)

    @property
    def threads(self) -> int:
        """Threads of a call that does not ask for a number."""
        return self._default

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The open dimensions, whose sizes every call chooses; empty where all shapes are fixed."""
        return self._open.symbols if self._open is not None else ()

    def arena_bytes(
        self, threads: int | None = None, shape: Mapping[str, int] | None = None, **sizes: int
    ) -> int:
        """Bytes of the arena for a number of threads; exactly what a run uses. Open dimensions have the sizes that are
        given by name (in ``shape`` where the name is no identifier), or their typical ones."""
        with self._lock:
            self._check_open()
            number = _number(threads) or self._default
            sized = self._at_sizes(shape, sizes)
            return self._binding.arena_bytes(number) if sized is None else sized.arena_bytes(number)

    def output_shapes(self, shape: Mapping[str, int] | None = None, **sizes: int) -> dict[str, tuple[int, ...]]:
        """The outputs' shapes by ONNX name, where open dimensions have the sizes that are given by name (in ``shape``
        where the name is no identifier), or their typical ones."""
        with self._lock:
            self._check_open()
            sized = self._at_sizes(shape, sizes)
        fresh = self._fresh if sized is None else sized.fresh
        return {name: made[0] for name, made in zip(self._names, fresh.made, strict=True)}

    def shapes_for(self, inputs: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
        """The outputs' shapes by ONNX name, in a call with these arrays. Raises RunError as the call does."""
        with self._lock:
            self._check_open()
            fresh = self._fresh if self._open is None else self._sized(inputs)[0].fresh
        return {name: made[0] for name, made in zip(self._names, fresh.made, strict=True)}

    def input_shapes(self, shape: Mapping[str, int] | None = None, **sizes: int) -> dict[str, tuple[int, ...]]:
        """The inputs' shapes, as :meth:`output_shapes` gives those of outputs."""
        with self._lock:
            self._check_open()
            sized = self._at_sizes(shape, sizes)
        shapes = [spec.shape for spec in self.inputs] if sized is None else sized.inputs
        return {spec.name: shape for spec, shape in zip(self.inputs, shapes, strict=True)}

    def _at_sizes(self, shape: Mapping[str, int] | None, sizes: Mapping[str, int]) -> Sized | None:
        """The shapes at sizes by name; None where all shapes are fixed. ShapeError for others than may be."""
        if self._open is not None:
            return self._open.of({**(shape or {}), **sizes})
        if named := [*(shape or {}), *sizes]:
            raise ShapeError(f"{self.name} has no open dimension {named[0]!r}: its shapes are fixed")
        return None

    def __call__(
        self, inputs: Mapping[str, np.ndarray], threads: int | None = None
    ) -> dict[str, np.ndarray]:
        """Runs the model: arrays by ONNX name in, fresh arrays by ONNX name out. (Memory of large ones that have been
        dropped is used again; :meth:`close` gives it back.)

        An array must have the dtype and shape that the model states (open dimensions any size that they may have, the
        same wherever they have the same name); one that is not contiguous is copied. Inputs that the ONNX model has but
        no output depends on may be there too. Raises RunError, which names the input and says what was expected. An
        output whose length depends on the data is as long as it is.
        """
        if self._open is None:
            sized, arrays = None, [self._checked(inputs, *expected) for expected in self._expected]
        else:
            sized, arrays = self._sized(inputs)
        if len(inputs) != len(arrays) and (unknown := self._unknown(inputs)):
            raise RunError(unknown)
        results = (self._fresh if sized is None else sized.fresh).arrays()
        with self._lock:
            instance = self._instances.get(self._default) if threads is None and sized is None else None
            if instance is None:
                instance = self._instance(threads, sized)
            for slots, group in ((self._in, arrays), (self._out, results)):
                for i, array in enumerate(group):
                    try:
                        slots[i] = _addressof(_start(array))
                    except (TypeError, ValueError, BufferError):
                        slots[i] = _address(array)
            code = self._run(instance, sized, self._in_address, self._out_address)
        if code:
            raise RunError(f"{self.name} failed: {self._binding.error_text(code)}")
        for i, length, before in self._cut:
            results[i] = results[i][(*before, slice(results[length].item(0)))]
        return dict(zip(self._names, results))

    def bind(
        self,
        inputs: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
        threads: int | None = None,
        shared: Mapping[str, str] | None = None,
    ) -> Callable[[], None]:
        """Fixes the arrays of many runs: each call of what is returned reads ``inputs`` and fills ``outputs`` in place.

        Saves the checks and the fresh outputs of an ordinary call. Every array must be contiguous and apart from the
        others, outputs writeable; they live as long as the function that is returned. Raises RunError as a call does.
        ``shared``: outputs that may have the memory of an input, which the library has read by then (of streams).
        """
        taken, made, sized = self._expected, self._made, None
        if self._open is not None:
            sized, _ = self._sized(inputs)
            taken = tuple((name, dtype, shape) for (name, dtype, _), shape in zip(taken, sized.inputs))
            made = tuple((name, dtype, shape) for (name, dtype, _), (shape, _) in zip(made, sized.fresh.made))
        for kind, arrays, expected in (("input", inputs, taken), ("output", outputs, made)):
            for name, dtype, shape in expected:
                if self._checked(arrays, name, dtype, shape, kind) is not arrays[name]:
                    raise RunError(f"{kind} {name!r} is not a contiguous array; only such can be bound")
        for name, _, _ in self._made:
            if not outputs[name].flags.writeable:
                raise RunError(f"output {name!r} is read-only")
        kept = [inputs[spec.name] for spec in self.inputs], [outputs[spec.name] for spec in self.outputs]
        for i, out in enumerate(kept[1]):
            twin = (shared or {}).get(self.outputs[i].name)
            others = (inputs[spec.name] for spec in self.inputs if spec.name != twin)
            if any(np.may_share_memory(out, other) for other in (*others, *kept[1][:i])):
                raise RunError(f"output {self.outputs[i].name!r} shares memory with another array; it needs its own")
        pointers = [(ctypes.c_void_p * max(1, len(group)))(*map(_address, group)) for group in kept]
        addresses = [ctypes.addressof(array) for array in pointers]

        def run(_alive: object = (kept, pointers)) -> None:
            with self._lock:
                code = self._run(self._instance(threads, sized), sized, *addresses)
            if code:
                raise RunError(f"{self.name} failed: {self._binding.error_text(code)}")

        return run

    def _sized(self, inputs: Mapping[str, np.ndarray]) -> tuple[Sized, list[np.ndarray]]:
        """What follows from the inputs' open dimensions, and the contiguous inputs; RunError for shapes that can't be,
        before anything is copied."""
        assert self._open is not None
        arrays = [self._checked(inputs, name, dtype, None) for name, dtype, _ in self._expected]
        sized = self._open.at([array.shape for array in arrays])
        for i, array in enumerate(arrays):
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                arrays[i] = np.require(array, requirements=["C", "A"])
        return sized, arrays

    def _run(self, instance: int, sized: Sized | None, inputs: int, outputs: int) -> int:
        if sized is None:
            return int(self._binding.run(instance, inputs, outputs))
        return sized.run(instance, inputs, outputs)

    def _checked(
        self,
        arrays: Mapping[str, object],
        name: str,
        dtype: np.dtype,
        shape: tuple[int, ...] | None,
        kind: str = "input",
    ) -> np.ndarray:
        """The array of that name, contiguous; RunError when it is missing or not what the model states. With ``shape``
        None, its shape and layout are for others to look at."""
        try:
            array = arrays[name]
        except (KeyError, TypeError, IndexError) as error:
            raise RunError(self._missing(arrays, name, kind)) from error
        if not isinstance(array, np.ndarray):
            array = array_of(name, array)
        if array.dtype != dtype:
            raise RunError(
                f"{kind} {name!r} has dtype {array.dtype}, expected {dtype}; convert it with .astype"
            )
        if shape is None:
            return array
        if array.shape != shape:
            raise RunError(f"{kind} {name!r} has shape {_text(array.shape)}, expected {_text(shape)}")
        flags = array.flags
        return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=["C", "A"])

    def _missing(self, arrays: object, name: str, kind: str) -> str:
        if not isinstance(arrays, Mapping):
            return f"{kind}s must be a dict of names to arrays, got {type(arrays).__name__}"
        given = ", ".join(map(repr, arrays)) or "nothing"
        verb, specs = ("takes", self.inputs) if kind == "input" else ("gives", self.outputs)
        return f"{kind} {name!r} is missing; the model {verb} {_names(specs)}, given: {given}"

    def _unknown(self, inputs: Mapping[str, np.ndarray]) -> str:
        """What to say of inputs that the ONNX model does not have either; nothing where there are none."""
        dropped = self.recorded.report.dropped_inputs if self.recorded is not None else ()
        known = {spec.name for spec in self.inputs} | set(dropped)
        extra = ", ".join(repr(name) for name in inputs if name not in known)
        return f"unknown input {extra}; the model takes {_names(self.inputs)}" if extra else ""

    def _resolved(self, threads: int) -> int:
        """Makes an instance and returns its number of threads, which the library decides for 0."""
        instance = self._created(threads, None)
        threads = int(self._binding.threads(instance))
        self._instances[threads] = instance
        return threads

    def _instance(self, threads: int | None, sized: Sized | None = None) -> int:
        """The instance for a number of threads, made when first asked for, and again for a shape whose arena is larger.
        The caller holds the lock."""
        self._check_open()
        number = threads if isinstance(threads, int) else _number(threads)
        number = number or self._default
        instance = self._instances.get(number)
        if instance is not None and self._open is not None and not self._open.fits(number, sized):
            self._binding.destroy(self._instances.pop(number))
            instance = None
        if instance is None:
            instance = self._instances[number] = self._created(number, sized)
        return instance

    def _created(self, threads: int, sized: Sized | None) -> int:
        if self._open is None:
            return self._binding.create(threads)
        return self._open.create(threads, sized)

    def _check_open(self) -> None:
        if self._closed:
            raise RunError(f"{self.name} was closed")

    def kernel_seconds(self, threads: int | None = None) -> list[float] | None:
        """Seconds of each of the report's kernels in the last run with that number of threads, in their order; None
        for a library that was built without timers."""
        with self._lock:
            kernels = self.recorded.report.kernels if self.recorded is not None else ()
            return self._binding.kernel_seconds(self._instance(threads), len(kernels))

    def trace(self) -> tuple[Traced, ...]:
        """What the stripes of a library for a scratchpad did since the last call, in the program's order."""
        with self._lock:
            self._check_open()
            return take_trace(self._binding.library, self._binding.prefix)

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Copies the library, its header and its manifest into ``directory``; they appear only when whole."""
        if self.recorded is None:
            raise OutputError(f"{self.path} has no {MANIFEST} beside it, so there is nothing whole to save")
        source = self.path.parent
        with staged(folder_of(directory)) as stage:
            for name in self.recorded.file_names.values():
                shutil.copy(source / name, stage.result / name)
            shutil.copyfile(source / MANIFEST, stage.result / MANIFEST)

    def close(self) -> None:
        """Ends the threads, gives the arena back and unmaps the library. Harmless when repeated."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._fresh.forget()
            if self._open is not None:
                self._open.forget()
            for instance in self._instances.values():
                self._binding.destroy(instance)
            self._instances.clear()
            self._binding.close()

    def __enter__(self) -> LoadedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_closed", True) is False:
            self.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """A copy would share threads and memory that go with the original."""
        raise TypeError(f"a loaded model can't be copied or pickled; load {self.path} again where it is needed")

    def __repr__(self) -> str:
        inputs, outputs = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        return f"<{self.name}: ({inputs}) -> ({outputs})>"


def _number(threads: Any) -> int:
    """A number of threads; 0 for None, which leaves it to the library."""
    try:
        return operator.index(0 if threads is None else threads)
    except TypeError:
        raise RunError(f"threads must be a positive integer, got {threads!r}") from None


def _address(array: np.ndarray) -> int:
    """The address of a contiguous array's first byte; a third of the time of ``array.ctypes.data`` in most cases."""
    try:
        return _addressof(_start(array))
    except (
        TypeError,
        ValueError,
        BufferError,
    ):  # read-only, empty, or a dtype that the buffer protocol lacks
        return int(array.ctypes.data)


def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype of a TensorSpec's; bfloat16 and the 8-bit floats come from ml_dtypes when they are met."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def _names(specs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(repr(spec.name) for spec in specs) or "nothing"


def _text(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})" if shape else "() (a scalar)"

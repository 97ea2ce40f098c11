"""A compiled model: run it, read its report, save its library, compare it with ONNX Runtime.

    model = halotile.compile("m.onnx")        model = halotile.load("folder")
    model({"x": x})["y"]                      by ONNX name
    model(x)                                  one input and one output: array in, array out
    model({"x": x}, out={"y": y})             results in arrays of the caller's
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import OutputError, RunError
from ..targets.target import Target
from .guard import carried, guarded
from .needs import needed
from .runtime import loader
from .runtime.arrays import array_of, is_array, memory_of
from .runtime.loader import LoadedModel
from .runtime.place import MANIFEST, folder_of, read_manifest, staged
from .runtime.private import PrivateFolder
from .sized import verify_at
from .spec import Symbol, TensorSpec
from .stream.of_model import plan_in, specs_in, verify_stream
from .verify import ATOL, Verification

if TYPE_CHECKING:
    from ..targets.plain import Json, JsonView
    from .given import ArraysGiven
    from .reach.words import Reach
    from .runtime.recorded import Recorded
    from .stream.rows import RowStream
    from .stream.words import StreamPlan


@guarded
def load(path: str | os.PathLike[str], threads: int | None = None) -> Model:
    """Loads the library in ``path``: a folder that a build made, its manifest.json, or the .so alone.

    ``threads`` is the number used by default; None leaves it to the library. Raises OutputError when there is no
    library, or it is damaged, for another machine, or does not belong to its manifest.
    """
    loaded = loader.load(path, threads)
    return Model(loaded, loaded.recorded, loaded.path.parent)


class Model:
    """What :func:`halotile.compile` and :func:`halotile.load` return. ``inputs`` and ``outputs`` are TensorSpecs in the
    order of the ONNX model; ``report`` is what the compiler wrote about the build.

    Calls from several Python threads are safe: one model runs one call at a time. Threads and memory go with the
    object, with :meth:`close`, or at the end of a ``with``. A copy, or what pickle makes of it, is a model of its own.
    """

    def __init__(
        self,
        loaded: LoadedModel | None,
        recorded: Recorded | None,
        folder: Path,
        *,
        private: PrivateFolder | None = None,
        target: Target | None = None,
        report: JsonView | None = None,
        source: object = None,
    ) -> None:
        """``loaded`` None: this machine can't run it. ``recorded`` None: a library without its manifest. ``private``:
        the folder goes with the object. ``source``: the ONNX model, where it is known."""
        assert loaded is not None or recorded is not None
        self._loaded, self.recorded, self._library, self._folder = loaded, recorded, folder, private
        self._source = source
        specs: Any = loaded if loaded is not None else recorded
        self.inputs: tuple[TensorSpec, ...] = tuple(t if loaded else t.spec() for t in specs.inputs)
        self.outputs: tuple[TensorSpec, ...] = tuple(t if loaded else t.spec() for t in specs.outputs)
        self.name: str = specs.name
        self.plan: StreamPlan | None = plan_in(self.manifest)
        if self.plan is not None:
            self.inputs, self.outputs = specs_in(self.plan, self.inputs), specs_in(self.plan, self.outputs)
        self._target = target
        self.report: Json = dict(self.manifest.get("report") or {}) if report is None else dict(report)

    @property
    def path(self) -> Path:
        """The shared library; of code for another machine its folder."""
        return self._library if self._loaded is None else self._loaded.path

    @property
    def manifest(self) -> Json:
        """The manifest as plain data; empty when it is not beside the library."""
        return {} if self.recorded is None else dict(self.recorded.everything)

    @property
    def metadata(self) -> dict[str, str]:
        """What the exporter told of the model (ONNX's metadata_props), by key: ``names`` of classes, ``stride`` ..."""
        return {} if self.recorded is None else dict(self.recorded.metadata)

    @cached_property
    def target(self) -> Target | None:
        """The machine that it was compiled for; None of a library without its manifest."""
        if self._target is None and self.recorded is not None:
            from .runtime.recorded import target_of

            return target_of(self.manifest)
        return self._target

    @property
    def level(self) -> str:
        """The target whose code is taken here: of a library for several levels of processors, the best that fits."""
        return self._runs.target

    @property
    def threads(self) -> int:
        """Threads of a call that does not ask for a number."""
        return self._runs.threads

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The open dimensions, whose sizes every call chooses; empty where all shapes are fixed."""
        return self._runs.symbols

    def __call__(
        self,
        inputs: Mapping[str, np.ndarray] | ArraysGiven,
        threads: int | None = None,
        *,
        out: Mapping[str, ArraysGiven] | ArraysGiven = None,
    ) -> ArraysGiven:
        """Runs the model: arrays by ONNX name in, fresh arrays by ONNX name out.

        Arrays are numpy's, or anything that numpy or DLPack can look into, which costs no copy. A model with one input
        takes the array itself, and then gives the array itself, if it has one output. ``out`` are arrays for the
        results, by name or the one, which must be contiguous; they are what is returned, in the caller's own type.
        Raises :class:`RunError`, which names the input and says what was expected.
        """
        loaded = self._loaded or self._runs
        if self.plan is not None:
            return self._streamed(inputs, threads, out)
        if out is None and isinstance(inputs, Mapping):
            return loaded(inputs, threads)
        bare = len(self.inputs) == 1 and not isinstance(inputs, Mapping) and is_array(inputs)
        arrays: ArraysGiven = {self.inputs[0].name: inputs} if bare else inputs
        if out is None:
            results = loaded(arrays, threads)
            return results[self.outputs[0].name] if bare and len(self.outputs) == 1 else results
        given = out
        if not isinstance(out, Mapping) and len(self.outputs) == 1:
            given = {self.outputs[0].name: out}
        self._run_into(loaded, arrays, given, threads)
        return out

    def _run_into(self, loaded: LoadedModel, inputs: object, outputs: object, threads: int | None) -> None:
        """Runs once, with results in ``outputs``."""
        if not isinstance(outputs, Mapping):
            raise RunError(f"out must be a dict of names to arrays, got {type(outputs).__name__}")
        if not isinstance(inputs, Mapping):
            raise RunError(f"inputs must be a dict of names to arrays, got {type(inputs).__name__}")
        names = [t.name for t in self.inputs if t.name in inputs]
        ready = {name: np.require(array_of(name, inputs[name]), requirements=["C", "A"]) for name in names}
        self.bind({**inputs, **ready}, outputs, threads)()

    def bind(
        self, inputs: Mapping[str, object], outputs: Mapping[str, object], threads: int | None = None
    ) -> Callable[[], None]:
        """A function that runs the model on these arrays, in place: each call reads ``inputs`` and fills ``outputs``.

        Saves the checks and the fresh outputs of an ordinary call. Every array must be contiguous and apart from the
        others, outputs writeable; they live as long as the function that is returned. Raises RunError as a call does.
        """
        if self.plan is not None:
            raise RunError(f"{self.name} streams: it has no run to bind, see open() and stream()")
        return self._runs.bind(_seen("input", inputs), _seen("output", outputs), threads)

    @guarded
    def open(self, threads: int | None = None, **still: object) -> RowStream:
        """A stream, of a library that was built with ``stream``: rows in with ``push``, out with ``pull``, and
        ``finish`` behind the last. ``still`` are the inputs that do not stream, by name (docs/streams.md)."""
        from .stream.abreast import opened_stream

        plan = self._plan()
        if plan.statistics:
            raise RunError(f"{self.name} needs all rows, in {plan.passes} passes: stream() from an array or a file")
        return opened_stream(self._runs, plan, still, threads, f"{self.name} has no open()")

    @guarded
    def stream(
        self,
        source: object,
        target: object = None,
        *,
        threads: int | None = None,
        layout: str | None = None,
        scale: float = 1.0,
        target_scale: float = 1.0,
        source_type: str | None = None,
        target_type: str | None = None,
        progress: Callable[[int, int], None] | None = None,
        journal: bool | str | os.PathLike[str] | None = None,
        journal_seconds: float = 10.0,
    ) -> ArraysGiven:
        """Computes an image of any height from ``source`` into ``target``, and returns that (docs/streams.md).

        Both may be NumPy arrays, memmaps, zarr arrays and their like, or paths of .npy, .zarr, .tif and .raw files;
        dicts of them for several inputs or outputs; a source also an iterator of rows. Without a target the result is a
        NumPy array. ``layout`` (NCHW, NHWC, CHW, HWC, HW) is found by the shape unless it is given. Sources of integers
        become the network's floats, times ``scale``; outputs are multiplied by ``target_scale``, and rounded where the
        target has integers. Files that are made have numbers of ``target_type``; plain rows in .raw are of
        ``source_type``. ``progress`` is called with rows that are done, and all. With ``journal`` (True: a file beside
        the target) a stream that was stopped goes on where it was: call it again with the same source and target.
        """
        from .stream.run import stream_image

        return stream_image(
            self._runs, self._plan(), source, target, threads=threads, layout=layout, scale=scale,
            target_scale=target_scale, source_type=source_type, target_type=target_type, progress=progress,
            journal=journal, journal_seconds=journal_seconds,
        )  # fmt: skip

    def _plan(self) -> StreamPlan:
        if self.plan is None:
            raise RunError(f"{self.name} was not built to stream: build it with --stream, or compile(stream=True)")
        return self.plan

    def _streamed(self, inputs: object, threads: int | None, out: object) -> ArraysGiven:
        """A call of a library that streams."""
        result = self.stream(inputs, out, threads=threads)
        whole = not isinstance(inputs, Mapping) or isinstance(result, Mapping)
        return result if whole or out is not None else {self.outputs[0].name: result}

    def arena_bytes(self, threads: int | None = None, shape: Mapping[str, int] | None = None, **sizes: int) -> int:
        """Bytes of the arena for a number of threads; exactly what a run uses. Open dimensions have the sizes that are
        given by name (in ``shape`` where the name is no identifier), or their typical ones."""
        return self._runs.arena_bytes(threads, shape, **sizes)

    def input_shapes(self, shape: Mapping[str, int] | None = None, **sizes: int) -> dict[str, tuple[int, ...]]:
        """The inputs' shapes, as :meth:`output_shapes` gives those of outputs."""
        return self._runs.input_shapes(shape, **sizes)

    def output_shapes(self, shape: Mapping[str, int] | None = None, **sizes: int) -> dict[str, tuple[int, ...]]:
        """The outputs' shapes by ONNX name, where open dimensions have the sizes that are given by name (in ``shape``
        where the name is no identifier), or their typical ones."""
        return self._runs.output_shapes(shape, **sizes)

    def shapes_for(self, inputs: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
        """The outputs' shapes by ONNX name, in a call with these arrays. Raises RunError as the call does."""
        return self._runs.shapes_for(_seen("input", inputs))

    def kernel_seconds(self, threads: int | None = None) -> list[float] | None:
        """Seconds of each of the report's kernels in the last run with that number of threads, in their order; None
        for a library that was built without timers."""
        return self._runs.kernel_seconds(threads)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Writes library, header and manifest into ``directory``, whole or not at all, and returns it."""
        place = folder_of(directory)
        files = self._files()
        with staged(place) as stage:
            for file in files:
                shutil.copy(file, stage.result)
        return place

    def verify(
        self,
        inputs: Mapping[str, np.ndarray] | None = None,
        *,
        model: object = None,
        shape: Mapping[str, int] | None = None,
        rtol: float | None = None,
        atol: float = ATOL,
        seed: int = 0,
    ) -> Verification:
        """Compares with ONNX Runtime on ``inputs``, or on random ones; with ``exact=True`` ten times as tight.

        ``shape`` are sizes of open dimensions by name; else ``inputs`` say them, or they are the typical ones.
        ``model`` is the ONNX model of a library that was loaded, which does not hold it. ``rtol`` is 1e-3, 1e-2 for
        weights in float16 and 0.1 for precision bfloat16, unless it is given."""
        with needed("verify()"):
            from .recipe import fixed_of, reference_of, rtol_of

        source = self._source if model is None else model
        if source is None:
            raise RunError(f"{self.name} was loaded from a library; say which model it is of: verify(model='m.onnx')")
        if self.plan is not None:
            allowed = rtol_of(self.recorded) if rtol is None else rtol
            return verify_stream(
                self, self.plan, reference_of(source, self.recorded), inputs, shape, fixed=fixed_of(self.recorded),
                rtol=allowed, atol=atol, exact=bool(self.report.get("exact")), seed=seed,
            )  # fmt: skip
        dropped = self.report.get("dropped_shapes")
        return verify_at(
            self._runs,
            reference_of(source, self.recorded),
            inputs,
            shape,
            run=self.__call__,
            dropped=dropped,
            fixed=fixed_of(self.recorded),
            rtol=rtol_of(self.recorded) if rtol is None else rtol,
            atol=atol,
            exact=bool(self.report.get("exact")),
            seed=seed,
        )

    @guarded
    def reach(self, output: str | None = None) -> Reach:
        """What an output (the first, unless it is named) needs of the inputs, for each of its axes: stride, rows before
        and after, multiple; or that it is pointwise, or needs the whole, and which node is why (docs/reach.md)."""
        from .reach.recorded import reach_of

        return reach_of(self.recorded, self.name, self.outputs[0].name if output is None else output)

    @guarded
    def map_blocks(
        self,
        x: object,
        out: object = None,
        *,
        tile: int | Sequence[int] | None = None,
        outputs: Sequence[str] | str | None = None,
        threads: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ArraysGiven:
        """Runs the model on images of any size, tile by tile, in the memory of one tile (docs/reach.md).

        ``x`` is an array, a memmap, or whatever has shape and dtype and takes slices; by name for several inputs.
        ``out`` takes the results as they come; else they are fresh arrays. A dask array gives a dask array, computed
        block by block when it is asked for. ``tile`` is how many rows and columns of the output are computed at once,
        a number or one for each axis; None chooses. Tiles depend on the image alone: every chunking gives the same
        bits. ``outputs`` are those that are wanted, ``progress`` is called with (tiles done, all tiles). Raises
        RunError where a node needs the whole image, which it names."""
        if self.plan is not None:
            raise RunError(f"{self.name} streams: stream() computes images of any height")
        from .reach.blocks import map_blocks

        return map_blocks(self, x, out, tile, outputs, threads, carried(progress))

    def close(self) -> None:
        """Ends the threads, gives the arena back, unmaps the library and removes what is this object's alone. Harmless
        when repeated."""
        if self._loaded is not None:
            self._loaded.close()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _runs(self) -> LoadedModel:
        if self._loaded is None:
            where = self.target.id if self.target is not None else "another machine"
            raise RunError(f"the model was compiled for {where}, which this machine can't run; save() it instead")
        return self._loaded

    def _files(self) -> list[Path]:
        """The files of the library; OutputError where they are not there, or not whole."""
        if self.recorded is None:
            raise OutputError(f"{self.path} has no {MANIFEST} beside it, so there is nothing whole to save")
        if not (self._library / MANIFEST).is_file():
            raise OutputError(f"{self.name} was closed, or its folder {self._library} was removed")
        return [*(self._library / name for name in self.recorded.file_names.values()), self._library / MANIFEST]

    def __reduce__(self) -> tuple[object, ...]:
        files = {file.name: file.read_bytes() for file in self._files()}
        kept = self._source if isinstance(self._source, (str, os.PathLike)) else None
        threads = self._loaded.threads if self._loaded is not None else None
        return _unpickled, (files, threads, self._target, self.report, kept)

    def __repr__(self) -> str:
        sides = (", ".join(map(str, side)) for side in (self.inputs, self.outputs))
        target = self.target.id if self.target is not None else "this machine"
        return f"<halotile.Model {self.name} for {target}: {' -> '.join(sides)}>"

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        from .notebook import table

        return table(self)


def _seen(kind: str, arrays: object) -> ArraysGiven:
    """The arrays as numpy's, on the same memory."""
    if not isinstance(arrays, Mapping):
        return arrays
    return {name: memory_of(kind, name, array) for name, array in arrays.items()}


def _unpickled(
    files: Mapping[str, bytes], threads: int | None, target: Target | None, report: Json, source: object
) -> Model:
    """A model from the files of its library."""
    private = PrivateFolder()
    try:
        folder = Path(private.name) / "library"
        folder.mkdir()
        for name, data in files.items():
            (folder / Path(name).name).write_bytes(data)
        loaded = loader.load(folder, threads) if threads is not None else None
        recorded = read_manifest(folder)
        return Model(loaded, recorded, folder, private=private, target=target, report=report, source=source)
    except BaseException:
        private.cleanup()
        raise

"""InferenceSession: ONNX Runtime's way to run a model, on our libraries."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...errors import UnsupportedError
from ..frontend.check import check
from ..frontend.load import load
from ..frontend.shapes import plain_dtype, run_time_inputs
from ..given import no_model
from ..inspection import unsupported_operators
from .binding import IOBinding
from .failures import Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile, in_their_kinds
from .feeds import Feeds
from .libraries import Built, Libraries
from .providers import CPU, checked_providers
from .settings import RunOptions, SessionOptions, log
from .types import ModelMetadata, NodeArg, described, metadata_of
from .values import OrtValue

Array = np.ndarray


class InferenceSession:
    """A model that runs.

    A model whose shapes are all known is compiled here; one with open dimensions when a call comes with shapes that
    none of the libraries it has is for, of which it keeps the latest (``halotile.libraries``, 8). Calls from several
    threads are safe.

    ``path_or_bytes``: a file, its bytes or an ``onnx.ModelProto``. ``providers`` are checked against what there is, the
    processor. Raises NoSuchFile, InvalidProtobuf, InvalidGraph, NotImplemented and InvalidArgument.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str] | onnx.ModelProto,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **_more: object,
    ) -> None:
        self._options = sess_options if sess_options is not None else SessionOptions()
        self._providers = checked_providers(providers, provider_options)
        source = _source(path_or_bytes)
        with in_their_kinds(InvalidProtobuf):
            loaded = load(source)
        with in_their_kinds(InvalidGraph):
            check(loaded)
        graph, lengths = loaded.model.graph, self._options.free_dimensions
        given = run_time_inputs(graph)
        self._inputs = [described(i, lengths) for i in given]
        names = {i.name for i in given}
        self._overridable = [described(i, lengths) for i in graph.input if i.name not in names]
        outputs = {o.name: described(o, lengths) for o in graph.output}  # one that is listed twice is given once
        self._outputs = [*outputs.values()]
        self._output_names = [*outputs]
        self._metadata = metadata_of(loaded.model)
        self._feeds = Feeds(self._inputs, [c.name for c in self._overridable])
        options = self._options.build_options()
        most = self._options.libraries()
        self._libraries = Libraries(source, [i.name for i in self._inputs], options, most)
        with in_their_kinds():
            self._begin(loaded.model)

    def _begin(self, model: onnx.ModelProto) -> None:
        """Compiles what can be compiled before the first call; refuses what no call could mend."""
        for info in run_time_inputs(model.graph):
            plain_dtype(info)
        shapes = {i.name: tuple(d for d in i.shape if isinstance(d, int)) for i in self._inputs}
        if all(i.ranked and len(shapes[i.name]) == len(i.shape) for i in self._inputs):
            try:
                built = self._libraries.fixed(shapes, stated=not self._options.free_dimensions)
            except UnsupportedError as error:
                if not error.inputs:
                    raise
                log.info("compiled with the first call, as values decide: %s", error)
            else:
                self._outputs = [_completed(o, built) for o in self._outputs]
        elif refused := unsupported_operators(model):
            raise UnsupportedError(f"the model can't be compiled: {'; '.join(refused)}")

    # ------------------------------------------------------------------ runs

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        run_options: RunOptions | None = None,
    ) -> list[Array]:
        """The outputs that are named, or all for None, in order.

        ``input_feed``: arrays, OrtValues or lists by name. Raises InvalidArgument for an input that is not as the model
        states, MissingInput (a ValueError) for one that is missing."""
        _check_going(run_options)
        arrays = self._feeds.arrays(input_feed)
        names = self._wanted(output_names)
        results = self._run(arrays)
        return [results[name] for name in names]

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:  # fmt: skip
        """:meth:`run` from values to values."""
        return [OrtValue(array) for array in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, object],
        callback: Callable[[Sequence[Array], Any, str], None], user_data: object, run_options: RunOptions | None = None,
    ) -> None:  # fmt: skip
        """:meth:`run` in a thread of its own; ``callback`` gets (results, user_data, error text, empty for none)."""

        def work() -> None:
            results: list[Array] = []
            told = ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as error:  # whatever it is, the callback is who hears of it
                told = str(error) or type(error).__name__
            callback(results, user_data, told)

        threading.Thread(target=work, daemon=True).start()

    def io_binding(self) -> IOBinding:
        """A new set of bound arrays for :meth:`run_with_iobinding`."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Runs on the arrays that are bound, without a copy."""
        if iobinding.session is not self:
            raise ValueError("an IOBinding belongs to the session that made it")
        _check_going(run_options)
        with in_their_kinds():
            iobinding.run()

    def built_for(self, arrays: Mapping[str, Array]) -> Built:
        """The library for a call with these arrays."""
        arrays = self._feeds.arrays(arrays)
        self._feeds.check(arrays)
        with in_their_kinds():
            return self._libraries.for_call(arrays)

    def _run(self, arrays: dict[str, Array]) -> dict[str, Array]:
        try:
            return self._libraries.for_call(arrays)(arrays)
        except Exception:
            self._feeds.check(arrays)  # says what is wrong in the model's terms, where that is it
            with in_their_kinds():
                raise

    @property
    def decides(self) -> bool:
        """Whether values of inputs decide which library runs."""
        return bool(self._libraries.deciding)

    def _wanted(self, names: Sequence[str] | None) -> Sequence[str]:
        if not names:
            return self._output_names
        for name in names:
            self.check_name("output", name)
        return names

    def check_name(self, kind: str, name: str) -> None:
        """InvalidArgument unless the model has an input, or output, of that name."""
        known = self._output_names if kind == "output" else [i.name for i in self._inputs]
        if name not in known:
            raise InvalidArgument(f"the model has no {kind} {name!r}; it has {', '.join(map(repr, known)) or 'none'}")

    # ------------------------------------------------------------------ what it is

    def get_inputs(self) -> list[NodeArg]:
        return list(self._inputs)

    def get_outputs(self) -> list[NodeArg]:
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initialisers that are inputs as well. Libraries hold them as constants: they can't be given other values."""
        return list(self._overridable)

    def get_modelmeta(self) -> ModelMetadata:
        return self._metadata

    def get_session_options(self) -> SessionOptions:
        return self._options

    def get_providers(self) -> list[str]:
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {CPU: {}}

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Any = None) -> None:
        """Checks the names; what runs stays the processor."""
        self._providers = checked_providers(providers, provider_options)

    def disable_fallback(self) -> None:
        """There is nothing to fall back to."""

    def enable_fallback(self) -> None:
        """There is nothing to fall back to."""


def _source(model: object) -> str | bytes | onnx.ModelProto:
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    if isinstance(model, onnx.ModelProto):
        return model
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(f"a session is made of a path, bytes or an onnx.ModelProto, not of {type(model).__name__}")
    path = os.fspath(model)
    if not Path(path).exists():
        raise NoSuchFile(no_model(Path(path)))
    return path


def _completed(output: NodeArg, built: Built) -> NodeArg:
    """With the lengths that the library has, where the model states none and the data decides none."""
    spec = next((s for s in built.model.outputs if s.name == output.name), None)
    if spec is None or (output.ranked and len(output.shape) != len(spec.shape)):
        return output
    open_ = (built.model.report.get("lengths") or {}).get(output.name)
    stated = output.shape if output.ranked else [None] * len(spec.shape)
    dims = [
        stated[axis] if isinstance(stated[axis], int) or axis == open_ else length
        for axis, length in enumerate(spec.shape)
    ]
    return NodeArg(output.name, output.type, dims)


def _check_going(options: RunOptions | None) -> None:
    if options is not None and options.terminate:
        raise Fail("the run was told to end: terminate is set in its options")



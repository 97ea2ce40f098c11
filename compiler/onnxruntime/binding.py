"""IOBinding: arrays that many runs read and fill in place."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from ..runtime.loader import numpy_dtype
from .failures import InvalidArgument
from .libraries import Built
from .types import dtype_of_element
from .values import OrtValue, check_device

Array = np.ndarray


class Session(Protocol):
    """What a binding asks of its session."""

    @property
    def decides(self) -> bool: ...

    def check_name(self, kind: str, name: str) -> None: ...

    def built_for(self, arrays: Mapping[str, Array]) -> Built: ...


class IOBinding:
    """Inputs and outputs that are fixed by name, of the session that made it (:meth:`InferenceSession.io_binding`).

    An output with memory of its own is filled in place; one without gets fresh memory with every run."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: dict[str, Array] = {}
        self._prepared: Callable[[], None] | None = None

    def bind_cpu_input(self, name: str, arr_on_cpu: object) -> None:
        """The input is this array; what it holds may change between runs."""
        self._bind_input(name, np.asarray(arr_on_cpu))

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: object, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """The input lies at an address; the caller keeps the memory alive."""
        check_device(device_type)
        self._bind_input(name, _at(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """The input is this value."""
        self._bind_input(name, ortvalue.numpy())

    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: object = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """The output is wanted, in memory at ``buffer_ptr`` or, without that, in fresh memory of every run."""
        check_device(device_type)
        if buffer_ptr is not None and (element_type is None or shape is None):
            raise InvalidArgument(f"output {name!r}: element_type and shape belong to buffer_ptr")
        self._bind_output(name, None if buffer_ptr is None else _at(buffer_ptr, element_type, shape or ()))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """The output goes into this value."""
        self._bind_output(name, ortvalue.numpy())

    def _bind_input(self, name: str, array: Array) -> None:
        self.session.check_name("input", name)
        self._inputs[name] = np.require(array, requirements=["C", "A"])
        self._prepared = None

    def _bind_output(self, name: str, array: Array | None) -> None:
        self.session.check_name("output", name)
        if array is not None and not array.flags.writeable:
            raise InvalidArgument(f"output {name!r} is read-only memory")
        self._outputs[name] = array
        self._prepared = None

    def run(self) -> None:
        """Runs the session on what is bound (:meth:`InferenceSession.run_with_iobinding`)."""
        if self._prepared is None:
            self._prepare()
        else:
            self._prepared()

    def _prepare(self) -> None:
        """Runs once, and keeps what later runs of the same memory need, where they can do without a look at it."""
        built = self.session.built_for(self._inputs)
        if not self._outputs:
            raise InvalidArgument("no output is bound; bind_output says which ones are wanted")
        if _must_copy(built, self._inputs, self._outputs):
            found = built(self._inputs)
            self._results = {name: _into(name, found[name], own) for name, own in self._outputs.items()}
            return
        specs = {spec.name: spec for spec in built.model.outputs}
        taken = {n: self._inputs[n] for n in built.inputs}
        shapes = built.model.shapes_for(taken)
        for name, own in self._outputs.items():
            if own is not None and (own.shape != shapes[name] or own.dtype.name != specs[name].dtype):
                raise InvalidArgument(
                    f"output {name!r} is {own.dtype}{list(own.shape)}, the model gives "
                    f"{specs[name].dtype}{list(shapes[name])}"
                )
        places = {n: own for n in specs if (own := self._outputs.get(n)) is not None}
        fresh = {n: np.empty(shapes[n], numpy_dtype(s.dtype)) for n, s in specs.items() if n not in places}
        everything = {**fresh, **places}
        run = built.model.bind(taken, everything)
        run()
        self._results = {name: everything[name] for name in self._outputs}
        if not self.session.decides and all(own is not None for own in self._outputs.values()):
            self._prepared = run

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return [OrtValue(array) for array in self._results.values()]

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Copies of the outputs of the last run, in the order in which they were bound."""
        return [array.copy() for array in self._results.values()]

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()
        self._prepared = None

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._results = {}
        self._prepared = None

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: memory is the processor's."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for: a run has ended when it returns."""


def _must_copy(built: Built, inputs: dict[str, Array], outputs: dict[str, Array | None]) -> bool:
    """Whether outputs can't be written where they belong: they are shorter than their room, or lie over others."""
    own = [array for array in outputs.values() if array is not None]
    taken = [inputs[name] for name in built.inputs]
    return bool(built.model.report.get("lengths")) or any(
        np.may_share_memory(array, other) for i, array in enumerate(own) for other in (*taken, *own[:i])
    )


def _into(name: str, result: Array, own: Array | None) -> Array:
    if own is None:
        return result
    if own.shape != result.shape or own.dtype != result.dtype:
        raise InvalidArgument(
            f"output {name!r} is {own.dtype}{list(own.shape)}, the run gave {result.dtype}{list(result.shape)}"
        )
    own[...] = result
    return own


def _at(address: int, element_type: object, shape: Sequence[int]) -> Array:
    """The array that lies at an address."""
    dtype, dims = dtype_of_element(element_type), tuple(int(d) for d in shape)
    count = math.prod(dims)
    if not count:
        return np.empty(dims, dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(int(address))
    return np.frombuffer(memoryview(memory), dtype).reshape(dims)

"""ONNX's own backend interface on sessions: prepare a model or a node, and run it.

``onnx.backend.test`` runs on it; a model that is refused is a test that the backend is not supposed to pass, and so
is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from ...errors import several
from ..inspection import unsupported_operators
from .failures import InvalidArgument, NotImplemented
from .session import InferenceSession
from .settings import SessionOptions

if TYPE_CHECKING:
    from ..given import ArraysGiven


class Refused(NotImplemented, BackendIsNotSupposedToImplementIt):
    """A model that Halotile refuses by name; for ``onnx.backend.test`` a test to skip."""


@contextmanager
def _skipped() -> Iterator[None]:
    try:
        yield
    except NotImplemented as error:
        raise Refused(error.message) from error


class HalotileBackendRep(BackendRep):
    """A prepared model. Shapes that the model leaves open are those of each run."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self._names = [i.name for i in session.get_inputs()]
        self._outputs = namedtupledict("Outputs", [o.name for o in session.get_outputs()])

    def run(self, inputs: object, **_more: object) -> tuple[np.ndarray, ...]:
        """The outputs as a named tuple. ``inputs``: arrays in the model's order, or by name, or the only one."""
        if isinstance(inputs, dict):
            feed = inputs
        else:
            given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            if len(given) != len(self._names):
                raise InvalidArgument(f"{several(len(given), 'input')} for a model that takes {len(self._names)}")
            feed = dict(zip(self._names, given))
        with _skipped():
            return self._outputs(*self.session.run(None, feed))


class HalotileBackend(Backend):
    """The backend: ``prepare``, ``run_model``, ``run_node``, ``supports_device``, ``is_compatible``."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **_more: object) -> bool:
        """Whether every operator has a form that can be compiled."""
        return cls.supports_device(device) and not unsupported_operators(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True of ``CPU``."""
        try:
            return Device(device).type == DeviceType.CPU
        except (AttributeError, ValueError):
            return False

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto | str | bytes, device: str = "CPU", *, options: SessionOptions | None = None,
        **_more: object,
    ) -> HalotileBackendRep:  # fmt: skip
        """A model, ready to run. ``options``: those of a session. Raises :class:`Refused` for what can't be built."""
        if not cls.supports_device(device):
            raise InvalidArgument(f"there is no device {device!r}: libraries run on the processor, 'CPU'")
        with _skipped():
            return HalotileBackendRep(InferenceSession(model, options))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto | str | bytes, inputs: list[np.ndarray], device: str = "CPU", **more: Any
    ) -> tuple[np.ndarray, ...]:
        """The outputs of one run."""
        return cls.prepare(model, device, **more).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: ArraysGiven, device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None, **more: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The outputs of one operator. ``outputs_info``: (dtype, shape) of each, inferred without; ``opset_version``:
        that of ONNX's own operators, by default the installed package's."""
        opset = int(more.pop("opset_version", onnx.defs.onnx_opset_version()))
        arrays = [np.asarray(a) for a in (inputs.values() if isinstance(inputs, dict) else inputs)]
        return cls.prepare(_model_of(node, arrays, outputs_info, opset), device, **more).run(arrays)


def _model_of(
    node: onnx.NodeProto, arrays: Sequence[np.ndarray], outputs: Any, opset: int
) -> onnx.ModelProto:
    """The model that is this node. An input that it names twice is given once for each."""
    names = [name for name in node.input if name]
    if len(names) != len(arrays):
        raise InvalidArgument(f"{several(len(arrays), 'input')} for a node {node.op_type} that names {len(names)}")
    helper = onnx.helper
    fed = [f"input_{i}" for i in range(len(arrays))]
    places = iter(fed)
    renamed = onnx.NodeProto()
    renamed.CopyFrom(node)
    renamed.input[:] = [next(places) if name else "" for name in node.input]
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in zip(fed, arrays)
    ]
    wanted = [name for name in node.output if name]
    if outputs is None:
        made = [helper.make_empty_tensor_value_info(name) for name in wanted]
    else:
        made = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (dtype, shape) in zip(wanted, outputs)
        ]
    imports = [helper.make_opsetid("", opset)]
    if node.domain not in ("", "ai.onnx"):
        newest = onnx.defs.onnx_ml_opset_version() if node.domain == "ai.onnx.ml" else 1
        imports.append(helper.make_opsetid(node.domain, newest))
    model = helper.make_model(helper.make_graph([renamed], node.op_type, given, made), opset_imports=imports)
    model.ir_version = min(model.ir_version, helper.find_min_ir_version_for(imports, ignore_unknown=True))
    return onnx.shape_inference.infer_shapes(model) if outputs is None else model

"""The backend of ``torch.compile``: a callable for every graph, which runs libraries of ours or hands back to PyTorch.

A graph is exported and compiled by its first call, for the shapes of that call. What it reads by way of parameters and
buffers becomes a constant of the library, which is built anew when one of them has changed since.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import HalotileError
from ..api import compile
from ..model import Model
from .export import GraphResults, HandedBack, ResultTensor, export, layout_of
from .tensors import array_of, tensor_of

log = logging.getLogger("halotile.torch")
SHOWN = 4  # operators that a graph's name lists
OPTIONS = (
    "threads", "exact", "float_mode", "tile", "memory_budget", "optimize", "weights", "precision",
    "flush_denormals", "tuning",
)  # fmt: skip
MOST = 8  # libraries that a graph keeps, for the shapes that it was called with last


def halotile(
    graph: torch.fx.GraphModule, example_inputs: Sequence[object], *, mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> CompiledGraph:  # fmt: skip
    """What runs in place of ``graph``. ``options``: those of :func:`halotile.compile`, such as ``threads``; ``mode``
    has no meaning here.

    A graph that can't be compiled, or needs gradients, runs in PyTorch; the logger ``halotile.torch`` says which and
    why."""
    static = [_is_static(e) for e in example_inputs]
    return CompiledGraph(graph, static, _checked(options or {}))


def _is_static(example: object) -> bool:
    """Whether PyTorch hands over a parameter or buffer of a module, the same one with every call."""
    return isinstance(example, torch.nn.Parameter) or getattr(example, "_dynamo_static_input_type", None) is not None


@dataclass(frozen=True)
class Ready:
    """A library for one set of shapes. ``inputs``: name and place of each argument that it takes; ``layout``: what the
    graph gives; ``outputs``: the names of its tensors, in order."""

    model: Model
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[str, ...]
    layout: GraphResults

    def __call__(self, arguments: Sequence[object]) -> tuple[object, ...]:
        found = self.model({name: array_of(arguments[i]) for name, i in self.inputs})
        tensors = iter([tensor_of(found[name]) for name in self.outputs])
        return tuple(
            _strided(next(tensors), r) if isinstance(r, ResultTensor) else r for r in self.layout.results
        )


class CompiledGraph:
    """A graph of PyTorch and the libraries that stand for it. Safe to call from several threads."""

    def __init__(self, graph: torch.fx.GraphModule, static: Sequence[bool], options: dict[str, Any]) -> None:
        self.graph, self.options = graph, options
        self.name = _name(graph)
        self.handed_back: str | None = None  # why, where that holds for every call
        self._static = [i for i, s in enumerate(static) if s]
        self._dynamic = [i for i, s in enumerate(static) if not s]
        self._ready: OrderedDict[Any, Ready] = OrderedDict()
        self._lock = threading.Lock()
        self._told: set[str] = set()

    def __call__(self, *arguments: object) -> object:
        if self.handed_back is not None:
            return self.graph(*arguments)
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments):
            self._tell("it needs gradients; call it under torch.no_grad()")
            return self.graph(*arguments)
        ready = self._for_call(arguments)
        return self.graph(*arguments) if ready is None else ready(arguments)

    def __len__(self) -> int:
        return len(self._ready)

    def _for_call(self, arguments: Sequence[object]) -> Ready | None:
        """The library for a call; None where the graph stays PyTorch's."""
        key = self._key(arguments)
        ready = self._ready.get(key)
        if ready is not None:
            return ready
        with self._lock:
            ready = self._ready.get(key)
            if ready is None and self.handed_back is None:
                try:
                    ready = self._ready[key] = self._built(arguments)
                except (HandedBack, HalotileError) as error:
                    self.handed_back = str(error)
                    self._tell(self.handed_back)
                while len(self._ready) > MOST:
                    self._ready.popitem(last=False)
        return ready

    def _key(self, arguments: Sequence[Any]) -> Any:
        """Shapes and types of what a call gives, whole numbers as they are; of weights where they lie and how often
        they have been written to."""
        given = [
            (a.shape, a.dtype) if isinstance(a, torch.Tensor) else a for a in (arguments[i] for i in self._dynamic)
        ]
        held = [
            (a.data_ptr(), -1 if a.is_inference() else a._version) for a in (arguments[i] for i in self._static)
        ]
        return tuple(given), tuple(held)

    def _built(self, arguments: Sequence[object]) -> Ready:
        """Exports and compiles the graph; :class:`HandedBack` or one of our errors says why not."""
        elsewhere = {str(a.device) for a in arguments if isinstance(a, torch.Tensor)} - {"cpu"}
        if elsewhere:
            raise HandedBack(f"it has tensors on {', '.join(sorted(elsewhere))}")
        data = [i for i in self._dynamic if isinstance(arguments[i], torch.Tensor)]
        layout = layout_of(self.graph, arguments)
        if layout.shared is not None:
            raise HandedBack(f"its result {layout.shared} lies in the memory of an input")
        if not any(isinstance(r, ResultTensor) for r in layout.results):
            raise HandedBack("it gives no tensor")
        proto = export(self.graph, arguments, data)
        constants = {t.name for t in proto.graph.initializer}
        names = [i.name for i in proto.graph.input if i.name not in constants]
        model = compile(proto, **self.options)
        places = dict(zip(names, data))
        log.info("graph of %s compiled: %r", self.name, model)
        self._forget_older(self._key(arguments)[1])
        return Ready(
            model,
            tuple((spec.name, places[spec.name]) for spec in model.inputs),
            tuple(o.name for o in proto.graph.output),
            layout,
        )

    def _forget_older(self, held: object) -> None:
        """Libraries of weights as they were before are of no more use."""
        for key in [k for k in self._ready if k[1] != held]:
            del self._ready[key]

    def _tell(self, reason: str) -> None:
        if reason not in self._told:
            self._told.add(reason)
            log.warning("graph of %s handed back to torch: %s", self.name, " ".join(reason.split()))


def _strided(tensor: torch.Tensor, wanted: ResultTensor) -> torch.Tensor:
    """The tensor with the strides that PyTorch's own result has: what comes after may count on them."""
    if wanted.contiguous:
        return tensor.reshape(wanted.shape)
    return torch.empty_strided(wanted.shape, wanted.strides, dtype=tensor.dtype).copy_(tensor)


def _name(graph: torch.fx.GraphModule) -> str:
    """What a reader knows the graph by: how many operators it has, and the first of them."""
    calls = [n for n in graph.graph.nodes if n.op.startswith("call_")]
    names = [getattr(n.target, "__name__", str(n.target)) for n in calls]
    shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    return f"{len(names)} operator{'' if len(names) == 1 else 's'} ({shown})"


def _checked(options: Mapping[str, object]) -> dict[str, Any]:
    """The options of ``torch.compile(options=...)``, which are arguments of :func:`halotile.compile`."""
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise HalotileError(f"there is no option {unknown[0]!r}; choose among {', '.join(OPTIONS)}")
    return dict(options)

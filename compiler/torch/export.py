"""From a graph of PyTorch, with its weights and whole numbers as constants, to ONNX."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import torch
from torch._subclasses.fake_tensor import FakeTensorMode


class HandedBack(Exception):
    """Why a graph stays PyTorch's."""


@dataclass(frozen=True)
class GraphResults:
    """What the graph gives: for each result a (shape, strides) of a tensor, or the value that is none.

    ``shared``: the first result that lies in memory of an input, None where all have memory of their own."""

    results: tuple[object, ...]
    shared: int | None


class ResultTensor:
    """A result that is a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape, self.strides = tuple(tensor.shape), tuple(tensor.stride())
        self.contiguous = tensor.is_contiguous()


class FixedGraph(torch.nn.Module):
    """The graph as a module of its tensors alone: weights are buffers, whole numbers constants, tensors results."""

    def __init__(self, graph: torch.fx.GraphModule, arguments: Sequence[Any], data: Sequence[int]) -> None:
        super().__init__()
        self._graph, self._arguments, self._data = graph, list(arguments), tuple(data)
        self._weights = {
            i: f"weight_{i}" for i, a in enumerate(arguments) if isinstance(a, torch.Tensor) and i not in data
        }
        for i, name in self._weights.items():
            self.register_buffer(name, arguments[i].detach())

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        arguments = list(self._arguments)
        for i, tensor in zip(self._data, tensors):
            arguments[i] = tensor
        for i, name in self._weights.items():
            arguments[i] = getattr(self, name)
        return tuple(r for r in self._graph(*arguments) if isinstance(r, torch.Tensor))


def layout_of(graph: torch.fx.GraphModule, arguments: Sequence[object]) -> GraphResults:
    """Shapes and strides of the results, and whether they share memory, without computing anything."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
        fakes = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments]
        results = graph(*fakes)
    given = {f.untyped_storage()._cdata for f in fakes if isinstance(f, torch.Tensor)}
    tensors = [(i, r) for i, r in enumerate(results) if isinstance(r, torch.Tensor)]
    shared = next((i for i, r in tensors if r.untyped_storage()._cdata in given), None)
    return GraphResults(tuple(ResultTensor(r) if isinstance(r, torch.Tensor) else r for r in results), shared)


def export(graph: torch.fx.GraphModule, arguments: Sequence[Any], data: Sequence[int]) -> onnx.ModelProto:
    """The ONNX model of the graph at the shapes of ``arguments``; those at ``data`` are its inputs, in order.

    Raises :class:`HandedBack` for a graph that PyTorch can't export, and for one that writes to its inputs."""
    tensors = tuple(arguments[i].detach() for i in data)
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(FixedGraph(graph, arguments, data).eval(), tensors, strict=False)
            program = program.run_decompositions({})  # makes what is written in place a result, and says so
    except Exception as error:
        raise HandedBack(f"torch.export can't take it: {_line(error)}") from error
    signature = program.graph_signature
    written = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if written:
        raise HandedBack(f"it writes to its input {written[0]!r}")
    try:
        with _quiet():
            exported = torch.onnx.export(program, (), dynamo=True, verbose=False, external_data=False)
    except Exception as error:
        raise HandedBack(f"torch.onnx can't export it: {_line(error)}") from error
    return exported.model_proto


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What exporters print, warn of and log about operators is for their authors."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [log.level for log in loggers]
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            for log in loggers:
                log.setLevel(logging.ERROR)
            yield
    finally:
        for log, level in zip(loggers, levels):
            log.setLevel(level)


def _line(error: BaseException) -> str:
    """The line of an exporter's error that tells what it is: that of its cause, where it has one."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__

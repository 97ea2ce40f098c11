"""Operators with a stage written as loops (sorting, scanning): TVM lowers the stage, we give it raw pointers."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import te, tirx

from ..errors import UnsupportedError
from .group import Kernel, Request, Value
from .tegraph import GroupGraph


def build_opaque(request: Request) -> Kernel:
    """One kernel, from ``te.create_prim_func``: inner loops as they are, intermediates in the worker's workspace.
    All layouts must be plain."""
    group = request.group
    graph = GroupGraph(group)
    inputs = [v for v in group.inputs if not _is_literal(v)]
    for value in group.inputs:
        if value not in inputs:
            inputs.append(value)
    operands: list[Value] = [*inputs, *group.outputs]
    function = te.create_prim_func([graph.tensors[v] for v in operands])
    if _calls_runtime(function):
        names = ", ".join(n.operator for n in group.nodes)
        raise UnsupportedError(f"{group.name}: {names} needs TVM's runtime library, which a built library must not")
    return Kernel(
        function=_raw(function),
        operands=tuple(operands),
        outputs=group.outputs,
        schedule="loops",
        flops=sum(v.elements for v in group.outputs),
        workspace=_workspace(function),
    )


def _is_literal(_value: Value) -> bool:
    return False


def _raw(function: Any) -> Any:
    """Buffer parameters become pointers with declared buffers."""
    params, declare = [], []
    for param in function.params:
        buffer = function.buffer_map[param]
        data = buffer.data
        params.append(data)
        declare.append(tirx.DeclBuffer(buffer, data=data))
    body = tirx.SeqStmt([*declare, function.body, tirx.Return(tirx.IntImm("int32", 0))])
    raw = tirx.PrimFunc(params, body, ret_type=tvm.ir.PrimType("int32"))
    return raw.with_attrs({"tirx.noalias": True, "s_tir": True})


def _calls_runtime(function: Any) -> bool:
    return "call_packed" in function.script()


def _workspace(function: Any) -> int:
    total = 0
    for buffer in _allocated(function):
        size = int(np.prod([int(s) for s in buffer.shape], dtype=np.int64)) * tvm.DataType(str(buffer.dtype)).bits // 8
        total += -(-size // 64) * 64 + 64
    return total


def _allocated(function: Any) -> list[Any]:
    body = function.body
    block = getattr(body, "block", None)
    return list(block.alloc_buffers) if block is not None else []

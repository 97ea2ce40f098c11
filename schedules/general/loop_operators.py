"""Operators written as loops (schedules/operators/loops.py): their statements are the kernel, on raw pointers."""

from __future__ import annotations

from tvm import te

from ...errors import UnsupportedError
from ..emit.builder import KernelBuilder
from ..operators.loops import recording
from ..operators.registry import expression
from ..words.group import Kernel, Request, Scratch, Value, dtype_bytes
from ..words.sizes import product, usual


def build_opaque(request: Request) -> Kernel:
    """One kernel for the group's only node, a single stage of statements. All layouts must be plain."""
    group, target = request.group, request.target
    node = group.nodes[0]
    inputs = [te.placeholder(v.shape, v.dtype, v.name) for v in node.inputs]
    with recording() as stages:
        expression(node.call, inputs)
    if len(group.nodes) > 1 or len(stages) != 1:
        raise UnsupportedError(f"{group.name}: {', '.join(group.operators)} can't be one kernel of loops")
    stage = stages[0]
    k = KernelBuilder(group.name)
    repeats = target.triple.startswith("x86_64") and not target.loads_factors  # an element of memory
    k.factor_values = 0 if repeats else target.lanes("float32")
    k.register_values = target.vector_registers * target.lanes("float32")
    operands: list[Value | Scratch] = []
    reads, writes = [], []
    for i, tensor in enumerate(stage.inputs):
        value = node.inputs[next(j for j, t in enumerate(inputs) if t.same_as(tensor))]
        reads.append(k.pointer(f"in{i}", value.dtype, value.elements))
        operands.append(value)
    for i, value in enumerate(node.results):
        writes.append(k.pointer(f"out{i}", value.dtype, value.elements))
        operands.append(value if value in group.outputs else Scratch(value.elements * dtype_bytes(value.dtype)))
    stage.write(k, reads, writes)
    return Kernel(
        function=k.finish(),
        operands=tuple(operands),
        outputs=group.outputs,
        schedule="loops",
        flops=sum(usual(product(v.shape)) for v in (*node.inputs, *node.results)),
        workspace=k.workspace,
        shared=True,
    )

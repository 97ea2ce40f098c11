"""``--dump-ir DIR``: what each stage left behind, one readable file a stage, named after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import OutputError

if TYPE_CHECKING:
    from ..schedules.words.tvm_types import Binding, Expr, IRModule, PrimFunc
    from .state import Build


def dump_stage(build: Build, stage: str, folder: Path) -> None:
    """Writes ``<number>-<stage>.txt``; raises OutputError if it can't."""
    from .state import STAGES

    text = _text(build, stage)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{STAGES.index(stage) + 1}-{stage}.txt").write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"can't write the IR of stage {stage} to {folder}: {error.strerror}") from error


def _text(build: Build, stage: str) -> str:
    from .state import REWRITES

    if stage == "import" or stage in REWRITES:
        return str(_printable(build.module).script())
    if stage == "select":
        return "\n".join(build.notes.get("select", []))
    if stage in ("fuse", "layout", "tile"):
        return json.dumps(build.report.get("groups", []), indent=1)
    if stage == "schedule":
        return "\n\n".join(
            f"# {g.name}: {k.schedule}\n{k.function.script()}" for g, k in zip(build.groups, build.kernels)
        )
    if stage == "plan":
        lines = [
            f"{b.offset:>12} {b.bytes:>12}  steps {b.first}-{b.last}  {b.name}"
            for b in sorted(build.memory.buffers, key=lambda b: (b.first, b.offset))
        ]
        return "\n".join([f"arena: {build.memory.planned_bytes} bytes", *lines])
    return json.dumps(build.report, indent=1, default=str)


def _printable(module: IRModule) -> IRModule:
    """The module with the bodies of its loops and branches as functions of their own, which their calls name."""
    import tvm
    from tvm import relax

    from ..schedules.operators.of_sizes import TABLE
    from ..schedules.operators.registry import attributes
    from ..schedules.words.group import CONTROL

    functions: dict[str, PrimFunc] = {}

    def without(function: PrimFunc) -> PrimFunc:
        blocks = [type(b)([bound(binding) for binding in b.bindings]) for b in function.body.blocks]
        body = relax.SeqExpr(blocks, function.body.body)
        relax.expr._update_type(body, function.body.ty)
        return relax.Function(list(function.params), body, function.ret_ty, True, function.attrs)

    def bound(binding: Binding) -> Binding:
        call = binding.value
        if not isinstance(call, tvm.ir.Call) or call.op.name not in (*CONTROL, TABLE):
            return binding
        given: dict[str, Expr] = {}
        for name, value in attributes(call).items():
            if isinstance(value, relax.Function):
                given[name] = f"body{len(functions)}"
                functions[given[name]] = None  # its name is taken
                functions[given[name]] = without(value)
            elif name != "results":
                given[name] = value
        attrs = tvm.ir.make_node("ir.DictAttrs", **given)
        return relax.VarBinding(binding.var, tvm.ir.Call(call.op, call.args, attrs, ret_ty=call.ty), binding.span)

    main = without(module["main"])
    return tvm.IRModule({"main": main, **functions}) if functions else module

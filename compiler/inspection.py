"""What is in a model, before compiling it, and what is left of it after a stage. Plain data throughout."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import onnx

from ..errors import HalotileError, ShapeError, UnsupportedError
from ..targets.target import Target
from .frontend.check import check
from .frontend.contents import all_nodes, count_weights
from .frontend.functions import dtype_name
from .frontend.known import with_their_shapes
from .frontend.load import Source, load, metadata_of
from .frontend.shapes import declared_shape, run_time_inputs
from .given import ModelGiven
from .options import Fixed, Shapes
from .spec import TensorSpec

if TYPE_CHECKING:
    from ..targets.plain import Json, JsonView
    from .frontend.importer import ImportedModel

_WEIGHT_LIMIT = (
    1024  # constants above this many bytes can't be shapes, so shape inference does without their values
)

_INFER_SECONDS = 20  # of ONNX's inference, which takes a second for ten thousand nodes, and for ever on some
_INFER = """
import sys
sys.path[:] = sys.argv[1:]
import onnx
inferred = onnx.shape_inference.infer_shapes(sys.stdin.buffer.read(), data_prop=True)
sys.stdout.buffer.write(inferred.SerializeToString())
"""


def inspect_file(
    model: ModelGiven,
    shapes: Shapes | None = None,
    fixed: Mapping[str, Fixed] | None = None,
    typical: Mapping[str, int] | None = None,
) -> Json:
    """Inputs, outputs, operators with their counts, coverage, multiply-adds and weights of the file as it is.

    Nodes and weights of branches, loops' bodies and functions count as well, once each (``nodes_inside``).
    ``coverage`` says whether the import takes the model: exactly when every dimension is fixed, and by operator when
    some are open (``exact`` tells which). ``macs`` is None while it depends on an open dimension. ``symbols`` are the
    open dimensions: sizes, the one to plan for, and why; inputs and outputs have expressions of them, as far as the
    import can tell, and ``conditions`` say what else runs must satisfy.
    """
    source = load(model)
    check(source)
    graph = source.model.graph
    shapes = with_their_shapes(graph, shapes, fixed)
    found = _imported(model, shapes, fixed, typical)
    inputs = [_described(i.name, i, found) for i in run_time_inputs(graph)]
    macs, open_nodes = count_macs(source.model, {i["name"]: i["shape"] for i in inputs})
    nodes = [*all_nodes(source.model)]
    return {
        "name": source.name or graph.name,
        "producer": " ".join(filter(None, [source.model.producer_name, source.model.producer_version])),
        "metadata": metadata_of(source.model),
        "opsets": {o.domain or "ai.onnx": o.version for o in source.model.opset_import},
        "inputs": inputs,
        "outputs": [_described(o.name, o, found) for o in graph.output],
        "symbols": [asdict(s) for s in found.symbols] if found is not None else [],
        "conditions": [c.told for c in found.conditions] if found is not None else [],
        "operators": dict(Counter(_operator(n) for n in nodes).most_common()),
        "nodes": len(nodes),
        "nodes_inside": len(nodes) - len(graph.node),
        "weights": asdict(count_weights(source.model)),
        "macs": None if open_nodes else macs,
        "macs_unknown_for": open_nodes,
        "coverage": _coverage(model, source, shapes, fixed, found),
    }


def inspect_stage(
    model: ModelGiven,
    stage: str,
    shapes: Shapes | None,
    target: str | Target,
    check: bool = False,
    more: JsonView | None = None,
) -> Json:
    """The pipeline run up to ``stage``: operators before and after, each operator left, and every pass's notes.

    ``more``: further options of the pipeline."""
    from ..targets.resolve import resolve
    from .listing import operators
    from .pipeline import run_pipeline
    from .state import STAGES, Options

    names = [s for s in STAGES if s not in ("assemble", "link")]
    if not isinstance(stage, str) or stage not in names:
        raise HalotileError(f"stage {stage!r} can't be inspected; choose one of {', '.join(names)}")
    fixed = dict(shapes) if shapes else None
    options = Options(target=resolve(target), shapes=fixed, stop_after=stage, check=check, explain=True, **(more or {}))
    build = run_pipeline(model, options)
    module = build.imported.module if stage == "import" else build.module
    listed = operators(module, composites=stage == "simplify")
    return {
        "name": build.imported.name,
        "stage": stage,
        "inputs": [_tensor(t) for t in build.imported.inputs],
        "outputs": [_tensor(t) for t in build.imported.outputs],
        "symbols": [asdict(s) for s in build.imported.symbols],
        "conditions": [c.told for c in build.imported.conditions],
        "operators_before": dict(build.imported.operators),
        "operators_after": dict(Counter(o["operator"] for o in listed).most_common()),
        "nodes_before": sum(build.imported.operators.values()),
        "nodes_after": len(listed),
        "operators": listed,
        "notes": {k: list(v) for k, v in build.report.get("notes", {}).items()},
        "details": dict(build.details),
        "kernels": build.report.get("kernels", []),
        "seconds": dict(build.report.get("seconds", {})),
    }


def count_macs(model: onnx.ModelProto, inputs: Mapping[str, list[int] | None]) -> tuple[int, list[str]]:
    """Multiply-adds of convolutions and matrix products, and the nodes whose shapes stay open; it is open too how often
    those inside of branches, bodies and functions run."""
    shapes = _inferred_shapes(model, inputs)
    total = 0
    unknown: list[str] = []
    for index, node in enumerate(model.graph.node):
        rule = _MACS.get(node.op_type)
        if rule is None or node.domain not in ("", "ai.onnx"):
            continue
        operands = [shapes.get(n) for n in (*node.input[:2], node.output[0])]
        fixed = [s for s in operands if s is not None and all(isinstance(d, int) for d in s)]
        if len(fixed) == 3:
            total += rule(node, *fixed)
        else:
            unknown.append(node.name or f"#{index}")
    inside = [n for n in all_nodes(model)][len(model.graph.node) :]
    inside = [n for n in inside if n.op_type in _MACS and n.domain in ("", "ai.onnx") and n.output]
    unknown += [n.name or n.output[0] for n in inside]
    return total, unknown


def _conv(node: onnx.NodeProto, _x: list[int], w: list[int], y: list[int]) -> int:
    return math.prod(y) * math.prod(w[1:])


def _conv_transpose(node: onnx.NodeProto, x: list[int], w: list[int], _y: list[int]) -> int:
    return math.prod(x) * math.prod(w[1:])


def _gemm(node: onnx.NodeProto, a: list[int], _b: list[int], y: list[int]) -> int:
    transposed = any(at.name == "transA" and at.i for at in node.attribute)
    return math.prod(y) * a[0 if transposed else 1]


def _matmul(node: onnx.NodeProto, a: list[int], _b: list[int], y: list[int]) -> int:
    return math.prod(y) * a[-1]


_MACS = {"Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": _matmul}


def _inferred_shapes(model: onnx.ModelProto, inputs: Mapping[str, list[Any] | None]) -> dict[str, list[Any]]:
    """Shapes by name after ONNX's inference on a copy without large weights, inputs being as ``inputs`` says."""
    skeleton = onnx.ModelProto(ir_version=model.ir_version)
    skeleton.opset_import.extend(model.opset_import)
    skeleton.functions.extend(model.functions)
    graph = skeleton.graph
    graph.name = model.graph.name or "graph"
    graph.node.extend(model.graph.node)
    graph.output.extend(model.graph.output)
    shapes: dict[str, list[Any]] = {}
    for tensor in model.graph.initializer:
        shapes[tensor.name] = list(tensor.dims)
        if tensor.data_location != onnx.TensorProto.EXTERNAL and tensor.ByteSize() <= _WEIGHT_LIMIT:
            graph.initializer.append(tensor)
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    for info in run_time_inputs(model.graph):
        element = info.type.tensor_type.elem_type
        graph.input.append(onnx.helper.make_tensor_value_info(info.name, element, inputs.get(info.name)))
    graph = _inferred(skeleton).graph
    for info in [*graph.input, *graph.value_info, *graph.output]:
        declared = declared_shape(info)
        if declared is not None:
            shapes.setdefault(info.name, declared)
    return shapes


def _inferred(skeleton: onnx.ModelProto) -> onnx.ModelProto:
    """``skeleton`` with what ONNX's inference finds; as it is, where inference fails: that only costs us the count.

    It runs in a process of its own: on windows larger than their input it goes on with negative dimensions, of which
    a later Slice aborts the process, and in some malformed equations of Einsum it never gets to the end.
    """
    command = [sys.executable, "-c", _INFER, *sys.path]  # modules are found where this process finds them
    try:
        given = skeleton.SerializeToString()
        child = subprocess.run(command, input=given, capture_output=True, check=True, timeout=_INFER_SECONDS)
        return onnx.load_from_string(child.stdout)
    except Exception:  # no interpreter to start, constants of more than 2 GB, a malformed value
        return skeleton


def _imported(
    model: ModelGiven, shapes: Shapes | None, fixed: Mapping[str, Fixed] | None, typical: Mapping[str, int] | None
) -> ImportedModel | None:
    """The model as it is imported with open dimensions; None where that can't be done."""
    from .frontend import import_model

    try:
        return import_model(model, shapes, True, fixed, typical)
    except UnsupportedError:
        return None
    except ShapeError:
        if shapes or typical:
            raise
        return None


def _coverage(
    model: Any, source: Source, shapes: Shapes | None, fixed: Mapping[str, Fixed] | None, found: ImportedModel | None
) -> Json:
    from .frontend import import_model

    try:
        imported = found if found is not None else import_model(model, shapes, fixed=fixed)
        return {"supported": True, "exact": True, "refused": [], "notes": list(imported.notes)}
    except UnsupportedError as error:
        lines = str(error).splitlines()
        return {
            "supported": False,
            "exact": True,
            "refused": [s.strip() for s in lines[1:]] or lines,
            "notes": [],
        }
    except ShapeError as error:
        refused = unsupported_operators(source.model)
        return {"supported": not refused, "exact": False, "refused": refused, "notes": [str(error)]}


def unsupported_operators(model: onnx.ModelProto) -> list[str]:
    """``name: reason`` of every operator of which no form can be compiled, whatever its shapes are."""
    from .frontend.walk import why_unsupported

    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    own = {(f.domain, f.name) for f in model.functions}
    reasons = {}
    for domain, operator in sorted({(n.domain, n.op_type) for n in all_nodes(model)} - own):
        domain = "" if domain == "ai.onnx" else domain
        reasons[operator] = why_unsupported(domain, operator, opsets.get(domain, 1))
    return [f"{operator}: {reason}" for operator, reason in reasons.items() if reason]


def _described(name: str, info: onnx.ValueInfoProto, imported: ImportedModel | None) -> Json:
    """An input or output as it is imported, or as the model declares it."""
    for spec in (*imported.inputs, *imported.dropped, *imported.outputs) if imported is not None else ():
        if spec.name == name:
            return _tensor(spec)
    return {"name": name, "dtype": dtype_name(info.type.tensor_type.elem_type), "shape": declared_shape(info)}


def _tensor(spec: TensorSpec) -> Json:
    shape = [d if isinstance(d, int) else str(d) for d in spec.shape]
    return {"name": spec.name, "dtype": spec.dtype, "shape": shape}


def _operator(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"

"""Constant folding: a node whose operands are all known is evaluated at import, by ONNX's reference evaluator.

    Shape -> Gather -> Unsqueeze -> Concat -> Reshape     becomes     Reshape to a known shape

because shapes are static, the walk turns Shape into a constant, and everything computed from it follows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

# Operators whose result may be far larger than their operands; folding those would bloat the weights. Converters come
# first: those of quantisation take every version, and what is out of range does not wrap.
EXPANDING = frozenset(
    "ConstantOfShape Expand Tile Range OneHot EyeLike Resize Upsample Pad GatherND Gather Add Mul Where "
    "Einsum MatMul QuantizeLinear DequantizeLinear".split()
)
LARGEST_EXPANSION = 16 << 20  # bytes a folded result may have when it is larger than its operands

WEIGHTED = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
RANDOM = frozenset(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli Dropout".split()
)


def may_fold(operator: str, has_graphs: bool) -> bool:
    return operator not in RANDOM and not has_graphs


def weight_names(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """What convolutions and products read as weights: worth knowing at compile time whatever its size, since a kernel
    packs it then."""
    return {name for node in nodes if node.op_type in WEIGHTED for name in list(node.input)[1:] if name}


def worth_folding(inputs: Sequence[np.ndarray | None], output_bytes: int) -> bool:
    """False for a result that is big and bigger than what it is computed from."""
    return output_bytes <= LARGEST_EXPANSION or output_bytes <= sum(i.nbytes for i in inputs if i is not None)


def evaluate(
    proto: onnx.NodeProto, opsets: dict[str, int], inputs: Sequence[np.ndarray | None]
) -> list[np.ndarray | None] | None:
    """The outputs of a node on known operands, or None when the reference evaluator can't say."""
    if any(i is not None and i.dtype.kind == "V" for i in inputs):
        return None
    if proto.op_type == "ReduceMean" and not np.asarray(inputs[0]).size:  # NaN to the evaluator, 0 to the converter
        return None
    names = [f"i{n}" if i is not None else "" for n, i in enumerate(inputs)]
    node = onnx.NodeProto()
    node.CopyFrom(proto)
    del node.input[:]
    node.input.extend(names)
    del node.output[:]
    node.output.extend(f"o{n}" if o else "" for n, o in enumerate(proto.output))
    wanted = [o for o in node.output if o]
    graph = onnx.helper.make_graph(
        [node],
        "fold",
        [onnx.ValueInfoProto(name=n) for n in names if n],
        [onnx.ValueInfoProto(name=n) for n in wanted],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in opsets.items()]
    )
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, {n: i for n, i in zip(names, inputs) if n})
    except Exception:  # the evaluator raises anything; the converter decides then
        return None
    found = dict(zip(wanted, results))
    outputs: list[np.ndarray | None] = []
    for name in node.output:
        if not name:
            outputs.append(None)
            continue
        result = np.asarray(found[name])
        if (
            result.dtype.kind in "OUSV"
            and "float" not in result.dtype.name
            and "int" not in result.dtype.name
        ):
            return None
        outputs.append(result)
    return _as_declared(proto, opsets, inputs, outputs)


def _as_declared(
    proto: onnx.NodeProto,
    opsets: dict[str, int],
    inputs: Sequence[np.ndarray | None],
    outputs: list[np.ndarray | None],
) -> list[np.ndarray | None] | None:
    """Outputs whose type the schema ties to an operand get that operand's dtype (numpy promotes behind our back)."""
    try:
        schema = onnx.defs.get_schema(proto.op_type, opsets.get(proto.domain, 1), proto.domain)
    except onnx.defs.SchemaError:
        return None
    tied: dict[str, np.dtype] = {}
    for formal, array in zip(schema.inputs, inputs):
        if array is not None:
            tied.setdefault(formal.type_str, array.dtype)
    result: list[np.ndarray | None] = []
    for n, output in enumerate(outputs):
        formal = schema.outputs[min(n, len(schema.outputs) - 1)]
        dtype: np.dtype | None = tied.get(formal.type_str)
        if formal.type_str.startswith("tensor("):
            dtype = _NUMPY.get(formal.type_str[7:-1])
        if output is not None and dtype is not None and output.dtype != dtype:
            output = output.astype(dtype)
        result.append(output)
    return result


_NUMPY: dict[str, np.dtype] = {
    "float": np.dtype("float32"),
    "double": np.dtype("float64"),
    "int64": np.dtype("int64"),
    "int32": np.dtype("int32"),
    "uint8": np.dtype("uint8"),
    "bool": np.dtype("bool"),
}

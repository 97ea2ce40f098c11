"""Is the model valid ONNX? Structure by our own rules (so that messages name nodes), the rest by ONNX's checker."""

from __future__ import annotations

import heapq

import onnx

from ...errors import ModelError, UnsupportedError
from .load import Source, check_text, printable
from .prune import reads, subgraphs
from .registry import converter

UNTOLD = "com.microsoft"  # ONNX Runtime knows it in models that do not import it
RETIRED = "retired"  # a domain of which the checker knows nothing, for operators that were withdrawn
MOST_NAMES = 8  # of a cycle's nodes that a message lists
SMALL = 1024  # initialisers above this many bytes are left out of what the checker sees


def check(source: Source) -> None:
    """Raises ModelError, or UnsupportedError for versions newer than the onnx package; one line, naming the node."""
    try:
        _check(source.model)
    except (ModelError, UnsupportedError) as error:
        raise type(error)(printable(str(error))) from None


def _check(model: onnx.ModelProto) -> None:
    check_text(model)
    if model.ir_version > onnx.IR_VERSION:
        raise UnsupportedError(
            f"the model has IR version {model.ir_version}; the installed onnx {onnx.__version__} knows up to "
            f"{onnx.IR_VERSION}: upgrade onnx or export an older version"
        )
    _check_opsets(model)
    _check_names(model.graph)
    in_order(model.graph)
    if _all_known(model):
        _check_nodes(model)
        for function in model.functions:
            if _has_own_opset(function, model):
                _check_function(function)
        try:
            onnx.checker.check_model(_skeleton(model))
        except onnx.checker.ValidationError as error:
            raise ModelError(f"not a valid ONNX model: {_one_line(str(error))}") from None


def _check_nodes(model: onnx.ModelProto) -> None:
    """Attributes and numbers of operands, node by node, because the checker of a whole model names no node."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {UNTOLD: 1} | {
        ("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import
    }
    own = {(f.domain, f.name) for f in model.functions}
    for index, node in enumerate(model.graph.node):
        if (node.domain, node.op_type) in own or any(subgraphs(node)) or _is_large_constant(node):
            continue
        if _is_retired(node, model):
            continue
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError as error:
            where = f"{label(node, index)} ({node.op_type})"
            raise ModelError(f"not a valid ONNX model: {where}: {_one_line(str(error))}") from None


def _has_own_opset(function: onnx.FunctionProto, model: onnx.ModelProto) -> bool:
    """True for a function whose operators are those of another version than the model's."""
    theirs, own = (
        {("" if o.domain == "ai.onnx" else o.domain): o.version for o in p.opset_import} for p in (model, function)
    )
    return any(domain in theirs and theirs[domain] != version for domain, version in own.items())


def _check_function(function: onnx.FunctionProto) -> None:
    """Its nodes by its own opsets, by which the walk reads them, too."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    context.opset_imports = {UNTOLD: 1} | {
        ("" if o.domain == "ai.onnx" else o.domain): o.version for o in function.opset_import
    }
    try:
        onnx.checker.check_function(function, context)
    except onnx.checker.ValidationError as error:
        where = f"function '{function.name}' of '{function.domain}'"
        raise ModelError(f"not a valid ONNX model: {where}: {_one_line(str(error))}") from None


def _check_opsets(model: onnx.ModelProto) -> None:
    if not model.opset_import:
        raise ModelError("not a valid ONNX model: it imports no opset")
    newest = onnx.defs.onnx_opset_version()
    domains = {UNTOLD: 1}
    for opset in model.opset_import:
        domain = "" if opset.domain == "ai.onnx" else opset.domain
        domains[domain] = opset.version
        if domain == "" and newest < opset.version < 2**31:
            raise UnsupportedError(
                f"the model uses opset {opset.version}; the installed onnx {onnx.__version__} knows up to {newest}: "
                "upgrade onnx or export an older opset"
            )
        if not 1 <= opset.version < 2**31:
            raise ModelError(f"not a valid ONNX model: opset version {opset.version} of domain '{domain}'")
    for index, node in enumerate(model.graph.node):
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain not in domains:
            raise ModelError(
                f"{label(node, index)} ({node.op_type}) is of the domain '{domain or 'ai.onnx'}', "
                "of which the model imports no opset"
            )


def _check_names(graph: onnx.GraphProto) -> None:
    """Every name is produced once, and every name that is read is produced."""
    defined = _defined(graph)
    for index, node in enumerate(graph.node):
        for name in sorted(reads(node)):
            if name not in defined:
                raise ModelError(
                    f"{label(node, index)} ({node.op_type}) reads '{name}', which nothing produces"
                )
    if not graph.output:
        raise ModelError("the model has no outputs")
    for info in graph.output:
        if info.name not in defined:
            raise ModelError(f"output '{info.name}' is produced by no node")


def _defined(graph: onnx.GraphProto) -> dict[str, str]:
    """Every name that the graph produces, and by what."""
    defined: dict[str, str] = {}
    for info in graph.input:
        if info.name in defined:
            raise ModelError(f"two inputs are called '{info.name}'")
        defined[info.name] = "an input"
    seen: set[str] = set()
    for tensor in graph.initializer:
        if tensor.name in seen:
            raise ModelError(f"two initialisers are called '{tensor.name}'")
        seen.add(tensor.name)
        defined[tensor.name] = "an initialiser"
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        if defined.get(name, "an input") != "an input":
            raise ModelError(f"a sparse initialiser is called '{name}', which is already the name of {defined[name]}")
        defined[name] = "a sparse initialiser"
    for index, node in enumerate(graph.node):
        for output in node.output:
            if output in defined:
                raise ModelError(
                    f"{label(node, index)} ({node.op_type}) produces '{output}', "
                    f"which is already the name of {defined[output]}"
                )
            if output:
                defined[output] = f"an output of {label(node, index)} ({node.op_type})"
    return defined


def in_order(graph: onnx.GraphProto) -> list[int] | None:
    """None when every node comes after what it reads, else an order in which that is so; a cycle is a ModelError."""
    maker = {o: i for i, node in enumerate(graph.node) for o in node.output if o}
    needs = [{maker[n] for n in reads(node) if n in maker} for node in graph.node]
    if all(all(m < i for m in need) for i, need in enumerate(needs)):
        return None
    readers: dict[int, list[int]] = {}
    for i, need in enumerate(needs):
        for m in need:
            readers.setdefault(m, []).append(i)
    waits = [len(need) for need in needs]
    ready = [i for i, count in enumerate(waits) if not count]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for i in readers.get(order[-1], ()):
            waits[i] -= 1
            if not waits[i]:
                heapq.heappush(ready, i)
    if len(order) < len(needs):
        cycle = _cycle(needs, waits)
        names = ", ".join(f"{label(graph.node[i], i)} ({graph.node[i].op_type})" for i in cycle[:MOST_NAMES])
        more = f" and {len(cycle) - MOST_NAMES} more" if len(cycle) > MOST_NAMES else ""
        raise ModelError(f"the graph has a cycle through {names}{more}")
    return order


def _cycle(needs: list[set[int]], waits: list[int]) -> list[int]:
    """The nodes of one cycle among those that wait for others."""
    node = next(i for i, count in enumerate(waits) if count)
    path: dict[int, None] = {}
    while node not in path:
        path[node] = None
        node = min(m for m in needs[node] if waits[m])
    found = list(path)
    return found[found.index(node) :][::-1]


def _all_known(model: onnx.ModelProto) -> bool:
    """False when the checker would stop at an operator that ONNX lacks, which the walk reports better."""
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    own = {(f.domain, f.name) for f in model.functions}

    def known(node: onnx.NodeProto) -> bool:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (node.domain, node.op_type) not in own and domain in ("", "ai.onnx.ml"):
            if not onnx.defs.has(node.op_type, max_inclusive_version=opsets.get(domain, 1), domain=domain):
                return False
        return all(known(n) for g in subgraphs(node) for n in g.node)

    return all(known(n) for n in model.graph.node)


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as the checker needs it: nodes in order, and large weights as empty tensors of the same dtype."""
    # Before IR version 4 every initialiser had to be an input as well; a model that breaks that is still clear.
    skeleton = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    skeleton.opset_import.extend(model.opset_import)
    for function in model.functions:
        if _has_own_opset(function, model):  # which the checker does not allow: its body is checked by itself
            named = onnx.FunctionProto()
            named.CopyFrom(function)
            del named.node[:], named.opset_import[:]
            named.opset_import.extend(model.opset_import)
            function = named
        skeleton.functions.append(function)
    graph = skeleton.graph
    graph.name = model.graph.name or "graph"
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    for output in graph.output:
        kind = output.type.WhichOneof("value")
        if kind in (None, "tensor_type") and not output.type.tensor_type.HasField("shape"):
            # exporters leave output shapes out; they are inferred, and nothing but the checker asks for them
            output.type.tensor_type.elem_type = output.type.tensor_type.elem_type or onnx.TensorProto.FLOAT
            output.type.tensor_type.shape.SetInParent()
    for info in graph.input:  # of unknown rank: ONNX Runtime takes it, and the user gives the shape
        if info.type.WhichOneof("value") == "tensor_type" and not info.type.tensor_type.HasField("shape"):
            info.type.tensor_type.shape.SetInParent()
    graph.sparse_initializer.extend(model.graph.sparse_initializer)
    for tensor in model.graph.initializer:
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        if external or _is_large(tensor):
            graph.initializer.append(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0]))
        else:
            graph.initializer.append(tensor)
    skeleton.opset_import.add(domain=RETIRED, version=1)
    if all(o.domain != UNTOLD for o in model.opset_import):
        skeleton.opset_import.add(domain=UNTOLD, version=1)
    for index in in_order(model.graph) or range(len(model.graph.node)):
        node = model.graph.node[index]
        if _is_retired(node, model):
            graph.node.add(domain=RETIRED, op_type=node.op_type, input=node.input, output=node.output)
        elif _is_large_constant(node):
            data_type = node.attribute[0].t.data_type
            graph.initializer.append(onnx.TensorProto(name=node.output[0], data_type=data_type, dims=[0]))
        else:
            graph.node.append(node)
    return skeleton


def _is_retired(node: onnx.NodeProto, model: onnx.ModelProto) -> bool:
    """Whether ONNX has withdrawn an operator in the model's opset that models have all the same, and we convert."""
    if node.domain not in ("", "ai.onnx"):
        return False
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    if not onnx.defs.has(node.op_type, max_inclusive_version=opset) or converter("", node.op_type, opset) is None:
        return False
    return bool(onnx.defs.get_schema(node.op_type, opset).deprecated)


def _is_large_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and len(node.attribute) == 1 and _is_large(node.attribute[0].t)


def _is_large(tensor: onnx.TensorProto) -> bool:
    """Whether the checker sees an empty tensor in its place. To know its size, a tensor is written out, which is slower
    than a copy of its bytes."""
    return len(tensor.raw_data) > SMALL or tensor.ByteSize() > SMALL


def label(node: onnx.NodeProto, index: int) -> str:
    return f"node '{node.name}'" if node.name else f"node #{index}"


def _one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("==>")]
    return " ".join(lines)[:400]

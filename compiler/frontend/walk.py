"""The walk: one forward pass over the ONNX nodes that writes Relax, with every shape exact at every step.

For each tensor it keeps the static shape, the dtype and, when known, the contents. A node is written by its converter
(which computes what it can from known operands: ahead.py), replaced by its function body and walked again, or recorded
as an offender. Offenders are collected, not raised, so that one message can name them all.
"""

from __future__ import annotations

import functools
import re
from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Any

import numpy as np
import onnx

from ...errors import HalotileError
from ...schedules.words.dims import is_open
from ...schedules.words.refusal import Refusal
from . import (
    bytewise,
    control,
    everywhere,
    functions,
    lengths,
    partial,
    parts,
    positions,
    questions,
    sequences,
    sizes,
    symbolic,
)
from .ahead import WIDENING, computed, weight_names
from .attributes import unknown_value
from .deciding import deciding, flags
from .learned import AT, Learned
from .load import printable
from .node import OnnxNode
from .objection import objection, wrong_types
from .origins import Writer
from .prune import live_nodes, used_names
from .registry import Converter, converter
from .slot import Slot, TensorSequence
from .tensors import TensorReader
from .value import PLAIN, POISON, Asked, OnnxValue, Poison

Scope = MutableMapping[str, Slot]

CONTROL = ("If", "Loop", "Scan", "SequenceMap")
LARGE = 1 << 20  # bytes of a node, such as an ensemble of trees
LARGEST_DEPTH = 64  # nested function bodies; deeper means recursion, which ONNX forbids


@dataclass(frozen=True)
class Offender:
    """A node that can't be converted, and why."""

    node: str
    operator: str
    domain: str
    opset: int
    reason: str
    inputs: tuple[str, ...] = ()  # of the model, whose values would settle it

    def __str__(self) -> str:
        domain = f"{self.domain}." if self.domain else ""
        return printable(f"{self.node} ({domain}{self.operator}, opset {self.opset}): {self.reason}")


class Walk:
    """State of one import; ``graph`` may be called again for the branches of If."""

    def __init__(self, model: onnx.ModelProto, builder: Writer, tensors: TensorReader) -> None:
        self.builder = builder
        builder.limits.hold(model.ByteSize)
        self.tensors = tensors
        self.functions = functions.model_functions(model)
        self.offenders: list[Offender] = []
        self.notes: list[str] = []
        self.weights: set[str] = set()
        self.guarded = False  # in a branch or a round that a condition of run time stands before
        self.hopeless = False  # some operator is none that can be converted: large nodes need no work any more
        self.skipped = False  # whether one of those was left out

    def graph(self, graph: onnx.GraphProto, scope: Scope, opsets: dict[str, int], where: str = "") -> None:
        """Converts the live nodes of ``graph`` into ``scope``, which maps names to values."""
        outputs = [o.name for o in graph.output]
        for tensor in graph.initializer:
            value = scope[tensor.name] = self.tensors.value(tensor)
            if not where and tensor.data_location == onnx.TensorProto.EXTERNAL:
                self.builder.limits.hold(functools.partial(mul, value.size, np.dtype(value.dtype).itemsize))
        for sparse in graph.sparse_initializer:
            scope[sparse.values.name] = self.tensors.sparse(sparse)
        self.nodes(graph.node, outputs, scope, opsets, where)

    def nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        outputs: Sequence[str],
        scope: Scope,
        opsets: dict[str, int],
        where: str,
        depth: int = 0,
    ) -> None:
        live = live_nodes(nodes, outputs)
        if not where and len(live) < len(nodes):
            dropped = len(nodes) - len(live)
            self.notes.append(
                f"{dropped} node{'s' if dropped > 1 else ''} dropped: no output depends on them"
            )
        used = used_names((nodes[i] for i in live), outputs)
        self.weights |= weight_names(nodes[i] for i in live)
        for index in live:
            proto = nodes[index]
            self.builder.spend(2)
            name = where or (f"node '{proto.name}'" if proto.name else f"node #{index}")
            if not where:
                self.builder.origin = proto.name or next(filter(None, proto.output), "")
            results = self._node(proto, scope, opsets, name, used, depth)
            for output, result in zip(proto.output, results):
                if output:
                    scope[output] = result

    # ------------------------------------------------------------------ one node

    def _node(
        self,
        proto: onnx.NodeProto,
        scope: Scope,
        opsets: dict[str, int],
        where: str,
        used: set[str],
        depth: int,
    ) -> Sequence[Slot]:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        opset = opsets.get(domain, 1)
        poisoned: list[Slot] = [POISON] * len(proto.output)

        def offend(reason: str, inputs: tuple[str, ...] = ()) -> list[Slot]:
            self.offenders.append(Offender(where, proto.op_type, domain, opset, reason, inputs))
            return poisoned

        operands = [scope[n] if n else None for n in proto.input]
        if any(isinstance(o, Poison) for o in operands):
            reason = self._is_known(proto, domain, opset)
            return poisoned if reason is None else offend(reason)
        inputs = [o for o in operands if not isinstance(o, Poison)]
        if self.hopeless and proto.ByteSize() > LARGE:
            self.skipped = True
            return poisoned
        if depth > LARGEST_DEPTH:
            return offend("its function body calls itself")
        at = AT.set(f"{where} ({proto.op_type})")
        try:
            results = self._convert(proto, domain, opset, inputs, scope, opsets, where, used, depth)
        except Refusal as refusal:
            return offend(str(refusal), refusal.inputs or _settings(inputs))
        except (HalotileError, Learned):
            raise
        except MemoryError:
            return offend("there is not enough memory for the constants that it makes")
        except Exception as error:  # TVM and numpy raise anything on operands that do not fit together
            shown = ", ".join("nothing" if i is None else str(i) for i in inputs)
            if any(isinstance(i, OnnxValue) and is_open(i.shape) for i in inputs):
                return offend(f"it needs fixed dimensions; its operands are {shown}")
            reason = objection(proto, opsets, inputs)
            if reason is not None:
                return offend(f"its operands are {shown}: {reason}")
            return offend(f"it can't be converted for operands {shown}{_said(error)}")
        finally:
            AT.reset(at)
        if results is None:
            return offend(self._is_known(proto, domain, opset) or "no converter and no function body")
        return results

    def _convert(
        self,
        proto: onnx.NodeProto,
        domain: str,
        opset: int,
        operands: list[OnnxValue | TensorSequence | None],
        scope: Scope,
        opsets: dict[str, int],
        where: str,
        used: set[str],
        depth: int,
    ) -> Sequence[Slot] | None:
        if domain == "" and proto.op_type in CONTROL:
            return self._control(proto, operands, scope, opsets, where)
        key = (domain, proto.op_type, proto.overload)
        if key in self.functions:
            return self._body(proto, self.functions[key], operands, opsets, where, depth)
        if domain == "" and proto.op_type in sequences.OPERATORS:
            _refuse_partial(proto, operands)
            given = {a.name: self._attribute(a) for a in proto.attribute if a.name != "type"}
            node = OnnxNode(proto.op_type, domain, opset, [], given, proto.output, self.builder)
            return [sequences.run_sequence(node, operands)]
        inputs = [o for o in operands if not isinstance(o, TensorSequence)]
        if len(inputs) < len(operands):
            if domain == "" and proto.op_type in sequences.PASS_THROUGH:
                return operands
            raise Refusal("an operand is a sequence, which it does not take")
        convert = converter(domain, proto.op_type, opset)
        node = self._seen(proto, domain, opset, inputs, used)
        if convert is not None:
            write = self._writer(convert, node)
            if domain == "" and any(i is not None and i.is_symbolic for i in inputs):
                told = symbolic.evaluate(node, inputs, write)
                if told is not None:
                    return told
            results = _lengthy(node, write)
            results = lengths.follow(node, inputs, write, write(inputs) if results is None else results)
            positions.follow(node, inputs, results)
            everywhere.follow(node, inputs, results)
            questions.follow(node, inputs, results)
            return results
        body = functions.schema_body(proto, opset, inputs)
        if body is None:
            return None
        if not depth:
            self.notes.append(f"{where} ({proto.op_type}) is compiled from its ONNX function body")
        return self._body(functions.with_defaults(proto, opset), body, inputs, opsets, where, depth)

    def _seen(
        self, proto: onnx.NodeProto, domain: str, opset: int, inputs: Sequence[OnnxValue | None], used: set[str]
    ) -> OnnxNode:
        """The node as a converter sees it; refuses operands and attributes that ONNX does not know."""
        attributes = {a.name: self._attribute(a) for a in proto.attribute}
        wrong = wrong_types(proto.op_type, domain, opset, inputs) or unknown_value(proto.op_type, attributes)
        if wrong is not None:
            raise Refusal(wrong)
        wanted = [bool(o) and o in used for o in proto.output]
        weight = proto.op_type in WIDENING or any(o in self.weights for o in proto.output)
        return OnnxNode(proto.op_type, domain, opset, inputs, attributes, proto.output, self.builder, wanted,
                    self.guarded, weight)  # fmt: skip

    def _writer(self, convert: Converter, node: OnnxNode) -> parts.Write:
        """What converts the node on given operands, and computes its results where they are known."""

        def write(values: Sequence[OnnxValue | None]) -> list[OnnxValue | None]:
            results = bytewise.write(convert, node.on(values))
            return [
                None if r is None else _without_emptiness(computed(r, self.builder.limits)) for r in results
            ]

        return write

    def _body(
        self,
        proto: onnx.NodeProto,
        body: onnx.FunctionProto,
        inputs: Sequence[Slot],
        opsets: dict[str, int],
        where: str,
        depth: int,
    ) -> list[Slot]:
        """Walks a function's body with the caller's operands and attributes in place of its formal ones."""
        given = {a.name: a for a in body.attribute_proto} | {a.name: a for a in proto.attribute}
        scope: dict[str, Slot] = {n: None for n in body.input}
        scope.update(zip(body.input, inputs))
        own = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in body.opset_import}
        opsets = {**opsets, **own}
        nodes = [functions.bind_attributes(n, given) for n in body.node]
        wanted = [name for name, output in zip(body.output, proto.output) if output]
        self.nodes(nodes, wanted, scope, opsets, f"{where} in its function body", depth + 1)
        return [scope.get(name) if output else None for name, output in zip(body.output, proto.output)]

    def _control(
        self,
        proto: onnx.NodeProto,
        operands: list[OnnxValue | TensorSequence | None],
        scope: Scope,
        opsets: dict[str, int],
        where: str,
    ) -> list[Slot]:
        if proto.op_type not in ("If", "Loop", "Scan"):  # these follow lengths themselves
            _refuse_partial(proto, operands)

        def run(graph: onnx.GraphProto, given: dict[str, Slot], part: str, guarded: bool = False) -> list[Slot]:
            inner: Scope = ChainMap(dict(given), scope)
            before, self.guarded = self.guarded, self.guarded or guarded
            self.graph(graph, inner, opsets, f"{where} in its {part}")
            self.guarded = before
            return [inner[o.name] for o in graph.output]

        attributes = {
            a.name: self._attribute(a) for a in proto.attribute if a.type != onnx.AttributeProto.GRAPH
        }
        node = OnnxNode(proto.op_type, "", opsets.get("", 1), [], attributes, proto.output, self.builder)
        if proto.op_type == "If":
            before, asked = len(self.offenders), self._asked(operands)
            try:
                results = control.run_if(proto, operands, run, node, asked is not None)
                differ = len(self.offenders) > before
            except Refusal:
                if asked is None:
                    raise
                differ = True
            if asked is not None and differ:
                del self.offenders[before:]
                return control.run_branch(proto, questions.require_answer(asked), run)
            if len(self.offenders) > before:
                self.offenders[before:] = _with_way_out(self.offenders[before:], operands[0])
            return results
        if proto.op_type == "Loop":
            return control.run_loop(proto, operands, run, node, self.offenders, scope)
        if proto.op_type == "SequenceMap":
            return control.run_map(proto, operands, run)
        if node.opset < 9:
            raise Refusal("Scan before opset 9 is not supported")
        return control.run_scan(proto, operands, run, node)

    def _asked(self, operands: Sequence[Slot]) -> Asked | None:
        """The question about open dimensions that an If asks, where the model is sure to come to it."""
        condition = operands[0] if operands and not self.guarded else None
        return condition.asks if isinstance(condition, OnnxValue) else None

    # ------------------------------------------------------------------ support

    def survey(self, graph: onnx.GraphProto, opsets: dict[str, int]) -> None:
        """Finds out by names alone whether an operator that every run comes to can't be converted in any form, before
        anything takes long. What such a node is, the walk says."""
        live = live_nodes(graph.node, [o.name for o in graph.output])
        pending, seen = [([graph.node[i] for i in live], opsets)], set()
        while pending and not self.hopeless:
            nodes, opsets = pending.pop()
            for proto in nodes:
                domain = "" if proto.domain == "ai.onnx" else proto.domain
                key = (domain, proto.op_type, proto.overload)
                if key in self.functions and key not in seen:
                    seen.add(key)
                    body = self.functions[key]
                    own = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in body.opset_import}
                    live = live_nodes(body.node, body.output)
                    pending.append(([body.node[i] for i in live], {**opsets, **own}))
                elif key not in self.functions and self._is_known(proto, domain, opsets.get(domain, 1)):
                    self.hopeless = True

    def _is_known(self, proto: onnx.NodeProto, domain: str, opset: int) -> str | None:
        """None when the operator can be converted in some form, else why it can't."""
        if (domain, proto.op_type, proto.overload) in self.functions:
            return None
        return why_unsupported(domain, proto.op_type, opset)

    def _attribute(self, attribute: onnx.AttributeProto) -> object:
        if attribute.type == onnx.AttributeProto.TENSOR:
            return self.tensors.value(attribute.t)
        if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
            return self.tensors.sparse(attribute.sparse_tensor)
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], bytes):
            return [v.decode(errors="replace") for v in value]
        return value


def why_unsupported(domain: str, operator: str, opset: int) -> str | None:
    """Why no form of ``operator`` can be converted; None when some form can."""
    if converter(domain, operator, opset) is not None:
        return None
    if domain == "" and operator in (*CONTROL, *sequences.OPERATORS):
        return None
    if domain not in ("", "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.ml"):
        return _DOMAINS.get(domain, f"operators of the domain '{domain}' are not supported")
    if not onnx.defs.has(operator, max_inclusive_version=opset, domain=domain):
        if onnx.defs.has(operator, domain=domain):
            return f"opset {opset} has no such operator (later ones do)"
        return "ONNX has no such operator"
    schema: Any = onnx.defs.get_schema(operator, opset, domain)
    if schema.has_function or schema.has_context_dependent_function:
        return None
    return _REASONS.get(operator, "this operator is not supported")


_DOMAINS = {
    "com.microsoft.nchwc": "ONNX Runtime's optimiser wrote the model for one processor, with weights in an order that "
    "the file does not tell; save it at the level ORT_ENABLE_EXTENDED, or compile the original",
}
_RANDOM = "it draws random numbers"
_DRAWS = "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli Dropout"
_TEXT = "strings are not supported"
_REASONS = {
    **dict.fromkeys(_DRAWS.split(), _RANDOM),
    "ZipMap": "it makes a list of dictionaries; export without it (zipmap=False), for scores as a tensor",
    **dict.fromkeys(
        "StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer".split(), _TEXT
    ),
}


def _lengthy(node: OnnxNode, write: parts.Write) -> list[OnnxValue | None] | None:
    """A node some of whose operands are there only in part, or whose sizes are known at run time only."""
    rule = sizes.rule(node)
    if rule is None and not any(map(parts.is_partial, node.inputs)):
        return None
    results = rule(node, write) if rule is not None else partial.converted(node, write)
    return [None if r is None else _without_emptiness(r) for r in results]


def _with_way_out(offenders: Sequence[Offender], condition: Slot) -> list[Offender]:
    """What can't be converted in the branches of an If, with the inputs whose values would leave one branch only."""
    names = deciding(condition.expr) if isinstance(condition, OnnxValue) and not condition.is_constant else ()
    if not names:
        return [*offenders]
    text = f"; which branch is taken follows from {', '.join(map(repr, names))}, and {flags(names)} leaves one"
    return [o if o.inputs else replace(o, reason=o.reason + text, inputs=names) for o in offenders]


def _settings(operands: Sequence[Slot]) -> tuple[str, ...]:
    """The model's inputs that decide whole numbers which a node takes, such as sizes."""
    whole = [o for o in operands if isinstance(o, OnnxValue) and not (o.is_constant or o.is_symbolic or o.is_float)]
    return tuple(dict.fromkeys(name for o in whole if o.dtype in PLAIN for name in deciding(o.expr)))


def _refuse_partial(proto: onnx.NodeProto, operands: Sequence[Slot]) -> None:
    """Bodies that are written out would lose count of what is there."""
    for name, value in zip(proto.input, operands):
        items = value.items if isinstance(value, TensorSequence) else (value,)
        if any(map(parts.is_partial, items)):
            raise Refusal(f"the length of '{name}' depends on the data, which it does not take")


def _without_emptiness(value: OnnxValue) -> OnnxValue:
    """A tensor without elements is a constant, whatever computes it."""
    if value.size == 0 and not value.is_constant and not is_open(value.shape):
        return OnnxValue.of_array(np.empty(value.shape, value.dtype))
    return value


#: What Python raises where a converter trips over an operand or attribute: its words tell the user nothing.
_STUMBLES = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, StopIteration, TypeError)


def _said(error: Exception) -> str:
    """What an exception has to say about a node, after a colon; nothing where it speaks of our code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, _STUMBLES) or not lines:
        return ", with the attributes that it has"
    return f": {re.sub(r'^In ir.Op.*support_level=[0-9]+.,? *', '', lines[-1])}"[:300]

"""import_model: an ONNX model in, one Relax function out; right or refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import tvm
from tvm import relax

from ...errors import ModelError, ShapeError, UnsupportedError
from ...schedules.words.atoms import KNOWN
from ...schedules.words.dims import is_open, to_relax
from ...schedules.words.refusal import Refusal
from ...schedules.words.sizes import SYMBOLS
from ...schedules.words.tvm_types import Expr
from ..given import ModelGiven
from ..images import Plain
from ..options import Fixed, Shapes
from ..spec import Condition, Symbol, TensorSpec, length_name
from . import converters  # noqa: F401  (fills the registry)
from .around import with_images
from .check import check, in_order
from .deciding import INPUTS, Inputs
from .fitting import with_fitting
from .functions import dtype_name, element_name
from .implied import ASSUMED, Assumed, symbol_name
from .known import constants, with_their_shapes
from .learned import Learned
from .load import Source, load, metadata_of
from .node import OnnxNode
from .origins import Writer
from .parts import zeroed
from .prune import count_nodes
from .shapes import contradictions, declared_shape, fixed_inputs, open_inputs, specs_of
from .slot import Slot, TensorSequence
from .symbols import Symbols
from .tensors import TensorReader
from .typical import told_symbols
from .value import PLAIN, OnnxValue, Poison
from .walk import Offender, Walk

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

MOST_NAMES = 8  # in a note; more are counted


@dataclass(frozen=True)
class ImportedModel:
    """``module`` has one function ``main``: one parameter per run-time input, a tuple of all outputs in order.
    ``dropped``: inputs that no output depends on. ``lengths``: the axis of outputs of which only a part is
    there; another output tells how much (:func:`..spec.length_name`). ``fixed``: inputs that became constants.
    ``symbols``: the dimensions that are open, in order of first appearance; ``conditions``: what runs must satisfy
    besides their bounds.
    ``metadata``: what the exporter tells of the model, by key.
    ``warnings``: those of ``notes`` that a user should see without asking for them."""

    module: tvm.IRModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    notes: tuple[str, ...] = ()
    operators: dict[str, int] = field(default_factory=dict)
    name: str = "model"
    dropped: tuple[TensorSpec, ...] = ()
    lengths: dict[str, int] = field(default_factory=dict)
    fixed: dict[str, Fixed] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    conditions: tuple[Condition, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)


def import_model(
    model: ModelGiven,
    shapes: Shapes | None = None,
    symbolic: bool = False,
    fixed: Mapping[str, Fixed] | None = None,
    typical: Mapping[str, int] | None = None,
    around: tuple[Plain | None, Plain | None] = (None, None),
) -> ImportedModel:
    """Converts an ONNX model (path, bytes or ModelProto) to Relax with static shapes.

    With ``symbolic``, dimensions that neither the model nor ``shapes`` fixes stay open, as symbols; ``typical`` are the
    sizes of some that a build is to plan for. ``fixed`` are the values of inputs that become constants; ``around``,
    what is put before inputs and behind outputs (around.py).
    Raises ModelError for a file that is not valid ONNX, ShapeError for open or contradictory dimensions, and
    UnsupportedError that names every node that can't be converted right.
    """
    source = load(model)
    check(source)
    told: list[str] = []
    if any(around):
        model, shapes, told = with_images(source.model, *around, shapes)
        source = replace(source, model=model)
        check(source)
    imported, offenders = convert(source, shapes, symbolic, fixed, typical)
    if offenders:
        found = contradictions(source.model.graph, with_their_shapes(source.model.graph, shapes, fixed))
        if found:  # most likely a slip
            more = f" (and {len(offenders) - 1} more nodes)" if len(offenders) > 1 else ""
            raise ShapeError(f"{found[0]}, and so it can't be compiled: {offenders[0]}{more}")
        raise UnsupportedError(describe(offenders), tuple(dict.fromkeys(n for o in offenders for n in o.inputs)))
    return replace(imported, notes=(*told, *imported.notes)) if told else imported


def convert(
    source: Source,
    shapes: Shapes | None,
    symbolic: bool = False,
    fixed: Mapping[str, Fixed] | None = None,
    typical: Mapping[str, int] | None = None,
) -> tuple[ImportedModel, list[Offender]]:
    """The conversion without the verdict: with offenders, the module holds what could be converted.

    With open dimensions it starts again whenever it learns of a symbol what the model implies.
    """
    graph = source.model.graph
    shapes = with_their_shapes(graph, shapes, fixed)
    told = contradictions(graph, shapes)
    if not symbolic:
        specs = fixed_inputs(graph, shapes)
        if typical:
            raise ShapeError(f"a typical size was given for '{next(iter(typical))}', but no dimension is open")
        return _convert(source, specs, fixed, told)
    symbols, learned = Symbols(), []
    inputs = open_inputs(graph, shapes, typical, symbols)
    while True:
        specs = specs_of(inputs, symbols)
        token = SYMBOLS.set(symbols.dims)
        assumed: dict[tuple[SizeLike, str, SizeLike], Assumed] = {}
        second, third = ASSUMED.set(assumed), KNOWN.set(symbols.known)
        try:
            imported, offenders = _convert(source, specs, fixed, told)
        except Learned as fact:
            learned.append(symbols.learn(fact))
            continue
        finally:
            SYMBOLS.reset(token)
            ASSUMED.reset(second)
            KNOWN.reset(third)
        more = symbols.conclude(assumed)
        learned += more
        if not symbols.bound(assumed) and not more:
            break
    conditions = tuple(Condition(a, relation, b, told.what) for (a, relation, b), told in assumed.items())
    found, planned = told_symbols(symbols, imported.inputs, conditions + symbols.conditions)
    every = with_fitting(conditions + symbols.conditions, found)
    told_of = [*learned, *(c.told for c in every[: len(conditions)]), *symbols.limits.values()]
    notes = (*imported.notes, *told_of, *planned)
    return replace(imported, notes=notes, symbols=found, conditions=every), offenders


def _convert(
    source: Source,
    specs: tuple[TensorSpec, ...],
    fixed: Mapping[str, Fixed] | None,
    told: Sequence[str],
    early: bool = True,
) -> tuple[ImportedModel, list[Offender]]:
    """``early``: where some operator can't be converted in any form, large nodes are left out, which take long."""
    proto = source.model
    graph = proto.graph
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in proto.opset_import}
    builder = Writer(count_nodes(graph.node) + sum(count_nodes(f.node) for f in proto.functions))
    tensors = TensorReader(source.folder)
    walk = Walk(proto, builder, tensors)
    doubled = {i.name for i in graph.input} & {t.name for t in graph.initializer}
    if doubled:
        walk.notes.append(
            f"initialisers that are inputs as well were taken as constants: {_listed(sorted(doubled))}"
        )

    names = list(dict.fromkeys(o.name for o in graph.output))
    if len(names) < len(graph.output):
        walk.notes.append("outputs that are listed twice are given once: a name is one tensor")

    known = constants(specs, fixed)
    if known:
        walk.notes.append(f"inputs fixed to the values that were given: {_listed(sorted(known))}")
    variables = _variables(specs)
    scope: dict[str, Slot] = {}
    for spec, variable in zip(specs, variables):
        if spec.name in known:
            scope[spec.name] = OnnxValue.of_array(known[spec.name], spec.dtype)
        elif spec.elements != 0 or is_open(spec.shape):
            value = scope[spec.name] = OnnxValue(spec.shape, spec.dtype, expr=variable)
            value.input = spec.name
        else:  # a tensor without elements is known
            scope[spec.name] = OnnxValue.of_array(np.empty(spec.shape, spec.dtype))
    token = INPUTS.set(Inputs(builder, dict(zip(variables, specs))))
    with builder.function("main", variables):
        with builder.dataflow():
            # Whatever stops the walk, an interrupt too, waits until the builder is closed: one that is dropped while
            # open complains on standard error.
            failure: BaseException | None = None
            results: list[OnnxValue | Poison] = []
            lengths: dict[str, int] = {}
            try:
                ordered = _ordered(graph)
                if early:
                    walk.survey(ordered, opsets)
                walk.graph(ordered, scope, opsets)
                results = [_output(scope, name) for name in names]
                builder.origin = ""
                lengths = _with_lengths(names, results, OnnxNode("", "", 1, [], {}, [], builder), walk.notes)
            except Refusal as refusal:
                failure = UnsupportedError(f"the graph can't be converted: {refusal}", refusal.inputs)
            except BaseException as error:
                failure = error
            finally:
                INPUTS.reset(token)
            good = [r for r in results if isinstance(r, OnnxValue)] if failure is None else []
            tuple_ = builder.emit_output(relax.Tuple([r.expr for r in good]))
        builder.emit_func_output(tuple_)
    if failure is not None:
        raise failure
    if walk.skipped and not walk.offenders:  # the operator could do without being converted
        return _convert(source, specs, fixed, told, early=False)
    outputs = tuple(
        TensorSpec(name, r.dtype, r.shape) for name, r in zip(names, results) if isinstance(r, OnnxValue)
    )
    walk.notes += _as_declared(graph, outputs)
    module = relax.transform.DeadCodeElimination(["main"])(builder.get())
    module, kept = _without_unused(builder.traced(module), specs)
    dropped = [s for s in specs if s not in kept and s.name not in known]
    warnings = [*told]
    if dropped:
        warnings.append(f"inputs dropped, because no output depends on them: {_listed([s.name for s in dropped])}")
    imported = ImportedModel(
        module=module,
        metadata=metadata_of(proto),
        inputs=kept,
        outputs=outputs,
        notes=(*walk.notes, *warnings, *source.notes),
        warnings=tuple(warnings),
        operators=count_operators(proto),
        name=_identifier(source.name or graph.name or "model"),
        dropped=tuple(dropped),
        lengths=lengths,
        fixed={n: Fixed(a.shape, tuple(a.reshape(-1).tolist())) for n, a in known.items()},
    )
    return imported, walk.offenders


def describe(offenders: Sequence[Offender]) -> str:
    """One message that names every offender."""
    if len(offenders) == 1:
        return f"the model can't be compiled: {offenders[0]}"
    lines = "\n".join(f"  {o}" for o in offenders)
    return f"the model can't be compiled: {len(offenders)} nodes are not supported\n{lines}"


def count_operators(model: onnx.ModelProto) -> dict[str, int]:
    """How often each operator occurs in the main graph, by name, the most frequent first."""
    count = Counter(
        f"{n.domain}.{n.op_type}" if n.domain not in ("", "ai.onnx") else n.op_type for n in model.graph.node
    )
    return dict(sorted(count.items(), key=lambda item: (-item[1], item[0])))


def _ordered(graph: onnx.GraphProto) -> onnx.GraphProto:
    order = in_order(graph)
    if order is None:
        return graph
    sorted_ = onnx.GraphProto()
    sorted_.CopyFrom(graph)
    nodes = [graph.node[i] for i in order]
    del sorted_.node[:]
    sorted_.node.extend(nodes)
    return sorted_


def _output(scope: dict[str, Slot], name: str) -> OnnxValue | Poison:
    value = scope.get(name)
    if value is None:
        raise ModelError(f"output '{name}' is produced by no node")
    if isinstance(value, TensorSequence):
        raise UnsupportedError(f"output '{name}' is a sequence; only tensors are supported")
    if isinstance(value, OnnxValue) and value.dtype not in PLAIN:
        raise UnsupportedError(f"output '{name}' has the type {value.dtype}, which is not supported")
    return value


def _with_lengths(
    names: list[str], results: list[OnnxValue | Poison], node: OnnxNode, notes: list[str]
) -> dict[str, int]:
    """After all outputs, one for each of those of which only a part is there: how long that is. Gives their axes."""
    lengths = {}
    for index, result in [*enumerate(results)]:
        if not isinstance(result, OnnxValue) or result.part is None:
            continue
        name, axis = length_name(names[index]), result.part.axis
        if name in names:
            raise ModelError(f"an output is called '{name}', which is to tell the length of output '{names[index]}'")
        lengths[names[index]] = axis
        results[index] = zeroed(node, result)
        names.append(name)
        results.append(node.reshape(result.part.count, (1,)))
        room = f"output '{names[index]}' has room for {result.shape[axis]} along axis {axis}, which its data decides"
        notes.append(f"{room}: output '{name}' tells how many are there, zeros follow")
    return lengths


def _as_declared(graph: onnx.GraphProto, outputs: Sequence[TensorSpec]) -> list[str]:
    """Notes on outputs whose shape is not what the model states; another type than stated is a ModelError."""
    notes = []
    stated = {o.name: o for o in graph.output}
    for output in outputs:
        if output.name not in stated:  # the length of another
            continue
        tensor = stated[output.name].type.tensor_type
        dtype = dtype_name(tensor.elem_type) if tensor.elem_type else output.dtype
        if dtype != output.dtype:
            kind = element_name(tensor.elem_type)
            made = f"what makes it is {output.dtype}"
            raise ModelError(f"output '{output.name}' is stated to hold {kind} data, but {made}")
        shape = declared_shape(stated[output.name])
        if shape is None or not all(isinstance(d, int) for d in output.shape):
            continue
        if len(shape) != len(output.shape) or any(isinstance(a, int) and a != b for a, b in zip(shape, output.shape)):
            notes.append(f"output '{output.name}' is {list(output.shape)}, not as the model states")
    return notes


def _variables(specs: Sequence[TensorSpec]) -> list[relax.Var]:
    """One Relax parameter per input; their names are only labels, the ONNX names live in the specs."""
    taken: set[str] = set()
    variables = []
    for index, spec in enumerate(specs):
        label = _identifier(spec.name)
        if label in taken:
            label = f"{label}_{index}"
        taken.add(label)
        shape = [to_relax(d) for d in spec.shape]
        variables.append(relax.Var(label, relax.TensorType(shape, spec.dtype)))
    return variables


def _without_unused(
    module: tvm.IRModule, specs: tuple[TensorSpec, ...]
) -> tuple[tvm.IRModule, tuple[TensorSpec, ...]]:
    """Without the inputs of which neither the elements are read nor the sizes."""
    main = module["main"]
    free = set(relax.analysis.free_vars(main.body))
    keep = [i for i, p in enumerate(main.params) if p in free]
    if len(keep) == len(specs):
        return module, specs
    smaller = _with_parameters(main, keep)
    while unknown := {v.name for v in relax.analysis.free_symbolic_vars(smaller)}:
        more = [i for i, s in enumerate(specs) if i not in keep and unknown & {symbol_name(d) for d in s.shape}]
        if not more:
            break
        keep = sorted([*keep, more[0]])
        smaller = _with_parameters(main, keep)
    return tvm.IRModule({"main": smaller}), tuple(specs[i] for i in keep)


def _with_parameters(main: Expr, keep: Iterable[int]) -> Expr:
    return relax.Function([main.params[i] for i in keep], main.body, main.ret_ty, attrs=main.attrs)


def _identifier(name: str) -> str:
    clean = re.sub(r"\W", "_", name, flags=re.ASCII)
    return clean if clean and not clean[0].isdigit() else f"_{clean}"


def _listed(names: Sequence[str]) -> str:
    """The names in quotes, the first few of many."""
    shown = ", ".join(f"'{n}'" for n in names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"

"""A model with its pre- and post-processing in the graph, ahead of everything that the import does.

    x -> model -> y      x (a frame) -> frames.py -> model -> results.py -> y

Inputs and outputs keep their names; the tensors of the model that had these are renamed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from onnx import AttributeProto, helper, numpy_helper

from ...errors import HalotileError, ShapeError, UnsupportedError, did_you_mean
from ..extents import UNTOLD, Extent
from ..images import YUV, Image, Output, Plain, made
from ..options import Shapes
from .emitter import Emitter
from .frames import frame_info, put_before
from .load import load
from .results import GraphResult, put_behind
from .shapes import declared_shape, run_time_inputs

if TYPE_CHECKING:
    from ...targets.plain import JsonView
    from .resizing import Dim

OLDEST = 7  # broadcasting as it is since


def with_images(
    model: onnx.ModelProto, inputs: Plain | None, outputs: Plain | None, shapes: Shapes | None
) -> tuple[onnx.ModelProto, Shapes | None, list[str]]:
    """The model with what was asked for around it, what is left of ``shapes`` for its own inputs, and a line for each
    input and output that changed. ``model`` itself stays as it is."""
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset < OLDEST:
        raise UnsupportedError(f"images around a model need opset {OLDEST} or later; it has {opset}")
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    graph = whole.graph
    left: dict[str, Dim] = dict(shapes or {})
    before: list[onnx.NodeProto] = []
    told = []
    taken = set(_names(graph))
    named = _dimensions(graph)
    for name, fields in (inputs or {}).items():
        image = made(fields, Image, name)
        info = _named(run_time_inputs(graph), name, "input")
        if any(o.name == name for o in graph.output):
            raise UnsupportedError(f"input '{name}' is an output as well; an image can't stand for it")
        dims = [_told(d, left) if image.colour in YUV else d for d in _known(info, left)]
        emit = Emitter(opset, name, taken)
        inner = emit.name("of the model")
        result, planes = put_before(emit, image, name, dims, info.type.tensor_type.elem_type)
        _rename(graph, name, inner)
        emit.nodes.append(helper.make_node("Identity", [result], [inner], name=inner))
        before += _all(emit)
        given = left.pop(name, None) is not None or image.is_open or image.colour in YUV
        infos = []
        for plane, shape in planes.items():
            if plane != name and plane in taken:
                raise HalotileError(f"image input '{name}': the model has a tensor '{plane}' already; rename it")
            if given and any(not isinstance(d, int) for d in shape):
                left[plane] = tuple(UNTOLD if d is None else d for d in shape)
            infos.append(frame_info(plane, image, [_bare(d) if given else d for d in shape]))
        _replaced(graph.input, name, infos)
        told.append(f"input '{name}' is a {image.text()}")
    after: list[onnx.NodeProto] = []
    for name, fields in (outputs or {}).items():
        wanted = made(fields, Output, name)
        info = _named(graph.output, name, "output")
        found = declared_shape(info)
        if found is None:
            raise ShapeError(f"output '{name}': the model does not say how many dimensions it has")
        emit = Emitter(opset, name, taken)
        inner = emit.name("of the model")
        results = put_behind(emit, wanted, GraphResult(inner, list(found), info.type.tensor_type.elem_type))
        _rename(graph, name, inner)
        after += _all(emit)
        names = [name, f"{name}.indices"][: len(results)]
        if names[-1] != name and names[-1] in taken:
            raise HalotileError(f"output '{name}': the model has a tensor '{names[-1]}' already; rename it")
        for tensor, made_so in zip(names, results):
            after.append(helper.make_node("Identity", [made_so.tensor], [tensor], name=f"halotile:{tensor}"))
        info.CopyFrom(helper.make_tensor_value_info(name, results[0].kind, results[0].dims))
        place = next(i for i, o in enumerate(graph.output) if o.name == name)
        for tensor, other in zip(names[1:], results[1:]):
            more = [*graph.output]
            more.insert(place + 1, helper.make_tensor_value_info(tensor, other.kind, other.dims))
            kept = [onnx.ValueInfoProto.FromString(o.SerializeToString()) for o in more]
            del graph.output[:]
            graph.output.extend(kept)
        told.append(f"output '{name}' is {', '.join(f'{k}={v}' for k, v in fields.items()) or 'as it was'}")
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in graph.node]
    del graph.node[:]
    graph.node.extend([*before, *nodes, *after])
    for gone in named - _dimensions(graph):  # of the model's image, which the frame has not
        if gone not in {i.name for i in graph.input}:
            left.pop(gone, None)
    return whole, left or None, told


def reference_model(source: Any, options: JsonView) -> Any:
    """What ONNX Runtime is to run for a library with these recorded options: ``source`` itself, or with all around it
    that it was built with."""
    inputs, outputs = options.get("inputs"), options.get("outputs")
    if not inputs and not outputs:
        return source
    loaded = load(source)
    shapes = {n: tuple(dims) for n, dims in (options.get("shapes") or {}).items()} or None
    model, _, _ = with_images(loaded.model, inputs, outputs, shapes)
    if isinstance(source, (str, os.PathLike)):
        onnx.load_external_data_for_model(model, str(Path(source).parent))
    return model


def _all(emit: Emitter) -> list[onnx.NodeProto]:
    """The nodes behind their constants, which are nodes as well: initialisers of old models would have to be inputs."""
    constants = [
        helper.make_node("Constant", [], [t.name], name=t.name, value=numpy_helper.from_array(numpy_helper.to_array(t)))
        for t in emit.constants
    ]
    return [*constants, *emit.nodes]


def _named(values: Any, name: str, kind: str) -> onnx.ValueInfoProto:
    for info in values:
        if info.name == name:
            if info.type.WhichOneof("value") != "tensor_type":
                raise UnsupportedError(f"{kind} '{name}' is no tensor")
            return info
    known = [v.name for v in values]
    listed = ", ".join(f"'{n}'" for n in known) or "none"
    raise ShapeError(f"the model has no {kind} '{name}'; its {kind}s are {listed}{did_you_mean(name, known)}")


def _known(info: onnx.ValueInfoProto, shapes: Mapping[str, Sequence[Dim]]) -> list[Dim]:
    """The dimensions of an input, with what ``shapes`` says of them."""
    given, declared = shapes.get(info.name), declared_shape(info)
    if given is None and declared is None:
        raise ShapeError(f"input '{info.name}' has an unknown number of dimensions; give its shape (--shape)")
    if given is not None and declared is not None:
        if len(given) != len(declared) or any(
            isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(given, declared)
        ):
            raise ShapeError(
                f"shape {list(given)} given for input '{info.name}' does not fit the model's {declared}"
            )
        dims = [d if isinstance(d, int) else g for g, d in zip(given, declared)]
    else:
        dims = list(given if given is not None else declared or ())
    named = {n: s[0] for n, s in shapes.items() if n != info.name and len(s) == 1 and isinstance(s[0], int)}
    return [named.get(d, d) if isinstance(d, str) else d for d in dims]


def _told(dim: Dim, shapes: Mapping[str, Any]) -> Dim:
    """An open dimension with what ``shapes`` says of it by its name: the frame may have other dimensions."""
    said: tuple[Dim, ...] = shapes.get(dim, ()) if isinstance(dim, str) else ()
    if len(said) != 1 or not isinstance(said[0], str):
        return dim
    return str(replace(Extent.parse(said[0]), name=Extent.parse(dim).name))


def _bare(dim: Dim) -> Dim:
    """The name alone of what is said of an open dimension."""
    return Extent.parse(dim).name if isinstance(dim, str) else dim


def _replaced(values: Any, name: str, found: list[onnx.ValueInfoProto]) -> None:
    """``found`` in place of the one of that name."""
    kept = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in values]
    place = next(i for i, v in enumerate(kept) if v.name == name)
    del values[:]
    values.extend([*kept[:place], *found, *kept[place + 1 :]])


def _dimensions(graph: onnx.GraphProto) -> set[str]:
    """The names of open dimensions of inputs."""
    return {d for i in run_time_inputs(graph) for d in declared_shape(i) or () if isinstance(d, str)}


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        yield value.name
    for node in graph.node:
        yield from (node.name, *node.input, *node.output)
        for inner in _graphs(node):
            yield from _names(inner)


def _graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Gives a tensor another name wherever it is made and read; inputs and outputs of the whole graph keep theirs."""
    _rename_in(graph.node, old, new)
    kept = [v for v in graph.value_info if v.name != old]
    if len(kept) != len(graph.value_info):
        kept = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in kept]
        del graph.value_info[:]
        graph.value_info.extend(kept)


def _rename_in(nodes: onnx.NodeProto, old: str, new: str) -> None:
    for node in nodes:
        for side in (node.input, node.output):
            for i, name in enumerate(side):
                if name == old:
                    side[i] = new
        for inner in _graphs(node):
            for value in inner.output:
                if value.name == old:
                    value.name = new
            _rename(inner, old, new)

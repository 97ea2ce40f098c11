"""Models that somebody broke: small valid ones with bytes flipped, or attributes, shapes, types or names changed.

``outcome`` compiles one in a child of its own under limits of time and memory, and says how it ended.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import traceback
from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

SECONDS, BYTES = 60, 2 << 30  # what one model may take, beyond the memory that the parent has mapped


def _model(nodes: list[onnx.NodeProto], shape: list[int], **constants: np.ndarray) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(
        nodes, "small", [x], [y], [numpy_helper.from_array(v, n) for n, v in constants.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _image(*steps: tuple[str, list[str], dict[str, object]], **constants: np.ndarray) -> onnx.ModelProto:
    nodes, last = [], "x"
    for i, (operator, others, attributes) in enumerate(steps):
        made = "y" if i == len(steps) - 1 else f"t{i}"
        unread = [f"{made}_{n}" for n in range(1, onnx.defs.get_schema(operator, 18).min_output)]
        nodes.append(helper.make_node(operator, [last, *others], [made, *unread], name=f"n{i}", **attributes))
        last = made
    return _model(nodes, [1, 4, 6, 6], **constants)


def models() -> list[onnx.ModelProto]:
    """Small ones of every kind of operator."""
    f, i = np.float32, np.int64
    weight = np.ones((4, 4, 3, 3), f)
    row = np.ones((6, 6), f)
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Relu", ["s"], ["r"])],
        "body",
        [helper.make_tensor_value_info(n, t, None) for n, t in (("k", 7), ("c", 9), ("s", 1))],
        [helper.make_tensor_value_info(n, t, None) for n, t in (("d", 9), ("r", 1))],
    )
    branch = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["m"])], "branch", [], [helper.make_tensor_value_info("m", 1, None)]
    )
    return [
        _image(
            ("Conv", ["w"], {"pads": [1, 1, 1, 1]}),
            ("Relu", [], {}),
            ("MaxPool", [], {"kernel_shape": [2, 2]}),
            w=weight,
        ),
        _image(("ConvTranspose", ["w"], {"strides": [2, 2]}), ("Sigmoid", [], {}), w=weight),
        _image(
            ("AveragePool", [], {"kernel_shape": [3, 3], "strides": [2, 2]}), ("GlobalAveragePool", [], {})
        ),
        _image(("MatMul", ["w"], {}), ("Softmax", [], {"axis": -1}), w=row),
        _image(("LayerNormalization", ["s"], {"axis": -1}), ("Erf", [], {}), s=np.ones(6, f)),
        _image(
            ("BatchNormalization", ["s", "s", "s", "s"], {}),
            ("Clip", ["lo", "hi"], {}),
            s=np.ones(4, f),
            lo=f(0),
            hi=f(6),
        ),
        _image(
            ("Pad", ["p"], {"mode": "reflect"}),
            ("Slice", ["a", "b"], {}),
            p=np.array([0, 0, 1, 1, 0, 0, 1, 1], i),
            a=np.array([0], i),
            b=np.array([1], i),
        ),
        _image(
            ("Transpose", [], {"perm": [0, 2, 3, 1]}),
            ("Reshape", ["q"], {}),
            ("Gather", ["g"], {"axis": 1}),
            q=np.array([1, -1], i),
            g=np.array([0, 3], i),
        ),
        _image(
            ("Resize", ["", "", "q"], {"mode": "linear"}),
            ("DepthToSpace", [], {"blocksize": 2}),
            q=np.array([1, 4, 9, 5], i),
        ),
        _image(
            ("ReduceMean", ["a"], {"keepdims": 1}),
            ("Expand", ["q"], {}),
            ("CumSum", ["b"], {}),
            a=np.array([2], i),
            q=np.array([1, 4, 6, 6], i),
            b=np.array(3, i),
        ),
        _image(
            ("TopK", ["k"], {"axis": -1}),
            ("Tile", ["t"], {}),
            k=np.array([2], i),
            t=np.array([1, 1, 2, 2], i),
        ),
        _image(("GridSample", ["g"], {}), ("LRN", [], {"size": 3}), g=np.zeros((1, 5, 5, 2), f)),
        _image(
            ("QuantizeLinear", ["s", "z"], {}), ("DequantizeLinear", ["s", "z"], {}), s=f(0.1), z=np.uint8(3)
        ),
        _image(
            ("Einsum", [], {"equation": "abcd->abdc"}), ("ArgMax", [], {"axis": 1}), ("Cast", [], {"to": 1})
        ),
        _model([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], [2, 3], n=np.array(3)),
        _model(
            [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)],
            [2, 3],
            c=np.array(True),
        ),
        _model(
            [
                helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
                helper.make_node("Concat", ["b", "a"], ["y"], axis=1),
            ],
            [2, 4],
        ),
        _model(
            [
                helper.make_node("Greater", ["x", "h"], ["g"]),
                helper.make_node("Where", ["g", "x", "h"], ["y"]),
            ],
            [2, 4],
            h=f(0.5),
        ),
    ]


def mutated(model: onnx.ModelProto, draw: random.Random) -> bytes:
    """``model`` with one or a few things about it changed."""
    if draw.random() < 0.3:
        data = bytearray(model.SerializeToString())
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        return bytes(data)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for _ in range(draw.randint(1, 3)):
        draw.choice(CHANGES)(changed, draw)
    return changed.SerializeToString()


NUMBERS = (-(2**63), -(2**31), -7, -1, 0, 1, 2, 3, 64, 2**31, 2**40, 2**63 - 1)


def _attribute(model: onnx.ModelProto, draw: random.Random) -> None:
    found = [a for n in model.graph.node for a in n.attribute]
    if not found:
        return
    a = draw.choice(found)
    if a.type == onnx.AttributeProto.INT:
        a.i = draw.choice(NUMBERS)
    elif a.type == onnx.AttributeProto.INTS:
        values = [draw.choice(NUMBERS) if draw.random() < 0.4 else v for v in a.ints] + [1] * (
            draw.random() < 0.2
        )
        del a.ints[:]
        a.ints.extend(values)
    elif a.type == onnx.AttributeProto.STRING:
        a.s = draw.choice([b"", b"bogus", b"a.b,c..->", b"...", b"\xff\xfe", a.s.upper()])
    elif a.type == onnx.AttributeProto.FLOAT:
        a.f = draw.choice([float("nan"), float("inf"), -1.0, 0.0, 1e38])
    if draw.random() < 0.2:
        a.name = draw.choice(["axis", "mode", "bogus", ""])


def _constant(model: onnx.ModelProto, draw: random.Random) -> None:
    if not model.graph.initializer:
        return
    t = draw.choice(model.graph.initializer)
    kind = draw.randrange(4)
    if kind == 0 and t.data_type == onnx.TensorProto.INT64:
        array = numpy_helper.to_array(t).copy().reshape(-1)
        array[draw.randrange(len(array))] = draw.choice(NUMBERS)
        t.raw_data = array.tobytes()
    elif kind == 1 and t.dims:
        t.dims[draw.randrange(len(t.dims))] = draw.choice(NUMBERS)
    elif kind == 2:
        t.data_type = draw.randrange(25)
    else:
        t.raw_data = t.raw_data[: draw.randrange(len(t.raw_data) + 1)]


def _shape(model: onnx.ModelProto, draw: random.Random) -> None:
    tensor = model.graph.input[0].type.tensor_type
    kind = draw.randrange(4)
    if kind == 0 and tensor.shape.dim:
        draw.choice(tensor.shape.dim).dim_value = draw.choice(NUMBERS)
    elif kind == 1:
        tensor.elem_type = draw.randrange(25)
    elif kind == 2:
        tensor.shape.dim.add(dim_value=draw.choice((1, 2, 3)))
    elif tensor.shape.dim:
        draw.choice(tensor.shape.dim).dim_param = draw.choice(["?", "N", "", "-1"])


def _node(model: onnx.ModelProto, draw: random.Random) -> None:
    nodes = model.graph.node
    if not nodes:
        return
    node = draw.choice(nodes)
    names = [
        "x",
        "",
        "nowhere",
        *(o for n in nodes for o in n.output),
        *(t.name for t in model.graph.initializer),
    ]
    kind = draw.randrange(6)
    if kind == 0 and node.input:
        node.input[draw.randrange(len(node.input))] = draw.choice(names)
    elif kind == 1 and node.input:
        del node.input[-1]
    elif kind == 2:
        node.input.append(draw.choice(names))
    elif kind == 3:
        node.op_type = draw.choice([n.op_type for m in models() for n in m.graph.node])
    elif kind == 4:
        node.output.append("more")
    else:
        node.domain = draw.choice(["com.microsoft", "own", "ai.onnx.ml"])


def _opset(model: onnx.ModelProto, draw: random.Random) -> None:
    model.opset_import[0].version = draw.choice((1, 6, 9, 11, 13, 17, 21, 99, -1))


CHANGES: tuple[Callable[[onnx.ModelProto, random.Random], None], ...] = (
    _attribute, _attribute, _attribute, _constant, _constant, _shape, _node, _node, _opset,
)  # fmt: skip


def outcome(data: bytes, compiles: Callable[[bytes], None]) -> str:
    """ "fine", "refused", or what is wrong with how ``compiles`` took the model, in a child of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            with open("/proc/self/statm") as f:
                mapped = int(f.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (mapped + BYTES, mapped + BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            text = _said(data, compiles)
        except BaseException:
            text = traceback.format_exc(limit=-3)
        os.write(writer, text.encode(errors="replace")[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return text


def _said(data: bytes, compiles: Callable[[bytes], None]) -> str:
    from halotile.errors import HalotileError, InternalError

    try:
        compiles(data)
    except InternalError:
        return "an internal error: " + traceback.format_exc(limit=-3)
    except HalotileError as error:
        lines = str(error).splitlines()
        listed = lines and lines[0].endswith("nodes are not supported")
        return "refused" if len(lines) == 1 or listed else f"a refusal of {len(lines)} lines: {lines[0]}"
    except Exception:
        return traceback.format_exc(limit=-3)
    return "fine"

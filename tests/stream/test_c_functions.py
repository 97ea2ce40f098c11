"""The C functions of a stream give the bytes that Python's gives: any pushes, several inputs and outputs, passes."""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path

import halotile
import numpy as np
import onnx
import pytest
from c_programs import run
from c_streams import ARENA, ARGUMENT, FINISHED, HEIGHT, OK, PASS, ROWS, Functions, P, Shape
from onnx import TensorProto, helper
from stream_models import Maker, random_graph, unet, upscaler


def _passes() -> onnx.ModelProto:
    """A squeeze-and-excite block, an instance norm, and the largest elements behind both."""
    m = Maker(5)
    y = m.conv("x", 3, 8)
    y = m.op("Mul", y, m.op("Sigmoid", m.conv(m.op("GlobalAveragePool", y), 8, 8, 1)))
    y = m.op("InstanceNormalization", y, m.const(np.full(8, 2, np.float32)), m.const(np.ones(8, np.float32)))
    y = m.conv(y, 8, 4)
    return m.model([y, m.op("GlobalMaxPool", y)], 12)


def _several() -> onnx.ModelProto:
    """Two inputs of rows, one of half the height, one that is given once; three outputs of several heights."""
    m = Maker(9)
    half = m.conv("b", 2, 4)
    whole = m.op("Relu", m.conv("a", 3, 4))
    up = m.op("Resize", half, "", m.const(np.array([1, 1, 2, 2], np.float32)), mode="nearest", nearest_mode="floor",
              coordinate_transformation_mode="asymmetric")  # fmt: skip
    y = m.op("Mul", m.op("Concat", whole, up, axis=1), "gain")
    outputs = [y, m.op("AveragePool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), m.op("Relu", half)]
    given = {"a": [1, 3, "2*h", 10], "b": [1, 2, "h", 5], "gain": [1, 8, 1, 1]}
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in given.items()]
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    graph = helper.make_graph(m.nodes, "several", values, results, m.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SHAPES = {"a": (1, 3, "2*h", 10), "b": (1, 2, "h", 5)}
NETWORKS = {
    "upscaler": (lambda: upscaler(), 8, None, 37),
    "unet": (lambda: unet(batch=2), 8, {"x": (2, 3, "h:8..:4", 24)}, 44),
    "passes": (_passes, 8, None, 21),
    "several": (_several, 8, SHAPES, 38),
    **{f"random {s}": (partial(random_graph, s, batch=1 + s % 2), 4, None, 43) for s in (1, 4, 7)},
}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    made = {}

    def make(name):
        if name not in made:
            source, rows, shapes, _ = NETWORKS[name]
            folder = tmp_path_factory.mktemp("streams") / "net"
            halotile.compile(source(), stream=rows, shapes=shapes, threads=2).save(folder)
            made[name] = folder
        return made[name]

    return make


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_bytes_as_in_python(libraries, name):
    folder, height = libraries(name), NETWORKS[name][3]
    functions = Functions(folder)
    random = np.random.default_rng(3)
    with halotile.load(folder, 2) as model:
        specs = {s.name: s for s in (*model._runs.inputs, *model._runs.outputs)}
        ports = {p.name: p for p in model.plan.inputs}
        whole = height - height % model.plan.multiple
        inputs = {}
        for spec in model.inputs:
            port = ports.get(spec.name)
            shape = [port.height.at(whole) if port and a == port.axis else n for a, n in enumerate(spec.shape)]
            inputs[spec.name] = 3 + random.standard_normal(shape).astype(np.float32)
        wanted = model.stream(inputs)
        wanted = wanted if isinstance(wanted, dict) else {model.outputs[0].name: wanted}
        kept = [inputs[s.name] for s in model.inputs if s.name not in ports]
    unit = 2 if name == "several" else 1  # of the first input, for whole rows of the second
    for pushes in ([unit], [7 * unit, 13 * unit, 2 * unit], [10**6 * unit]):
        rows = height if pushes[0] == 10**6 * unit else 0
        stream = functions.opened(rows, kept)
        found = functions.streamed(inputs, specs, pushes, stream)
        assert found.keys() == wanted.keys()
        for output, array in wanted.items():
            assert np.array_equal(found[output], array), (output, pushes)


def test_all_rows_at_once_where_the_shape_says_so(libraries):
    functions = Functions(libraries("upscaler"))
    x, y = np.ones((1, 3, 100, 24), np.float32), np.zeros((1, 3, 200, 48), np.float32)
    stream = functions.opened(100)
    assert functions.room(stream) >= 100
    assert functions.push(stream, x.ctypes.data, 100) == OK and functions.finish(stream) == OK
    assert functions.ready(stream) > 180
    for first in range(0, 200, 50):
        part = np.zeros((1, 3, 50, 48), np.float32)
        assert functions.pull(stream, part.ctypes.data, 50) == OK
        y[:, :, first : first + 50] = part
    assert functions.ready(stream) == 0
    functions.close(stream)
    with halotile.load(libraries("upscaler"), 2) as model:
        assert np.array_equal(model(x), y)


def test_a_stream_in_memory_of_the_callers(libraries):
    functions = Functions(libraries("unet"))
    bytes_ = functions.stream_bytes(2, None)
    room = np.full(bytes_ + 128, 0xA5, np.uint8)
    start = -room.ctypes.data % 64
    memory = room[start : start + bytes_]
    x = np.ones((2, 3, 8, 24), np.float32)
    stream = functions.opened(0, (), memory)
    for _ in range(40):
        assert functions.push(stream, x.ctypes.data, 8) == OK
        while ready := functions.ready(stream):
            part = np.zeros((2, 2, ready, 24), np.float32)
            assert functions.pull(stream, part.ctypes.data, ready) == OK
    functions.close(stream)
    assert (room[:start] == 0xA5).all() and (room[start + bytes_ :] == 0xA5).all()
    failed = P(5)
    code = functions.open_in(2, None, memory.ctypes.data, bytes_ - 1, ctypes.byref(failed))
    assert code == ARENA and not failed.value


def test_what_is_wrong_is_a_code_with_words(libraries):
    functions = Functions(libraries("unet"))
    x, y = np.ones((2, 3, 64, 24), np.float32), np.zeros((2, 2, 64, 24), np.float32)
    stream = functions.opened()
    room = functions.room(stream)
    assert functions.push(stream, x.ctypes.data, room + 1) == ROWS and functions.room(stream) == room
    assert functions.push(stream, None, 1) == ARGUMENT and functions.push(None, x.ctypes.data, 1) == ARGUMENT
    assert functions.pull(stream, y.ctypes.data, 1) == ROWS
    assert functions.pull_of(stream, 1, y.ctypes.data, 0) == ARGUMENT
    for _ in range(7):
        assert functions.push(stream, x.ctypes.data, 1) == OK and functions.finish(stream) == HEIGHT
    assert b"at least 8 rows that is a multiple of 4" in functions.error_text(HEIGHT)
    assert functions.push(stream, x.ctypes.data, 1) == OK and functions.finish(stream) == OK
    assert functions.push(stream, x.ctypes.data, 1) == FINISHED and functions.room(stream) == 0
    assert functions.again(stream) == PASS
    functions.close(stream)
    functions.close(None)
    stream = P()
    assert functions.open(2, ctypes.byref(Shape(-1, None)), ctypes.byref(stream)) == ARGUMENT
    assert functions.open(-1, None, ctypes.byref(stream)) != OK and functions.stream_bytes(-1, None) == 0
    assert functions.open(2, None, None) == ARGUMENT
    for code in (FINISHED, ROWS, PASS):
        assert len(functions.error_text(code)) > 20 and functions.error_text(code) != functions.error_text(99)


def test_the_header_is_c89_and_cpp(libraries, tmp_path):
    header = next(Path(libraries("several")).glob("*.h"))
    (tmp_path / "use.c").write_text(f'#include "{header.name}"\nint main(void) {{ return 0; }}\n')
    (tmp_path / "use.cpp").write_text(f'#include "{header.name}"\nint main() {{ return 0; }}\n')
    words = (f"-I{header.parent}", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic")
    run("cc", "-std=c89", "-Wno-long-long", *words, "use.c", cwd=tmp_path)
    run("cc", "-x", "c++", *words, "use.cpp", cwd=tmp_path)

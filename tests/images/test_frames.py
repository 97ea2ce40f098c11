"""Frames in place of inputs: equal to the same steps in NumPy, by formulas of their own, in one arena without them."""

from __future__ import annotations

import itertools
from fractions import Fraction

import halotile
import numpy as np
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import HalotileError, ShapeError
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper


def _model(shape, opset=17, kind=TensorProto.FLOAT):
    """y = x and a little more, so that what the model is given can be read off."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    given = [helper.make_tensor_value_info("x", kind, shape)]
    taken = [helper.make_tensor_value_info("y", kind, shape)]
    graph = helper.make_graph(nodes, "given", given, taken)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _yuv(frame, height, width, colour):
    """OpenCV's conversion pixel by pixel, in Python's integers."""
    rgb = np.empty((len(frame), height, width, 3))
    for b, r, c in itertools.product(range(len(frame)), range(height), range(width)):
        if colour != "YUYV":
            pair = frame[b, height + r // 2, c // 2 * 2 : c // 2 * 2 + 2, 0]
            y, u, v = frame[b, r, c, 0], *(pair[::-1] if colour == "NV21" else pair)
        else:
            y, u, v = frame[b, r, c, 0], frame[b, r, c // 2 * 2, 1], frame[b, r, c // 2 * 2 + 1, 1]
        y, u, v = max(int(y) - 16, 0) * 1220542 + (1 << 19), int(u) - 128, int(v) - 128
        three = (y + 1673527 * v, y - 409993 * u - 852492 * v, y + 2116026 * u)
        rgb[b, r, c] = [min(max(t >> 20, 0), 255) for t in three]
    return rgb


def _scaled(image, height, width, how):
    """Resizing of (batch, h, w, channels) as a sum over all pixels of each axis, with dense weights."""
    for axis, size in ((1, height), (2, width)):
        have = image.shape[axis]
        if have == size:
            continue
        step = have / size
        weight = np.zeros((size, have))
        for o in range(size):
            if how == "nearest":
                weight[o, int(Fraction(2 * o + 1, 2) * have / size)] = 1
            elif how == "area" and step > 1:
                for i in range(have):
                    weight[o, i] = max(0.0, min(i + 1, (o + 1) * step) - max(i, o * step)) / step
            elif how == "cubic":
                centre = (o + 0.5) * step - 0.5
                for i in range(int(np.floor(centre)) - 1, int(np.floor(centre)) + 3):
                    weight[o, min(max(i, 0), have - 1)] += _keys(abs(centre - i))
            else:
                centre = min(max((o + 0.5) * step - 0.5, 0), have - 1)
                left = int(centre)
                weight[o, left] += 1 - (centre - left)
                weight[o, min(left + 1, have - 1)] += centre - left
        image = np.moveaxis(np.tensordot(weight, image, (1, axis)), 0, axis)
    return image


def _keys(x, a=-0.75):
    """The cubic convolution kernel, with the slope that OpenCV takes."""
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def _expected(frame, image, height, width, channels, have=None):
    """What the model is given, NHWC. ``have``: the frame's size, where it is open."""
    have = have or image.size or (height, width)
    x = frame if image.layout == "NHWC" else frame.transpose(0, 2, 3, 1)
    colour = image.colour
    if colour in ("NV12", "NV21", "YUYV"):
        x, colour = _yuv(frame, *have, colour), "RGB"
    x = x.astype(np.float64)
    if colour.startswith("BGR"):
        x = np.concatenate([x[..., 2::-1], x[..., 3:]], -1)
    x = x[..., :3]
    if channels == 1 and x.shape[-1] == 3:
        x = x @ np.array([[0.299], [0.587], [0.114]])
    if channels == 3 and x.shape[-1] == 1:
        x = np.repeat(x, 3, -1)
    if image.model_colour == "BGR":
        x = x[..., ::-1]
    if image.resize in ("letterbox", "crop"):
        choose = min if image.resize == "letterbox" else max
        ratio = choose(Fraction(height, have[0]), Fraction(width, have[1]))
        h, w = (max(1, round(n * ratio)) for n in have)
        x = _scaled(x, h, w, image.filter or "linear")
        x = x[:, max(h - height, 0) // 2 :, max(w - width, 0) // 2 :][:, :height, :width]
        whole = np.full((len(x), height, width, x.shape[-1]), float(image.pad))
        top, left = (height - x.shape[1]) // 2, (width - x.shape[2]) // 2
        whole[:, top : top + x.shape[1], left : left + x.shape[2]] = x
        x = whole
    elif image.resize not in (None, "none"):
        x = _scaled(x, height, width, image.resize)
    return (x - np.array(image.mean)) / np.array(image.scale)


CASES = [
    (halotile.Image(), (2, 3, 7, 5)),
    (halotile.Image("BGR", scale=255), (1, 3, 8, 6)),
    (halotile.Image("BGR", mean=(1, 2, 3), scale=(4, 5, 6), model_colour="BGR"), (1, 3, 7, 9)),
    (halotile.Image("RGB", layout="NCHW", size=(13, 11), resize="linear", mean=(9, 8, 7)), (2, 3, 7, 17)),
    (halotile.Image("BGRA", size=(11, 23), resize="letterbox", scale=255), (2, 3, 13, 13)),
    (halotile.Image("RGBA", layout="NCHW", size=(23, 11), resize="letterbox", pad=0), (1, 13, 16, 3)),
    (halotile.Image("BGR", layout="NCHW", size=(20, 11), resize="letterbox", pad=7), (2, 3, 9, 11)),
    (halotile.Image("RGB", size=(8, 5), resize="letterbox"), (1, 3, 8, 8)),
    (halotile.Image("NV12", size=(8, 6), resize="letterbox"), (1, 3, 8, 9)),
    (halotile.Image("grey", size=(9, 14), resize="crop"), (1, 3, 8, 8)),
    (halotile.Image("grey", size=(9, 14), resize="nearest"), (1, 1, 5, 17)),
    (halotile.Image("BGR", size=(19, 31), resize="area", mean=3), (1, 1, 7, 8)),
    (halotile.Image("RGB", size=(16, 31), resize="area", dtype="float32"), (1, 3, 8, 40)),
    (halotile.Image("RGB", size=(6, 6), resize="linear", dtype="uint16", scale=65535), (1, 3, 5, 5)),
    (halotile.Image("NV12", size=(12, 20), resize="letterbox", scale=255), (2, 3, 13, 13)),
    (halotile.Image("NV12", model_colour="BGR"), (1, 3, 6, 8)),
    (halotile.Image("NV12", size=(24, 40), resize="area"), (1, 3, 5, 7)),
    (halotile.Image("YUYV", size=(7, 10), resize="crop", mean=(1, 2, 3)), (1, 5, 5, 3)),
    (halotile.Image("YUYV", size=(7, 10), resize="nearest"), (1, 1, 12, 5)),
    (halotile.Image("NV21", size=(12, 26), resize="linear"), (1, 3, 6, 13)),
    (halotile.Image("NV12", size=(12, 26), resize="letterbox", pad=9, scale=255), (2, 3, 13, 13)),
    (halotile.Image("RGB", size=(19, 11), resize="cubic"), (1, 3, 7, 23)),
    (halotile.Image("BGR", size=(9, 20), resize="letterbox", filter="cubic"), (1, 3, 13, 13)),
    (halotile.Image("grey", size=(17, 9), resize="crop", filter="area"), (1, 1, 5, 5)),
]


@pytest.mark.parametrize("image, shape", CASES, ids=[f"{i.colour}-{i.resize}-{s}" for i, s in CASES])
def test_equals_numpy(image, shape):
    opset = 7 + 5 * (sum(shape) % 3)  # three kinds of operators for the same steps
    rng = np.random.default_rng(sum(shape))
    model = halotile.compile(_model(shape, opset), inputs={"x": image}, cache=False, threads=1)
    spec = model.inputs[0]
    assert spec.dtype == image.dtype
    most = {"uint8": 256, "uint16": 65536, "float32": 256}[image.dtype]
    frame = rng.integers(0, most, spec.shape).astype(image.dtype)
    last = shape[1] not in (1, 3)
    height, width, channels = shape[1:] if last else (*shape[2:], shape[1])
    wanted = _expected(frame, image, height, width, channels)
    found = model({"x": frame})["y"]
    found = found if last else found.transpose(0, 2, 3, 1)
    assert found.dtype == np.float32 and found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-3
    assert model.verify().ok


OPEN = [
    (halotile.Image("RGB", size=("h", "w"), resize="letterbox", scale=255), (1, 3, 13, 17)),
    (halotile.Image("BGR", layout="NCHW", size=("h:2..90", "w"), resize="cubic", mean=(1, 2, 3)), (2, 3, 7, 11)),
    (halotile.Image("RGBA", size=("h", "w:2..200"), resize="crop"), (1, 9, 5, 3)),
    (halotile.Image("grey", size=("h", "w"), resize="nearest"), (1, 1, 6, 11)),
    (halotile.Image("grey", size=("h", 24), resize="letterbox", filter="nearest", pad=3), (1, 3, 8, 8)),
    (halotile.Image("NV12", size=("h", "w"), resize="letterbox"), (1, 3, 12, 16)),
    (halotile.Image("NV21", size=("h:4..80@8", "w"), resize="linear"), (1, 3, 5, 7)),
    (halotile.Image("YUYV", size=("h", "w"), resize="linear"), (1, 3, 6, 8)),
]
SIZES = ((12, 24), (26, 24), (50, 24), (4, 6), (30, 40), (17, 24), (13, 34))


@pytest.mark.parametrize("image, shape", OPEN, ids=[f"{i.colour}-{i.resize}-{s}" for i, s in OPEN])
def test_frames_of_any_size(image, shape):
    made = halotile.compile(_model(shape), inputs={"x": image}, cache=False, threads=1)
    last = shape[1] not in (1, 3)
    height, width, channels = shape[1:] if last else (*shape[2:], shape[1])
    rng = np.random.default_rng(3)
    for h, w in SIZES:
        if image.size[1] == 24 and w != 24 or image.colour.startswith("NV") and h % 2:
            continue
        rows, channel = (h * 3 // 2, 1) if image.colour.startswith("NV") else (h, {"RGB": 3, "BGR": 3, "RGBA": 4,
                                                                                  "grey": 1, "YUYV": 2}[image.colour])
        frame = rng.integers(0, 256, (shape[0], rows, w, channel)).astype(np.uint8)
        wanted = _expected(frame, halotile.Image(**{**vars(image), "layout": "NHWC"}), height, width, channels, (h, w))
        found = made({"x": frame if image.layout == "NHWC" else frame.transpose(0, 3, 1, 2).copy()})["y"]
        found = found if last else found.transpose(0, 2, 3, 1)
        assert found.shape == wanted.shape and np.abs(found - wanted).max() <= 1e-3, (h, w)
    assert made.verify().ok


@pytest.mark.parametrize("size", [(12, 20), ("h", "w")], ids=["fixed", "open"])
def test_two_planes_are_two_inputs(size):
    image = halotile.Image("NV12_TWO_PLANES", size=size, resize="letterbox", scale=255)
    made = halotile.compile(_model((2, 3, 13, 13)), inputs={"x": image}, cache=False, threads=1)
    assert [i.name for i in made.inputs] == ["x/y", "x/uv"]
    one = halotile.Image("NV12", size=(12, 20), resize="letterbox", scale=255)
    frame = np.random.default_rng(5).integers(0, 256, (2, 18, 20, 1)).astype(np.uint8)
    found = made({"x/y": frame[:, :12].copy(), "x/uv": frame[:, 12:].reshape(2, 6, 10, 2)})["y"]
    wanted = _expected(frame, one, 13, 13, 3).transpose(0, 3, 1, 2)
    assert np.abs(found - wanted).max() <= 1e-5 and made.verify().ok


def test_a_letterbox_asks_no_pixel_where_it_lies():
    """Rows around the frame have lines of their own, and the colours of a pixel share what they are computed from."""
    image = {"colour": "NV12", "size": [72, 128], "resize": "letterbox", "scale": 255.0}
    options = Options(resolve("x86-64-v3"), inputs={"x": image}, threads=1, cache=None, stop_after="schedule")
    build = run_pipeline(_model((1, 3, 64, 64)), options)
    (kernel,) = build.kernels
    assert "3 ranges of rows" in kernel.notes and "3 along axis 1 side by side" in kernel.notes


def test_a_model_of_bytes_rounds():
    image = halotile.Image("BGR", size=(9, 9), resize="linear")
    model = halotile.compile(_model((1, 3, 7, 5), kind=TensorProto.UINT8), inputs={"x": image}, cache=False, threads=1)
    frame = np.random.default_rng(1).integers(0, 256, model.inputs[0].shape).astype(np.uint8)
    wanted = _expected(frame, image, 7, 5, 3).transpose(0, 3, 1, 2)
    found = model({"x": frame})["y"]
    assert found.dtype == np.uint8 and np.abs(found - wanted).max() <= 0.5 + 1e-4


@pytest.mark.parametrize("colour", ["RGB", "NV12"])
def test_no_float_image_of_the_frame_in_the_arena(colour):
    weights = helper.make_tensor("w", TensorProto.FLOAT, (4, 3, 3, 3), np.linspace(-1, 1, 108).tolist())
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])],
        "detector",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 640, 640))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 320, 320))],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inputs = {"x": {"colour": colour, "size": [720, 1280], "resize": "letterbox", "scale": 255.0}}
    options = Options(resolve("x86-64-v3"), inputs=inputs, threads=1, cache=None, stop_after="plan")
    build = run_pipeline(model, options)
    assert build.imported.inputs[0].dtype == "uint8"
    assert build.memory.buffers and max(b.bytes for b in build.memory.buffers) < 720 * 1280 * 3 * 4
    assert any("uint8 frame 720x1280" in n for n in build.notes["import"])


def test_open_sizes():
    model = _model(("n", 3, "h", "w"))
    weights = helper.make_tensor("w", TensorProto.FLOAT, (1, 3, 1, 1), [1.0, 10.0, 100.0])
    model.graph.initializer.append(weights)
    model.graph.node[0].CopyFrom(helper.make_node("Conv", ["x", "w"], ["y"]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 1, "h", "w")))
    made = halotile.compile(model, inputs={"x": halotile.Image("BGR", scale=255)}, cache=False, threads=1)
    for shape in ((1, 5, 7, 3), (2, 9, 4, 3)):
        frame = np.random.default_rng(2).integers(0, 256, shape).astype(np.uint8)
        wanted = frame[..., ::-1].transpose(0, 3, 1, 2) / 255
        wanted = np.tensordot(wanted, [1, 10, 100], (1, 0))[:, None]
        assert np.abs(made({"x": frame})["y"] - wanted).max() < 1e-3


OPEN_NETWORK = (
    halotile.Image("NV12", scale=255), halotile.Image("NV21", mean=(9, 8, 7), model_colour="BGR"),
    halotile.Image("NV12_TWO_PLANES", matrix="BT.709"), halotile.Image("YUYV", scale=(2, 3, 4)),
)  # fmt: skip


def _bytes_of(image, rng, n, h, w):
    """A frame of noise, and its planes by name."""
    if image.colour == "YUYV":
        frame = rng.integers(0, 256, (n, h, w, 2)).astype(np.uint8)
        return frame, {"x": frame}
    frame = rng.integers(0, 256, (n, h * 3 // 2, w, 1)).astype(np.uint8)
    if image.colour != "NV12_TWO_PLANES":
        return frame, {"x": frame}
    return frame, {"x/y": frame[:, :h].copy(), "x/uv": frame[:, h:].reshape(n, h // 2, w // 2, 2)}


@pytest.mark.parametrize("image", OPEN_NETWORK, ids=lambda i: i.colour)
def test_brightness_and_colour_for_a_network_of_open_size(image):
    """Whole numbers are those of a build for each size; and no float image of the frame is in memory."""
    made = halotile.compile(_model(("n", 3, "h", "w")), inputs={"x": image}, cache=False, threads=1)
    for n, h, w in ((1, 4, 6), (2, 12, 20), (1, 26, 34)):
        _, feeds = _bytes_of(image, np.random.default_rng(h), n, h, w)
        fixed = halotile.compile(_model((n, 3, h, w)), inputs={"x": image}, cache=False, threads=1)
        assert np.array_equal(made(feeds)["y"], fixed(feeds)["y"]), (n, h, w)
    kinds = {o["dtype"] for g in made.report["groups"] for o in g["outputs"] if o["name"] != "y"}
    assert kinds <= {"uint8", "float32"} and len(made.report["groups"]) <= 3
    floats = [o for g in made.report["groups"][:-1] for o in g["outputs"] if o["dtype"] == "float32"]
    assert not floats and made.verify().ok


def test_sides_that_a_network_asks_for_are_those_of_its_frames():
    """A sum over two resolutions wants multiples of four; bounds are given by the names of the model's dimensions."""
    model = _model(("n", 3, "h", "w"))
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("MaxPool", ["p"], ["q"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["q", "", "by"], ["u"], mode="nearest"),
        helper.make_node("Add", ["u", "p"], ["y"]),
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.append(helper.make_tensor("by", TensorProto.FLOAT, (4,), [1.0, 1.0, 2.0, 2.0]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ("n", 3, "a", "b")))
    made = halotile.compile(
        model, inputs={"x": halotile.Image("NV12")}, shapes={"h": "8..64", "w": "8..64"}, cache=False, threads=1
    )
    frame, feeds = _bytes_of(halotile.Image("NV12"), np.random.default_rng(1), 1, 16, 24)
    wanted = _expected(frame, halotile.Image("NV12"), 16, 24, 3).reshape(8, 2, 12, 2, 3).max((1, 3))
    wanted = wanted + wanted.reshape(4, 2, 6, 2, 3).max((1, 3)).repeat(2, 0).repeat(2, 1)
    assert np.abs(made(feeds)["y"][0] - wanted.transpose(2, 0, 1)).max() < 1e-3
    limits = {s["name"]: (s["low"], s["high"], s["multiple"]) for s in made.report["symbols"]}
    assert limits["h_rows"][2] % 6 == 0 and limits["h_rows"][1] <= 96 and limits["w"][2] % 4 == 0
    with pytest.raises(HalotileError, match="h_rows"):
        made({"x": np.zeros((1, 15, 24, 1), np.uint8)})


def test_shapes_are_those_of_the_model():
    image = halotile.Image(size=(10, 12), resize="linear")
    for shapes in ({"x": (1, 3, 5, 6)}, {"n": 1, "h": 5, "w": 6}):
        made = halotile.compile(_model(("n", 3, "h", "w")), inputs={"x": image}, shapes=shapes, cache=False, threads=1)
        assert made.inputs[0].shape == (1, 10, 12, 3) and made.outputs[0].shape == (1, 3, 5, 6)
        assert made.verify().ok


@pytest.mark.parametrize(
    "shape, image, words",
    [
        (("n", 3, "h", "w"), {"size": (8, 8), "resize": "linear"}, "open size hxw"),
        ((1, 3, 8, 8), {"colour": "NV12", "size": (7, 8), "resize": "linear"}, "even sides"),
        ((1, 3, 8, 8), {"size": (9, 8), "resize": "none"}, "the model takes 8x8"),
        ((1, 4, 8, 8), {}, "where the channels are"),
        ((1, 3, 8), {}, "3 dimensions"),
        ((1, 3, 8, 8), {"mean": (1, 2)}, "mean has 2 numbers"),
        ((1, 3, 8, 8), {"model_colour": "grey"}, "not grey"),
        (("n", 3, "h", "w"), {"size": ("a", "b"), "resize": "linear"}, "open size hxw"),
        ((1, 3, 8, 8), {"size": ("a", "b"), "resize": "none"}, "have to be resized"),
    ],
)
def test_refusals(shape, image, words):
    with pytest.raises(HalotileError, match=words) as error:
        halotile.compile(_model(shape), inputs={"x": halotile.Image(**image)}, cache=False)
    assert "\n" not in str(error.value)


def test_wrong_words():
    for fields in (
        {"colour": "rgb"}, {"size": (0, 4)}, {"scale": 0}, {"resize": "lanczos"}, {"pad": "x"}, {"mean": float("nan")},
        {"colour": "NV12", "layout": "NCHW"}, {"filter": "cubic"}, {"size": ("h", "w"), "resize": "area"},
        {"size": "hw"}, {"size": ("..9", "w")}, {"size": ("h:9..3", "w")},
    ):  # fmt: skip
        with pytest.raises(HalotileError):
            halotile.Image(**fields)
    with pytest.raises(ShapeError, match="no input 'z'"):
        halotile.compile(_model((1, 3, 8, 8)), inputs={"z": halotile.Image()}, cache=False)
    with pytest.raises(HalotileError, match="has no 'colr'"):
        halotile.compile(_model((1, 3, 8, 8)), inputs={"x": {"colr": "RGB"}}, cache=False)

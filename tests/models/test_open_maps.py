"""Maps of open sizes: transposes, pads in every mode, the first few of a long row, at sizes around their tiles."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from halotile.schedules.operators.radix import radix_lengths, radix_pays
from onnx import helper

from ..support.open_models import Drawing

SIDES = (1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 47, 48)
SQUARES, SPANS = "squares transposed in registers", "open lines in spans"
PASSES = "passes over what is read"


def _check(g, sizes, wanted, least=1):
    """The built model, after a run on one and on two threads at each of ``sizes``; ``wanted`` gives the outputs."""
    built = halotile.compile(g.model(), threads=2)
    random = np.random.default_rng(4)
    ran = 0
    for size in sizes:
        shapes = [[size.get(d, d) for d in i.shape] for i in built.inputs]
        inputs = [random.integers(-9, 9, s).astype("float32") for s in shapes]
        given = dict(zip((i.name for i in built.inputs), inputs))
        expected = wanted(*inputs)
        found = {f"y{n}": np.full(e.shape, np.nan, "float32") for n, e in enumerate(expected)}
        built.bind(given, found)()
        for n, e in enumerate(expected):
            assert np.array_equal(found[f"y{n}"], e), (size, n)
        for name, again in built(given, threads=1).items():
            assert np.array_equal(again, found[name]), size
        ran += 1
    assert ran >= least
    return built


def _notes(built):
    return [n for k in built.report["kernels"] for n in k.get("notes", ())]


def _drawn(seed, *names, count=24):
    random = np.random.default_rng(seed)
    return [{n: int(random.choice(SIDES)) for n in names} for _ in range(count)]


@pytest.mark.parametrize(
    ("shape", "perm"),
    [((2, "h", "w", 32), (0, 3, 1, 2)), (("b", 19, "h", "w"), (0, 2, 3, 1)), (("c", "h", "w"), (2, 1, 0)),
     ((3, "n", "m"), (0, 2, 1))],
)  # fmt: skip
def test_transposes_in_squares(shape, perm):
    g = Drawing()
    g.output(g("Transpose", g.input("x", *shape), perm=perm), len(shape))
    built = _check(g, _drawn(2, *(d for d in shape if isinstance(d, str))), lambda x: [x.transpose(perm)])
    assert SQUARES in _notes(built)


def test_a_transpose_that_may_overwrite_what_it_adds():
    """Nothing is computed twice where the sum may lie in the memory of an operand."""
    g = Drawing()
    x, z = g.input("x", "n", "m"), g.input("z", "m", "n")
    z = g("Relu", g("CumSum", z, g.whole_scalar(0)))
    g.output(g("Relu", g("Add", g("Transpose", x, perm=(1, 0)), z)), 2)

    def wanted(x, z):
        return [np.maximum(x.T + np.maximum(np.cumsum(z, 0), 0), 0)]

    assert SQUARES in _notes(_check(g, _drawn(3, "n", "m"), wanted))


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(0, 3, 3, 0, 3, 3), (0, 0, 1, 0, 2, 17), (0, 5, 0, 0, 0, 0)])
def test_pads(mode, pads):
    g = Drawing()
    x = g.input("x", 3, "h", "w")
    padded = g("Pad", g("Relu", x), g.whole(*pads), *[g.constant(2.0)] * (mode == "constant"), mode=mode)
    g.output(g("Mul", padded, padded), 3)
    least = 1 if mode in ("constant", "edge") else max(pads) + 1
    sizes = [s for s in _drawn(5, "h", "w", count=150) if min(s.values()) >= least][:16]

    def wanted(x):
        width = [*zip(pads[:3], pads[3:])]
        more = {"constant_values": 2.0} if mode == "constant" else {}
        return [np.pad(np.maximum(x, 0), width, mode, **more) ** 2]

    assert SPANS in _notes(_check(g, sizes, wanted, least=8))


@pytest.mark.parametrize("end", [2**31 - 1, 2**40, -1])
@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_borders_of_a_slice_with_a_far_end(mode, end):
    """``2 * h >= 2**31 - 1`` overflowed in TVM's simplifier, and the slice's last row was the last of memory."""
    g = Drawing()
    weights = g.constant(np.ones((1, 1, 2, 2)))
    twice = g("ConvTranspose", g.input("x", 1, 1, "h", "w"), weights, strides=[2, 2], pads=[1, 0, 0, 0])  # 2 * h - 1
    part = g("Slice", twice, g.whole(3, 1), g.whole(end, end), g.whole(2, 3), g.whole(1, 2))
    g.output(g("Abs", g("Pad", part, g.whole(0, 0, 1, 2, 0, 0, 3, 1), mode=mode)), 4)

    def wanted(x):
        last = None if end > 0 else -1
        cut = x.repeat(2, 2).repeat(2, 3)[:, :, 1:][:, :, 3:last, 1:last:2]
        return [np.abs(np.pad(cut, ((0, 0), (0, 0), (1, 3), (2, 1)), mode))]

    sizes = [s for s in _drawn(6, "h", "w", count=60) if s["h"] > 3 and s["w"] > 7][:12]
    _check(g, sizes, wanted, least=8)


def test_a_concatenation_along_lines():
    g = Drawing()
    parts = [g.input(n, 2, "h", n) for n in "abc"]
    g.output(g("Neg", g("Concat", *parts, axis=2)), 3)
    _check(g, _drawn(8, "h", "a", "b", "c"), lambda *parts: [-np.concatenate(parts, 2)])


def test_the_first_few_of_any_length():
    """Sorted between two lengths, which are compared at run time, and by a heap elsewhere."""
    least, most = radix_lengths(50)
    assert least == 50 and radix_pays(most, 50) and not radix_pays(most + 1, 50)
    g = Drawing()
    g.nodes.append(_top_k(g, g.input("x", 2, "n"), 50))
    g.output("values", 2)
    g.output(g("Cast", "places", to=1), 2)

    def wanted(x):
        order = np.argsort(-x, axis=-1, kind="stable")[:, :50]
        return [np.take_along_axis(x, order, -1), order.astype("float32")]

    lengths = [50, 51, 63, 64, 65, 66, 67, 97, most - 1, most, most + 1, most + 17, 4096, 4097, 8400]
    _check(g, [{"n": n} for n in lengths], wanted)


def test_all_of_any_length_in_order():
    least, most = radix_lengths(None)
    assert 1 < least < 64 and most == 4096
    assert radix_lengths(3) is None


def _top_k(g, x, k, axis=-1):
    return helper.make_node("TopK", [x, g.whole(k)], ["values", "places"], axis=axis)


@pytest.mark.parametrize("columns", [16, 32])
def test_columns_of_which_vectors_leave_none(columns):
    """No columns are left behind whole vectors at any height: a loop over them divided by their number."""
    g = Drawing()
    x = g.input("x", 2, 3, "h", columns)
    g.output(g("CumSum", x, g.whole_scalar(1)), 4)
    g.nodes.append(_top_k(g, x, 1, axis=1))
    g.output("values", 4)

    def wanted(x):
        return [np.cumsum(x, 1), x.max(1, keepdims=True)]

    _check(g, [{"h": h} for h in (1, 2, 5, 16, 17)], wanted)


@pytest.mark.parametrize("repeats", [(1, 1, 3), (1, 2, 2), (2, 1, 5)])
def test_lines_that_pass_again_over_what_they_read(repeats):
    g = Drawing()
    g.output(g("Neg", g("Tile", g.input("x", 3, "h", "w"), g.whole(*repeats))), 3)
    built = _check(g, _drawn(7, "h", "w"), lambda x: [-np.tile(x, repeats)])
    assert PASSES in _notes(built)


def test_a_tile_of_fixed_size_passes_again():
    g = Drawing()
    g.output(g("Tile", g.input("x", 3, 5, 67), g.whole(1, 1, 3)), 3)
    assert PASSES in _notes(_check(g, [{}], lambda x: [np.tile(x, (1, 1, 3))]))

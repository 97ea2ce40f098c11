"""Scans over an axis whose length is open, too long to be written out, or decided by the data."""

from __future__ import annotations

import numpy as np
import pytest
from flow_models import agree, floats, kernels, model_of
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError

CELL = """body = cell (float[n,6] h, float[n,6] gx) => (float[n,6] h3, float[n,6] row) {
    gh = MatMul(h, u)
    g = Add(gx, gh)
    z = Sigmoid(g)
    c = Tanh(g)
    m = Sub(c, h)
    zm = Mul(z, m)
    h3 = Add(h, zm)
    row = Identity(h3)
}"""


def test_a_recurrent_cell_over_any_length_and_batch() -> None:
    """As exporters of scripts write a GRU: the input's product is made before, of all steps at once."""
    model = model_of(
        f"""g (float[t,n,5] x, float[n,6] h0) => (float[n,6] h, float[t,n,6] y) {{
        wx = MatMul(x, w)
        gx = Add(wx, b)
        h, y = Scan <{CELL}, num_scan_inputs = 1> (h0, gx)
    }}""",
        w=floats(5, 6),
        b=floats(6),
        u=floats(6, 6) / 3,
    )
    sizes = [(1, 1), (2, 1), (1, 3), (3, 2), (7, 5), (16, 17), (31, 1), (300, 2)]
    built = agree(model, [{"x": floats(t, n, 5), "h0": floats(n, 6)} for t, n in sizes])
    assert [k for k in kernels(built) if k.startswith("loop over")] and built.output_shapes(t=9, n=2)["y"] == (9, 2, 6)
    assert built.report["macs"] == 128 * 5 * 6, "the product over all steps"


AXES = """scan_input_axes = [1, -1], scan_input_directions = [1, 0], scan_output_axes = [1, -1],
    scan_output_directions = [0, 1], num_scan_inputs = 2"""
TWO = """body = b (float[n,3] p, float[n,3] q, float[n,3] u1, float[n,3] v1)
        => (float[n,3] p2, float[n,3] q2, float[n,3] r, float[3,n] s) {
    p2 = Add(p, u1)
    r = Mul(p2, v1)
    q2 = Add(q, r)
    s = Transpose(r)
}"""


@pytest.mark.parametrize("steps", ["t", "300", "4"])
def test_axes_and_directions(steps: str) -> None:
    """Of inputs and outputs, where the rounds are open, many, and few."""
    model = model_of(
        f"""g (float[n,3] p0, float[n,3] q0, float[n,{steps},3] u, float[n,3,{steps}] v)
            => (float[n,3] p, float[n,3] q, float[n,{steps},3] r, float[3,n,{steps}] s) {{
        p, q, r, s = Scan <{TWO}, {AXES}> (p0, q0, u, v)
    }}"""
    )
    sizes = [(n, t if steps == "t" else int(steps)) for n, t in ((1, 1), (2, 1), (1, 2), (5, 17), (3, 301))]
    feeds = [{"p0": floats(n, 3), "q0": floats(n, 3), "u": floats(n, t, 3), "v": floats(n, 3, t)} for n, t in sizes]
    built = agree(model, feeds)
    assert any(k.startswith("loop over") for k in kernels(built)) == (steps != "4")


def test_no_steps_leave_the_state_and_no_rows() -> None:
    """(ONNX Runtime does not run these.)"""
    import halotile

    model = model_of(
        f"g (float[t,2,6] x, float[2,6] h0) => (float[2,6] h, float[t,2,6] y) "
        f"{{ h, y = Scan <{CELL.replace('n,', '2,')}, num_scan_inputs = 1> (h0, x) }}",
        u=floats(6, 6),
    )
    h0 = floats(2, 6)
    found = halotile.compile(model)({"x": floats(0, 2, 6), "h0": h0})
    np.testing.assert_array_equal(found["h"], h0)
    assert found["y"].shape == (0, 2, 6)
    fixed = halotile.compile(model, shapes={"t": 0})({"x": floats(0, 2, 6), "h0": h0})
    np.testing.assert_array_equal(fixed["h"], h0)
    assert fixed["y"].shape == (0, 2, 6)


def test_as_many_steps_as_the_data_has() -> None:
    """Over what is not zero: the length is followed through the loop."""
    model = model_of(
        """g (float[40] x, float s0) => (float s, float[k] sums) {
        some = NonZero(x)
        places = Squeeze(some, zero)
        values = Gather(x, places)
        s, sums = Scan <body = b (float s1, float v) => (float s2, float row) {
            half = Mul(s1, part)
            s2 = Add(half, v)
            row = Identity(s2)
        }, num_scan_inputs = 1> (s0, values)
    }""",
        zero=np.array([0]),
        part=np.float32(0.5),
    )
    feeds = []
    for share in (0.05, 0.3, 1.0):
        x = floats(40)
        x[np.random.default_rng(5).random(40) > share] = 0
        x[7] = 1
        feeds.append({"x": x, "s0": np.float32(2)})
    agree(model, feeds)


def test_two_lengths_that_can_not_agree_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="Scan.*scanned inputs have as many slices: 5 is not 4"):
        import_model(
            model_of(
                """g (float[4,2] x, float[5,2] z) => (float[4,2] y) {
                y = Scan <body = b (float[2] p, float[2] q) => (float[2] r) { r = Add(p, q) }, num_scan_inputs = 2>
                    (x, z)
            }"""
            )
        )

"""Random shape arithmetic on open dimensions: whatever the import makes of it, the numbers are ONNX Runtime's.

``pytest --hypothesis-profile=thorough`` runs 5,000 of them instead of a hundred.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from exports import END, Raw
from halotile.compiler.frontend import import_model
from halotile.errors import ShapeError, UnsupportedError
from halotile.passes.simplify import Simplify
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

SIZES = [(1, 1), (2, 5), (5, 2), (3, 8)]


class Shapes:
    """Grows scalars and vectors of integers from the shape of x: [batch, 3, seq]."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.g = Raw(18, dynamo=bool(self.rng.integers(2)))
        self.x = self.g.input("x", ("batch", 3, "seq"))
        self.scalars = [self.g.size(self.x, k) for k in range(3)]
        self.vectors = [self.g("Shape", self.x)]
        self.lengths = [3]

    def pick(self, items: list):
        return items[self.rng.integers(len(items))]

    def step(self) -> None:
        ways = [*[self.arithmetic] * 3, *[self.join] * 2, self.through_floats, self.cut, self.gather, self.choose]
        self.pick(ways)()

    def number(self) -> str:
        return self.pick(self.scalars) if self.rng.random() < 0.6 else self.g.const(int(self.rng.integers(1, 7)))

    def arithmetic(self) -> None:
        operator = self.pick(["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"])
        a, b = self.pick(self.scalars), self.number()
        if operator in ("Div", "Mod"):
            b = self.g("Max", b, self.g.const(1))
            a = self.g("Max", a, self.g.const(0))
        if operator == "Mul":
            a, b = (self.g("Min", v, self.g.const(50)) if self.rng.random() < 0.7 else v for v in (a, b))
        self.scalars.append(self.g(operator, a, b))

    def through_floats(self) -> None:
        wide = self.g("Cast", self.g("Max", self.pick(self.scalars), self.g.const(0)), to=TensorProto.FLOAT)
        scaled = self.g(self.pick(["Mul", "Div"]), wide, self.g.f(self.pick([0.5, 2.0, 3.0, 1.7])))
        whole = self.g(self.pick(["Floor", "Ceil"]), scaled)
        self.scalars.append(self.g("Cast", whole, to=TensorProto.INT64))

    def join(self) -> None:
        count = int(self.rng.integers(1, 4))
        parts = [self.g.unsqueeze(self.number(), 0) for _ in range(count)]
        self.vectors.append(self.g("Concat", *parts, axis=0))
        self.lengths.append(count)

    def cut(self) -> None:
        k = int(self.rng.integers(len(self.vectors)))
        first = int(self.rng.integers(self.lengths[k]))
        self.vectors.append(self.g.slice(self.vectors[k], 0, first, END))
        self.lengths.append(self.lengths[k] - first)

    def gather(self) -> None:
        k = int(self.rng.integers(len(self.vectors)))
        place = int(self.rng.integers(-self.lengths[k], self.lengths[k]))
        self.scalars.append(self.g("Gather", self.vectors[k], self.g.const(place), axis=0))

    def choose(self) -> None:
        """Where on a comparison, or what Expand with -1 does."""
        a, b = self.pick(self.scalars), self.number()
        condition = self.g(self.pick(["Equal", "Less", "GreaterOrEqual"]), a, self.number())
        if self.rng.random() < 0.5:
            condition = self.g("Not", condition)
        self.scalars.append(self.g("Where", condition, a, b))

    def outputs(self) -> list[str]:
        """A tensor of a computed shape, a slice to a computed end, and the numbers themselves."""
        small = [self.g("Min", self.g("Max", s, self.g.const(0)), self.g.const(9)) for s in self.scalars[-2:]]
        shape = self.g("Concat", *(self.g.unsqueeze(s, 0) for s in small), axis=0)
        one = numpy_helper.from_array(np.array([1.5], "float32"))
        full = self.g("ConstantOfShape", shape, value=one)
        part = self.g.slice(self.x, 2, 0, self.g.unsqueeze(small[0], 0))
        numbers = self.g("Cast", self.g("Concat", *self.vectors[-3:], axis=0), to=TensorProto.FLOAT)
        return [self.g("Neg", full), self.g("Neg", part), numbers]

    def model(self):
        outputs = self.outputs()
        infos = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.g.nodes, "shapes", self.g.inputs, infos, self.g.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.g.opset)], ir_version=8)


def random_model(seed: int):
    shapes = Shapes(seed)
    for _ in range(8):
        shapes.step()
    return shapes.model()


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
def test_numbers_stay(tools, seed: int) -> None:
    model = random_model(seed)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    try:
        imported = import_model(model, symbolic=True)
    except (UnsupportedError, ShapeError) as refusal:
        assert "Error:" not in str(refusal)  # a reason, not a failure
        return
    result = Simplify().apply(imported.module)
    for batch, seq in SIZES:
        x = np.arange(batch * 3 * seq, dtype=np.float32).reshape(batch, 3, seq)
        fed = [x] if imported.inputs else []
        for expected, got in zip(session.run(None, {"x": x}), tools.values(result.module, fed), strict=True):
            assert got.shape == expected.shape
            np.testing.assert_array_equal(got, expected)


def test_most_of_them_are_imported() -> None:
    taken = 0
    for seed in range(60):
        try:
            import_model(random_model(seed), symbolic=True)
            taken += 1
        except (UnsupportedError, ShapeError):
            pass
    assert taken >= 24, taken


@pytest.mark.parametrize(
    ("numerator", "denominator", "expected"),
    [
        ((2, 3), 2, "seq + 1"),  # (2 seq + 3) // 2
        ((1, 0), 1, "seq"),
        ((4, 2), 8, "(seq // 2)"),
        ((3, 1), 4, "((3*seq + 1) // 4)"),
        ((6, 1), 3, "2*seq"),
    ],
)
def test_floors_take_whole_multiples_out(numerator, denominator, expected) -> None:
    from halotile.schedules.words.dims import Dim

    seq = Dim.symbol("seq")
    factor, rest = numerator
    assert str((factor * seq + rest) // denominator) == expected
    for n in range(20):
        assert (factor * n + rest) // denominator == eval(expected, {"seq": n})


def test_polynomials_divide_exactly() -> None:
    from halotile.schedules.words.dims import Dim, quotient

    a, b = Dim.symbol("a"), Dim.symbol("b")
    assert (a * b * 768) // (a * b) == 768
    assert quotient(a * a + 2 * a * b + b * b, a + b) == a + b
    assert quotient(a + 1, b) is None


def test_a_floor_of_a_floor_is_one_floor() -> None:
    from halotile.schedules.words.dims import Dim

    seq = Dim.symbol("seq")
    halved = (seq + 1) // 2
    assert (halved + 3) // 4 == (seq + 7) // 8
    assert halved // 2 == (seq + 1) // 4
    assert all((((n + 1) // 2) + 3) // 4 == (n + 7) // 8 for n in range(50))


def test_what_only_a_run_can_tell_is_assumed_once_and_said() -> None:
    """An image of which two rows of three are joined, which are counted as exporters do, by (n - 2) / 3 + 1."""
    g = Raw(17)
    x = g.input("x", ["batch", 3, "rows", 4])
    both = g("Concat", g.slice(x, 2, 1, 2**31 - 1, 3), g.slice(x, 2, 2, 2**31 - 1, 3), axis=1)
    count = g("Add", g("Div", g("Sub", g.size(x, 2), g.const(2)), g.const(3)), g.const(1))
    model = g.model(g("Conv", g.view(both, g.size(x, 0), 6, count, 4), g.weight(2, 6, 1, 1)))
    notes = import_model(model, symbolic=True).notes
    assert sum("is taken to be" in n for n in notes) == 1
    assert any("'rows' is at least 2, below which an integer division would round otherwise" in n for n in notes)

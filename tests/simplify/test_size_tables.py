"""Tables that depend on open sizes alone are one operator each, with ONNX Runtime's numbers at every size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import halotile
import numpy as np
import onnxruntime
import pytest
from exports import Raw
from halotile.compiler.dump import _printable
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.passes.simplify.convert import read
from halotile.passes.simplify.graph import CONST, INPUT
from halotile.targets.resolve import resolve
from onnx import ModelProto, TensorProto, helper, numpy_helper

LOW = float(np.finfo(np.float32).min)
TABLE = "halotile.of_sizes"
FALSE = numpy_helper.from_array(np.array([False]))


def as_float(g: Raw, value: str) -> str:
    return g("Cast", value, to=TensorProto.FLOAT)


def positions(g: Raw, count: str) -> str:
    return g("Range", g.const(0), count, g.const(1))


def model_of(make: Callable[[Raw, str], Any], *shape: int | str) -> ModelProto:
    g = Raw(18)
    made = make(g, g.input("x", shape))
    names = [made] if isinstance(made, str) else list(made)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]
    graph = helper.make_graph(g.nodes, "open", g.inputs, infos, g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=8)


def built(model: ModelProto, until: str = "simplify") -> Build:
    return run_pipeline(model, Options(resolve("x86-64-v3"), stop_after=until, check=until == "simplify"))


def left(build: Build) -> Counter[str]:
    nodes = read(build.module["main"]).order()
    return Counter(n.op.removeprefix("relax.") for n in nodes if n.op not in (INPUT, CONST))


def assert_as_onnxruntime(tools: Any, model: ModelProto, build: Build, *shapes: tuple[int, ...]) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in shapes:
        x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
        for got, expected in zip(tools.values(build.module, [x]), session.run(None, {"x": x}), strict=True):
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6, err_msg=str(shape))


def root_of_length(g: Raw, x: str) -> str:
    return g("Div", x, g("Sqrt", as_float(g, g.size(x, 1))))


def share_of_length(g: Raw, x: str) -> str:
    """Of one row it is 0 / 0."""
    n = g.size(x, 1)
    return g("Add", x, g("Div", as_float(g, positions(g, n)), as_float(g, g("Sub", n, g.const(1)))))


def causal(g: Raw, x: str) -> str:
    row = positions(g, g.size(x, 1))
    return g("Where", g("LessOrEqual", g.unsqueeze(row, 0), g.unsqueeze(row, 1)), x, g.f(LOW))


def sines(g: Raw, x: str) -> str:
    angles = g("Mul", g.unsqueeze(as_float(g, positions(g, g.size(x, 0))), 1), g.f([[1.0, 0.1, 0.01]]))
    return g("Add", x, g("Concat", g("Sin", angles), g("Cos", angles), axis=1))


def grid(g: Raw, x: str) -> str:
    height, width = g.size(x, 0), g.size(x, 1)
    shape = g("Concat", g.unsqueeze(height, 0), g.unsqueeze(width, 0), axis=0)
    rows = g("Expand", g.unsqueeze(as_float(g, positions(g, height)), 1), shape)
    columns = g("Expand", g.unsqueeze(as_float(g, positions(g, width)), 0), shape)
    return g("Concat", g.unsqueeze(x, 0), g.unsqueeze(rows, 0), g.unsqueeze(columns, 0), axis=0)


@pytest.mark.parametrize(
    ("make", "shape", "reader", "tables"),
    [
        (root_of_length, (2, "n"), ["divide"], 1),
        (share_of_length, (2, "n"), ["add"], 1),
        (causal, ("n", "n"), ["where"], 1),
        (sines, ("n", 6), ["add"], 1),
        (grid, ("h", "w"), ["reshape", "concat"], 2),
    ],
)
def test_a_table_of_sizes_is_one_operator(
    tools: Any, make: Callable[[Raw, str], str], shape: tuple[int | str, ...], reader: list[str], tables: int
) -> None:
    model = model_of(make, *shape)
    build = built(model)
    assert left(build) == Counter({**Counter(reader), TABLE: tables})
    sizes = ({"n": n, "h": n, "w": n + 2} for n in (1, 2, 7, 13))
    assert_as_onnxruntime(tools, model, build, *(tuple(s.get(d, d) for d in shape) for s in sizes))
    assert TABLE not in left(built(model, "reassociate")), "kernels are made of the pieces"


def test_it_is_part_of_its_reader_in_a_listing() -> None:
    from halotile.compiler.listing import operators

    (entry,) = operators(built(model_of(causal, "n", "n")).module, composites=True)
    assert entry["operator"] == "relax.where" and TABLE in entry["members"]
    text = str(_printable(built(model_of(causal, "n", "n")).module).script())
    assert "of_sizes" in text and "less_equal" in text


def test_what_others_read_as_well_stays_a_table_of_its_own(tools: Any) -> None:
    def make(g: Raw, x: str) -> list[str]:
        row = as_float(g, positions(g, g.size(x, 1)))
        once = g("Sin", row)
        return [g("Add", x, once), g("Mul", x, g("Add", once, row))]

    model = model_of(make, 2, "n")
    build = built(model)
    assert left(build) == Counter({TABLE: 2, "add": 1, "multiply": 1})
    assert_as_onnxruntime(tools, model, build, (2, 1), (2, 5))


def test_what_the_data_decides_is_no_table(tools: Any) -> None:
    def make(g: Raw, x: str) -> str:
        spread = g("ReduceMax", x, g.const([1]), keepdims=1)
        return g("Mul", g("Cos", as_float(g, positions(g, g.size(x, 1)))), g("Exp", spread))

    model = model_of(make, 2, "n")
    build = built(model)
    assert left(build) == Counter({"max": 1, "exp": 1, TABLE: 1, "multiply": 1})
    assert_as_onnxruntime(tools, model, build, (2, 1), (2, 5))


def test_a_sum_over_a_table_is_no_piece_of_one(tools: Any) -> None:
    def make(g: Raw, x: str) -> str:
        total = g("ReduceSum", g("Exp", g("Neg", as_float(g, positions(g, g.size(x, 1))))), g.const([0]))
        return g("Div", x, total)

    model = model_of(make, 2, "n")
    build = built(model)
    assert left(build)["sum"] == 1 and left(build)[TABLE] == 1
    assert_as_onnxruntime(tools, model, build, (2, 1), (2, 5))


def sums_of_ones(g: Raw, x: str) -> str:
    """Positions as DETR counts them: running sums of a mask that is 1 everywhere."""
    ones = g("Cast", g("Not", g("ConstantOfShape", g("Shape", x), value=FALSE)), to=TensorProto.FLOAT)
    return g("Add", x, g("CumSum", ones, g.const(1)))


def angles(g: Raw, x: str) -> str:
    row = as_float(g, positions(g, g.size(x, 0)))
    return g("Add", x, g("Cos", g("Einsum", row, g.f([1.0, 0.1, 0.01]), equation="i,j->ij")))


@pytest.mark.parametrize(("make", "shape"), [(sums_of_ones, (2, "n")), (angles, ("n", 3))])
def test_sums_of_ones_and_products_of_each_by_each_are_pieces(
    tools: Any, make: Callable[[Raw, str], str], shape: tuple[int | str, ...]
) -> None:
    model = model_of(make, *shape)
    build = built(model)
    assert left(build) == Counter({TABLE: 1, "add": 1})
    assert_as_onnxruntime(tools, model, build, *(tuple(n if d == "n" else d for d in shape) for n in (1, 2, 13)))


def test_sums_of_ones_stay_where_float32_adds_no_more(tools: Any) -> None:
    def make(g: Raw, x: str) -> str:
        ones = g("Cast", g("Not", g("ConstantOfShape", g("Shape", x), value=FALSE)), to=TensorProto.FLOAT)
        total = g("CumSum", ones, g.const(0))
        return g("Mul", g.slice(x, 0, -2, np.iinfo(np.int64).max), g.slice(total, 0, -2, np.iinfo(np.int64).max))

    model = model_of(make, "n")
    build = built(model)
    assert left(build)["halotile.cumsum"] == 0
    assert_as_onnxruntime(tools, model, build, ((1 << 24) + 3,))


@pytest.mark.parametrize("reverse", [0, 1])
def test_sums_of_another_float_or_from_the_end_are_left(reverse: int) -> None:
    def make(g: Raw, x: str) -> str:
        value = numpy_helper.from_array(np.array([1.0 if reverse else 0.1], np.float32))
        return g("Add", x, g("CumSum", g("ConstantOfShape", g("Shape", x), value=value), g.const(0), reverse=reverse))

    assert left(built(model_of(make, "n")))["halotile.cumsum"] == 1


def test_known_sizes_leave_constants() -> None:
    assert left(built(model_of(causal, 5, 5))) == Counter({"where": 1})


def test_the_library_has_the_same_numbers() -> None:
    model = model_of(causal, "n", "n")
    library = halotile.compile(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for n in (1, 3, 17):
        x = np.random.default_rng(n).standard_normal((n, n)).astype(np.float32)
        (got,) = library({"x": x}).values()
        np.testing.assert_array_equal(got, session.run(None, {"x": x})[0])

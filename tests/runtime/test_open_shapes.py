"""Python calls of models whose runs choose sizes: any size in range, the refusals, memory that stays flat."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from halotile.compiler.codegen.library import build_library
from halotile.compiler.runtime.loader import load
from halotile.compiler.spec import Symbol, TensorSpec
from halotile.errors import OutputError, RunError, ShapeError

from ..support import flat_largest

F = np.float32


@pytest.fixture(scope="module")
def folder(open_spec, tmp_path_factory):
    return build_library(open_spec, tmp_path_factory.mktemp("open") / "out").directory


@pytest.fixture
def model(folder):
    with load(folder) as loaded:
        yield loaded


def feed(batch: int, width: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([seed, batch, width])
    return {"x": rng.standard_normal((batch, width, 3)).astype(F), "m": rng.standard_normal(width).astype(F)}


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_every_size_runs_in_one_instance_after_the_other(model, open_reference, threads):
    """None, one, primes, what divides nothing, and the largest; then small ones in the large arena."""
    for batch, width in [(1, 0), (1, 2), (7, 26), (64, 1022), (13, 34), (64, 0), (61, 4094), (1, 2), (3, 10)]:
        arrays = feed(batch, width)
        y = model(arrays, threads=threads)["y"]
        assert y.shape == (batch, 2 * width + 1) == model.output_shapes(batch=batch, width=width)["y"]
        assert np.array_equal(y, open_reference(**arrays))


def test_what_it_takes_is_told(model, folder, open_spec):
    assert model.inputs == open_spec.inputs and model.outputs == open_spec.outputs
    assert model.symbols == open_spec.symbols
    sides = "(x: float32[batch, width, 3], m: float32[width]) -> (y: float32[batch, 2*width + 1])"
    assert repr(model) == f"<open.net: {sides}>"
    assert model.output_shapes() == {"y": (4, 21)}  # at the typical sizes
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["abi"] == 2 and manifest["inputs"][1]["shape"] == ["width"]
    assert [symbol.symbol() for symbol in model.recorded.symbols] == list(open_spec.symbols)


def test_arenas_are_the_formula(model):
    for batch, width, threads in [(1, 0, 1), (7, 26, 2), (64, 1022, 5)]:
        row = 4 * (width + 1)
        planned, each = -(-batch * row // 64) * 64, -(-row // 64) * 64
        assert model.arena_bytes(threads, batch=batch, width=width) == planned + threads * each
    assert model.arena_bytes(1, {"width": 26}, batch=7) == model.arena_bytes(1, batch=7, width=26)
    assert model.arena_bytes() == model.arena_bytes(2, batch=4, width=10)
    assert model.arena_bytes(65, batch=4) == 0


REFUSED = [
    (((0, 2, 3), (2,)), "input 'x' has shape (0, 2, 3): batch is 0, and must be from 1 to 64"),
    (((65, 2, 3), (2,)), "input 'x' has shape (65, 2, 3): batch is 65, and must be from 1 to 64"),
    (
        ((5, 3, 3), (3,)),
        "input 'x' has shape (5, 3, 3): width is 3, and must be a multiple of 2 (Conv 'c' has stride 2)",
    ),
    (((5, 4, 3), (6,)), "input 'm' has shape (6), expected (width), which is (4): width is 4 in input 'x'"),
    (((5, 4, 2), (4,)), "input 'x' has shape (5, 4, 2), expected (batch, width, 3), which is (5, 4, 3)"),
    (((5, 4), (4,)), "input 'x' has shape (5, 4), expected (batch, width, 3)"),
    (((5, 4, 3), (4, 1)), "input 'm' has shape (4, 1), expected (width)"),
]


@pytest.mark.parametrize(("shapes", "said"), REFUSED)
def test_shapes_that_the_model_does_not_take_are_named(model, open_reference, shapes, said):
    x, m = (np.zeros(shape, F) for shape in shapes)
    for call in (lambda: model({"x": x, "m": m}), lambda: model.bind({"x": x, "m": m}, {"y": np.zeros((1, 1), F)})):
        with pytest.raises(RunError) as caught:
            call()
        assert str(caught.value) == said
    arrays = feed(3, 4)  # and the next call is none the worse
    assert np.array_equal(model(arrays)["y"], open_reference(**arrays))


def test_a_tensor_that_kernels_can_not_count_is_refused_before_anything_is_copied(model):
    x, m = (np.broadcast_to(np.zeros(1, F), shape) for shape in ((64, 1 << 34, 3), (1 << 34,)))  # views of four bytes
    with pytest.raises(RunError, match="width is 17179869184, and kernels count to 2147483646"):
        model({"x": x, "m": m})
    said = "more than 2147483647 elements at this shape: batch 64, width 16777216"
    with pytest.raises(RunError, match=said):
        model({"x": x[:, : 1 << 24], "m": m[: 1 << 24]})
    with pytest.raises(ShapeError, match=said):
        model.output_shapes(batch=64, width=1 << 24)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"batch": 0}, "batch is 0, and must be from 1 to 64"),
        ({"width": 3}, r"width is 3, and must be a multiple of 2 \(Conv 'c' has stride 2\)"),
        ({"width": 2.0}, "width=2.0: give a whole number"),
        ({"widht": 2}, "the model has no open dimension 'widht'; it has 'batch', 'width'"),
    ],
)
def test_sizes_by_name_are_checked(model, sizes, said):
    for call in (model.output_shapes, lambda shape: model.arena_bytes(1, shape)):
        with pytest.raises(ShapeError, match=said):
            call(sizes)


def test_models_of_fixed_shapes_have_none(make_spec, tmp_path):
    with load(build_library(make_spec(), tmp_path / "out").directory) as model:
        assert model.symbols == () and model.output_shapes() == {"y": (4,)}
        for call in (model.output_shapes, lambda **sizes: model.arena_bytes(1, **sizes)):
            with pytest.raises(ShapeError, match="empty has no open dimension 'n': its shapes are fixed"):
                call(n=3)


def test_bound_arrays_keep_their_sizes_while_calls_have_others(model, open_reference):
    arrays = feed(5, 6)
    y = np.zeros((5, 13), F)
    run = model.bind(arrays, {"y": y})
    for width in (2, 400, 4):
        y[:] = 0
        run()
        assert np.array_equal(y, open_reference(**arrays))
        arrays["x"][:] += 1
        other = feed(64, width)
        assert np.array_equal(model(other)["y"], open_reference(**other))
    with pytest.raises(RunError, match=r"output 'y' has shape \(5, 12\), expected \(5, 13\)"):
        model.bind(arrays, {"y": np.zeros((5, 12), F)})


def test_python_threads_with_sizes_of_their_own(model, open_reference):
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            arrays = feed(int(rng.integers(1, 65)), 2 * int(rng.integers(0, 300)), seed)
            try:
                if not np.array_equal(model(arrays, threads=seed % 3 or None)["y"], open_reference(**arrays)):
                    wrong.append({name: array.shape for name, array in arrays.items()})
            except Exception as error:
                wrong.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_memory_is_flat_after_the_largest(folder):
    command = [sys.executable, flat_largest.__file__, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 6 << 20  # the largest arena has 5 MB, an output 10


def test_longer_and_longer_inputs_make_few_instances(folder, monkeypatch, open_reference):
    """A quarter of room for what grows: from 2 to 2,000 that is some thirty instances, not a thousand."""
    with load(folder) as model:
        made: list[int] = []
        create = model._open._calls.create
        monkeypatch.setattr(model._open._calls, "create", lambda *given: made.append(1) or create(*given))
        for width in range(2, 2002, 2):
            arrays = {"x": np.ones((1, width, 3), F), "m": np.ones(width, F)}
            model(arrays, threads=1)
        assert np.array_equal(model(arrays, threads=1)["y"], open_reference(**arrays))
        assert 5 < len(made) < 40
        assert len(model._instances) == 2  # the default's and this one's


def test_an_instance_that_can_not_be_made_leaves_the_model_usable(model, open_reference, monkeypatch):
    create = model._open._calls.create
    monkeypatch.setattr(model._open._calls, "create", lambda *given: (3, 0))
    with pytest.raises(RunError, match="not enough memory for the arena"):
        model(feed(64, 4000))
    monkeypatch.setattr(model._open._calls, "create", create)
    for batch, width in [(2, 4), (64, 4000)]:
        arrays = feed(batch, width)
        assert np.array_equal(model(arrays)["y"], open_reference(**arrays))


LINEAR = """
int32_t halotile_kernel_shapes(const int64_t *symbols, int64_t *facts) {
    facts[0] = 0, facts[1] = 0, facts[2] = symbols[0], facts[3] = 4 * symbols[0] - 1;
    facts[4] = symbols[0] * symbols[1], facts[5] = symbols[1];
    return 0;
}
int32_t halotile_kernel_main(void *a, void *b, void *y, const void *w, void *arena, const int64_t *symbols,
                             const int64_t *facts) {
    (void)a, (void)b, (void)w, (void)arena, (void)facts;
    for (int64_t i = 0; i < symbols[1]; ++i) ((int64_t *)y)[i] = symbols[0];
    return 0;
}
"""


def test_sizes_are_read_off_linear_dimensions_too(make_spec, tmp_path):
    """Beside one that no input tells alone, and a symbol whose name is none of C's."""
    inputs = (TensorSpec("a", "int8", ("3 n", "4*k.1 - 1")), TensorSpec("b", "int8", ("3 n*k.1",)))
    fields = {
        "inputs": (replace(inputs[0], shape=("4*k.1 - 1",)), inputs[1]),
        "outputs": (TensorSpec("y", "int64", ("3 n",)),),
        "symbols": (Symbol("k.1", 1, 9), Symbol("3 n", 0)), "facts": 6,
    }  # fmt: skip
    source = LINEAR.replace("facts[2] = symbols[0], facts[3]", "facts[2]").replace("facts[4] =", "facts[3] =")
    source = source.replace("facts[5] =", "facts[4] =")
    spec = make_spec(source, name="linear", **fields)
    with load(build_library(spec, tmp_path / "one").directory) as model:
        with pytest.raises(RunError, match="no input of the model says by itself what 3 n is"):
            model({"a": np.zeros(7, np.int8), "b": np.zeros(6, np.int8)})
        assert model.output_shapes({"3 n": 5}) == {"y": (5,)}
    both = (replace(inputs[0], shape=("3 n", "4*k.1 - 1")), inputs[1])
    source = LINEAR.replace("facts[2] = symbols[0]", "facts[2] = symbols[1]")
    spec = make_spec(source, name="linear", **{**fields, "inputs": both})
    with load(build_library(spec, tmp_path / "two").directory) as model:
        assert model({"a": np.zeros((3, 7), np.int8), "b": np.zeros(6, np.int8)})["y"].tolist() == [2, 2, 2]
        with pytest.raises(RunError, match=r"input 'a' has shape \(3, 8\), expected \(3 n, 4\*k.1 - 1\)$"):
            model({"a": np.zeros((3, 8), np.int8), "b": np.zeros(6, np.int8)})
        said = r"input 'b' has shape \(7\), expected \(3 n\*k.1\), which is \(6\): k.1 is 2 in input 'a', 3 n is 3 in "
        with pytest.raises(RunError, match=said):
            model({"a": np.zeros((3, 7), np.int8), "b": np.zeros(7, np.int8)})


def test_an_interface_of_the_future_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("halotile.compiler.runtime.open_binding.ABI", 3)
    with pytest.raises(OutputError, match="has interface version 2, this Halotile reads 1 and 3; build it again"):
        load(folder)

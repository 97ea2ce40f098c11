"""The C side of models whose runs choose sizes: headers, arenas that are exact at every shape, errors, sanitizers."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from c_programs import MAIN, STRICT, counting, link, run, run_sanitized
from halotile.compiler.codegen.conditions import condition_text
from halotile.compiler.codegen.library import build_library, write_sources
from halotile.compiler.codegen.link import RUNTIME
from halotile.compiler.codegen.names import members
from halotile.compiler.runtime.loader import load
from halotile.compiler.spec import Condition, Symbol
from halotile.errors import RunError
from halotile.schedules.words.dims import Dim, maximum, minimum
from halotile.schedules.words.sizes import value_of
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def built(open_spec, tmp_path_factory):
    return build_library(open_spec, tmp_path_factory.mktemp("built") / "out", formats=("so", "a"))


@pytest.mark.parametrize("dialect", [("-xc", "-std=c89"), ("-xc", "-std=c11"), ("-xc++", "-std=c++98")])
def test_the_header_is_clean_in_every_dialect(built, cc, dialect, tmp_path):
    use = '#include "open_net.h"\n#include "open_net.h"\nint use(const open_net_shape *s);\n'
    use += "int use(const open_net_shape *s) { return s->width % OPEN_NET_WIDTH_MULTIPLE != OPEN_NET_WIDTH_MIN; }\n"
    (tmp_path / "use").write_text(use)
    command = [cc, *dialect, *STRICT, "-Wconversion", "-Wshadow", "-c", tmp_path / "use"]
    run(*command, f"-I{built.directory}", "-o", tmp_path / "use.o")


def test_only_the_functions_of_shapes_are_exported(built, open_spec):
    text = run("nm", "-D", "--defined-only", built.library)
    assert {line.split()[-1] for line in text.splitlines()} == set(open_spec.functions)
    text = run("nm", "-g", "--defined-only", built.archive)
    assert {line.split()[-1] for line in text.splitlines() if len(line.split()) == 3} == set(open_spec.functions)
    assert "open_net_run" not in open_spec.functions and "open_net_run_shape" in open_spec.functions


def test_arenas_are_exact_at_every_shape_and_runs_allocate_nothing(built, cc, tmp_path):
    """Guards around arenas of 8 shapes on up to 4 threads, poison between runs, refused runs; see open_shapes.c."""
    program = link(cc, built, "open_shapes.c", tmp_path, *counting(tmp_path))
    assert run(program) == "allocations are counted, 0 of them by runs\n"


def test_refused_shapes_are_named(built, cc, tmp_path):
    why = " (Conv 'c' has stride 2)"
    assert run(link(cc, built, "open_errors.c", tmp_path)).splitlines() == [
        "batch 4 from 1 to 64|",
        "width 10 a multiple of 2|Conv 'c' has stride 2",
        "x float32 4 batch width 3",
        "m float32 4 width",
        "11: batch is 0, and must be from 1 to 64",
        "11: batch is -1, and must be from 1 to 64",
        "11: batch is 65, and must be from 1 to 64",
        f"11: width is 3, and must be a multiple of 2{why}",
        f"11: width is -2, and must be a multiple of 2{why}",
        "11: a tensor would have more than 2147483647 elements at this shape",
        "11: width is 2147483648, and kernels count to 2147483646",
        "0: ok",
        "no shape: a pointer is null",
        "no place for dimensions: a pointer is null",
        "create for a refused shape: batch is 0, and must be from 1 to 64",
        "create for no shape: a pointer is null",
        "create without a result: a pointer is null",
        "create with 65 threads: the number of threads is negative or above the model's maximum",
        "run at a larger shape: this shape needs an arena of 520320 bytes, and the instance has 128; create it for the "
        "largest shape",
        "run at a refused shape: batch is 0, and must be from 1 to 64",
        "run at no shape: a pointer is null",
        "run without an instance: a pointer is null",
        "run without inputs: a pointer is null",
        "fine: ok",
    ]


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_sanitizers_find_nothing(open_spec, open_source, cc, tmp_path, sanitizer):
    sources = write_sources(open_spec, tmp_path)
    (tmp_path / "kernels.c").write_text(open_source)
    shutil.copyfile(MAIN / "open_stress.c", tmp_path / "stress.c")
    flags = ["-std=gnu11", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    objects = [o for o in sources.objects if o != "kernels.o"]
    files = ["stress.c", "kernels.c", *sources.c_files, *objects]
    run(cc, *flags, *files, "-pthread", "-lm", "-o", "stress", cwd=tmp_path)
    done = run_sanitized(tmp_path / "stress")
    assert (done.returncode, done.stdout, done.stderr) == (0, "600 runs, 0 wrong\n", "")


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_both_sides_of_conditions_are_computed_as_dims_are(data):
    """Random dims of floors, maxima and minima in C, at random sizes, against their own arithmetic."""
    symbols = (Symbol("n"), Symbol("h w", multiple=2))
    n, h = Dim.symbol("n"), Dim.symbol("h w", multiple=2)
    dims = [n, h, n + h]
    for _ in range(data.draw(st.integers(1, 6))):
        a, b = (data.draw(st.sampled_from(dims)) for _ in range(2))
        k = data.draw(st.integers(1, 7))
        made = [a * k - b, (a - b) // k, maximum(a, b - k), minimum(a, k * b), a * b, k - a, a // (b * b + k)]
        dims.append(data.draw(st.sampled_from(made)))
    conditions = [Condition(a, "is", b, "") for a, b in zip(dims[::2], dims[1::2])]
    text = condition_text(conditions, symbols)
    sizes = [(data.draw(st.integers(0, 50)), 2 * data.draw(st.integers(0, 50))) for _ in range(4)]
    prints = "".join(
        f"    {{ const int64_t s[] = {{{a}, {b}}}; for (int i = 0; i < {2 * len(conditions)}; ++i) "
        'printf("%lld\\n", (long long)side_of(s, i)); }\n'
        for a, b in sizes
    )
    with tempfile.TemporaryDirectory() as folder:
        main = f'#include "model.h"\n#include <stdio.h>\n{text}\nint main(void) {{\n{prints}    return 0;\n}}\n'
        Path(folder, "main.c").write_text(main)
        flags = ("-Werror", "-Wall", "-Wno-unused-const-variable", f"-I{RUNTIME}")
        run("cc", *flags, "main.c", "-o", "main", cwd=Path(folder))
        found = [int(line) for line in run(Path(folder, "main")).split()]
    sides = [side for c in conditions for side in (c.left, c.right)]
    assert found == [value_of(side, {"n": a, "h w": b}) for a, b in sizes for side in sides]


def test_conditions_are_checked_before_anything_is_written(open_spec, tmp_path):
    batch, width = Dim.symbol("batch", 1, 64), Dim.symbol("width", multiple=2)
    conditions = (
        Condition(width // 2 * 2 * batch, "at most", 512, "node 'a' has 512 positions"),
        Condition(width, "is", width // 4 * 4, "node 'b' halves it twice"),
        Condition(batch, "is 1 or", width // 4, "node 'c' broadcasts"),
        Condition(width + batch, "at least", 5, "node 'd'"),
    )
    built = build_library(replace(open_spec, conditions=conditions), tmp_path / "out")
    assert "/* batch must be 1 or (width // 4): node 'c' broadcasts */" in built.header.read_text()
    told = json.loads(built.manifest.read_text())["conditions"]
    assert told[0] == {**told[0], "left": "batch*width", "relation": "at most", "right": "512"}
    with load(built.directory) as model:  # whose typical width of 10 goes with none of it
        assert model.output_shapes(width=8, batch=2) == {"y": (2, 17)}
        for sizes in [(1, 4), (1, 8), (2, 8), (8, 32), (1, 512)]:
            assert model.output_shapes(batch=sizes[0], width=sizes[1])["y"] == (sizes[0], 2 * sizes[1] + 1)
        near = {
            (64, 256): "batch 1", (1, 6): "width 4 or 8", (3, 8): "batch 2, or width 12", (1, 0): "width 4",
        }  # fmt: skip
        for (b, w), said in {
            (64, 256): "batch*width is 16384, and must be at most 512 (node 'a' has 512 positions)",
            (1, 6): "width is 6, and must be 4*(width // 4), here 4 (node 'b' halves it twice)",
            (3, 8): "batch is 3, and must be 1 or (width // 4), here 2 (node 'c' broadcasts)",
            (1, 0): "batch + width is 1, and must be at least 5 (node 'd')",
        }.items():
            with pytest.raises(RunError) as caught:
                model({"x": np.zeros((b, w, 3), np.float32), "m": np.zeros(w, np.float32)})
            assert str(caught.value) == f"{said}: batch {b}, width {w}; the nearest that would do: {near[b, w]}"


def test_names_of_dimensions_become_members():
    names = ["batch", "batch size", "batch_size", "Batch", "3", "int", "class", "", "é", "I", "unk__12", "linux"]
    assert members(names) == (
        "batch", "batch_size", "batch_size_2", "Batch_2", "size_3", "size_int", "size_class", "size", "size_2",
        "size_I", "unk_12", "size_linux",
    )  # fmt: skip
    assert len({m.upper() for m in members(names)}) == len(names)


def test_wild_names_of_dimensions_compile(open_spec, cc, tmp_path):
    """Keywords, macros of the system's headers, quotes and comments: in C and in C++."""
    wild = ['a*/b"\\?', "errno", "NULL", "I", "int", "new", "linux", "N", "n", "shape", "inputs", "name", "batch-size"]
    symbols = tuple(Symbol(name, why=(f"since {name}",)) for name in wild)
    spec = replace(open_spec, symbols=symbols, name="wild")
    write_sources(spec, tmp_path)
    system = ("errno", "stdio", "complex", "unistd", "sys/sysmacros")
    headers = [word for header in system for word in ("-include", f"{header}.h")]
    flags = ["-std=gnu11", "-fsyntax-only", "-Werror", "-I.", *headers]
    run(cc, *flags, "runtime/generated.c", cwd=tmp_path)
    use = "int main() { wild_shape s = WILD_TYPICAL_SHAPE; return s.N > 1; }"
    (tmp_path / "use.cpp").write_text(f'#include "wild.h"\n{use}\n')
    run(cc, "-fsyntax-only", "-Werror", "-Wall", "-Wextra", "use.cpp", cwd=tmp_path)


def test_what_can_not_be_is_said_at_once(open_spec):
    with pytest.raises(ValueError, match="facts are too few for 6 dimensions"):
        replace(open_spec, facts=7)
    with pytest.raises(ValueError, match="width can't be 3, its typical size"):
        replace(open_spec, symbols=(open_spec.symbols[0], Symbol("width", 0, None, 2, 3)))


@pytest.mark.parametrize(
    ("symbol", "allowed"),
    [
        (Symbol("n", 1, 64), "from 1 to 64"),
        (Symbol("n", 0, None), "at least 0"),
        (Symbol("n", 3, 3), "3"),
        (Symbol("n", 1, 100, 32), "a multiple of 32 from 32 to 96"),
        (Symbol("n", 0, None, 8), "a multiple of 8"),
        (Symbol("n", 7, None, 8), "a multiple of 8 that is at least 8"),
    ],
)
def test_what_is_allowed_in_words(symbol, allowed):
    assert symbol.allowed == allowed
    assert symbol.least % symbol.multiple == symbol.most % symbol.multiple == 0

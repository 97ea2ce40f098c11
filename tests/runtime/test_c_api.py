"""The C side alone: headers every dialect takes, a program that runs, exact arenas, and sanitizers over it all."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from c_programs import MAIN, STRICT, counting, link, run, run_sanitized
from halotile.compiler.codegen.beside import beside_files
from halotile.compiler.codegen.library import build_library, write_sources
from halotile.compiler.codegen.link import program_sources, runtime_sources, write_program
from halotile.compiler.codegen.names import comment, identifier, literal
from halotile.compiler.codegen.processor import X86, processor_check, required_features
from halotile.compiler.codegen.spec import FUNCTIONS, OF_SHAPES
from halotile.compiler.codegen.transfers import FUNCTIONS as TRANSFERS
from halotile.compiler.runtime.loader import load
from halotile.targets.target import Target


@pytest.fixture(scope="module")
def built(rounds, tmp_path_factory):
    return build_library(rounds, tmp_path_factory.mktemp("built") / "out")


@pytest.mark.sampled
@pytest.mark.parametrize(
    "dialect", [("-xc", "-std=c89"), ("-xc", "-std=c11"), ("-xc++", "-std=c++98"), ("-xc++", "-std=c++17")]
)
@pytest.mark.parametrize("warnings", [STRICT, (*STRICT, "-Wconversion", "-Wshadow", "-Wstrict-prototypes")])
def test_the_header_is_clean_in_every_dialect(built, cc, dialect, warnings, tmp_path):
    language = "c++" if "c++" in dialect[0] else "c"
    warnings = [w for w in warnings if language == "c" or w != "-Wstrict-prototypes"]
    text = '#include "rounds.h"\n#include "rounds.h"\nstatic const int shape[] = ROUNDS_INPUT_0_SHAPE;\n'
    text += "int use(void) { return shape[1] == 32 && ROUNDS_ARENA_BYTES(2) == 8192 + 256 ? 0 : 1; }\n"
    if language == "c++":
        text = text.replace("(void)", "()")
    (tmp_path / "use").write_text(text)
    run(cc, *dialect, *warnings, "-c", tmp_path / "use", f"-I{built.directory}", "-o", tmp_path / "use.o")


def test_names_that_would_break_c_do_not(make_spec, cc, tmp_path):
    x, y = make_spec().inputs[0], make_spec().outputs[0]
    wild = 'a*/b/*c\\\n"??/ é\0" //'
    spec = make_spec(
        name="3d net*/ (v2).ünet", inputs=(replace(x, name=wild),), outputs=(replace(y, name=wild + "'"),)
    )
    built = build_library(spec, tmp_path / "out")
    assert built.header.name == "model_3d_net_v2_net.h"
    (tmp_path / "use.c").write_text(
        '#include "model_3d_net_v2_net.h"\nint use(void);\nint use(void) { return 0; }\n'
    )
    run(
        cc,
        "-std=c89",
        *STRICT,
        "-Wcomment",
        "-Wtrigraphs",
        "-c",
        "use.c",
        f"-I{built.directory}",
        cwd=tmp_path,
    )


def test_names_that_differ_in_case_alone_do_not_meet_in_silence(make_spec, cc, tmp_path):
    """Their functions differ, their constants would not: the second header says so instead of being passed over."""
    for name in ("foo", "FOO"):
        build_library(make_spec(name=name), tmp_path / name)
    (tmp_path / "use.c").write_text('#include "foo.h"\n#include "foo.h"\n#include "FOO.h"\n')
    command = [cc, "-std=c89", *STRICT, "-c", "use.c", "-Ifoo", "-IFOO"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode != 0
    assert "FOO.h: another header has defined FOO_...; give one of the two models another name" in done.stderr


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("my-model.v2", "my_model_v2"),
        ("3d", "model_3d"),
        ("", "model"),
        ("_y_", "y"),
        ("été", "t"),
        ("ResNet", "ResNet"),
        ("halotile", "model_halotile"),
        ("timer", "model_timer"),
        ("timers", "timers"),
        ("string", "model_string"),
        ("strings_2", "strings_2"),
        ("m", "model_m"),
        ("epoll", "model_epoll"),
        ("x" * 300, "x" * 100),
        ("Halotile", "model_Halotile"),
        ("HALOTILE", "model_HALOTILE"),
        ("halotile-net", "model_halotile_net"),
        ("halotiles", "halotiles"),
        ("x", "model_x"),
        ("R", "model_R"),
        ("mm", "model_mm"),
        ("xx", "xx"),
        ("timerfd", "model_timerfd"),
        ("shm", "model_shm"),
        ("read", "read"),
        ("int", "int"),
    ],
)
def test_identifiers(name, expected):
    assert identifier(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "model",
        "pool",
        "instance",
        "runtime",
        "generated",
        "halotile",
        "pthread",
        "kernels",
        "weights",
        "int",
        "string",
        "m",
        "y",
    ],
)
def test_names_that_meet_ours_or_cs(name, rounds, cc, tmp_path):
    """Files of the build, functions of the runtime and of libc, keywords: none of them is in a model's way."""
    built = build_library(replace(rounds, name=name), tmp_path / "out", formats=("so", "a"))
    x = np.ones((64, 32), np.float32)
    with load(built.directory) as model:
        assert model({"x": x})["y"][0, 0] == 8 * (1 + 31 / 8)
    (tmp_path / "main.c").write_text(
        f'#include <pthread.h>\n#include <string.h>\n#include <time.h>\n#include "{built.header.name}"\n'
        f"int main(void) {{ return {identifier(name)}_describe()->input_count != strlen(\"1\"); }}\n"
    )
    run(
        cc,
        *STRICT,
        "main.c",
        f"-I{built.directory}",
        built.archive,
        "-pthread",
        "-lm",
        "-o",
        "main",
        cwd=tmp_path,
    )
    run(tmp_path / "main")
    shared = [f"-L{built.directory}", f"-l{identifier(name)}", f"-Wl,-rpath,{built.directory}"]
    run(cc, *STRICT, "main.c", f"-I{built.directory}", *shared, "-pthread", "-lm", "-o", "main", cwd=tmp_path)
    run(tmp_path / "main")


SUFFIXES = (*FUNCTIONS, *OF_SHAPES, *TRANSFERS, "kernel_seconds", "tensor", "description", "instance", "event", "shape",
            "symbol")  # fmt: skip


@pytest.mark.parametrize("kind", ["fixed", "scratchpad", "open"])
def test_no_name_breaks_a_source(kind, rounds, open_spec, cc, tmp_path):
    """Every C file of a library and of its program, after headers of the system, under names that meet ours."""
    files = (*runtime_sources(True, True), *program_sources(kind == "open"))
    own = {i for file in files for i in re.findall(r"[A-Za-z]\w*", file.read_text())}
    ends = re.compile(rf"(\w+)_({'|'.join(SUFFIXES)})", re.ASCII)
    met = sorted({m[1] for i in own if (m := ends.fullmatch(i)) and not i.lower().startswith(("halotile", "pthread"))})
    names = ["read", "write", "print", "Halotile", "HALOTILE", "x", "main", "model", "tensors", "int", "NULL", *met]
    names = names[:4] if kind == "scratchpad" else names
    system = ("unistd", "fcntl", "stdio", "errno", "signal", "time", "pthread", "semaphore", "complex", "fmtmsg")
    included = [word for header in system for word in ("-include", f"{header}.h")]
    for number, name in enumerate(names):
        work = tmp_path / str(number)
        work.mkdir()
        extra = {"scratchpad_bytes": 4096, "timers": 3} if kind == "scratchpad" else {}
        spec = replace(open_spec if kind == "open" else rounds, name=name, **extra)
        write_sources(spec, work)
        program = write_program(spec.identifier, work, shapes=kind == "open")
        files = ["runtime/generated.c", *program, "main.c"]  # which include the header
        (work / "main.c").write_text(beside_files(spec, True, True)["example"][1])
        flags = ["-std=gnu11", "-fsyntax-only", "-Werror", "-I.", "-D_GNU_SOURCE=", *included]
        done = subprocess.run([cc, *flags, *files], cwd=work, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (name, done.stderr[:2000])


def test_literals_and_comments():
    assert literal('a"\\?é\n') == '"a\\042\\134\\077\\303\\251\\012"'
    assert comment("/**/*/ é?") == "/ ** / * / __"


@pytest.mark.parametrize(
    ("triple", "cpu", "switches", "expected"),
    [
        ("x86_64-linux-gnu", "x86-64", (), ()),
        ("x86_64-linux-gnu", "x86-64-v3", ("-bmi2",), ("avx2", "fma", "bmi")),
        ("x86_64-linux-gnu", "x86-64-v4", (), ("avx512f", "avx512vl")),
        ("aarch64-linux-gnu", "cortex-a53", (), ()),
        ("aarch64-linux-gnu", "cortex-a76", (), ("lse", "dotprod")),
        ("armv7l-linux-gnueabihf", "cortex-a9", (), ("neon",)),
    ],
)
def test_what_a_processor_is_asked_for(triple, cpu, switches, expected):
    target = Target("some", triple, cpu, switches)
    required = required_features(target)
    assert set(expected) <= set(required) and (expected or not required)
    assert "bmi2" not in required or not switches
    text = processor_check(target)
    assert all("has({:#x}, {}, {}, {})".format(*X86[f]) in text for f in required if triple.startswith("x86"))
    assert ("kept(0xe6)" in text, "kept(0x6)" in text) == ("avx512f" in required, cpu == "x86-64-v3")


FLAGS = {"sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "bmi": "bmi1", "lzcnt": "abm",
         "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16",
         "avx512fp16": "avx512_fp16", "avxvnni": "avx_vnni", "avx512bitalg": "avx512_bitalg",
         "avx512vpopcntdq": "avx512_vpopcntdq"}  # fmt: skip
ASKED = ("fma", "lzcnt", "gfni", "avxvnni", "avx512bf16", "avx512vbmi2", "avx512fp16", "avx512bitalg",
         "avx512vpopcntdq")  # fmt: skip


@pytest.mark.skipif(platform.machine() != "x86_64", reason="asks an x86-64 processor")
@pytest.mark.parametrize("compiler", [["cc"], [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-musl"]])
def test_what_a_processor_answers_is_what_linux_says_of_it(compiler, tmp_path):
    """Feature by feature, whatever compiles the question."""
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    for feature, there in ((f, FLAGS.get(f, f) in flags) for f in ASKED):
        target = Target("some", "x86_64-linux-gnu", "x86-64", (f"+{feature}",))
        assert feature in required_features(target)
        text = f"{processor_check(target)}int main(void) {{ return !processor_fits(); }}\n"
        (tmp_path / "ask.c").write_text(text)
        words = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "ask.c", "-o", feature]
        subprocess.run([*compiler, *words], cwd=tmp_path, check=True)
        assert (subprocess.run([tmp_path / feature]).returncode == 0) == there


def test_a_program_in_c(built, cc, tmp_path, rounds_reference):
    program = link(cc, built, "example.c", tmp_path)
    x = (np.arange(64 * 32, dtype=np.float32) % 7).reshape(64, 32)
    lines = run(program).split("\n")
    assert lines[0] == "rounds 0 1 1 128 8192 128"
    assert lines[1] == "x float32 2 64 32 2048 8192"
    assert [float(v) for v in lines[2].split()] == [float(v) for v in rounds_reference(x).ravel()[:5]]


def test_errors_have_codes_and_words(built, cc, tmp_path):
    assert run(link(cc, built, "errors.c", tmp_path)).splitlines() == [
        "run without an instance: a pointer is null",
        "run without inputs: a pointer is null",
        "run with a null input: a pointer is null",
        "create without a result: a pointer is null",
        "create with -1 threads: the number of threads is negative or above the model's maximum",
        "create with 65 threads: the number of threads is negative or above the model's maximum",
        "arena one byte short: the arena that was given is too small or not aligned to 64 bytes",
        "arena not aligned: the arena that was given is too small or not aligned to 64 bytes",
        "no arena: the arena that was given is too small or not aligned to 64 bytes",
        "run while running: the instance is running already; use one instance for each thread",
        "fine: ok",
        "unknown: unknown error code",
    ]


def test_an_arena_is_used_to_its_bytes_and_not_beyond(built, cc, tmp_path):
    """Guards on both sides stay, both ends are used, and poison between runs changes no bit; see guards.c."""
    assert run(link(cc, built, "guards.c", tmp_path)) == "ok\n"


def test_an_arena_between_forbidden_pages(built, cc, tmp_path):
    """An arena that ends where a forbidden page begins: one byte beyond it would end the program."""
    assert run(link(cc, built, "pages.c", tmp_path, "-D_GNU_SOURCE")) == "ok\n"


def test_a_run_allocates_nothing(built, cc, tmp_path):
    """malloc, calloc, realloc, mmap and the like are counted while runs are under way."""
    assert run(link(cc, built, "quiet_runs.c", tmp_path, *counting(tmp_path))) == "0 allocations\n"


NO_SPINNING = ("-DHALOTILE_SPIN_IN_RUN_NS=0", "-DHALOTILE_SPIN_IDLE_NS=0")


@pytest.mark.parametrize(
    "waiting",
    [(), NO_SPINNING, ("-DHALOTILE_PORTABLE_PARKING", *NO_SPINNING)],
    ids=["spinning", "sleeping", "portable"],
)
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_sanitizers_find_nothing(rounds, rounds_source, cc, tmp_path, sanitizer, waiting):
    """Two instances in two threads, 1,000 runs each, runtime and kernels instrumented."""
    sources = write_sources(rounds, tmp_path)
    (tmp_path / "kernels.c").write_text(rounds_source)
    shutil.copyfile(MAIN / "stress.c", tmp_path / "stress.c")
    flags = ["-std=gnu11", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", *waiting]
    objects = [o for o in sources.objects if o != "kernels.o"]
    run(
        cc,
        *flags,
        "stress.c",
        "kernels.c",
        *sources.c_files,
        *objects,
        "-pthread",
        "-lm",
        "-o",
        "stress",
        cwd=tmp_path,
    )
    done = run_sanitized(tmp_path / "stress", 1000)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2000 runs, 0 wrong\n", "")


def test_thread_sanitizer_would_see_a_race(rounds, rounds_source, cc, tmp_path):
    """The same build with a race put into the kernel fails: the test above can fail."""
    sources = write_sources(rounds, tmp_path)
    (tmp_path / "kernels.c").write_text(
        rounds_source.replace("release(s);", "release(s); *(volatile int *)&c->round = c->round;")
    )
    shutil.copyfile(MAIN / "stress.c", tmp_path / "stress.c")
    command = [cc, "-std=gnu11", "-O1", "-g", "-fsanitize=thread", "stress.c", "kernels.c", *sources.c_files]
    run(*command, "weights.o", "-pthread", "-lm", "-o", "stress", cwd=tmp_path)
    done = run_sanitized(tmp_path / "stress", 200)
    assert "data race" in done.stderr

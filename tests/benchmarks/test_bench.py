"""The harness end to end on tiny models, with ONNX Runtime of this environment as the peer."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import halotile.benchmarks.bench as bench_module
import halotile.benchmarks.cli as cli_module
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from halotile.benchmarks.bench import ABLATIONS, Settings, measure
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import conv
from halotile.benchmarks.markdown import render
from halotile.benchmarks.models import MODELS, ModelFile
from halotile.benchmarks.peers import environment
from halotile.benchmarks.peers.environment import Peer, python_of
from halotile.benchmarks.results import EngineResult, ModelResult
from halotile.compiler.options import checked_fixed
from halotile.compiler.page.peak import Meter
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import HalotileError, ModelError, OutputError
from halotile.schedules.instructions.amx import has_matrix_unit
from halotile.targets.detect import native
from onnx import numpy_helper

QUICK = Settings(("espcn",), (1,), ("here",), seconds=0.1, burst=0.01, pause=0.0, small=True)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environment.PEERS, "here", Peer("here", "engine_onnxruntime.py"))


@pytest.mark.usefixtures("here")
def test_ours_and_a_peer_are_compared_and_timed() -> None:
    with Meter() as meter:
        (result,) = measure(QUICK, meter)
    assert [e.engine for e in result.engines] == ["here", "halotile"]
    assert all(e.counts for e in result.engines), [e.error or e.wrong for e in result.engines]
    assert result.ratio() is not None and result.best_peer is not None and result.best_peer.engine == "here"
    assert all(e.times is not None and len(e.times.rounds) >= 3 for e in result.engines)
    assert all(10e6 < e.peak_rss < 1e9 for e in result.engines)
    assert result.build is not None and result.build.arena_bytes > 0 and result.build.flops > 1e5
    assert result.fma_fraction is not None and 0 < result.fma_fraction < 10


@pytest.mark.usefixtures("here")
def test_a_model_that_fails_to_compile_costs_only_its_own_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("long trace\nthe reason")

    monkeypatch.setattr(bench_module, "compiled", refuse)
    (result,) = measure(QUICK)
    ours = result.engine("halotile")
    assert ours is not None and ours.error == "RuntimeError: the reason"
    assert result.ratio() is None and result.best_peer is not None


@pytest.mark.usefixtures("here")
def test_an_engine_with_other_outputs_is_marked_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(model: object, feeds: object) -> dict[str, object]:
        return {k: v + 1 for k, v in reference(model, feeds).items()}

    reference = bench_module.reference
    monkeypatch.setattr(bench_module, "reference", shifted)
    monkeypatch.setattr(bench_module, "_variants", lambda ablate: [])
    (result,) = measure(QUICK)
    assert result.engines[0].wrong is not None and "differs by 1" in result.engines[0].wrong


@pytest.mark.usefixtures("here")
def test_budgets_and_no_tiles_are_measured_beside_the_plain_build() -> None:
    (result,) = measure(replace(QUICK, ablate=("tile",), budgets=(Fraction(3, 4), "64MiB")))
    arenas = {e.engine: e.arena_bytes for e in result.engines if e.engine.startswith("halotile")}
    assert list(arenas) == ["halotile", "halotile (no tile)", "halotile (in 3/4)", "halotile (in 64MiB)"]
    assert all(e.error is None and e.wrong is None and e.peak_rss for e in result.engines)
    assert 0 < arenas["halotile (in 3/4)"] <= arenas["halotile (no tile)"] * 3 // 4
    text = render([result])
    assert "### Memory" in text and f"{arenas['halotile (in 3/4)'] / 1e6:.1f} MB, " in text


def test_without_fusion_nothing_chains_operators_by_tiles_either() -> None:
    model = MODELS["espcn"].model()
    build = run_pipeline(model, Options(native(), threads=1, stop_after="plan", **ABLATIONS["fuse"]))
    assert len(build.groups) > 5 and all(len(g.nodes) == 1 for g in build.groups) and not build.tiled
    assert run_pipeline(model, Options(native(), threads=1, stop_after="plan", fuse=False)).tiled


def test_peak_measures_something_plausible() -> None:
    with Meter() as meter:
        one, two = meter.now(1, seconds=0.05), meter.now(1, seconds=0.05)
    assert 1e9 < one.flops < 1e13
    assert 1e8 < one.memory_bytes < 1e12 and one.cache_bytes > 1e8
    assert one.matrix == 0 or 2 * one.flops < one.matrix < 64 * one.flops
    assert (one.matrix > 0) == has_matrix_unit(native())
    assert one.triads == two.triads and one.flops != two.flops
    assert [size for size, _ in one.triads] == sorted(size for size, _ in one.triads)


def test_an_environment_is_made_once_and_an_impossible_one_is_refused(tmp_path: Path) -> None:
    peer = Peer("nothing", "engine_onnxruntime.py", ("no-such-file-anywhere.whl",))
    with pytest.raises(OutputError, match="environment of nothing can't be made"):
        python_of(peer, tmp_path)
    (home,) = tmp_path.iterdir()
    assert not (home / "complete").exists()
    (home / "complete").touch()
    assert python_of(peer, tmp_path) == home / "bin" / "python"


def test_a_closed_environment_holds_what_is_listed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], peer: Peer) -> None:
        commands.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir()

    monkeypatch.setattr(environment, "_run", run)
    for name in ("mnn", "ncnn"):
        peer = environment.PEERS[name]
        (tmp_path / name).mkdir()
        assert peer.engine_file.is_file() and python_of(peer, tmp_path / name).parts[-2:] == ("bin", "python")
        assert list(peer.packages) == commands[-1][-len(peer.packages) :]
        assert ("--no-deps" in commands[-1]) == peer.closed == (name == "ncnn")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "resnet51"], "'resnet51' is neither a model nor a tag"),
        (["--peers", "tflite"], "'tflite' is none of"),
        (["--threads", "0"], "'0' is not a number of threads"),
        (["--ablate", "everything"], "'everything' is none of"),
        (["--memory-budget", "some"], "'some' is not a size such as 32MiB or 500KB, nor a share"),
        (["--memory-budget", "3/2"], "3/2 is not a share of the arena"),
        (["--memory-budget", "1/0"], "1/0 is not a share of the arena"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli_module.bench, arguments)
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "espcn", "--shape", "x=1,3"], "--shape is for a model's file"),
        (["-m", "espcn", "--fix", "x=1,3"], "--fix is for a model's file"),
        (["out/", "a.onnx"], "several places must be models"),
    ],
)
def test_places_and_shapes_must_fit(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli_module.bench, arguments)
    assert done.exit_code == 2 and message in done.output


@pytest.mark.usefixtures("here")
def test_files_are_measured_too_and_one_that_fails_costs_only_its_own_figure(tmp_path: Path) -> None:
    """Open dimensions are fixed by ``--shape``; weights may lie beside the file; indices stay within their table."""
    g = ModelGraph("lookup", ExportForm(opset=17))
    x, ids = g.input("x", (1, 3, "h", 9)), g.input("ids", (1, 4), "int64")
    table = g.weight("table", np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32))
    model = g.finish(y=conv(g, x, 8), z=g.op("Gather", table, ids, axis=0))
    onnx.save(model, tmp_path / "mine.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    onnx.save(model, tmp_path / "open.onnx")
    arguments = [str(tmp_path / "mine.onnx"), "-j", "1", "-s", "0.1", "--peers", "here", "--no-peak"]
    out = tmp_path / "r.json"
    done = CliRunner().invoke(cli_module.bench, [*arguments, "--shape", "x=1,3,7,9", "--output", str(out)])
    assert done.exit_code == 0, done.output
    (result,) = json.loads(out.read_text())["models"]
    assert result["model"] == "mine" and result["best_peer"] == "here" and result["ratio"] > 0
    shapes = {"open": {"x": (1, 4, 7, 9)}, "mine": {"x": (1, 3, 7, 9)}}
    files = tuple(ModelFile(tmp_path / f"{name}.onnx", given) for name, given in shapes.items())
    first, second = measure(replace(QUICK, models=files))
    assert first.model == "open" and "contradicts" in (first.engines[0].error or "") and first.ratio() is None
    assert second.ratio() is not None
    wrong = ["--shape", "x=1,4,7,9"]
    done = CliRunner().invoke(cli_module.bench, [str(tmp_path / "open.onnx"), *arguments[1:], *wrong])
    assert done.exit_code == 1 and "open" in done.stdout


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("version", [3, 8])
def test_inputs_that_are_fixed_are_constants_for_every_engine(tmp_path: Path, version: int) -> None:
    """The size of a result, and a weight with a value of its own, in files of old and of newer forms."""
    g = ModelGraph("grown", ExportForm(opset=13))
    x, size, scale = g.input("x", (1, 3, "h", 9)), g.input("size", (4,), "int64"), g.input("scale", (1,))
    grown = g.op("Resize", conv(g, x, 8), "", "", size, mode="nearest")
    model = g.finish(y=g.op("Mul", grown, scale))
    model.ir_version = version
    if version < 4:
        weights = {i.name: i for i in model.graph.initializer}
        for name, weight in weights.items():
            model.graph.input.append(onnx.helper.make_tensor_value_info(name, weight.data_type, weight.dims))
    onnx.save(model, tmp_path / "grown.onnx")
    arguments = [str(tmp_path / "grown.onnx"), "-j", "1", "-s", "0.1", "--peers", "here", "--no-peak"]
    wanted = ["--shape", "x=1,3,7,9", "--fix", "size=1,8,14,18", "--fix", "scale=0.5"]
    out = tmp_path / "r.json"
    done = CliRunner().invoke(cli_module.bench, [*arguments, *wanted, "--output", str(out), "--ablate", "tile"])
    assert done.exit_code == 0, done.output
    (result,) = json.loads(out.read_text())["models"]
    assert result["ratio"] > 0 and not any(e["error"] or e["wrong"] for e in result["engines"])
    known = checked_fixed({"size": [1, 8, 14, 18], "scale": [2]})
    made = ModelFile(tmp_path / "grown.onnx", {"x": (1, 3, 7, 9)}, known)
    assert list(made.inputs(made.model())) == ["x"]
    (held,) = (numpy_helper.to_array(w) for w in made.model().graph.initializer if w.name == "scale")
    assert held.shape == (1,) and held.dtype == np.float32 and held[0] == 2
    wrong = CliRunner().invoke(cli_module.bench, [*arguments, *wanted[:-1], "sale=3"])
    assert isinstance(wrong.exception, HalotileError) and "'sale'" in str(wrong.exception)


def test_the_exit_code_tells_a_wrong_figure_and_none() -> None:
    def of(**ours: str) -> list[ModelResult]:
        theirs = EngineResult("onnxruntime", error="not this time")
        return [ModelResult("a", 1, [theirs, EngineResult("halotile", **ours)], None, [])]

    assert cli_module._outcome(of()) == 0
    assert cli_module._outcome(of() + of(error="no kernel")) == 1
    assert cli_module._outcome(of(wrong="element 0") + of(error="no kernel")) == 3


def test_a_file_that_can_not_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    for option in ("--output", "--markdown", "--picture"):
        done = CliRunner().invoke(cli_module.bench, ["-m", "espcn", option, str(tmp_path / "nowhere" / "it")])
        assert isinstance(done.exception, OutputError) and "there is no folder" in str(done.exception)


def test_tags_and_names_choose_models() -> None:
    tags = {"a": frozenset({"cnn"}), "b": frozenset({"cnn", "bench"}), "c": frozenset()}
    assert cli_module._chosen("c, cnn", tags) == ("c", "a", "b")
    assert cli_module._chosen("all", tags) == ("a", "b", "c")


@pytest.mark.usefixtures("here")
def test_command_writes_json_markdown_and_picture(tmp_path: Path) -> None:
    files = [tmp_path / "r.json", tmp_path / "r.md", tmp_path / "r.svg"]
    options = ["--output", str(files[0]), "--markdown", str(files[1]), "--picture", str(files[2])]
    arguments = ["-m", "espcn", "-j", "1", "-s", "0.1", "--peers", "here", "--small", "--no-peak", *options]
    done = CliRunner().invoke(cli_module.bench, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    data = json.loads(files[0].read_text())
    assert data["models"][0]["model"] == "espcn" and data["machine"]["cores"]
    assert files[1].read_text() in done.stdout
    assert files[2].read_text().startswith("<svg")


def test_a_file_that_is_no_model_is_told_in_a_line(tmp_path: Path) -> None:
    """It ended in an internal error of protobuf's."""
    (tmp_path / "junk.onnx").write_bytes(b"hello")
    with pytest.raises(ModelError, match=r"junk\.onnx.*not an ONNX model"):
        ModelFile(tmp_path / "junk.onnx").model()


STREAMS = [(1e5, 0.0), (0.0, 1e5), (1e5, 1e5), (2e5, 1e5), (8e5, 1e5), (1e7, 1e3)]  # bytes read and written


def test_a_stream_reads_as_many_arrays_to_one_it_writes() -> None:
    with Meter() as meter:
        sizes = {(kind, mix): meter.stream(1, *mix, seconds=0.02) for kind in "ab" for mix in STREAMS}
        assert len(meter._streams) == len(STREAMS), "each is measured once"
    for mix in STREAMS:
        assert sizes["a", mix] == sizes["b", mix] > 1e8

"""``halotile bench``: measure Halotile beside its peers on the harness's models."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..compiler.cli import completers, parameters
from ..compiler.cli.console import columns, emit, emit_json, note
from ..compiler.cli.shapes import shape_options
from ..compiler.cli.sizes import size_option, sizes_of
from ..compiler.cli.verb import OTHERS, verb
from ..errors import did_you_mean
from .results import OURS, ModelResult

if TYPE_CHECKING:
    from ..compiler.options import Shapes
    from ..targets.plain import Json
    from .bench import Settings

ORDER = ("onnxruntime", "openvino")
# Options that one kind of measurement reads, and the others would pass over.
_OF_BUILDS = ("sizes", "on", "warmup", "runs", "affinity")
_BESIDE = ("peers", "precision", "ablate", "markdown_path", "picture_path", "profile", "no_peak", "budgets")
_OF_MODELS = ("models", "seconds", "small", "pareto", "list_models", "board_path", *_BESIDE)
# What a report of a board says in its own way.
_OF_FIGURES = ("json_path", "markdown_path", "picture_path", "as_json", "profile", "pareto", "ablate", "budgets",
               "no_peak", "list_models", "precision")  # fmt: skip


def _number(ctx: click.Context, parameter: click.Parameter, value: float) -> float:
    """A value that is one: no range of click's refuses NaN."""
    if value != value:
        raise click.BadParameter("nan is not a number")
    return value


@verb(
    "bench",
    groups={
        "Models": (
            "models", "shapes", "typical", "min_shapes", "opt_shapes", "max_shapes", "fixed", "small", "list_models",
        ),
        "How": ("threads", "precision", "seconds", "peers", "no_peak"),
        "Also measured": ("ablate", "budgets", "profile", "pareto"),
        "A built folder": ("on", "sizes", "warmup", "runs", "affinity"),
        OTHERS: ("json_path", "markdown_path", "picture_path", "board_path", "as_json"),
    },
    examples=[
        ("halotile bench model.onnx", "A model of yours beside ONNX Runtime and OpenVINO:"),
        ("halotile bench -m resnet50 -j 1 -o figures.json", "One of ours on one thread, with the figures in a file:"),
        ("halotile bench out --on ssh://pi@raspberrypi.local", "A build, by its own program, on a board:"),
        ("halotile bench --board-report my-board.json", "All about this board in one file, to send to us:"),
    ],
)  # fmt: skip
@click.argument(
    "places", metavar="[DIR | MODEL.onnx ...]", nargs=-1, shell_complete=completers.files(".onnx")
)
@shape_options
@parameters.fix_option
@size_option
@click.option("--on", metavar="PLACE", help="Run DIR elsewhere: ssh://user@host[:port], or behind a command.")
@click.option("--warmup", type=click.IntRange(0), default=5, show_default=True, help="Of DIR, before the runs.")
@click.option("--runs", type=click.IntRange(1), default=50, show_default=True, help="Of DIR.")
@click.option("--affinity", metavar="LIST", help="Processors for DIR, such as 4-7.")
@click.option(
    "--models",
    "-m",
    help="Names separated by commas, a tag (cnn, transformer, light), or 'all'.  [default: bench]",
)
@click.option("--threads", "-j", default="1,2", show_default=True, help="Thread counts, separated by commas.")
@click.option(
    "--seconds", "-s", type=click.FloatRange(0, 1e6), default=8.0, callback=_number, show_default=True,
    help="For each model at each thread count.",
)  # fmt: skip
@click.option(
    "--precision", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True,
    help="Of ours; with bfloat16 peers take what they do by default. Each figure says what it is in.",
)  # fmt: skip
@click.option(
    "--peers", default=",".join(ORDER), show_default=True,
    help="Engines beside ours: onnxruntime, openvino, mnn, ncnn; '' for none.",
)  # fmt: skip
@click.option(
    "--ablate", default="",
    help="Also measure ours without: simplify, fuse (and tile), layout, winograd, matrix, dots, tile; or exact.",
)  # fmt: skip
@click.option(
    "--memory-budget", "budgets", default="",
    help="Also measure ours within these arenas: 32MiB, or 1/2 of what it takes without tiles; separated by commas.",
)  # fmt: skip
@click.option(
    "--small", is_flag=True, help="The tests' sizes: shows that everything works, measures nothing."
)
@click.option(
    "-o", "--output", "json_path", type=click.Path(dir_okay=False, path_type=Path),
    help="Write all figures here as JSON, after every model.",
)  # fmt: skip
@click.option(
    "--markdown",
    "markdown_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the tables here.",
)
@click.option(
    "--picture", "picture_path", type=click.Path(dir_okay=False, path_type=Path), help="Write an SVG here."
)
@click.option(
    "--board-report", "board_path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="Measure this board and a few models, with the peers that are installed; write all that is found.",
)  # fmt: skip
@click.option("--profile", is_flag=True, help="Also time each kernel of ours, in a build with timers.")
@click.option("--pareto", is_flag=True, help="Measure our plans from the largest arena to the smallest instead.")
@click.option("--no-peak", is_flag=True, help="Leave out the measurement of the machine's limits.")
@click.option("--list", "list_models", is_flag=True, help="List the models and their tags.")
@parameters.json_option
def bench(
    places: tuple[str, ...],
    shapes: Shapes | None,
    typical: Mapping[str, int] | None,
    fixed: Sequence[tuple[str, object]],
    sizes: Sequence[dict[str, int]],
    on: str | None,
    warmup: int,
    runs: int,
    affinity: str | None,
    models: str | None,
    threads: str,
    seconds: float,
    precision: str,
    peers: str,
    ablate: str,
    budgets: str,
    small: bool,
    json_path: Path | None,
    markdown_path: Path | None,
    picture_path: Path | None,
    board_path: Path | None,
    profile: bool,
    pareto: bool,
    no_peak: bool,
    list_models: bool,
    as_json: bool,
) -> None:
    """Measure Halotile beside its peers, on the benchmark's models or yours, or the build in DIR by its own program;
    tables go to stdout.

    Every engine runs in its own process, peers in environments of their own that are made at first use. Outputs are
    compared before anything is timed. Run it on a machine that does nothing else.
    """
    files = tuple(p for p in places if p.endswith(".onnx") and not Path(p).is_dir())
    known = parameters.fixed_of(fixed)
    build = bool(places and not files)
    _check(places, files, bool(shapes or typical), bool(known), build, pareto)
    _check_files(board_path, json_path, markdown_path, picture_path)
    if build:
        _bench_build(places[0], sizes_of(sizes), on, threads, warmup, runs, affinity, json_path, as_json)
        return
    from ..compiler.page.peak import Meter
    from .bench import ABLATIONS, Settings, machine, measure
    from .markdown import render as as_markdown
    from .models import MODELS, ModelFile
    from .peers.environment import PEERS
    from .picture import render as as_picture
    from .profile import render as profile_table
    from .results import as_data

    if list_models:
        if as_json:
            emit_json({"models": [{"name": name, "tags": sorted(entry.tags)} for name, entry in MODELS.items()]})
            return
        emit(columns((name, " ".join(sorted(entry.tags))) for name, entry in MODELS.items()))
        return
    models, threads, peers = _of_board(board_path, models or ("" if files else None), threads, peers)
    counts = tuple(dict.fromkeys(_positive(part) for part in _parts(threads)))
    named = models or ("" if files else "bench")
    settings = Settings(
        models=(
            *(ModelFile(parameters.check_model_path(path), shapes, known, typical) for path in files),
            *_chosen(named, {name: entry.tags for name, entry in MODELS.items()}),
        ),
        threads=counts or (1,),
        peers=_known(peers, tuple(PEERS), "--peers"),
        ablate=_known(ablate, tuple(ABLATIONS), "--ablate"),
        budgets=tuple(dict.fromkeys(_budget(part) for part in _parts(budgets))),
        seconds=seconds,
        small=small,
        profile=profile,
        precision=precision,
    )
    if pareto:
        return _pareto(settings, json_path, as_json)
    if board_path is not None:
        return _board_report(settings, board_path)
    facts = machine()
    results = []
    with nullcontext() if no_peak else Meter() as meter:
        for result in measure(settings, meter, say=note):
            results.append(result)
            if json_path:  # after every model, so that a long run that is broken off leaves what it had
                json_path.write_text(json.dumps(as_data(results, facts), indent=1) + "\n")
    text = as_markdown(results)
    text += "".join("\n" + table for result in results if (table := profile_table(result)))
    if as_json:
        emit_json(as_data(results, facts))
    else:
        emit(text.rstrip("\n"))
    if markdown_path:
        markdown_path.write_text(text)
    if picture_path:
        picture_path.write_text(as_picture(results))
    if code := _outcome(results):
        raise click.exceptions.Exit(code)


def _of_board(path: Path | None, models: str | None, threads: str, peers: str) -> tuple[str | None, str, str]:
    """(models, threads, peers): what a board's report takes where they were not given, or else as they are."""
    if path is None:
        return models, threads, peers
    from ..targets.detect import native
    from .board_report import MODELS, installed_peers

    given = click.get_current_context().get_parameter_source
    default = click.core.ParameterSource.DEFAULT
    if given("threads") is default:
        threads = f"1,{native().cores}"
    if given("peers") is default:
        peers = ",".join(installed_peers())
    return ",".join(MODELS) if models is None else models, threads, peers


def _board_report(settings: Settings, path: Path) -> None:
    """Measures, and writes the file after every model, so that a run that is broken off leaves what it had."""
    from ..compiler.page.peak import Meter
    from .bench import measure
    from .board_report import board_facts, limits, report
    from .markdown import render as as_markdown

    results: list[ModelResult] = []
    with Meter() as meter:
        note("the machine's own limits")
        facts = board_facts(meter)
        measured = limits(meter, settings.threads)
        for result in measure(settings, meter, say=note):
            results.append(result)
            path.write_text(json.dumps(report(facts, measured, results, meter), indent=1) + "\n")
    emit(as_markdown(results).rstrip("\n"))
    note(f"wrote {path}; send it to the maintainers, with the board's name if it is not in the file")
    if code := _outcome(results):
        raise click.exceptions.Exit(code)


def _budget(text: str) -> str | Fraction:
    """A size in bytes, or a share below one of the arena without tiles."""
    share = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    try:
        if share is None:
            parameters.BytesType().convert(text, None, None)
            return text
    except click.BadParameter as error:
        raise click.UsageError(f"--memory-budget: {error.message}, nor a share such as 1/2") from None
    if not 0 < int(share[1]) < int(share[2]):
        raise click.UsageError(f"--memory-budget: {text} is not a share of the arena between 0 and 1")
    return Fraction(text)


def _outcome(results: list[ModelResult]) -> int:
    """The exit code, once all tables are written: 3 if ours disagrees with the reference, 1 if it has no figure."""
    ours = [engine for result in results if (engine := result.engine(OURS))]
    return 3 if any(e.wrong for e in ours) else 1 if any(e.error for e in ours) else 0


def _check_files(board: Path | None, *others: Path | None) -> None:
    """Usage errors for files that can't be written, or not together."""
    if board is not None:
        parameters.refuse_given(_OF_FIGURES, "can't go with --board-report, whose file has all figures")
    for path in (board, *others):
        if path is not None:
            parameters.check_file_destination(path)


def _check(
    places: tuple[str, ...], files: tuple[str, ...], shaped: bool, fixed: bool, build: bool, pareto: bool
) -> None:
    """Usage errors for what does not go together."""
    if shaped and not files:
        raise click.UsageError("--shape is for a model's file; name it: halotile bench model.onnx --shape ...")
    if fixed and not files:
        raise click.UsageError("--fix is for a model's file; name it: halotile bench model.onnx --fix ...")
    if len(places) > 1 and len(files) < len(places):
        raise click.UsageError("a build is measured alone; several places must be models, MODEL.onnx ...")
    if build:
        parameters.refuse_given(_OF_MODELS, "is for models; a build is measured as it is")
    else:
        parameters.refuse_given(_OF_BUILDS, "measures a built folder; name it: halotile bench DIR ...")
    if pareto:
        parameters.refuse_given(_BESIDE, "can't go with --pareto, which measures ours alone")


def _pareto(settings: Settings, path: Path | None, as_json: bool) -> None:
    from .models import MODELS
    from .pareto import curve, render

    found = []
    for model in settings.models:
        entry = MODELS[model] if isinstance(model, str) else model
        for threads in settings.threads:
            points = curve(entry, threads, settings.seconds, settings.small, 8, note)
            if not as_json:
                emit(render(entry.name, threads, points))
            found.append({"model": entry.name, "threads": threads, "points": [p.data() for p in points]})
    _figures({"curves": found}, path, as_json)


def _figures(data: Json, path: Path | None, as_json: bool) -> None:
    """Data to the file that was asked for, and to stdout."""
    if path:
        path.write_text(json.dumps(data, indent=1) + "\n")
    if as_json:
        emit_json(data)


def _bench_build(
    directory: str, sizes: dict[str, int], on: str | None, threads: str, warmup: int, runs: int, affinity: str | None,
    path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    from ..compiler.cli.bench_build import bench_build

    counts = [_positive(part) for part in _parts(threads)] or [1]
    found = bench_build(directory, on, counts, warmup, runs, affinity, sizes, quiet=as_json)
    _figures({"runs": found}, path, as_json)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise click.BadParameter(f"{text!r} is not a number of threads", param_hint="--threads")
    return int(text)


def _known(text: str, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(_parts(text)))
    for name in chosen:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint=option)
    return chosen


def _chosen(text: str, tags: dict[str, frozenset[str]]) -> tuple[str, ...]:
    """Model names from names and tags, in the registry's order for a tag and in the user's for names."""
    chosen: list[str] = []
    for part in _parts(text):
        tagged = [name for name, has in tags.items() if part == "all" or part in has]
        if part in tags:
            chosen.append(part)
        elif tagged:
            chosen += tagged
        else:
            near = did_you_mean(part, [*tags, *(t for has in tags.values() for t in has)])
            raise click.BadParameter(f"{part!r} is neither a model nor a tag; see --list{near}", param_hint="--models")
    return tuple(dict.fromkeys(chosen))

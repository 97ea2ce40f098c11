"""Help, loudness, suggestions and completion: what meets a user before anything is compiled."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import onnx
import pytest
from halotile.compiler.cli import console, main
from halotile.compiler.cli.verb import Verb
from onnx import helper
from small_models import model_of, tiny

COMMAND = [sys.executable, "-m", "halotile.compiler.cli"]


def verbs() -> dict[str, Verb]:
    """Every command by its words, those of groups included."""
    found: dict[str, Verb] = {}
    root = click.Context(main.cli)
    for name in main.cli.list_commands(root):
        command = main.cli.get_command(root, name)
        if isinstance(command, click.Group):
            found |= {f"{name} {inner}": c for inner, c in command.commands.items()}  # type: ignore[misc]
        else:
            found[name] = command  # type: ignore[assignment]
    return found


VERBS = verbs()


@pytest.mark.parametrize("name", sorted(VERBS))
def test_every_option_has_one_group_and_every_verb_examples(name: str) -> None:
    verb = VERBS[name]
    assert isinstance(verb, Verb) and verb.examples
    named = [option for names in verb.groups.values() for option in names]
    assert len(named) == len(set(named))
    assert set(named) <= {p.name for p in verb.params if isinstance(p, click.Option)}
    text = verb.get_help(click.Context(verb, info_name=name))
    for option in verb.params:
        if isinstance(option, click.Option):
            assert option.help and text.count(f"{max(option.opts, key=len)}") >= 1, option.name
    for heading in verb.groups:
        assert f"\n{heading}:\n" in text
    assert {"json", "verbose", "quiet"} <= {o.strip("-") for p in verb.params for o in p.opts} or name == "completion"


@pytest.mark.parametrize("name", sorted(VERBS))
def test_examples_are_command_lines(name: str) -> None:
    for line, what in VERBS[name].examples:
        assert what.endswith((":", "?"))
        mine = next(part for part in line.replace('eval "$(', "").replace(')"', "").split("|") if "halotile" in part)
        words = shlex.split(mine.strip())
        words = words[: words.index("<")] if "<" in words else words
        assert words[0] == "halotile"
        inner = next(n for n in VERBS if words[1 : 1 + len(n.split())] == n.split())
        VERBS[inner].make_context(inner, words[1 + len(inner.split()) :])
    console.set_volume(0)


@pytest.mark.parametrize(
    "words, wanted",
    [
        (["biuld"], "did you mean 'build'"),
        (["inspct", "m.onnx"], "did you mean 'inspect'"),
        (["targets", "lsit"], "did you mean 'list'"),
        (["targets", "show", "rasberry-pi-4"], "raspberry-pi-4"),
        (["inspect", "m.onnx", "--explain", "--node", "conv_1"], "did you mean 'conv1'"),
        (["inspect", "images.onnx", "--shape", "imges=1,2"], "did you mean 'images'"),
        (["inspect", "images.onnx", "--fix", "imges=1,2"], "did you mean 'images'"),
        (["bench", "-m", "resnet5o"], "did you mean 'resnet50'"),
        (["build", "m.onnx", "--optimize", "memry"], "did you mean 'memory'"),
        (["build", "m.onnx", "--precision", "half"], "'float16', 'int8', 'auto'."),
        (["inspect", "m.onnx", "--stop-after", "simplfy"], "did you mean 'simplify'"),
        (["build", "n.onnx"], "did you mean 'm.onnx'"),
        (["build", "there/m.onnx"], "there is no folder 'there'"),
    ],
)
def test_misspelt_names_have_suggestions(
    words: list[str], wanted: str, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    model = model_of(helper.make_node("Relu", ["x"], ["y"], name="conv1"))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    model.graph.input[0].name = model.graph.node[0].input[0] = "images"
    (tmp_path / "images.onnx").write_bytes(model.SerializeToString())
    monkeypatch.chdir(tmp_path)
    assert main.run(words) in (1, 2)
    assert wanted in capsys.readouterr().err


def test_quiet_and_verbose(tmp_path: Path, capsys: Any) -> None:
    console.set_volume(0)
    console.note("note: a")
    console.set_volume(-1)
    console.note("note: b")
    assert capsys.readouterr().err == "note: a\n"
    assert main.run(["doctor", "-q", "-v"]) == 2
    assert "-q and -v" in capsys.readouterr().err
    try:
        assert main.run(["targets", "detect", "-v"]) == 0
        assert logging.getLogger("halotile").level == logging.INFO and console.volume() == 1
    finally:
        logging.getLogger("halotile").setLevel(logging.NOTSET)
    assert main.run(["targets", "detect"]) == 0 and console.volume() == 0
    assert main.run(["targets", "detect", "-q"]) == 0 and console.volume() == -1


@pytest.mark.parametrize(
    "volume, quiet, shown", [(0, False, True), (0, True, False), (1, True, True), (-1, False, False)]
)
def test_progress_on_a_pipe_is_a_line_for_each_stage(
    volume: int, quiet: bool, shown: bool, capsys: Any, monkeypatch: Any
) -> None:
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    console.set_volume(volume)
    try:
        with console.StageProgress(quiet) as progress:
            progress("import", 0, 1)
            now[0] += 1.5
            for done in range(30):
                progress("schedule", done, 30)
                now[0] += 1.0
            progress("link", 0, 1)
            now[0] += 20.0
            progress("link", 1, 1)
    finally:
        console.set_volume(0)
    lines = capsys.readouterr().err.splitlines()
    every = ["[  0.0 s] import", "[  1.5 s] schedule 0/30", "[ 11.5 s] schedule 10/30", "[ 21.5 s] schedule 20/30"]
    late = ["[ 10.5 s] schedule 9/30", "[ 20.5 s] schedule 19/30", "[ 30.5 s] schedule 29/30"]
    assert lines == ([*(every if volume else late), "[ 31.5 s] link"] if shown else [])


# ---------------------------------------------------------------------- completion


def complete(line: str, folder: Path) -> list[str]:
    """What bash would offer for the last word of a line."""
    words = line.split(" ")
    environment = {"_HALOTILE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    code = "from halotile.compiler.cli.main import cli; cli(prog_name='halotile')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    return [entry.split(",", 1)[1] for entry in done.stdout.splitlines()]


def test_what_a_shell_completes(tmp_path: Path) -> None:
    model = tiny(("batch", 4))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "in.npy").write_text("")
    (tmp_path / "nets").mkdir()
    assert complete("halotile bu", tmp_path) == ["build"]
    assert complete("halotile build n", tmp_path) == ["net.onnx", "nets/"]
    assert complete("halotile build net.onnx -t raspberry-pi-4", tmp_path) == ["raspberry-pi-4"]
    assert complete("halotile inspect net.onnx --explain --node m", tmp_path) == ["mm"]
    assert complete("halotile build net.onnx --shape ", tmp_path) == ["x="]
    assert complete("halotile verify net.onnx -i x=i", tmp_path) == ["x=in.npy"]
    assert complete("halotile build net.onnx --float-mode s", tmp_path) == ["strict"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(shell: str, capsys: Any) -> None:
    assert main.run(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert "_HALOTILE_COMPLETE" in text and "halotile" in text


# ---------------------------------------------------------------------- data


@pytest.mark.parametrize(
    "words",
    [
        ["targets", "list"],
        ["targets", "show", "rpi4"],
        ["targets", "detect"],
        ["inspect", "m.onnx"],
        ["inspect", "m.onnx", "--stop-after", "fuse"],
        ["inspect", "m.onnx", "--plan"],
        ["inspect", "m.onnx", "--timeline", "-t", "scratchpad"],
        ["bench", "--list"],
        ["inspect", "nowhere.onnx"],
    ],
    ids=" ".join,
)
def test_json_is_always_one_object(words: list[str], tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    (tmp_path / "m.onnx").write_bytes(tiny().SerializeToString())
    monkeypatch.chdir(tmp_path)
    code = main.run([*words, "--json"])
    data = json.loads(capsys.readouterr().out)
    assert isinstance(data, dict) and data and (code == 0) == ("error" not in data)


def test_a_model_on_standard_input(tmp_path: Path) -> None:
    data = tiny().SerializeToString()
    done = subprocess.run([*COMMAND, "inspect", "-", "--json"], input=data, capture_output=True, timeout=60)
    assert json.loads(done.stdout)["name"] == "model" and json.loads(done.stdout)["macs"] == 40
    empty = subprocess.run([*COMMAND, "inspect", "-"], input=b"", capture_output=True, timeout=60)
    assert empty.returncode == 1 and b"standard input is empty" in empty.stderr
    assert onnx.load_from_string(data).graph.name == "tiny"

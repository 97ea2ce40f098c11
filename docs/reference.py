"""The pages of the reference, made from what they describe: docstrings, ``--help``, the generated header, the types of
the manifest and the family of errors."""

from __future__ import annotations

import dataclasses
import inspect
import re
import tempfile
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import halotile
from halotile import errors


def pages() -> dict[str, str]:
    """Path in the site -> Markdown."""
    return {
        "reference/python.md": python(),
        "reference/commands.md": commands(),
        "reference/c.md": c(),
        "reference/manifest.md": manifest(),
        "reference/errors.md": error_codes(),
    }


def python() -> str:
    """Every public name with its signature and docstring, a class with its methods and properties."""
    lines = ["# Python", "", "What `import halotile` offers, from the docstrings."]
    for name in halotile.__all__:
        value = getattr(halotile, name)
        if inspect.isclass(value):
            shown = [] if value is halotile.Model else signature(name, value)  # models are made by compile and load
            lines += ["", f"## {name}", "", *shown, text(value)]
            for member, inner in members(value) if value is halotile.Model else ():  # others are plain data
                lines += ["", f"### `{name}.{member}`", "", *signature(member, inner), text(inner)]
        elif callable(value):
            lines += ["", f"## {name}", "", *signature(name, value), text(value)]
    return "\n".join(lines) + "\n"


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines and describes."""
    for name, value in vars(kind).items():
        value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        described = callable(value) or isinstance(value, property) or hasattr(value, "func")
        if (not name.startswith("_") or name == "__call__") and described and getattr(value, "__doc__", None):
            yield name, value


def signature(name: str, value: Any) -> list[str]:
    """A fenced block with what a call looks like; nothing for properties."""
    if not callable(value):
        return []
    parts = list(parameters(value))
    shown = f"{name}({', '.join(parts)})"
    if len(shown) > 100:
        shown = f"{name}(\n    " + ",\n    ".join(parts) + ",\n)"
    return ["```text", shown, "```", ""]


def parameters(value: Any) -> Iterator[str]:
    """What a function takes, as it is written; ``*`` before those that only names give."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    named = False
    for one in inspect.signature(value).parameters.values():
        if one.name == "self":
            continue
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not named:
            named = True
            yield "*"
        kind = "" if one.annotation is inspect.Parameter.empty else f": {one.annotation}"
        default = "" if one.default is inspect.Parameter.empty else f" = {one.default!r}"
        yield f"{stars.get(one.kind, '')}{one.name}{kind}{default}"


def text(value: Any) -> str:
    """A docstring as Markdown."""
    found = inspect.getdoc(value) or ""
    found = re.sub(r":\w+:`[~.]*([\w.]+)`", r"`\1`", found).replace("``", "`")
    return found


def commands() -> str:
    """Every verb's help."""
    import click
    from halotile.compiler.cli.main import cli

    lines = ["# Commands", "", "`halotile VERB --help`, verb by verb."]
    with click.Context(cli, info_name="halotile", terminal_width=100, max_content_width=100) as parent:
        lines += ["", "```text", cli.get_help(parent), "```"]
        for name in cli.list_commands(parent):
            command = cli.get_command(parent, name)
            assert command is not None
            kinds = [name] if not isinstance(command, click.Group) else [name, *sorted(command.commands)]
            for kind in kinds:
                inner = command if kind == name else command.commands[kind]  # type: ignore[attr-defined]
                path = name if kind == name else f"{name} {kind}"
                with click.Context(inner, info_name=path, parent=parent, max_content_width=100) as here:
                    lines += ["", f"## halotile {path}", "", "```text", inner.get_help(here), "```"]
    return "\n".join(lines) + "\n"


def c() -> str:
    """The header of a small model with fixed shapes."""
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8]) for n in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "example", [x], [y])
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory() as folder:
        # a named target: the page is the same wherever it is made
        halotile.compile(model, name="example", target="x86_64-linux-gnu+generic").save(Path(folder) / "out")
        header = (Path(folder) / "out" / "example.h").read_text(encoding="utf-8")
    return (
        "# C\n\nEvery library comes with its header. This is the one of a model called `example` with one input and one"
        " output of fixed shapes; [open shapes](../open-shapes.md) add functions that take a shape. A program that uses"
        f" it stands in the [quick start](../start/c.md).\n\n```text\n{header}```\n"
    )


def manifest() -> str:
    """The fields of manifest.json, by type."""
    from halotile.compiler.runtime import recorded

    kinds = [k for k in vars(recorded).values() if inspect.isclass(k) and k.__module__ == recorded.__name__]
    kinds.sort(key=lambda k: k is not recorded.Recorded)
    lines = ["# The manifest", "", "`manifest.json` lies beside every library: what was built, for whom, from what.",
             "These are the fields that Halotile reads; builds write more, for people.", "",
             "`halotile build --from manifest.json` makes the same bytes again."]  # fmt: skip
    for kind in kinds:
        lines += ["", f"## {kind.__name__}", "", text(kind), "", "| field | type | default |", "|---|---|---|"]
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            default = "" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
            hint = hints[field.name]
            word = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
            word = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])(?!\w+')", "", word)
            word = re.sub(r"Optional\[(.*)\]$", r"\1 or None", word)
            word = word.replace("Union[int, str]", "int or str").replace("|", "or")
            lines.append(f"| `{field.name}` | `{word}` | {default if len(default) < 40 else ''} |")
    return "\n".join(lines) + "\n"


def error_codes() -> str:
    """Exit codes, and every error of the family with its code."""
    from halotile.compiler.cli import main

    told = (main.__doc__ or "").partition("Exit codes: ")[2].replace("\n", " ").strip().rstrip(".")
    lines = [
        "# Errors and exit codes",
        "",
        "Errors are one line on standard error: `error[E300]: ...`, what was asked, where, why it can't be and what to",
        "do. In Python they are exceptions of `halotile.errors`. Codes stay.",
        "",
        "| code | exception | exit code | meaning |",
        "|---|---|---|---|",
    ]
    for kind in family(errors.HalotileError):
        meaning = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split()).replace("``", "`")
        lines.append(f"| {kind.code} | `{kind.__name__}` | {kind.exit_code} | {meaning} |")
    lines += ["", "## Exit codes of the command line", ""]
    lines += [f"- {part.strip()}" for part in re.split(r",(?![^()]*\))", told)]
    header = (Path(halotile.__path__[0]) / "compiler" / "runtime" / "model.h").read_text(encoding="utf-8")
    lines += ["", "## Codes of the C functions", ""]
    lines += ["With the model's name in front; `..._error_text` says each in words.", ""]
    lines += ["| code | number |", "|---|---|"]
    codes = re.findall(r"^ +HALOTILE_(\w+) = (\d+)", header, re.M)
    lines += [f"| `..._{name}` | {number} |" for name, number in codes]
    return "\n".join(lines) + "\n"


def family(kind: type[errors.HalotileError]) -> list[type[errors.HalotileError]]:
    """A class of errors and those of the same module under it, by code."""
    below: Callable[[Any], list[Any]] = lambda k: [k, *(c for s in k.__subclasses__() for c in below(s))]  # noqa: E731
    return sorted((k for k in below(kind) if k.__module__ == errors.__name__), key=lambda k: k.code)

"""What there is to complete on a command line: model files, targets, names in the model that the command names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def files(*suffixes: str) -> Complete:
    """Completes paths to files with these endings, and folders on the way."""

    def complete(ctx: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        return [CompletionItem(p) for p in _paths(typed, suffixes)]

    return complete


def folders(ctx: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Completes folders."""
    return [CompletionItem(typed, type="dir")]


def targets(ctx: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Completes names of machines and, where a path was begun, board files."""
    from ...targets.boards import boards

    known = {"native": "this machine", **{b.name: b.description for b in boards().values()}}
    if typed.startswith((".", "/", "~")):
        return [CompletionItem(p) for p in _paths(typed, (".toml",))]
    return [CompletionItem(n, help=text) for n, text in known.items() if n.startswith(typed)]


def nodes(ctx: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Completes names of nodes of the model that the command names."""
    model = _model(ctx)
    return _starting(typed, (n.name for n in model.graph.node)) if model is not None else []


def tensors(end: str, *suffixes: str) -> Complete:
    """Completes ``name=`` with the inputs (or ``outputs``) of the model or of the built folder; after the equals sign,
    files with these endings."""

    def complete(ctx: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        name, equals, path = typed.rpartition("=")
        if equals and suffixes:
            return [CompletionItem(f"{name}={p}") for p in _paths(path, suffixes)]
        return _starting(typed, (f"{n}=" for n in _names(ctx, end)))

    return complete


def _starting(typed: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(n) for n in dict.fromkeys(names) if n and n.startswith(typed)]


def _paths(typed: str, suffixes: tuple[str, ...]) -> list[str]:
    folder, _, begun = typed.rpartition("/")
    place = Path(f"{folder}/" if "/" in typed else ".")
    try:
        found = sorted(p for p in place.iterdir() if p.name.startswith(begun))
    except OSError:
        return []
    lead = f"{folder}/" if "/" in typed else ""
    return [f"{lead}{p.name}{'/' * p.is_dir()}" for p in found if p.is_dir() or p.name.endswith(suffixes)]


def _names(ctx: click.Context, end: str) -> list[str]:
    """Names of inputs or outputs, of the built folder or the model on the command line; none where neither is there."""
    from ..runtime.place import read_manifest

    for folder in _given(ctx, "directory"):
        try:
            made = read_manifest(Path(folder))
        except Exception:  # a shell is no place for our errors
            made = None
        if made is not None:
            return [t.name for t in getattr(made, end)]
    model = _model(ctx)
    if model is None:
        return []
    constants = {t.name for t in model.graph.initializer}
    return [i.name for i in (model.graph.input if end == "inputs" else model.graph.output) if i.name not in constants]


def _model(ctx: click.Context) -> Any:
    """The model that the command names, if it can be read."""
    import onnx

    for path in _given(ctx, "model"):
        try:
            return onnx.load(path, load_external_data=False)
        except Exception:  # not a model, or not yet
            continue
    return None


def _given(ctx: click.Context, name: str) -> list[str]:
    """What an argument may be: before an option that still lacks its value, click leaves it among the others."""
    return [text for text in (ctx.params.get(name), *ctx.args) if isinstance(text, str) and Path(text).exists()]

"""``halotile completion``: what makes a shell complete commands, options and their values (completers.py)."""

from __future__ import annotations

import click

from .console import emit
from .one_of import OneOf
from .verb import verb


@verb(
    examples=[
        ('eval "$(halotile completion bash)"', "In ~/.bashrc:"),
        ('eval "$(halotile completion zsh)"', "In ~/.zshrc, after compinit:"),
        ("halotile completion fish | source", "In ~/.config/fish/config.fish:"),
    ]
)
@click.argument("shell", type=OneOf(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options, model files, targets, and names of inputs and nodes."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    emit(found(click.get_current_context().find_root().command, {}, "halotile", "_HALOTILE_COMPLETE").source())

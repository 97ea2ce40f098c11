"""An option's value that is one of a few words, with what a misspelt one may have meant."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ...errors import did_you_mean


class OneOf(click.Choice):  # type: ignore[type-arg]  # click's own is generic since 8.2 only
    """One of ``words``, as click has it, and a suggestion where it is none."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words)
        self.words = tuple(words)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> object:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as wrong:
            self.fail(wrong.message.rstrip(".") + (did_you_mean(value, self.words) or "."), param, ctx)

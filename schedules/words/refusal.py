"""What a converter says when it can't write a node."""

from __future__ import annotations


class Refusal(Exception):
    """A converter's statement that it can't do this node right; the text is the reason the user reads.

    ``inputs``: the model's inputs whose values would settle it, where there are some."""

    def __init__(self, reason: str, inputs: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.inputs = inputs

"""What a converter says when it can't write a node."""

from __future__ import annotations


class Refusal(Exception):
    """A converter's statement that it can't do this node right; the text is the reason the user reads."""

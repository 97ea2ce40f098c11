"""``python -m halotile.compiler.cli`` is the command line too."""

from .main import entry

entry()

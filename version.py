"""Halotile's version; that of pyproject.toml is the same."""

__version__ = "0.1.0"

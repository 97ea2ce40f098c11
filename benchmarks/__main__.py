"""``python -m halotile.benchmarks``: the same as ``halotile bench``."""

from __future__ import annotations

import sys

import click

from ..errors import HalotileError
from .cli import bench

if __name__ == "__main__":
    try:
        bench()
    except HalotileError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)

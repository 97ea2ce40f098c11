"""``halotile`` where only halotile-runtime is installed: ``run``, and for every other command what it needs.

Reads its command line with Python's own means. Where the compiler is installed as well, its command line takes over.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from ...errors import HalotileError, ToolchainError, did_you_mean
from ...version import __version__
from ..needs import COMPILER, has_compiler
from .commands import COMMANDS
from .console import open_streams, set_volume
from .failure import internal_error, report_error
from .places import check_library_path
from .running import run_once, sizes_in

NEED_THE_COMPILER = tuple(name for name in COMMANDS if name != "run")
_ABOUT = f"""Run what Halotile has built. Commands: run.

The compiler is not installed: {', '.join(NEED_THE_COMPILER)} need it ({COMPILER})."""


class _Parser(argparse.ArgumentParser):
    """A parser whose usage errors end with exit code 2 and one line, as the compiler's do."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.format_usage()}Error: {message}", file=sys.stderr)
        raise SystemExit(2)


def entry() -> None:
    """The console script."""
    if has_compiler():
        from .main import entry as whole

        return whole()
    open_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; every error has become one line on stderr."""
    set_volume(0)
    try:
        _dispatch(list(arguments))
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    except Exception as error:
        told = error if isinstance(error, HalotileError) else internal_error(error, arguments)
        return report_error(told, as_json="--json" in arguments, debug=False)


def _dispatch(arguments: list[str]) -> None:
    name = next((word for word in arguments if not word.startswith("-")), "")
    if name in NEED_THE_COMPILER:
        raise ToolchainError(f"halotile {name} needs the compiler, and only halotile-runtime is installed: {COMPILER}")
    parser = _Parser(prog="halotile", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-V", "--version", action="version", version=f"halotile {__version__}")
    if not arguments or arguments[0] in ("-h", "--help", "-V", "--version"):
        parser.parse_args(arguments or ["--help"])
    if arguments[0] != "run":
        parser.error(f"there is no command {arguments[0]!r}{did_you_mean(arguments[0], ('run', *NEED_THE_COMPILER))}")
    _run(arguments[1:])


def _run(arguments: Sequence[str]) -> None:
    parser = _Parser(prog="halotile run", description="Run the library in DIR once and write or describe its outputs.")
    parser.add_argument("directory", metavar="DIR", help="folder of a built library")
    parser.add_argument("-i", "--input", metavar="NAME=FILE", action="append", default=[],
                        help=".npy, .npz or plain bytes (.bin); - is standard input; others are random")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="NAME=FILE", action="append", default=[],
                        help="where an output goes, as .npy or .bin; or all as .npz; - is standard output")  # fmt: skip
    parser.add_argument("--size", metavar="NAME=N,...", action="append", default=[], help="size of an open dimension")
    parser.add_argument("-j", "--threads", type=int, metavar="N", help="threads")
    parser.add_argument("--seed", type=int, default=0, help="of random inputs (0)")
    parser.add_argument("--repeat", type=int, default=1, help="runs; the median time is told (1)")
    parser.add_argument("--json", action="store_true", help="the result as one JSON object on standard output")
    parser.add_argument("-q", "--quiet", action="store_true", help="errors alone on stderr")
    given = parser.parse_args(arguments)
    sizes: dict[str, int] = {}
    for text in given.size:
        sizes |= sizes_in(text) or parser.error(f"--size: {text!r} is not of the form name=720, with a whole number")
    if given.threads is not None and not 1 <= given.threads <= 1024:
        parser.error(f"--threads: {given.threads} is not from 1 to 1024")
    if given.repeat < 1 or given.seed < 0:
        parser.error("--repeat is a number from 1, --seed one from 0")
    set_volume(-1 if given.quiet else 0)
    from ..model import load

    folder = check_library_path(given.directory)
    with load(folder, threads=given.threads) as model:
        run_once(model, given.input, given.output, sizes, given.threads, given.seed, given.repeat, given.json)

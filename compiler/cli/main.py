"""``halotile``: the list of commands, and what becomes of their errors.

Exit codes: 0 done, 1 the user can mend it, 2 usage, 3 outputs differ from the reference, 70 a defect of ours,
130 interrupted (143 by a polite kill, 129 by a lost terminal), 141 the reader of our output went away.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

import click

from ...errors import HalotileError, InternalError, did_you_mean
from ...version import __version__
from . import interrupt
from .commands import COMMANDS as _COMMANDS
from .console import open_streams, set_volume
from .failure import internal_error, report_error
from .verb import write_examples

_EXAMPLES = (
    ("halotile build model.onnx -o out", "A library for this machine, compared with ONNX Runtime:"),
    ("halotile run out -i x=in.npy -o y=out.npy", "Run it:"),
    ("halotile build model.onnx -t raspberry-pi-4 -o out/pi4", "For a board:"),
)


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            ctx.fail(f"there is no command {name!r}{did_you_mean(name, _COMMANDS)}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name][0], __package__)
        return getattr(module, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])
        write_examples(formatter, _EXAMPLES)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="halotile %(version)s")
@click.option("--debug", is_flag=True, help="Show a traceback with every error.")
def cli(debug: bool) -> None:
    """Compile ONNX models into native libraries for CPUs."""


def run(arguments: Sequence[str], last: bool = False) -> int:
    """Runs one command line and returns its exit code; every error has become one line on stderr.

    ``last`` says that the process ends here: what TVM's destructors have to say after an error is not shown then.
    """
    as_json, debug = "--json" in arguments, "--debug" in arguments[:1]
    set_volume(0)
    try:
        result: int | None = cli.main(args=list(arguments), prog_name="halotile", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt, interrupt.Interrupted):
        return _interrupted(last)
    except click.UsageError as error:
        error.show()
        return 2
    except Exception as error:
        if interrupt.received():  # raised inside one of TVM's calls, an interrupt comes back as another error
            return _interrupted(last)
        wrapped = isinstance(error, InternalError) and error.__cause__ is not None  # by the Python API
        told = error if isinstance(error, HalotileError) and not wrapped else internal_error(error, arguments)
        code = report_error(told, as_json=as_json, debug=debug)
        if last and not debug:
            _mute()
        return code


def _interrupted(last: bool) -> int:
    with contextlib.suppress(OSError):  # the terminal may be gone
        print("interrupted", file=sys.stderr)
    if last:
        _mute()
    return interrupt.received() or 130


def _mute() -> None:
    """Nothing more goes to stderr: TVM's destructors have a lot to say about work that was left off."""
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def entry() -> None:
    """The console script."""
    open_streams()
    interrupt.install()
    code = run(sys.argv[1:], last=True)
    if interrupt.received():  # everything is cleaned up; TVM need not take itself apart in the middle of its work
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    entry()

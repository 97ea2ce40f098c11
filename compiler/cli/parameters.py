"""Options that several commands share, and how their text is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...errors import ModelError, OutputError, RunError
from ..given import no_model
from . import arrays, completers
from .one_of import OneOf
from .places import check_destination as check_destination
from .places import check_file_destination as check_file_destination
from .places import check_library_path as check_library_path

if TYPE_CHECKING:
    from ..cache.store import Cache
    from ..given import ArraysGiven
    from ..options import Fixed
    from ..runtime.private import PrivateFolder
    from ..runtime.recorded import Recorded

F = TypeVar("F", bound=Callable[..., object])
_kept: list[PrivateFolder] = []  # folders that go with the process


@dataclass(frozen=True)
class PlainBytes:
    """A file whose bytes are those of an input; the model says of what type and shape."""

    path: str


class FixType(click.ParamType):
    """``size=480,640`` -> ("size", its value); ``size=size.npy`` reads a file. The name may hold an equals sign."""

    name = "name=v,v,...|file.npy"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, object]:
        if isinstance(value, tuple):
            return value
        from ..options import Fixed

        name, equals, text = str(value).rpartition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not of the form name=480,640 or name=file.npy", param, ctx)
        if text == arrays.STREAM or text.endswith((".npy", ".npz")):
            found = arrays.read_file(text, None, "input")
            if isinstance(found, dict) and name not in found:
                self.fail(f"{text!r} holds no array {name!r}", param, ctx)
            return name, found[name] if isinstance(found, dict) else found
        if text.endswith(".bin"):
            return name, PlainBytes(text)
        try:
            return name, Fixed(None, tuple(_number(v) for v in text.strip("[]() ").split(",")))
        except ValueError:
            self.fail(f"{value!r}: {text!r} is no list of numbers such as 480,640, nor a .npy file", param, ctx)


def _number(text: str) -> int | float | bool:
    """A whole number where it is one, ``true`` and ``false``, or a float."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    try:
        return int(word)
    except ValueError:
        return float(word)


def fix_option(function: F) -> F:
    """``--fix``, once for each input that becomes a constant."""
    return click.option(
        "--fix", "fixed", type=FixType(), multiple=True, shell_complete=completers.tensors("inputs", *arrays.SUFFIXES),
        help="Make an input a constant: --fix size=480,640, or --fix size=size.npy (or .bin).",
    )(function)  # fmt: skip


def model_argument(required: bool = True) -> Callable[[F], F]:
    """``MODEL``: an ONNX file, or ``-`` for standard input."""
    return click.argument("model", required=required, shell_complete=completers.files(".onnx"))


def directory_argument(metavar: str = "DIR", required: bool = True) -> Callable[[F], F]:
    """``DIR``: the folder of a build."""
    return click.argument("directory", metavar=metavar, required=required, shell_complete=completers.folders)


def input_option(function: F) -> F:
    """``-i``: arrays for inputs."""
    return click.option(
        "-i", "--input", "inputs", multiple=True, metavar="NAME=FILE",
        shell_complete=completers.tensors("inputs", *arrays.SUFFIXES),
        help="An input as .npy or plain bytes (.bin), or all as .npz; - is standard input.",
    )(function)  # fmt: skip


def json_option(function: F) -> F:
    """``--json``: the result as data on stdout."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(function)


def target_option(function: F) -> F:
    """``-t``, checked as far as that goes without loading the compiler."""
    return click.option(
        "-t", "--target", default="native", show_default=True, shell_complete=completers.targets,
        help="native, a name from `halotile targets list`, a board file (.toml), or triple+cpu+features.",
    )(function)  # fmt: skip


class BytesType(click.ParamType):
    """``32MiB``, ``500KB`` or plain bytes."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from ...errors import HalotileError
        from ..options import checked_budget

        try:
            return checked_budget(value) or 0
        except HalotileError:
            self.fail(f"{value!r} is not a size such as 32MiB or 500KB", param, ctx)


def tiling_options(function: F) -> F:
    """``--tile``, ``--memory-budget`` and ``--optimize``."""
    function = click.option(
        "--optimize", type=OneOf(["speed", "memory"]), default="speed", show_default=True,
        help="What tiling is for: the fastest plan, or the one with the smallest arena.",
    )(function)  # fmt: skip
    function = click.option(
        "--memory-budget", type=BytesType(), help="Limit of the arena, such as 32MiB; never exceeded."
    )(function)
    return click.option(
        "--tile", type=OneOf(["auto", "off"]),
        help="Compute chains of layers tile by tile.  [default: auto, where it pays]",
    )(function)  # fmt: skip


def weights_option(function: F) -> F:
    """``--weights``."""
    return click.option(
        "--weights", type=OneOf(["float32", "float16", "int8"]), default="float32", show_default=True,
        help="How weights of convolutions and matrix products are stored; float16 halves them, int8 quarters them.",
    )(function)  # fmt: skip


def error_options(function: F) -> F:
    """``--calibrate`` and ``--error``."""
    function = click.option(
        "--error", type=float, metavar="PART",
        help="What outputs may be off by, of their largest value, such as 0.02; for auto, int8 and float16 (0.01).",
    )(function)  # fmt: skip
    return click.option(
        "--calibrate", type=click.Path(), metavar="FILE|DIR",
        help="Sample inputs for auto, int8 and float16: an .npz or .npy file, or a folder of them.",
    )(function)  # fmt: skip


def precision_options(function: F) -> F:
    """``--precision``, ``--calibrate`` and ``--error``."""
    function = error_options(function)
    return click.option(
        "--precision", type=OneOf(["float32", "bfloat16", "float16", "int8", "auto"]), default="float32",
        show_default=True,
        help="What layers may be computed in, where that is faster; auto keeps --error, by --calibrate.",
    )(function)  # fmt: skip


def tuning_option(function: F) -> F:
    """``--tuning``: a database of measured choices."""
    return click.option(
        "--tuning", type=click.Path(dir_okay=False), metavar="FILE", help="Take what `halotile tune` measured."
    )(function)


def cache_option(function: F) -> F:
    """``--no-cache``."""
    return click.option(
        "--cache/--no-cache", default=True, help="Take and keep what was compiled before (HALOTILE_CACHE says where)."
    )(function)


def cache_of(wanted: bool) -> Cache | None:
    """The cache that the environment names, or None."""
    from ..cache.place import cache_of_environment

    return cache_of_environment() if wanted else None


def threads_option(function: F) -> F:
    """``-j``: how many threads a run has, or is planned for."""
    return click.option(
        "--threads", "-j", type=click.IntRange(1, 1024), help="Threads; by default the target's cores."
    )(function)


def on_option(function: F) -> F:
    """``--on``: where the program runs."""
    return click.option(
        "--on", metavar="PLACE", help="Run elsewhere: ssh://user@host[:port], or behind a command such as an emulator."
    )(function)


def streams(made: Recorded | None) -> bool:
    """Whether a manifest is of a library that streams."""
    return made is not None and "stream" in made.everything.get("report", {})


def open_model(folder: Path, on: str | None, threads: int | None) -> Any:
    """A built model to call, as a context manager: loaded here, or run where ``on`` says."""
    from ..runtime.place import read_manifest

    made = read_manifest(folder)
    if streams(made):
        raise RunError(f"the library in {folder} streams; halotile stream computes images of any height with it")
    if on is None and made and not made.library:  # the program stands in for a library that was not asked for
        if not made.executable:
            raise OutputError(f"{folder} holds an archive alone, which can't be run; build it with --format so or exe")
        on = ""
    if on is None:
        from ..runtime.loader import load

        return load(folder, threads=threads)
    from ..remote.model import RemoteModel

    return RemoteModel(folder, on)


class ToleranceType(click.ParamType):
    """A finite number that is not negative."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            self.fail(f"{value!r} is not a tolerance such as 1e-3", param, ctx)
        return number


def tolerance_options(function: F) -> F:
    """``--rtol``, ``--atol`` and ``--seed`` of a comparison."""
    function = click.option(
        "--rtol", type=ToleranceType(),
        help="Allowed error, of an output's largest value.  [default: 1e-3; 1e-2, 0.1: float16, int8 weights]",
    )(function)
    function = click.option(
        "--atol", type=ToleranceType(), default=1e-5, show_default=True, help="Allowed error on top of that."
    )(function)
    return click.option(
        "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of random inputs."
    )(function)


def fixed_of(pairs: Sequence[tuple[str, object]]) -> dict[str, Fixed] | None:
    """The values by input name; one name given twice is a usage error."""
    from ..options import checked_fixed

    pairs = [(n, _bytes_of(n, v) if isinstance(v, PlainBytes) else v) for n, v in pairs]
    names = [name for name, _ in pairs]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise click.UsageError(f"--fix {twice[0]}=... is given twice")
    return checked_fixed(dict(pairs))


def _bytes_of(name: str, value: PlainBytes) -> ArraysGiven:
    """The array that a file of plain bytes holds for an input of the model on the command line."""
    from ...errors import ShapeError
    from ..frontend.load import load
    from ..frontend.shapes import declared_shape, plain_dtype, run_time_inputs
    from ..spec import TensorSpec

    model = click.get_current_context().params.get("model")
    if not model or model == arrays.STREAM:
        raise click.UsageError(f"--fix {name}={value.path}: plain bytes need the model's file; give a .npy file")
    inputs = {i.name: i for i in run_time_inputs(load(check_model_path(model)).model.graph)}
    if name not in inputs:
        raise ShapeError(f"a value was given for '{name}', but the model's inputs are {', '.join(map(repr, inputs))}")
    shape = tuple(declared_shape(inputs[name]) or (None,))
    return arrays.read_file(value.path, TensorSpec(name, plain_dtype(inputs[name]), shape), "input")  # type: ignore[arg-type]


def check_model_path(path: str) -> Path:
    """The model's path, if there is a file that can be opened; ``-`` is what standard input holds, kept in a file that
    goes with the process."""
    if path == arrays.STREAM:
        return _from_stdin()
    file = Path(path)
    if not path:
        raise ModelError("the model's path is empty")
    if not file.exists():
        raise ModelError(no_model(file))
    if file.is_dir():
        built = (file / "manifest.json").is_file()
        hint = "; it is what a build made, for run, verify and bench: give the ONNX file" if built else ""
        raise ModelError(f"model file '{path}' is a folder{hint}")
    try:
        file.open("rb").close()
    except OSError as error:
        raise ModelError(f"model file '{path}' can't be read: {error.strerror}") from None
    return file


def is_temporary(path: Path) -> bool:
    """Whether the model came from standard input."""
    return any(path.parent == Path(folder.name) for folder in _kept)


def _from_stdin() -> Path:
    import sys

    from ..runtime.private import PrivateFolder

    data = sys.stdin.buffer.read()
    if not data:
        raise ModelError("the model on standard input is empty")
    _kept.append(PrivateFolder())
    file = Path(_kept[-1].name) / "model.onnx"
    file.write_bytes(data)
    return file


def refuse_given(names: Collection[str], why: str) -> None:
    """A usage error where an option of these stands on the command line: it would be passed over."""
    ctx = click.get_current_context()
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} {why}")

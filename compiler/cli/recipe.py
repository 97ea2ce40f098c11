"""What a build command asks for, from its options or from a manifest: target, options of the pipeline, formats."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...errors import OutputError, TargetError
from ...targets.target import Target
from . import parameters
from .console import note
from .models import find_model
from .shapes import OPTIONS as SHAPES

if TYPE_CHECKING:
    from ..runtime.recorded import Recorded
    from ..state import Options

FORMATS = ("so", "a", "exe")
# What decides the result: with --from it comes from the manifest, and from nowhere else. (--cc is the user's to say.)
RECORDED = (
    "target", "levels", "name", *SHAPES, "fixed", "inputs", "outputs", "images", "threads", "exact", "float_mode",
    "formats", "static", "glibc", "tile",
    "memory_budget", "optimize", "timers", "tuning", "weights", "flush_denormals", "precision", "calibrate", "error",
)  # fmt: skip


class FormatType(click.ParamType):
    """``so,a,exe`` -> ("so", "a", "exe")."""

    name = "so,a,exe"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",") if part.strip()]
        for part in parts:
            if part not in FORMATS:
                self.fail(f"{part!r} is none of {', '.join(FORMATS)}", param, ctx)
        if not parts:
            self.fail(f"name at least one of {', '.join(FORMATS)}", param, ctx)
        return tuple(f for f in FORMATS if f in parts)


class GlibcType(click.ParamType):
    """``2.28``."""

    name = "version"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"2\.\d{1,2}", str(value)):
            self.fail(f"{value!r} is not a version of glibc such as 2.31", param, ctx)
        return str(value)


def linked_target(target: Target, static: bool, glibc: str | None) -> Target:
    """The target with the C library that the options ask for."""
    from ..codegen.toolchain import musl

    if static and glibc:
        raise click.UsageError("--static needs no glibc, --glibc states one: choose one of them")
    if (static or glibc) and target.system != "linux":
        raise TargetError(f"{'--static' if static else '--glibc'} is for Linux, which {target.id} is not; leave it out")
    if static:
        return replace(target, triple=musl(target.triple), glibc="")
    return replace(target, glibc=glibc) if glibc else target


def chosen_formats(target: Target, formats: tuple[str, ...] | None, static: bool, cc: str | None) -> tuple[str, ...]:
    """The formats that were asked for; by default all that can be made."""
    from ..codegen.toolchain import find_static_toolchain

    if target.system != "linux":
        from ..systems import check_formats

        check_formats(target, formats or ())
        return ("so", "extras")
    if formats is None:
        formats = ("a", "exe") if static else FORMATS
        if find_static_toolchain(target, cc) is None:
            note("note: no model_run: that needs libc's static part (Debian: libc6-dev) or ziglang")
            formats = tuple(f for f in formats if f != "exe")
    return (*formats, "extras")


def from_manifest(
    ctx: click.Context, text: str, model: str | None, cc: str | None
) -> tuple[Path, Options, Recorded]:
    """(model file, options, manifest) of ``--from``; options that contradict it are a usage error. ``cc`` is the user's
    choice of a compiler."""
    from ...targets import llvm
    from ...version import __version__
    from ..recipe import check_model, options_of
    from ..runtime.place import MANIFEST

    given = [p for p in RECORDED if ctx.get_parameter_source(p) is click.core.ParameterSource.COMMANDLINE]
    if given:
        flags = {"formats": "format", "shapes": "shape", "fixed": "fix", "inputs": "input", "outputs": "result"}
        flag = flags.get(given[0], given[0].replace("_", "-"))
        raise click.UsageError(f"--{flag} is in the manifest already; leave it out with --from")
    path = Path(text) / MANIFEST if Path(text).is_dir() else Path(text)
    manifest = read_recorded(path)
    file = parameters.check_model_path(model) if model else find_model(path, manifest)
    check_model(file, manifest)
    options = options_of(manifest, cc)
    try:
        llvm.check(options.target.triple, options.target.cpu, options.target.features)
    except TargetError as error:
        raise TargetError(f"{path}: {error}") from None
    if manifest.version != __version__:
        made = manifest.version or "of another version"
        note(f"note: {path} is by Halotile {made}, this is {__version__}: the bytes may differ")
    return file, options, manifest


def compare_with(manifest: Recorded, folder: Path) -> list[str]:
    """Names of the files in ``folder`` whose bytes are not those that a manifest records."""
    from ..runtime.digest import digest

    return [
        name
        for name, facts in manifest.files.items()
        if not (folder / name).is_file() or digest(folder / name) != facts.sha256
    ]


def read_recorded(path: Path) -> Recorded:
    """The manifest in a file; OutputError for what is none."""
    from ..runtime.recorded import read

    found = read(path)
    if found is None:
        raise OutputError(f"{path} is not a manifest that Halotile wrote")
    return found

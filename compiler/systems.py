"""What a system other than Linux can't have, refused by name before anything is compiled."""

from __future__ import annotations

from ..errors import TargetError, ToolchainError
from ..targets.target import Target
from .state import Options

_NO_FLUSHING = ("riscv64", "wasm32")


def check_system(options: Options) -> None:
    """Raises TargetError or ToolchainError for what was asked of a system that does not have it."""
    target = options.target
    if options.flush_denormals and target.triple.split("-")[0] in _NO_FLUSHING:
        raise TargetError(f"{target.id} has no mode in which denormals count as zero; leave --flush-denormals out")
    if target.system == "linux":
        return
    check_formats(target, options.formats)
    if options.levels:
        raise TargetError(f"levels of processors are for Linux, and {target.id} is not: name one target")
    if options.timers and target.one_thread:
        raise TargetError(f"libraries for {target.id} have no clock for timers; time whole runs")
    if target.one_thread and (options.threads or 1) > 1:
        raise TargetError(f"libraries for {target.id} run on one thread; leave --threads out, or give 1")


def check_formats(target: Target, formats: tuple[str, ...]) -> None:
    """Archives and ``model_run`` are for Linux."""
    wrong = [f for f in formats if f in ("a", "exe")]
    if target.system != "linux" and wrong:
        raise ToolchainError(f"--format {wrong[0]} is for Linux; for {target.id} there is --format so, its library")

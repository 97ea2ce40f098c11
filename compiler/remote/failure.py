"""Why a program did not run over there, in one line."""

from __future__ import annotations

import re

from ...errors import RemoteError
from ..runtime.recorded import Recorded, RecordedMachine
from .done import Done, Place

_KILLED, _ILLEGAL, _CRASHED = 128 + 9, 128 + 4, 128 + 11
_NOT_EXECUTABLE = ("exec format error", "cannot execute", "invalid elf image", "syntax error", "error while loading")


def explain(done: Done, place: Place, recorded: Recorded) -> RemoteError:
    """The error for a run that failed; ``recorded`` tells what was run and what it needs."""
    return RemoteError(f"on {place.name}: {_reason(done, place, recorded)}")


def _reason(done: Done, place: Place, recorded: Recorded) -> str:
    target = recorded.target or RecordedMachine()
    error = done.err.lower()
    own = re.search(r"^model_run: (.*)$", done.err, re.M)
    if own:
        return own[1]
    old = re.search(r"version [`']GLIBC_([\d.]+)' not found", done.err)
    if old:
        return (
            f"its C library is older than glibc {old[1]}, which this build needs; build with --static, or with "
            "--glibc and the version that `ldd --version` tells there"
        )
    if done.code == _KILLED:
        return (
            f"it was killed, most likely for want of memory: the model needs {_memory(recorded)}; fewer --threads and "
            "smaller shapes need less"
        )
    wanted = target.triple.split("-")[0]
    if done.code not in (_ILLEGAL, _CRASHED) and any(clue in error for clue in _NOT_EXECUTABLE):
        runner = f"{place.prefix[0]} there" if place.prefix else f"{place.name} ({place.machine() or 'unknown'})"
        return (
            f"wrong architecture: this build is for {target.id} ({wanted}), which {runner} can't run; "
            "--on names a machine or an emulator that can, -t builds for that machine"
        )
    if done.code == _ILLEGAL:
        return f"it lacks instructions of {target.cpu}, for which this was built; build for that machine with -t"
    if done.code == 127 and place.prefix:
        return f"the command {place.prefix[0]!r} was not found there"
    if done.code == _CRASHED:
        return "the program crashed (segmentation fault)"
    lines = [line.strip() for line in done.err.splitlines() if line.strip()]
    return f"exit code {done.code}: {lines[-1] if lines else 'it said nothing'}"


def _memory(recorded: Recorded) -> str:
    total = recorded.weight_bytes + recorded.arena_bytes
    return f"{total / 2**20:.0f} MB for weights and arena"

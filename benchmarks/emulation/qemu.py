"""Programs for 64-bit ARM, run under QEMU's user emulation with the plugin that counts their blocks.

    emulator = Emulator(folder)                                  builds the plugin there
    counts = emulator.run(target, [program, ...], cwd)           what ran between the program's marks

Debian's qemu-user is built with plugins, its qemu-user-static is not. Plugins have an interface of their own: that of
version 1 (QEMU 4.2 to 8) is the one that is written for.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...compiler.codegen.toolchain import find_toolchain
from ...errors import ToolchainError
from ...targets.detect import native
from ...targets.target import Target
from .counts import Counts, read

QEMU = "qemu-aarch64"
_ADVICE = "apt-get install qemu-user (the dynamic one), then try again"
_PLUGIN = Path(__file__).parent / "count_blocks.c"
NEWEST = 8  # of QEMU, whose plugins have the interface of version 1
WAYS = (4, 8)  # of the caches that are simulated
# What QEMU has by LLVM's name; others are stood in for by all that it knows.
KNOWN = ("cortex-a53", "cortex-a55", "cortex-a57", "cortex-a72", "cortex-a76", "neoverse-n1", "a64fx")


@dataclass(frozen=True)
class Caches:
    """Bytes of the two levels that are simulated."""

    first: int
    second: int


class Emulator:
    """QEMU with the plugin, which is built in ``folder``; ToolchainError says what is missing."""

    def __init__(self, folder: Path) -> None:
        self.command = shutil.which(QEMU) or ""
        if not self.command:
            raise ToolchainError(f"{QEMU} is missing: {_ADVICE}")
        said = subprocess.run([self.command, "--version"], capture_output=True, text=True, check=False)
        version = re.search(r"version (\d+)", said.stdout)
        if version is None or int(version[1]) > NEWEST:
            reason = said.stderr.strip()[:120] or said.stdout.splitlines()[0]
            raise ToolchainError(f"{QEMU} must be version 4.2 to {NEWEST}, and says {reason!r}: {_ADVICE}")
        self.folder = folder
        self.plugin = folder / "count_blocks.so"
        find_toolchain(native()).run(
            ["-shared", "-fPIC", "-O2", "-std=gnu11", str(_PLUGIN), "-o", str(self.plugin)], folder,
            "building the emulator's plugin",
        )  # fmt: skip

    def run(
        self, target: Target, program: Sequence[str], cwd: Path, caches: Caches | None = None,
        options: Sequence[str] = (),
    ) -> Counts:  # fmt: skip
        """What ran between the marks of ``program`` on the target's core; ``options`` are the emulator's."""
        out = self.folder / "counts.txt"
        out.unlink(missing_ok=True)
        plugin = f"{self.plugin},out={out}"
        if caches is not None:
            sizes = (caches.first, caches.second)
            for level, (size, ways) in enumerate(zip(sizes, WAYS), 1):
                plugin += f",l{level}={_whole(size, ways)},l{level}_ways={ways}"
        cpu = target.cpu if target.cpu in KNOWN else "max"
        command = [self.command, "-cpu", cpu, "-plugin", plugin, *options, *program]
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
            raise ToolchainError(f"{Path(program[0]).name} ended with {done.returncode} under {QEMU}: {last[:200]}")
        return read(out)


def _whole(size: int, ways: int) -> int:
    """Bytes of a cache that has a set at least."""
    return max(size, 64 * ways)

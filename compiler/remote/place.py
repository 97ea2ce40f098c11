"""Places where a program of ours runs: here behind a command, or on another machine behind ssh.

    open_place("qemu-aarch64-static -cpu cortex-a76")       any command prefix
    open_place("ssh://pi@board:2222")                       the system's ssh
    open_place("ssh://pi@board taskset -c 2-3")             both: the prefix runs over there

A place has a private folder. Files are put into it, programs run in it, and it goes when the place is closed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ...errors import RemoteError
from ..runtime.private import PrivateFolder
from .done import Done, Place
from .ssh import SshPlace


def open_place(text: str) -> Place:
    """The place that ``text`` names; raises RemoteError when it can't be reached."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RemoteError(f"--on {text!r} can't be read: {error}") from None
    if words and words[0].startswith("ssh://"):
        return SshPlace(words[0], tuple(words[1:]))
    if words and "://" in words[0]:
        raise RemoteError(f"--on {text!r}: only ssh://user@host[:port], or a command that runs programs, is known")
    return CommandPlace(tuple(words))


class CommandPlace:
    """This machine, behind a command: an emulator, ``taskset``, or nothing."""

    def __init__(self, prefix: tuple[str, ...]) -> None:
        if prefix and shutil.which(prefix[0]) is None:
            raise RemoteError(
                f"the command {prefix[0]!r} was not found; --on takes ssh://user@host[:port] or a command to run behind"
            )
        self.prefix = prefix
        self.name = shlex.join(prefix) or "this machine"
        self._folder = PrivateFolder()

    def put(self, source: Path, name: str) -> None:
        shutil.copyfile(source, self._path(name))
        os.chmod(self._path(name), 0o755)

    def get(self, name: str, destination: Path) -> None:
        shutil.copyfile(self._path(name), destination)

    def run(self, words: Sequence[str]) -> Done:
        try:
            done = subprocess.run(
                [*self.prefix, *words], cwd=self._folder.name, capture_output=True, text=True, errors="replace",
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:  # in a shell's words, for whoever explains it
            return Done(126, "", f"{words[0]}: {error.strerror}")
        return Done(done.returncode if done.returncode >= 0 else 128 - done.returncode, done.stdout, done.stderr)

    def machine(self) -> str:
        return os.uname().machine

    def close(self) -> None:
        self._folder.cleanup()

    def _path(self, name: str) -> str:
        return os.path.join(self._folder.name, name)

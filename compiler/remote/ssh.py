"""Another machine through the system's ssh: one connection, a folder of our own over there, nothing left behind.

Files go through ``cat``, so that boards without an sftp server (dropbear) serve as well. The exit code of a program
comes back in a line of its own: ssh's own 255 then always means the connection.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ...errors import RemoteError
from ..runtime.private import PrivateFolder
from .done import Done

CONNECT_SECONDS = 10
_MARK = "halotile-exit:"
_CLUES = (
    ("could not resolve", "is the name right?"),
    ("refused", "does it run an ssh server, and is the port right?"),
    ("timed out", "is it switched on, and on this network?"),
    ("no route", "is it switched on, and on this network?"),
    ("permission denied", "ssh-copy-id puts your key there; without a terminal nobody can type a password"),
    ("host key", "connect once by hand (ssh) to check and accept its key"),
)


class SshPlace:
    """``ssh://[user@]host[:port]``."""

    def __init__(self, url: str, prefix: tuple[str, ...] = ()) -> None:
        self.name, self._host, options = _parse(url)
        self.prefix = prefix
        if shutil.which("ssh") is None:
            raise RemoteError("ssh was not found on this machine (Debian: openssh-client)")
        self._sockets = PrivateFolder("ht-")  # short: a socket's path has 104 bytes
        self._ssh = ["ssh", *options, "-S", f"{self._sockets.name}/c"]
        self._connect()
        self._folder = self._shell("umask 077; mktemp -d").out.strip()
        if not self._folder.startswith("/"):
            self.close()
            raise RemoteError(f"{self.name} gave no folder to work in; is its disk full?")

    def _connect(self) -> None:
        """Opens the connection that all commands share. Its words go to a file: it outlives this call."""
        options = ["-M", "-N", "-f", "-o", f"ConnectTimeout={CONNECT_SECONDS}", "-o", "ServerAliveInterval=15"]
        if not sys.stdin.isatty():
            options += ["-o", "BatchMode=yes"]
        with tempfile.TemporaryFile("w+", errors="replace") as words:
            code = subprocess.call(
                [*self._ssh, *options, self._host], stdin=subprocess.DEVNULL, stdout=words, stderr=words
            )
            words.seek(0)
            text = words.read()
        if code != 0:
            self._sockets.cleanup()
            raise RemoteError(f"can't reach {self.name}: {_reason(text)}")

    def _shell(self, script: str, source: Path | None = None, destination: Path | None = None) -> Done:
        """Runs a shell script over there; its standard input and output may be files here."""
        whole = f"{script}\nhalotile_code=$?; echo '{_MARK}'$halotile_code >&2"
        with contextlib.ExitStack() as files:
            into = files.enter_context(source.open("rb")) if source else subprocess.DEVNULL
            out = files.enter_context(destination.open("wb")) if destination else subprocess.PIPE
            done = subprocess.run(
                [*self._ssh, self._host, f"sh -c {shlex.quote(whole)}"], stdin=into, stdout=out, stderr=subprocess.PIPE
            )
        error = done.stderr.decode(errors="replace")
        marks = re.findall(rf"{_MARK}(\d+)", error)
        if not marks:
            raise RemoteError(f"the connection to {self.name} was lost: {_reason(error)}")
        return Done(int(marks[-1]), (done.stdout or b"").decode(errors="replace"), re.sub(rf"{_MARK}\d+\n?", "", error))

    def put(self, source: Path, name: str) -> None:
        path = shlex.quote(f"{self._folder}/{name}")
        done = self._shell(f"cat > {path} && chmod 755 {path} && wc -c < {path}", source=source)
        if done.code or done.out.strip() != str(source.stat().st_size):
            raise RemoteError(f"can't copy {source.name} to {self.name}: {_reason(done.err)}")

    def get(self, name: str, destination: Path) -> None:
        done = self._shell(f"cat {shlex.quote(f'{self._folder}/{name}')}", destination=destination)
        if done.code:
            raise RemoteError(f"can't copy {name} from {self.name}: {_reason(done.err)}")

    def run(self, words: Sequence[str]) -> Done:
        return self._shell(f"cd {shlex.quote(self._folder)} && {shlex.join([*self.prefix, *words])}")

    def machine(self) -> str:
        return self._shell("uname -m").out.strip()

    def close(self) -> None:
        with contextlib.suppress(RemoteError):
            if self._folder:
                self._shell(f"rm -rf {shlex.quote(self._folder)}")
        subprocess.run([*self._ssh, "-O", "exit", self._host], capture_output=True)
        self._sockets.cleanup()

    _folder = ""


def _parse(url: str) -> tuple[str, str, list[str]]:
    """(name for messages, [user@]host, options of ssh)."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RemoteError(f"{url!r} is no place to run: write ssh://user@host[:port]") from None
    host = parts.hostname or ""
    if not host or host.startswith("-") or (parts.username or "").startswith("-") or parts.path.strip("/"):
        raise RemoteError(f"{url!r} is no place to run: write ssh://user@host[:port]")
    if parts.password:
        raise RemoteError("a password does not belong into --on; ssh asks for it, or uses your key")
    user = f"{parts.username}@" if parts.username else ""
    options = ["-p", str(port)] if port else []
    return f"ssh://{user}{parts.netloc.rpartition('@')[2]}", f"{user}{host}", options


def _reason(text: str) -> str:
    """The last line that ssh said, and what to do about it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if any(clue in line.lower() for clue, _ in _CLUES)] or lines
    if not telling:
        return "ssh gave no reason"
    advice = next((advice for clue, advice in _CLUES if clue in telling[-1].lower()), "")
    return telling[-1].removeprefix("ssh: ") + (f"; {advice}" if advice else "")

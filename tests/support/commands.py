"""The command line in a process of its own that has imported all modules already, which takes a second otherwise.

    done = run_command(["build", "m.onnx"], cwd=folder, environment={**os.environ, "TMPDIR": ...})

A server that has them forks a child for each command. The child has the arguments, folder, environment and streams of
a command that was started afresh, and ends as one does; what Python itself reads from its environment it has not.
Tests of imports, interrupts and of Python's own settings start real processes.
"""

from __future__ import annotations

import array
import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def run_command(
    arguments: Sequence[object], cwd: Path, environment: Mapping[str, str], timeout: float = 240
) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run`` of ``halotile`` with captured text; TimeoutExpired if it takes longer."""
    words = [str(a) for a in arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as nothing:
        request = json.dumps([words, str(cwd), dict(environment)]).encode()
        server = _server()
        streams = array.array("i", [nothing.fileno(), out.fileno(), err.fileno()])
        server.sendmsg([len(request).to_bytes(8, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        server.sendall(request)
        child = int.from_bytes(_read(server, 8), "little")
        server.settimeout(timeout)
        try:
            code = int.from_bytes(_read(server, 8), "little", signed=True)
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            server.settimeout(None)
            _read(server, 8)
            raise subprocess.TimeoutExpired(words, timeout) from None
        server.settimeout(None)
        return subprocess.CompletedProcess(words, code, _text(out), _text(err))


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode("utf-8", "surrogateescape"))


def _read(server: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = server.recv(count - len(data))
        assert more, "the server of commands has ended"
        data += more
    return data


@functools.cache
def _server() -> socket.socket:
    """The connection to a server of this process's own, which ends with it."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-W", "ignore", __file__, str(theirs.fileno())]
    server = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


# -- in the server -------------------------------------------------------------------------------


def _serve(connection: socket.socket) -> list[str]:
    """Forks for each request; returns, in the child alone, with a command's arguments. The parent never returns."""
    while True:
        head, streams = _request(connection)
        if not head:
            os._exit(0)
        words, cwd, environment = json.loads(_read(connection, int.from_bytes(head, "little")))
        child = os.fork()
        if child == 0:
            connection.close()
            _become(cwd, environment, streams)
            return list(words)
        for stream in streams:
            os.close(stream)
        connection.sendall(child.to_bytes(8, "little"))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(code.to_bytes(8, "little", signed=True))


def _request(connection: socket.socket) -> tuple[bytes, list[int]]:
    streams = array.array("i")
    head, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_LEN(3 * streams.itemsize))
    for _, _, data in ancillary:
        streams.frombytes(data)
    return head, list(streams)


def _become(cwd: str, environment: dict[str, str], streams: list[int]) -> None:
    """A process as one that was started so."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def _import_all() -> None:
    import gc
    import importlib
    import pkgutil

    for name in ("numpy", "onnx", "tvm"):  # onnxruntime starts a thread, which a child would lack
        importlib.import_module(name)
    for name in ("compiler", "passes", "schedules", "targets"):
        room = importlib.import_module(f"halotile.{name}")
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if not module.name.endswith("__main__"):
                try:
                    importlib.import_module(module.name)
                except ModuleNotFoundError as error:  # a bridge to a package that is not installed here
                    if (error.name or "").startswith("halotile"):
                        raise
    gc.freeze()


if __name__ == "__main__":
    _import_all()
    sys.argv = ["halotile", *_serve(socket.socket(fileno=int(sys.argv[1])))]
    from halotile.compiler.cli.main import entry

    entry()

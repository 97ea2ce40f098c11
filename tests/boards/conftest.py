"""A small network built for boards, and an ssh server on the loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from board_tools import SSHD, halotile, needs, needs_zig, network


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "net.onnx"
    path.write_bytes(network().SerializeToString())
    return path


def _built(model: Path, *arguments: str) -> Path:
    out = model.parent / f"out{'-'.join(arguments)}"
    done = halotile("build", model, "-o", out, *arguments, cwd=model.parent)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def here(model: Path) -> Path:
    """The network for this machine, all formats."""
    return _built(model)


@pytest.fixture(scope="session")
def pi5(model: Path) -> Path:
    """The network for a Raspberry Pi 5, all formats."""
    needs_zig()
    return _built(model, "-t", "raspberry-pi-5")


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A real ssh server on the loopback for the user that runs the tests: ``url``, and ``path`` to put before PATH.

    The client is the system's as well; a wrapper of its name adds the key and the known host of this server.
    """
    needs("ssh", "ssh-keygen", SSHD)
    folder = tmp_path_factory.mktemp("sshd")
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        f"PidFile {folder}/pid\nLogLevel ERROR\n"
    )
    host = (folder / "host.pub").read_text().split()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {host[0]} {host[1]}\n")
    wrapper = folder / "bin" / "ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\nexec {shutil.which("ssh")} -F /dev/null -i {folder}/user -o IdentitiesOnly=yes '
        f'-o UserKnownHostsFile={folder}/known -o StrictHostKeyChecking=yes "$@"\n'
    )
    wrapper.chmod(0o755)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it keeps its unprivileged half
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "config"], stderr=subprocess.PIPE, text=True)
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        if server.poll() is not None:
            pytest.skip(f"NOT RUN: sshd does not start here: {server.stderr.read() if server.stderr else ''}")
        time.sleep(0.1)
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    path = f"{wrapper.parent}:{os.environ['PATH']}"
    yield SimpleNamespace(url=f"ssh://{user}@127.0.0.1:{port}", path=path, port=port)
    server.terminate()
    server.wait()

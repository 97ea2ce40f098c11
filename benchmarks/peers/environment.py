"""Virtual environments for peers: one for each, made once, kept in the user's cache folder, pinned versions.

A peer's converter may replace packages of the environment it runs in, so none shares ours or another's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ...errors import OutputError

HERE = Path(__file__).parent
WORKER = HERE / "worker.py"


@dataclass(frozen=True)
class Peer:
    """An engine: the file that drives it, and what its environment needs (nothing: it runs in ours).

    ``closed``: the packages are all that is installed, whatever else they name (pnnx names PyTorch for a module that
    nobody loads here)."""

    name: str
    engine: str
    packages: tuple[str, ...] = ()
    closed: bool = False

    @property
    def engine_file(self) -> Path:
        return HERE / self.engine


PEERS = {
    "onnxruntime": Peer("onnxruntime", "engine_onnxruntime.py", ("onnxruntime==1.32.0", "numpy>=1.26")),
    "openvino": Peer("openvino", "engine_openvino.py", ("openvino==2026.4.1", "numpy>=1.26")),
    "mnn": Peer("mnn", "engine_mnn.py", ("MNN==3.6.1", "numpy>=1.26")),
    "ncnn": Peer(
        "ncnn",
        "engine_ncnn.py",
        ("ncnn==1.0.20261020", "pnnx==20261020", "numpy>=1.26", "tqdm", "requests", "portalocker"),
        closed=True,
    ),
}
OURS = Peer("halotile", "engine_halotile.py")


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "halotile" / "peers"


def python_of(peer: Peer, folder: Path | None = None) -> Path:
    """The interpreter to run ``peer`` with; makes its environment where there is none, or raises OutputError."""
    if not peer.packages:
        return Path(sys.executable)
    key = hashlib.sha256(" ".join([*peer.packages, sys.version, sys.prefix]).encode()).hexdigest()[:12]
    home = (folder or cache_folder()) / f"{peer.name}-{key}"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(home)], peer)
        closed = ["--no-deps"] if peer.closed else []
        _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *closed, *peer.packages], peer)
        (home / "complete").touch()
    return python


def _run(command: list[str], peer: Peer) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise OutputError(
            f"the environment of {peer.name} can't be made: {' '.join(command[1:4])} said {' '.join(last)!r}; "
            f"leave it out with --peers, or mend pip's access to {', '.join(peer.packages)}"
        )

"""Peers' own wheels for 64-bit ARM, under the emulator, on the same model and inputs.

    root = Root.made(folder)                         Debian's Python for arm64 and the wheels, downloaded once
    counts = run_peer("mnn", root, emulator, ...)    what ran between the marks of peer_run.py

MNN and ncnn read files of their own kinds, which their converters for this machine make, in environments of their own
(peers/environment.py). LiteRT has a wheel, but reads no file that a converter from ONNX without TensorFlow makes.
Outputs are compared with ONNX Runtime's of this machine, and where they differ that is told.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from ...errors import RunError, ToolchainError
from ...targets.target import Target
from ..check_models import TOLERANCE, compare, reference
from ..peers.environment import PEERS, Peer, cache_folder, python_of
from .counts import Counts
from .qemu import Caches, Emulator

PYTHON = "3.11"  # Debian 12's
# What Python and the wheels load; the C library and all else that is not in the wheels.
PACKAGES = (
    f"python{PYTHON}-minimal", f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "libc6", "libgcc-s1",
    "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libbz2-1.0", "liblzma5", "libssl3", "libgomp1", "libcrypt1",
)  # fmt: skip
WHEELS = ("numpy", "onnxruntime==1.32.0", "MNN==3.6.1", "ncnn==1.0.20261020")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
ENGINES = ("onnxruntime", "mnn", "mnn-float16", "ncnn", "ncnn-float16")
_CONVERTER = Peer("mnn-convert", "worker.py", ("MNN==3.6.1", "numpy>=1.26"))
_RUN = Path(__file__).parent / "peer_run.py"
PARTS = {"cortex-a53": 0xD03, "cortex-a55": 0xD05, "cortex-a72": 0xD08, "cortex-a76": 0xD0B, "neoverse-n1": 0xD0C,
         "neoverse-v1": 0xD40}  # fmt: skip
FLAGS = "fp asimd evtstrm crc32 cpuid"
NEWER = "aes pmull sha1 sha2 atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"  # of cores with float16
HALF = 1e-2  # of the largest output, of engines that compute in float16


@dataclass(frozen=True)
class Root:
    """A folder with a file system of Debian for arm64, as far as the peers need it, and their packages in ``site``."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "usr" / "bin" / f"python{PYTHON}"

    @classmethod
    def made(cls, folder: Path | None = None) -> Root:
        """The root in ``folder`` (by default in the user's cache), downloaded where it is not there yet."""
        root = cls(folder or cache_folder().parent / "arm64-root")
        complete = root.folder / "complete"
        if not complete.exists():
            shutil.rmtree(root.folder, ignore_errors=True)
            root._packages()
        if not complete.exists() or complete.read_text() != " ".join(WHEELS):
            root._wheels()
            complete.write_text(" ".join(WHEELS))
        return root

    def describe(self, target: Target) -> None:
        """Puts a description of the target's cores where programs in the root look for it: ONNX Runtime can't start
        from one of this machine."""
        flags = f"{FLAGS} {NEWER}" if target.has_halves else FLAGS
        core = (
            f"BogoMIPS\t: 100.00\nFeatures\t: {flags}\n"
            "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n"
            f"CPU part\t: {PARTS.get(target.cpu, 0xD0B):#x}\nCPU revision\t: 1\n\n"
        )
        processors, system = self.folder / "proc", self.folder / "sys/devices/system/cpu"
        for place in (processors, system):
            place.mkdir(parents=True, exist_ok=True)
        (processors / "cpuinfo").write_text("".join(f"processor\t: {i}\n{core}" for i in range(target.cores)))
        for name in ("possible", "present", "online"):
            (system / name).write_text(f"0-{target.cores - 1}\n")

    def _packages(self) -> None:
        """Packages by apt, with lists of its own for arm64, so that nothing of this system changes."""
        apt = self.folder / "apt"
        for part in ("state/lists/partial", "cache/archives/partial", "debs"):
            (apt / part).mkdir(parents=True)
        (apt / "status").touch()
        (apt / "apt.conf").write_text(
            'APT::Architecture "arm64";\nAPT::Architectures { "arm64"; };\n'
            f'Dir::State "{apt}/state";\nDir::State::status "{apt}/status";\nDir::Cache "{apt}/cache";\n'
        )
        own = {**os.environ, "APT_CONFIG": str(apt / "apt.conf")}
        _call(["apt-get", "update"], apt, own)
        _call(["apt-get", "download", *PACKAGES], apt / "debs", own)
        for package in (apt / "debs").glob("*.deb"):
            _call(["dpkg", "-x", str(package), str(self.folder)], apt, own)

    def _wheels(self) -> None:
        """Wheels by pip."""
        wheels, site = self.folder / "wheels", self.folder / "site"
        platforms = [word for p in PLATFORMS for word in ("--platform", p)]
        python = str(python_of(_CONVERTER))
        _call(
            [python, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(wheels), *platforms,
             "--python-version", PYTHON, "--implementation", "cp", *WHEELS], self.folder, None,
        )  # fmt: skip
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)


def _call(command: Sequence[str], cwd: Path, environment: Mapping[str, str] | None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ToolchainError(f"the root for arm64 can't be made: {command[0]}: {error.strerror}") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise ToolchainError(f"the root for arm64 can't be made: {' '.join(command[:2])} said {last[:200]!r}")


def run_peer(
    engine: str, root: Root, emulator: Emulator, target: Target, model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray], caches: Caches, folder: Path,
) -> tuple[Counts, str]:  # fmt: skip
    """What one run of ``engine`` takes, and where its outputs are others than ONNX Runtime's here, or nothing."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    root.describe(target)
    outputs = [o.name for o in model.graph.output]
    spec = {
        "inputs": [{"name": n, "dtype": str(v.dtype), "shape": list(v.shape)} for n, v in feeds.items()],
        "outputs": outputs,
    }
    (folder / "inputs.json").write_text(json.dumps(spec))
    for i, value in enumerate(feeds.values()):
        (folder / f"in{i}.bin").write_bytes(np.ascontiguousarray(value).tobytes())
    read = _for_mnn(path) if engine.startswith("mnn") else _for_ncnn(path) if engine.startswith("ncnn") else path
    environment = {
        "PYTHONHOME": str(root.folder / "usr"), "PYTHONPATH": str(root.folder / "site"), "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    }  # fmt: skip
    options = ["-L", str(root.folder), *(w for k, v in environment.items() for w in ("-E", f"{k}={v}"))]
    program = [str(root.python), str(_RUN), engine, str(read), str(folder)]
    counts = emulator.run(target, program, folder, caches, options)
    expected = reference(path, dict(feeds))
    found = {n: np.fromfile(folder / f"out{i}.bin", np.float32) for i, n in enumerate(outputs)}
    shaped = {n: found[n].reshape(expected[n].shape).astype(expected[n].dtype) for n in outputs}
    wrong = compare(shaped, expected, HALF if engine.endswith("float16") else TOLERANCE)
    return counts, wrong[0] if wrong else ""


def _for_ncnn(path: Path) -> Path:
    """The model as ncnn reads it, of float32 weights: the path without its endings."""
    python = str(python_of(PEERS["ncnn"]))
    find = "import importlib.util as u; print(u.find_spec('pnnx').origin)"  # the module itself needs PyTorch
    found = subprocess.run([python, "-c", find], capture_output=True, text=True, check=False).stdout.strip()
    program = Path(found).with_name("pnnx")
    if not program.exists():
        raise RunError("pnnx is not in the environment of ncnn")
    program.chmod(0o755)
    done = subprocess.run([str(program), str(path), "fp16=0"], cwd=path.parent, capture_output=True, text=True,
                          errors="replace", check=False)  # fmt: skip
    made = path.with_suffix(".ncnn")
    if not made.with_suffix(".ncnn.param").exists():
        last = ((done.stderr or done.stdout).strip().splitlines() or ["nothing"])[-1]
        raise RunError(f"pnnx can't convert the model: {last[:200]}")
    return made


def _for_mnn(path: Path) -> Path:
    """The model as MNN reads it."""
    command = python_of(_CONVERTER).with_name("mnnconvert")
    made = path.with_suffix(".mnn")
    _convert = [str(command), "-f", "ONNX", "--modelFile", str(path), "--MNNModel", str(made), "--bizCode", "halotile"]
    done = subprocess.run(_convert, capture_output=True, text=True, check=False)
    if not made.exists():
        last = ((done.stderr or done.stdout).strip().splitlines() or ["nothing"])[-1]
        raise RunError(f"MNN's converter can't read the model: {last[:200]}")
    return made

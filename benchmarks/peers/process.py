"""The harness's end of the line protocol: an engine's process as an object."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import RunError
from .environment import WORKER
from .worker import _decode, _encode

if TYPE_CHECKING:
    from ...targets.plain import Json, JsonView


@dataclass(frozen=True)
class Burst:
    """Seconds of each run, of the whole burst, and of processor time that the engine used in it."""

    times: tuple[float, ...]
    wall: float
    cpu: float


class EngineProcess:
    """One worker: start, :meth:`load`, :meth:`compute`, any number of :meth:`burst`, :meth:`close`. A context manager.

    Every method raises RunError with the engine's own words when it fails, dies, or does not answer in time.
    """

    def __init__(self, name: str, python: Path, engine_file: Path, timeout: float = 600.0) -> None:
        self.name = name
        self._timeout = timeout
        self._log = tempfile.TemporaryFile()
        # Threads of numerical libraries that an engine brings along must not outnumber those asked for.
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [str(python), str(WORKER), str(engine_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
        )

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(
        self, model: Path, threads: int, options: JsonView | None = None
    ) -> tuple[float, Json]:
        """Seconds that loading took, and what the engine says of itself (version, precision)."""
        answer = self._ask(do="load", model=str(model), threads=threads, options=dict(options or {}))
        return answer["seconds"], answer["info"]

    def compute(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Binds the inputs, runs once, returns the outputs."""
        with tempfile.TemporaryDirectory() as folder:
            inputs, outputs = Path(folder) / "inputs.npz", Path(folder) / "outputs.npz"
            with inputs.open("wb") as file:
                np.savez(file, **{_encode(k): v for k, v in feeds.items()})  # type: ignore[arg-type]
            self._ask(do="compute", inputs=str(inputs), outputs=str(outputs))
            with np.load(outputs) as archive:
                return {_decode(k): archive[k] for k in archive.files}

    def call(self, feeds: Mapping[str, np.ndarray]) -> float:
        """Seconds of one ordinary call on arrays that the engine has not seen."""
        with tempfile.TemporaryDirectory() as folder:
            inputs = Path(folder) / "inputs.npz"
            with inputs.open("wb") as file:
                np.savez(file, **{_encode(k): v for k, v in feeds.items()})  # type: ignore[arg-type]
            return float(self._ask(do="call", inputs=str(inputs))["seconds"])

    def burst(self, runs: int, warm: int = 1) -> Burst:
        answer = self._ask(do="burst", runs=runs, warm=warm)
        return Burst(tuple(answer["times"]), answer["wall"], answer["cpu"])

    def profile(self, runs: int) -> list[float]:
        """Median seconds of each kernel; of an engine that can tell them."""
        return [float(seconds) for seconds in self._ask(do="profile", runs=runs)["kernels"]]

    def peak_rss(self) -> int:
        return int(self._ask(do="memory")["peak_rss"])

    def close(self) -> None:
        process = self._process
        if process.poll() is None and process.stdin is not None:
            try:
                process.stdin.write(b'{"do": "quit"}\n')
                process.stdin.close()
                process.wait(timeout=10)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._log.close()

    def _ask(self, **command: Any) -> Json:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise RunError(self._died(command["do"])) from None
        ready, _, _ = select.select([self._process.stdout], [], [], self._timeout)
        if not ready:
            self._process.kill()
            raise RunError(f"{self.name} did not answer {command['do']!r} within {self._timeout:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise RunError(self._died(command["do"]))
        answer = json.loads(line)
        if not answer["ok"]:
            raise RunError(f"{self.name} failed to {command['do']}: {answer['error']}")
        return dict(answer)

    def _died(self, what: str) -> str:
        code = self._process.wait()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()[-1:]
        return f"{self.name} ended (code {code}) at {what!r}" + (f"; it said: {said[0]}" if said else "")

"""One engine in its own process: reads commands on stdin, answers on stdout, one JSON object a line.

    python worker.py ENGINE_FILE

    {"do": "load", "model": PATH, "threads": 2, "options": {...}}   {"ok": true, "seconds": 0.2, "info": {...}}
    {"do": "compute", "inputs": NPZ, "outputs": NPZ}                {"ok": true}       the inputs stay bound
    {"do": "burst", "warm": 1, "runs": 20}                          {"ok": true, "times": [...], "wall": s, "cpu": s}
    {"do": "call", "inputs": NPZ}                                   {"ok": true, "seconds": 0.1}   an ordinary call
    {"do": "profile", "runs": 20}                                   {"ok": true, "kernels": [seconds, ...]}   medians
    {"do": "memory"}                                                {"ok": true, "peak_rss": bytes}
    {"do": "quit"}                                                  (the process ends)

A failure answers {"ok": false, "error": "..."} and the process goes on. The engine file defines a class ``Engine`` with
``Engine(model, threads, options)``, ``info``, ``bind(inputs)``, ``run()``, ``outputs()`` and ``call(inputs)``. This
file knows only the standard library and numpy, because peers run it in environments that have no halotile.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ...targets.plain import Json


def main() -> int:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints on stdout must not land among the answers
    engine_class = _load_engine(sys.argv[1])
    state: Json = {}
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "quit":
            break
        try:
            answer = {"ok": True, **COMMANDS[command["do"]](state, engine_class, command)}
        except Exception as error:
            answer = {"ok": False, "error": f"{type(error).__name__}: {str(error).strip()[:600]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


def _load_engine(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("engine", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Engine


def _load(state: Json, engine_class: Any, command: Json) -> Json:
    started = time.perf_counter()
    state["engine"] = engine_class(command["model"], command["threads"], command.get("options", {}))
    return {"seconds": time.perf_counter() - started, "info": state["engine"].info}


def _compute(state: Json, _: object, command: Json) -> Json:
    with np.load(command["inputs"]) as file:
        state["engine"].bind({_decode(k): file[k] for k in file.files})
    state["engine"].run()
    outputs = state["engine"].outputs()
    with open(command["outputs"], "wb") as file:
        np.savez(file, **{_encode(k): v for k, v in outputs.items()})
    return {}


def _call(state: Json, _: object, command: Json) -> Json:
    with np.load(command["inputs"]) as file:
        inputs = {_decode(k): file[k] for k in file.files}
    started = time.perf_counter()
    state["engine"].call(inputs)
    return {"seconds": time.perf_counter() - started}


def _burst(state: Json, _: object, command: Json) -> Json:
    run, clock = state["engine"].run, time.perf_counter
    times = []
    begun, spent = clock(), time.process_time()
    for _ in range(command["warm"]):
        run()
    for _ in range(command["runs"]):
        started = clock()
        run()
        times.append(clock() - started)
    return {"times": times, "wall": clock() - begun, "cpu": time.process_time() - spent}


def _profile(state: Json, _: object, command: Json) -> Json:
    engine, runs = state["engine"], []
    for _ in range(command["runs"] + 1):
        engine.run()
        runs.append(engine.profile())
    return {"kernels": [float(v) for v in np.median(np.array(runs[1:]), axis=0)]}


def _memory(*_: Any) -> Json:
    """The kernel's high-water mark of this program's memory; getrusage's would include the process that started it."""
    try:
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmHWM"))
        return {"peak_rss": int(line.split()[1]) * 1024}
    except (OSError, StopIteration):
        return {"peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def _encode(name: str) -> str:
    """A tensor's name as a name of a file in an archive: no slash, no dot, never empty."""
    return "t" + name.encode().hex()


def _decode(name: str) -> str:
    return bytes.fromhex(name[1:]).decode()


COMMANDS = {"load": _load, "compute": _compute, "call": _call, "burst": _burst, "profile": _profile, "memory": _memory}

if __name__ == "__main__":
    sys.exit(main())

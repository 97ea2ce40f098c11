"""What one run on a board tells about it, as plain data: ``halotile bench --board-report FILE``.

    facts of the machine   what the system says of it, what we take it for, its clock under load and what is set for it
    limits                 multiply-adds and memory, measured, on one core and on all
    models                 times of a few models of ours, and of the peers that are installed
    versions               of ours and of what builds

The one who has the board runs it once, on a board that does nothing else, and sends the file back: predictions
(emulated.py) and constants of the cost models are set against it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ..compiler.page.peak import Meter
from ..targets.detect import native
from ..version import __version__
from .bench import machine
from .peers.environment import PEERS
from .results import ModelResult, as_data

if TYPE_CHECKING:
    from ..targets.plain import Json, JsonView

FORM = 1  # of the file; another one has another number
MODELS = ("mobilenet_v2", "resnet18", "shufflenet_v2", "espcn", "bert")  # half a minute each on a slow board
# What the system says: the name of each fact, and the file that has it, if any.
FILES = {
    "board": "/sys/firmware/devicetree/base/model",
    "governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "slowest_kilohertz": "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_min_freq",
    "fastest_kilohertz": "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
    "now_kilohertz": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq",
    "millidegrees": "/sys/class/thermal/thermal_zone0/temp",
    "memory": "/proc/meminfo",
    "release": "/etc/os-release",
}


def installed_peers() -> tuple[str, ...]:
    """Those of the peers whose package this Python has, or whose environment was made before."""
    return tuple(name for name in PEERS if importlib.util.find_spec(name) is not None)


def versions() -> dict[str, str]:
    """Of ours, and of the packages that build and compare."""
    found = {"halotile": __version__}
    for package in ("apache-tvm", "onnx", "numpy", "onnxruntime", "openvino"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def said(root: Path = Path("/")) -> dict[str, str]:
    """What the system says of the board, without what it doesn't; of long files the first line."""
    found = {}
    for name, path in FILES.items():
        try:
            text = (root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        lines = text.replace("\0", "").strip().splitlines()
        if lines:
            found[name] = lines[0].strip()
    return found


def board_facts(meter: Meter) -> Json:
    """The machine, before anything is measured that warms it."""
    target = native()
    facts = {name: value for name, value in asdict(target).items() if name not in ("fitted", "notes", "source")}
    return {
        **machine(),
        "said": said(),
        "taken_for": {**facts, "notes": list(target.notes)},
        "hertz": meter.clock(),
        "multiply_add_seconds": meter.latency(),
        "usable_cores": len(os.sched_getaffinity(0)),
    }


def limits(meter: Meter, threads: Iterable[int]) -> Json:
    """Multiply-adds and bytes a second, for each number of threads: triads from half of the second level on."""
    found = {}
    for count in threads:
        peak = meter.now(count)
        found[str(count)] = {
            "flops": peak.flops,
            "matrix_flops": peak.matrix,
            "triads": [{"bytes": size, "bytes_a_second": rate} for size, rate in peak.triads],
        }
    return found


def report(
    facts: JsonView, measured: JsonView, results: list[ModelResult], meter: Meter
) -> Json:
    """The file: what was found before, and clock and temperature afterwards."""
    data = as_data(results, dict(facts))
    for model in data["models"]:  # a kernel's figures are those of a build, which anyone can make again
        if model["build"]:
            model["build"].pop("kernels")
    return {
        "form": FORM,
        "machine": dict(facts),
        "limits": dict(measured),
        "models": data["models"],
        "versions": dict(versions()),
        "afterwards": {"said": said(), "hertz": meter.clock()},
    }

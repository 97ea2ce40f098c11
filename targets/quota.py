"""How many processors a container grants: the quotas of control groups, version 1 and 2, of this process and all above.

    /proc/self/cgroup      "0::/path" (version 2), "4:cpu,cpuacct:/path" (version 1): where this process is
    /proc/self/mountinfo   where the hierarchies are mounted, and which of their groups is seen there as the root
    cpu.max                "150000 100000": microseconds in each period (version 2)
    cpu.cfs_quota_us, cpu.cfs_period_us                                 (version 1)

compiler/runtime/quota.c does the same where a library runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

NO_LIMIT = 1 << 16


def processors_granted(proc: Path = Path("/proc/self")) -> int:
    """Processors that the control groups grant together, rounded up; :data:`NO_LIMIT` without a limit."""
    try:
        groups = (proc / "cgroup").read_text(errors="surrogateescape").splitlines()
        mounts = (proc / "mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return NO_LIMIT
    paths = dict(_group(line) for line in groups if line.count(":") >= 2)
    limits = [NO_LIMIT]
    for kind, root, place in map(_mount, mounts):
        if kind in paths:
            limits += [limit for folder in _folders(place, root, paths[kind]) if (limit := _limit(folder, kind))]
    return min(limits)


def _group(line: str) -> tuple[str, str]:
    """(``2``, path) of the unified hierarchy, (``1``, path) of that of ``cpu``, (empty, path) of others."""
    _, controllers, path = line.split(":", 2)
    return "2" if not controllers else "1" if "cpu" in controllers.split(",") else "", path


def _mount(line: str) -> tuple[str, str, str]:
    """(``2``, ``1`` or other, the group that is its root, where it is mounted)."""
    before, _, after = line.partition(" - ")
    fields, system = before.split(), after.split()
    if len(fields) < 5 or not system:
        return "other", "", ""
    own = system[0] == "cgroup" and "cpu" in system[-1].split(",")
    return "2" if system[0] == "cgroup2" else "1" if own else "other", fields[3], fields[4]


def _folders(place: str, root: str, path: str) -> Iterator[Path]:
    """The folders of a group and of those above it that are to be seen, innermost first."""
    inside = path[len(root) :] if root != "/" and f"{path}/".startswith(f"{root}/") else path
    parts = [part for part in inside.split("/") if part]
    if ".." in parts:  # outside of what this process sees
        parts = []
    for count in range(len(parts), -1, -1):
        yield Path(place, *parts[:count])


def _limit(folder: Path, kind: str) -> int | None:
    """Processors that one group grants; None without a limit."""
    try:
        if kind == "2":
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{what}_us").read_text() for what in ("quota", "period"))
        granted = math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return granted if granted > 0 else None

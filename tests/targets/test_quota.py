"""Quotas of containers, from the files that the kernel shows there: the compiler's reading and the runtime's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import halotile
import pytest
from halotile.targets import detect, quota
from halotile.targets.quota import NO_LIMIT, processors_granted

RUNTIME = Path(halotile.__file__).parent / "compiler" / "runtime"
V2 = "31 23 0:27 {root} {place} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "33 25 0:28 {root} {place} rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct"
OTHERS = [
    "22 1 0:20 / /sys rw - sysfs sysfs rw",
    "40 1 0:50 / / rw - overlay overlay rw,lowerdir=" + "/x:" * 3000 + "/y",
    "34 25 0:29 / {place}/sets rw - cgroup cgroup rw,cpuset",
    "damaged",
    "35 25 0:29 / - cgroup2",
]
# (lines of /proc/self/cgroup, mount, its root, limits by group, processors)
CASES = {
    "none": (["0::/"], V2, "/", {}, None),
    "v2 max": (["0::/"], V2, "/", {"": "max 100000"}, None),
    "v2 in a namespace": (["0::/"], V2, "/", {"": "150000 100000"}, 2),
    "v2 whole": (["0::/"], V2, "/", {"": "300000 100000"}, 3),
    "v2 a part of one": (["0::/"], V2, "/", {"": "5000 100000"}, 1),
    "v2 nested": (["0::/a/b c"], V2, "/", {"a/b c": "max 100000", "a": "400000 100000", "": "900000 100000"}, 4),
    "v2 above is less": (["0::/a/b"], V2, "/", {"a/b": "400000 100000", "a": "200000 100000"}, 2),
    "v2 root is ours": (["0::/docker/7"], V2, "/docker/7", {"": "250000 100000"}, 3),
    "v2 within the root": (["0::/docker/7/a"], V2, "/docker/7", {"a": "100000 100000", "": "max 100000"}, 1),
    "v2 like the root": (["0::/docker/77"], V2, "/docker/7", {"": "100000 100000"}, 1),
    "v2 outside": (["0::/../other"], V2, "/", {"": "200000 100000"}, 2),
    "v1": (["4:cpu,cpuacct:/", "0::/"], V1, "/", {"": "150000/100000"}, 2),
    "v1 none": (["4:cpu,cpuacct:/"], V1, "/", {"": "-1/100000"}, None),
    "v1 docker": (["9:cpuset:/x", "4:cpu,cpuacct:/docker/7"], V1, "/docker/7", {"": "350000/50000"}, 7),
    "v1 nested": (["4:cpuacct,cpu:/k/pod/c"], V1, "/", {"k/pod/c": "800000/100000", "k/pod": "600000/100000"}, 6),
    "v1 of sets alone": (["4:cpuset:/", "5:cpuacct:/"], V1, "/", {"": "100000/100000"}, None),
    "nonsense": (["0::/", "", "x", "::::"], V2, "/", {"": "many"}, None),
    "period of nothing": (["0::/"], V2, "/", {"": "100000 0"}, None),
}  # fmt: skip


def machine(folder: Path, case: str) -> int | None:
    """Writes the files of a case; what they grant."""
    lines, mount, root, limits, granted = CASES[case]
    place, proc = folder / "group", folder / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("\n".join(lines) + "\n")
    mounts = [*OTHERS, mount.replace("{root}", root), *OTHERS]
    (proc / "mountinfo").write_text("\n".join(mounts).replace("{place}", str(place)) + "\n")
    for group, text in limits.items():
        there = place / group
        there.mkdir(parents=True, exist_ok=True)
        if "/" in text:
            for what, number in zip(("quota", "period"), text.split("/")):
                (there / f"cpu.cfs_{what}_us").write_text(number + "\n")
        else:
            (there / "cpu.max").write_text(text + "\n")
    return granted


@pytest.mark.parametrize("case", CASES)
def test_the_compiler_counts_quotas(case: str, tmp_path: Path) -> None:
    granted = machine(tmp_path, case)
    assert processors_granted(tmp_path / "proc") == (granted or NO_LIMIT)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prints what the runtime finds in ``proc`` of its folder."""
    folder = tmp_path_factory.mktemp("quota")
    (folder / "main.c").write_text(
        '#include "quota.h"\n#include <stdio.h>\n'
        'int main(void) { return printf("%d", halotile_processors_granted()) < 0; }'
    )
    command = ["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
               '-DHALOTILE_PROC="proc"', f"-I{RUNTIME}", "main.c", RUNTIME / "quota.c", "-o", "granted"]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True)
    return folder / "granted"


@pytest.mark.parametrize("case", CASES)
def test_the_runtime_counts_quotas(case: str, program: Path, tmp_path: Path) -> None:
    granted = machine(tmp_path, case)
    done = subprocess.run([program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) == (granted or 2**31 - 1)


def test_without_the_kernels_files_there_is_no_limit(program: Path, tmp_path: Path) -> None:
    assert processors_granted(tmp_path / "none") == NO_LIMIT
    assert subprocess.run([program], cwd=tmp_path, capture_output=True, text=True).stdout == str(2**31 - 1)


def test_cores_of_this_machine_are_within_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detect, "processors_granted", lambda: 1)
    assert detect.physical_cores([0, 1, 2]) == 1
    assert quota.processors_granted() >= 1

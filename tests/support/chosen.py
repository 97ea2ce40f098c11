"""Which cases of a list run, where all of it takes long: those that reach every line of the product that any case of
the test reaches (tests/chosen.json, which reached.py measures and writes).

The table knows a test's cases by a checksum of their names. Where they are others now, as after a case was added, and
where somebody asks for some of them, all that are asked for run.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

TABLE = Path(__file__).resolve().parents[1] / "chosen.json"

Chosen = Mapping[str, tuple[int, Sequence[int]]]  # checksum and numbers of the cases that run, by test


def read_chosen(table: Path = TABLE) -> Chosen:
    return {test: (sum_, run) for test, (sum_, run) in json.loads(table.read_text()).items()} if table.is_file() else {}


def write_chosen(chosen: Chosen, table: Path = TABLE) -> None:
    lines = ",\n".join(f"{json.dumps(test)}: {json.dumps(chosen[test])}" for test in sorted(chosen))
    table.write_text(f"{{\n{lines}\n}}\n")


def checksum(names: Iterable[str]) -> int:
    """Of the names of a test's cases, in any order."""
    return zlib.crc32("\n".join(sorted(names)).encode())


def run_of(test: str, names: Sequence[str], chosen: Chosen) -> set[str]:
    """The names of those cases of ``test`` that run: all, unless the table is about exactly these."""
    known, run = chosen.get(test, (0, ()))
    if known != checksum(names):
        return set(names)
    ordered = sorted(names)
    return {ordered[number] for number in run}

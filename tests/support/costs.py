"""What each test file costs: processor seconds, and objects that it asked LLVM or the C compiler for.

A run with ``HALOTILE_COSTS=1`` enters the files that it ran into tests/costs.json, which ``make quick`` chooses by.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

TABLE = Path(__file__).resolve().parents[1] / "costs.json"
VARIABLE = "HALOTILE_COSTS"


def read_costs() -> dict[str, tuple[float, int]]:
    """(seconds, objects) by the path of a test file from the root."""
    return {k: (v[0], v[1]) for k, v in json.loads(TABLE.read_text()).items()} if TABLE.is_file() else {}


class Costs:
    """A pytest plugin that adds up the costs of files, in each worker, and writes those of all."""

    def __init__(self) -> None:
        self.of_files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
        self.last = self._now()

    @staticmethod
    def _now() -> tuple[float, int]:
        from halotile.compiler.cache.store import COUNTS

        return sum(os.times()[:4]), sum(COUNTS.values())

    def add(self, costs: dict[str, list[float]]) -> None:
        for name, (seconds, objects) in costs.items():
            self.of_files[name][0] += seconds
            self.of_files[name][1] += objects

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        now = self._now()
        self.add({nodeid.partition("::")[0]: [now[0] - self.last[0], now[1] - self.last[1]]})
        self.last = now

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["costs"] = dict(self.of_files)
        elif not session.config.getoption("numprocesses", None):
            self.write()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.of_files = getattr(self, "workers", defaultdict(lambda: [0.0, 0]))  # not the controller's own time
        self.workers = self.of_files
        self.add(getattr(node, "workeroutput", {}).get("costs", {}))
        self.write()

    def write(self) -> None:
        known = {name: list(cost) for name, cost in read_costs().items() if (TABLE.parents[1] / name).is_file()}
        known |= {name: [round(s, 1), int(o)] for name, (s, o) in self.of_files.items() if s}
        lines = ",\n".join(f'"{name}": {json.dumps(known[name])}' for name in sorted(known))
        TABLE.write_text(f"{{\n{lines}\n}}\n")

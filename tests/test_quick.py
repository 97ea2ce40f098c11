"""``make quick`` takes what compiles nothing, then what is nearest to a change, as far as there is time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import quick
from costs import VARIABLE, read_costs
from dealing import UNKNOWN, dealt

IMPORTS = {
    "schedules/conv.py": {"schedules/tile.py"},
    "schedules/tile.py": set(),
    "compiler/pipeline.py": {"schedules/conv.py"},
    "tests/support/helper.py": {"compiler/pipeline.py"},
    "tests/test_tile.py": {"schedules/tile.py"},
    "tests/test_conv.py": {"schedules/conv.py"},
    "tests/test_models.py": {"tests/support/helper.py"},
    "tests/test_words.py": set(),
}
COSTS = {"tests/test_tile.py": (9.0, 3), "tests/test_conv.py": (30.0, 9), "tests/test_models.py": (50.0, 20)}
COSTS["tests/test_words.py"] = (1.0, 0)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "imports_outside", lambda name: False)


def test_the_nearest_come_first() -> None:
    assert quick.distances(IMPORTS, ["schedules/tile.py"]) == {
        "schedules/tile.py": 0, "schedules/conv.py": 1, "tests/test_tile.py": 1, "compiler/pipeline.py": 2,
        "tests/test_conv.py": 2, "tests/support/helper.py": 3, "tests/test_models.py": 4,
    }  # fmt: skip
    taken, left = quick.choose(IMPORTS, ["schedules/tile.py"], COSTS, 45.0)
    assert taken == ["tests/test_words.py", "tests/test_tile.py", "tests/test_conv.py"]
    assert left == ["tests/test_models.py"]


def test_nothing_changed_leaves_what_compiles_nothing() -> None:
    assert quick.choose(IMPORTS, [], COSTS, 45.0) == (["tests/test_words.py"], [])


def test_a_test_that_was_changed_is_run_whatever_it_takes() -> None:
    taken, left = quick.choose(IMPORTS, ["tests/test_models.py"], COSTS, 1.0)
    assert "tests/test_models.py" in taken and not left


def test_the_graph_knows_relative_absolute_and_shared_imports() -> None:
    found = quick.graph()
    assert "compiler/cache/store.py" in found["compiler/codegen/objects.py"]
    assert {"compiler/codegen/objects.py", "tests/support/compiled.py"} <= found["tests/cache/test_objects.py"]
    assert "tests/conftest.py" in found["tests/cache/test_objects.py"]
    assert "tests/cache/test_objects.py" in quick.distances(found, ["schedules/math/wrapping.py"])


def test_no_test_begins_when_time_is_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    conftest = quick.ROOT / "tests" / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text())
    (tmp_path / "test_it.py").write_text("def test_it() -> None: pass\n")
    support = str(quick.ROOT / "tests" / "support")
    said = []
    for left in (-1.0, 100.0):
        environment = {**os.environ, quick.UNTIL: str(time.time() + left), VARIABLE: ""}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-o", f"pythonpath={support}", "."]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        said.append(done.stdout)
    assert "1 skipped" in said[0] and "1 passed" in said[1]


def test_costs_of_files_that_have_gone_are_passed_over() -> None:
    assert quick.choose(IMPORTS, [], {**COSTS, "tests/test_gone.py": (1.0, 0)}, 45.0)[0] == ["tests/test_words.py"]
    assert read_costs()


def test_workers_begin_with_what_takes_longest() -> None:
    costs = {"a": (1.0, 0), "b": (50.0, 3), "c": (30.0, 0), "e": (5.0, 0)}  # "d" has never been measured
    tests = [(file, i) for file in "abcde" for i in range(3)]
    one, two = (dealt(tests, lambda test: test[0], costs, workers) for workers in (1, 2))
    assert [file for file, i in one if i == 0] == ["b", "c", "d", "e", "a"] and costs["c"][0] > UNKNOWN > costs["e"][0]
    assert [file for file, i in two if i == 0] == ["b", "e", "c", "d", "a"]
    assert sorted(two) == tests and all([t for t in two if t[0] == file] == tests[i * 3 : i * 3 + 3]
                                        for i, file in enumerate("abcde"))  # fmt: skip


def test_workers_of_this_run_are_dealt_to(request: pytest.FixtureRequest) -> None:
    names = sorted(read_costs(), key=lambda name: read_costs()[name][0])[-5:]
    items = [SimpleNamespace(path=quick.ROOT / name) for name in names]
    own = str(quick.ROOT / "tests" / "conftest.py")
    [conftest] = [p for p in request.config.pluginmanager.get_plugins() if getattr(p, "__file__", "") == own]
    for workers, wanted in ((1, names), (2, dealt(names, str, read_costs(), 2))):
        config = SimpleNamespace(workerinput={"workercount": workers}, rootpath=quick.ROOT)
        order = list(items)
        conftest.pytest_collection_modifyitems(config, order)
        assert [item.path.relative_to(quick.ROOT).as_posix() for item in order] == wanted
    assert wanted[0] == names[-1]

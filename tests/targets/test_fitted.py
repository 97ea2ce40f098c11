"""Fitted constants: each has a source and a reader, a target's file may have its own, and a library remembers them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from halotile.errors import TargetError
from halotile.targets import facts
from halotile.targets.fitted import Fitted, checked_constants, table, usual
from halotile.targets.resolve import resolve
from halotile.targets.typed import target_facts, typed_target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
BOARD = """[target]
triple = "x86_64-linux-gnu"
cpu = "x86-64-v3"
"""


def _file(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(f"{BOARD}\n{text}")
    return str(path)


def test_every_constant_says_what_it_is_and_where_it_comes_from() -> None:
    for group, constants in table().items():
        for name, entry in constants.items():
            assert entry.keys() == {"value", "is", "source"}, (group, name)
            assert entry["value"] > 0 and len(entry["is"]) > 10 and len(entry["source"]) > 6, (group, name)
    found = {(group, name): value for group, name, value in usual().constants()}
    assert found == {(g, n): entry["value"] for g, inner in table().items() for n, entry in inner.items()}


def test_every_constant_is_read_by_a_cost_model() -> None:
    """As ``fitted.<name>``, whatever the group is called there."""
    text = "\n".join(p.read_text() for folder in ("passes", "schedules") for p in (ROOT / folder).rglob("*.py"))
    read = {name for found in re.findall(r"fitted((?:\.\w+)+)", text) for name in found.split(".")}
    assert {name for _, name, _ in usual().constants()} <= read


def test_a_file_may_have_its_own(tmp_path: Path) -> None:
    own = "[target.fitted.kernels]\nlaunch = 3000\n[target.fitted.memory]\nothers = 1048576\n"
    target = resolve(_file(tmp_path, own))
    assert target.fitted.changed() == {"kernels": {"launch": 3000}, "memory": {"others": 1 << 20}}
    assert isinstance(target.fitted.kernels.launch, float)
    other = resolve(_file(tmp_path, ""))
    assert other.fitted == usual() and not other.fitted.changed()
    assert target != other and hash(target.fitted) != hash(other.fitted)
    assert replace(target, fitted=usual()) == other


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[target.fitted.kernel]\nlaunch = 3.0\n", r"target.fitted: unknown group 'kernel' \(known: memory, kernels"),
        ("[target.fitted.kernels]\nlunch = 3.0\n", r"target.fitted.kernels: unknown constant 'lunch' \(known: launch"),
        ("[target.fitted.kernels]\nlaunch = 0\n", "target.fitted.kernels.launch: 0 is not from 0"),
        ("[target.fitted.kernels]\nlaunch = nan\n", "target.fitted.kernels.launch: nan is not from 0"),
        ('[target.fitted.kernels]\nlaunch = "3"\n', "target.fitted.kernels.launch: expected float, got '3'"),
        ("[target.fitted.memory]\nstay = 1.5\n", "target.fitted.memory.stay: expected int, got 1.5"),
        ("[target.fitted.memory]\nbeyond = 0.5\n", "target.fitted.memory.beyond: 0.5 is no more than near_share, 0.7"),
        ("[target.fitted]\nkernels = 3\n", "target.fitted.kernels: expected a table"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_constant(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        resolve(_file(tmp_path, text))
    assert "mine.toml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_library_remembers_what_is_not_as_usual() -> None:
    usual = resolve("x86-64-v3")
    assert "fitted" not in target_facts(usual)
    own = replace(usual, fitted=usual.fitted.with_values({("winograd", "moved"): 2.5}))
    facts = target_facts(own)
    assert facts["fitted"] == {"winograd": {"moved": 2.5}}
    told: Mapping[str, Any] = {key: value for key, value in facts.items() if key != "id"}
    assert typed_target(told, "here", TargetError, id=own.id) == own


def test_constants_change_what_is_chosen_and_memos_tell_them_apart() -> None:
    """A load that takes ten times as long makes tiles with fewer of them."""
    from halotile.schedules.conv.register_tile import Space, choose_tile

    usual = resolve("x86-64-v4")
    slow = replace(usual, fitted=usual.fitted.with_values({("registers", "stream"): 40.0}))
    space = Space(56, 56, 4, 4)
    first, second = choose_tile(usual, space), choose_tile(slow, space)
    assert first.blocks > second.blocks == 1
    assert choose_tile(usual, space) == first
    assert {f.name for f in fields(Fitted)} == set(table())


def test_a_core_may_have_its_own() -> None:
    """Results of 8 MiB go past the caches on Zen 4 and 5: on this machine's target and on one that is spelt out."""
    for name, more in (("znver4", {}), ("znver5", {"unasked": 2.0})):
        core = facts.core(name)
        assert core.fitted.changed() == {"memory": {"past": 8 << 20}, "winograd": {"asked": 2.3, **more}}
        assert resolve(f"x86_64-linux-gnu+{name}").fitted == core.fitted
    assert facts.core("graniterapids").fitted == facts.core("no such core").fitted == usual()
    everything = tomllib.loads((ROOT / "targets" / "cores.toml").read_text(encoding="utf-8"))
    assert not [n for n, entry in everything.items() if checked_constants(entry.get("fitted"))]
